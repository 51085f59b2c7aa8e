// Who had the CPU while the task stood in the run queue. The parts sum to the whole: the server cuts
// the wait into them, here they are only drawn.
import type { Wait } from "../../api/types";
import { escaped } from "../../lib/escape";
import { lengthOf } from "../../lib/format";
import { ThreadLink } from "../names";

type Part = Wait["had_cpu"][number];

export function HadCpu({
  parts,
  whole,
}: {
  readonly parts: readonly Part[];
  readonly whole: number;
}) {
  const sorted = [...parts].sort((a, b) => b.ns - a.ns);
  return (
    <div class="had-cpu">
      <h4>Who had the CPU meanwhile</h4>
      {sorted.length === 0 && <p class="muted">not recorded</p>}
      <ul>
        {sorted.map((part, place) => (
          <li key={place}>
            <span class="had-cpu-bar" aria-hidden="true">
              <span
                data-what={part.what}
                style={{ width: `${(part.ns * 100) / Math.max(whole, 1)}%` }}
              />
            </span>
            <span class="had-cpu-who">
              {part.thread === null ? escaped(part.what) : <ThreadLink thread={part.thread} />}
            </span>
            <span class="had-cpu-ns">{lengthOf(part.ns)}</span>
          </li>
        ))}
      </ul>
      {sorted.length > 0 && (
        <p class="had-cpu-sum">
          <span>in the run queue</span> <span>{lengthOf(whole)}</span>
        </p>
      )}
    </div>
  );
}
