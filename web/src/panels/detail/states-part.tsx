// What the thread did in the range in question, in a sentence: how much it ran, waited for a CPU, was blocked.
import * as api from "../../api/client";
import type { ReasonInfo, States, Thread } from "../../api/types";
import { lengthOf } from "../../lib/format";
import { spanOf } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { reasons } from "../../state/trace";
import { stateWords } from "../../timeline/words";
import { Answered, rangeWords } from "../answered";
import { useRangeAnswer } from "../use-answer";

/** States below this share of the time are not named. */
const LEAST = 0.01;

/** `Of 458 ms: 61 % blocked: poll, 22 % blocked: io, 10 % running, 7 % not known.` */
export function sumWords(
  times: States["by_state"],
  whole: number,
  known: readonly ReasonInfo[],
): string {
  const percent = (ns: number): string => `${Math.round((ns * 100) / Math.max(whole, 1))}\u00a0%`;
  const isNamed = (ns: number): boolean => ns / Math.max(whole, 1) >= LEAST;
  const parts = times
    .filter(({ ns }) => isNamed(ns))
    .map(({ state, ns }) => `${percent(ns)} ${stateWords(state, { reasons: known })}`);
  const rest = whole - times.reduce((sum, { ns }) => sum + ns, 0);
  if (isNamed(rest)) parts.push(`${percent(rest)} not known or not alive`);
  return `Of ${lengthOf(whole)}: ${parts.join(", ")}.`;
}

export function StatesPart({ thread }: { readonly thread: Thread }) {
  const known = useAtom(reasons);
  const answer = useRangeAnswer(`states ${thread.task}`, (range, signal) =>
    api.states(thread.task, range, signal),
  );
  return (
    <section class="detail-part" aria-label="What the thread did">
      <Answered answer={answer}>
        {({ about, value }) => (
          <>
            <h4>In the {rangeWords(about)}</h4>
            <p>{sumWords(value.by_state, spanOf(about.range), known)}</p>
          </>
        )}
      </Answered>
    </section>
  );
}
