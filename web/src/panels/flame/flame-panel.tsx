// Off-CPU time by stack: process, frames from the outermost on, and at the end why it blocked.
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import { useAtom } from "../../lib/use-atom";
import { trace } from "../../state/trace";
import { Answered, inCode, RangeLine } from "../answered";
import { ReasonChoice } from "../reason-choice";
import { useRangeAnswer } from "../use-answer";
import { FlameGraph } from "./flame-graph";

export function FlamePanel() {
  const [reason, setReason] = useState<string | null>(null);
  const [words, setWords] = useState("");
  const hasStacks = useAtom(trace)?.has_stacks ?? true;
  const answer = useRangeAnswer(`flame ${reason ?? "all"}`, (range, signal) =>
    api.flame(range, reason === null ? {} : { reason }, signal),
  );
  return (
    <section class="panel" aria-label="Off-CPU flame graph">
      <RangeLine answer={answer}>
        <ReasonChoice chosen={reason} onChoose={setReason} />
        <label>
          Find{" "}
          <input
            type="search"
            value={words}
            placeholder="function or module"
            spellcheck={false}
            onInput={(event) => setWords(event.currentTarget.value)}
          />
        </label>
      </RangeLine>
      {!hasStacks && (
        <p class="muted">
          {inCode(
            "This trace has no stacks: `swtch record --stacks` takes them. Below are only processes and reasons.",
          )}
        </p>
      )}
      <Answered answer={answer}>
        {({ value }) =>
          value.ns === 0 ? (
            <p class="muted">Nothing blocked in this range.</p>
          ) : (
            <FlameGraph root={value} words={words} />
          )
        }
      </Answered>
    </section>
  );
}
