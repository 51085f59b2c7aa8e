// What lanes are drawn with, each with its sample: in the legend's menu, and in the help.
import type { ComponentChildren } from "preact";
import { useAtom } from "../lib/use-atom";
import { trace } from "../state/trace";
import { grouped } from "../lib/format";
import { MOST_SPANS } from "../timeline/spans";

export function LaneKey() {
  const known = useAtom(trace);
  const hasEveryTask = known?.every_task ?? true;
  const hasSpans = known?.has_spans ?? false;
  return (
    <dl class="lane-key">
      <Sample kind="running">On the lane of a thread: it has a CPU.</Sample>
      <Sample kind="shade-one shade-two shade-three">
        On the lane of a CPU: one of three shades for each process, so that neighbours can be told
        apart. They mean nothing else, and processes share them.
      </Sample>
      <Sample kind="selected">On the lane of a CPU: the thread that is selected.</Sample>
      <Sample kind="hatched">
        In the run queue: it could run, and something else had the CPU. The colour says why it had
        left.
      </Sample>
      <Sample kind="low">Blocked: the colour says on what.</Sample>
      <Sample kind="pale">
        One of the two: its wakeup was not seen, so from when on it could run is not known.
      </Sample>
      <Sample kind="outside">The thread had not started yet, or had ended.</Sample>
      <Sample kind={hasEveryTask ? "blank" : "dotted"}>
        {hasEveryTask
          ? "The CPU was idle."
          : "The CPU was idle, or others had it whom nobody recorded: the recording is not of the whole machine."}
      </Sample>
      {hasSpans && (
        <Sample kind="bracket">
          A span of this thread, from begin to end: of the {grouped(MOST_SPANS)} slowest.
        </Sample>
      )}
      <Sample kind="gap">Records were lost here.</Sample>
    </dl>
  );
}

function Sample({
  kind,
  children,
}: {
  /** Classes of the style sheet, one a swatch. */
  readonly kind: string;
  readonly children: ComponentChildren;
}) {
  return (
    <>
      <dt aria-hidden="true">
        {kind.split(" ").map((one) => (
          <span key={one} class={`sample ${one}`} />
        ))}
      </dt>
      <dd>{children}</dd>
    </>
  );
}
