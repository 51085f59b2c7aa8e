// What stands out, in words: the verdict that `swtch explain` gives, about the range in question. From each
// cause a person comes to its switches, and to the longest wait that it brought.
import * as api from "../api/client";
import type { Explained, Finding } from "../api/types";
import { escaped } from "../lib/escape";
import { lengthOf } from "../lib/format";
import { rangeOf, spanOf } from "../lib/units";
import { onlyReasons } from "../state/filter";
import { showThread } from "../state/navigate";
import { reasons } from "../state/trace";
import { fitView } from "../state/view";
import { Answered, RangeLine } from "./answered";
import { useRangeAnswer } from "./use-answer";

export function VerdictPanel() {
  const answer = useRangeAnswer("verdict", (range, signal) => api.explained(range, signal));
  return (
    <section class="panel" aria-label="Verdict">
      <RangeLine answer={answer} />
      <Answered answer={answer}>{({ value }) => <Causes explained={value} />}</Answered>
    </section>
  );
}

function Causes({ explained }: { readonly explained: Explained }) {
  const { findings, without_findings: nothing } = explained;
  const causes = findings.filter((one) => one.number !== null);
  const besides = findings.filter((one) => one.number === null);
  return (
    <>
      {nothing !== null && <p>{escaped(nothing)}</p>}
      <ol class="causes">
        {causes.map((finding) => (
          <Cause key={finding.seen} finding={finding} />
        ))}
      </ol>
      {besides.length > 0 && (
        <p>What else it leaves the CPU for, by which no time is known to be lost:</p>
      )}
      <ul class="causes">
        {besides.map((finding) => (
          <Cause key={finding.seen} finding={finding} />
        ))}
      </ul>
    </>
  );
}

function Cause({ finding }: { readonly finding: Finding }) {
  const { seen, places, advice, advice_unless: unless, worth, reason, longest } = finding;
  const id = reasons.get().find((one) => one.reason === reason)?.id;
  return (
    <li>
      <p>{escaped(seen)}</p>
      {places.map((place) => (
        <p key={place} class="muted">
          {escaped(place)}
        </p>
      ))}
      {worth !== null && <p class="muted">costs: {escaped(worth.words)}</p>}
      {advice !== null && (
        <p>
          <b>To change it:</b> {escaped(advice)}
          {unless !== null && <span class="muted"> (unless {escaped(unless)})</span>}
        </p>
      )}
      <p class="cause-links">
        {id !== undefined && (
          <button type="button" class="button" onClick={() => onlyReasons([id])}>
            Show only {escaped(reason ?? "")}
          </button>
        )}
        {longest !== null && (
          <button type="button" class="button" onClick={() => showLongest(longest)}>
            Longest wait: {lengthOf(spanOf(rangeOf(longest.from_ns, longest.to_ns)))}
          </button>
        )}
      </p>
    </li>
  );
}

function showLongest({ task, from_ns, to_ns }: NonNullable<Finding["longest"]>): void {
  showThread(task);
  fitView(rangeOf(from_ns, to_ns));
}
