// Over the lanes: their order, which of them, and what range is looked at or measured.
import { useRef } from "preact/hooks";
import { counted, lengthOf, momentAt } from "../lib/format";
import { useAtom } from "../lib/use-atom";
import { LANE_SORTS, aliveIn, laneFilter, laneSort, showOutOfScope } from "../state/filter";
import { chainOverlay, criticalOverlay } from "../state/overlay";
import { selectedRange } from "../state/selection";
import { threads, trace } from "../state/trace";
import { fitView, isWhole, showWhole, viewRange, zoomAround } from "../state/view";
import { rangeOf, spanOf, traceNs } from "../lib/units";

export function TimelineTools() {
  return (
    <div class="timeline-tools">
      <Order />
      <Filter />
      <Alive />
      <Others />
      <Gaps />
      <span class="spring" />
      <Overlays />
      <Measure />
      <Zoom />
    </div>
  );
}

function Order() {
  const sort = useAtom(laneSort);
  return (
    <label class="tool">
      <span class="muted">Order</span>
      <select
        value={sort}
        onChange={({ currentTarget }) => {
          const next = LANE_SORTS.find((one) => one === currentTarget.value);
          if (next !== undefined) laneSort.set(next);
        }}
      >
        {LANE_SORTS.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
}

function Filter() {
  const words = useAtom(laneFilter);
  return (
    <input
      type="search"
      class="lane-filter"
      aria-label="Only threads whose name, tid or pid contains"
      placeholder="Only threads like …"
      value={words}
      onInput={({ currentTarget }) => laneFilter.set(currentTarget.value)}
    />
  );
}

/** Threads come and go: those that lived in the visible range, and no others. */
function Alive() {
  const only = useAtom(aliveIn) !== null;
  return (
    <button
      type="button"
      class="button"
      aria-pressed={only}
      title="Only threads that lived in the range that is visible now"
      onClick={() => aliveIn.set(only ? null : viewRange.get())}
    >
      Alive here
    </button>
  );
}

/** Threads that were not asked for are many and say little: they are shown on request. */
function Others() {
  const shown = useAtom(showOutOfScope);
  const others = useAtom(threads)?.in_scope.filter((is) => !is).length ?? 0;
  if (others === 0) return null;
  return (
    <button
      type="button"
      class="button"
      aria-pressed={shown}
      title="Threads that were not recorded for their own sake, but had the CPU while others waited"
      onClick={() => showOutOfScope.set(!shown)}
    >
      {others} others
    </button>
  );
}

/** Where something was lost: one gap after the other. */
function Gaps() {
  const gaps = useAtom(trace)?.gaps ?? [];
  const next = useRef(0);
  if (gaps.length === 0) return null;
  const show = (): void => {
    const gap = gaps[next.current % gaps.length];
    next.current += 1;
    if (gap !== undefined) fitView(rangeOf(gap.from_ns, gap.to_ns), 0.3);
  };
  const lost = gaps.reduce((sum, gap) => sum + gap.lost, 0);
  return (
    <button
      type="button"
      class="button"
      title={`${counted(lost, "record")} lost; hatched on the CPUs. Shows one after the other.`}
      onClick={show}
    >
      {counted(gaps.length, "gap")}
    </button>
  );
}

function Overlays() {
  const chain = useAtom(chainOverlay);
  const critical = useAtom(criticalOverlay);
  if (chain === null && critical === null) return null;
  const clear = (): void => {
    chainOverlay.set(null);
    criticalOverlay.set(null);
  };
  const what = critical !== null ? "critical path" : "wake chain";
  return (
    <button type="button" class="button" onClick={clear}>
      × {what}
    </button>
  );
}

function Measure() {
  const range = useAtom(selectedRange);
  const view = useAtom(viewRange);
  if (range === null) {
    return <span class="muted measure">visible {lengthOf(spanOf(view))}</span>;
  }
  const step = Math.max(1, spanOf(range) / 100);
  return (
    <span class="measure">
      <button type="button" class="button" title="f" onClick={() => fitView(range, 0.9)}>
        selected <strong>{lengthOf(spanOf(range))}</strong> from {momentAt(range.from, step)}
      </button>
      <button
        type="button"
        class="button quiet icon-button"
        aria-label="Clear the selected range"
        onClick={() => selectedRange.set(null)}
      >
        ×
      </button>
    </span>
  );
}

function Zoom() {
  const whole = useAtom(isWhole);
  const zoom = (factor: number): void => {
    const { from, to } = viewRange.get();
    zoomAround(traceNs((from + to) / 2), factor);
  };
  return (
    <span class="zoom" role="group" aria-label="Zoom">
      <button
        type="button"
        class="button icon-button"
        aria-label="Zoom out"
        onClick={() => zoom(2)}
      >
        −
      </button>
      <button
        type="button"
        class="button icon-button"
        aria-label="Zoom in"
        onClick={() => zoom(0.5)}
      >
        +
      </button>
      <button type="button" class="button" disabled={whole} onClick={showWhole}>
        Whole
      </button>
    </span>
  );
}
