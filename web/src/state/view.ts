// What span of the trace is looked at. Everything that moves the view goes through here, so it never
// leaves the trace, and so that following a recording ends as soon as a person moves it.
import { atom, derived } from "../lib/atom";
import { shifted, withinTrace, zoomed } from "../lib/scale";
import { type TraceNs, type TraceRange, rangeOf, sameRange, spanOf, traceNs } from "../lib/units";
import { hover } from "./pointer";
import { duration, trace, wholeRange } from "./trace";

const range = atom<TraceRange | null>(null);

/** The span on the screen; the whole trace until somebody moves it. */
export const viewRange = derived([range, wholeRange, duration], (chosen, whole, length) =>
  withinTrace(chosen ?? whole, length),
);

export const isWhole = derived([range], (chosen) => chosen === null);

/** Whether the view keeps up with a trace that is still being recorded. */
export const following = atom(true);

export function setView(next: TraceRange): void {
  const within = withinTrace(next, duration.get());
  if (!sameRange(within, viewRange.get())) {
    following.set(false);
    moveTo(within);
  }
}

export function showWhole(): void {
  moveTo(null);
}

/** What was under the pointer is there no longer. */
function moveTo(next: TraceRange | null): void {
  hover.set(null);
  range.set(next);
}

export function zoomAround(fixed: TraceNs, factor: number): void {
  setView(zoomed(viewRange.get(), fixed, factor));
}

export function panBy(ns: number): void {
  setView(shifted(viewRange.get(), ns));
}

/** Shows `target` with air around it: the target takes `share` of the width. */
export function fitView(target: TraceRange, share = 0.6): void {
  const air = (spanOf(target) / share - spanOf(target)) / 2;
  setView(rangeOf(target.from - air, target.to + air));
}

/** Moves the view, as little as needed, so that `target` can be seen. */
export function reveal(target: TraceRange): void {
  const seen = viewRange.get();
  const width = spanOf(seen);
  if (spanOf(target) > width * 0.9 || spanOf(target) < width / 400) {
    fitView(target);
  } else if (target.from < seen.from || target.to > seen.to) {
    const middle = (target.from + target.to) / 2;
    setView(rangeOf(middle - width / 2, middle + width / 2));
  }
}

/** As the trace grows, the newest part stays in view while `following`. */
export function keepUp(): () => void {
  let known = duration.get();
  return trace.watch(() => {
    const grown = duration.get() - known;
    known = duration.get();
    const chosen = range.get();
    if (grown > 0 && chosen !== null && following.get()) {
      range.set(rangeOf(chosen.from + grown, traceNs(chosen.to + grown)));
    }
  });
}

/** Looks at the newest part again. */
export function followNewest(): void {
  const width = spanOf(viewRange.get());
  const end = duration.get();
  if (range.get() !== null) range.set(withinTrace(rangeOf(end - width, end), end));
  following.set(true);
}
