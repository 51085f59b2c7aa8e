// Off-CPU time by stack: program, frames from the outermost on, and at the end why it blocked. How the
// kernel puts a thread to sleep is the same for most waits, and left out unless it is asked for.
import { useMemo, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Flame } from "../../api/types";
import { useAtom } from "../../lib/use-atom";
import { trace } from "../../state/trace";
import { Answered, inCode, RangeLine } from "../answered";
import { ReasonChoice } from "../reason-choice";
import { useRangeAnswer } from "../use-answer";
import { FlameGraph } from "./flame-graph";
import { withoutKernel } from "./layout";

export function FlamePanel() {
  const [reason, setReason] = useState<string | null>(null);
  const [words, setWords] = useState("");
  const [hasKernel, setHasKernel] = useState(false);
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
        <label>
          <input
            type="checkbox"
            checked={hasKernel}
            onChange={(event) => setHasKernel(event.currentTarget.checked)}
          />{" "}
          Kernel functions
        </label>
      </RangeLine>
      {!hasStacks && (
        <p class="muted">
          {inCode(
            "This trace has no stacks: `swtch record` as root reads them. Below are only programs and reasons.",
          )}
        </p>
      )}
      <Answered answer={answer}>
        {({ value }) =>
          value.ns === 0 ? (
            <p class="muted">Nothing blocked in this range.</p>
          ) : (
            <Flames all={value} hasKernel={hasKernel} words={words} />
          )
        }
      </Answered>
    </section>
  );
}

interface FlamesProps {
  readonly all: Flame;
  readonly hasKernel: boolean;
  readonly words: string;
}

function Flames({ all, hasKernel, words }: FlamesProps) {
  const root = useMemo(() => (hasKernel ? all : withoutKernel(all)), [all, hasKernel]);
  return <FlameGraph root={root} words={words} />;
}
