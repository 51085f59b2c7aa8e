// Pointer and wheel over the strips above the lanes: the ruler and the minimap.
import { nsPerPx, toMoment } from "../lib/scale";
import { type TraceNs, cssPx, rangeOf, traceNs } from "../lib/units";
import { selectedRange } from "../state/selection";
import { wholeRange } from "../state/trace";
import { panBy, setView, viewRange, zoomAround } from "../state/view";
import type { Timeline } from "./timeline";
import { turnOf } from "./wheel";

/** A range narrower than this is a click. */
const CLICK_PX = 4;

interface Strip {
  /** The moment at a place, in px from the left edge of the strip, which is `width` wide. */
  momentAt(x: number, width: number): TraceNs;
  /** Pressed; what it returns is called with the moment as the pointer moves, until it is let go. */
  grip(moment: TraceNs): (moment: TraceNs) => void;
}

/** The ruler: dragging selects a range, a click clears it, the wheel zooms. */
export function attachRuler(timeline: Timeline, ruler: HTMLElement): () => void {
  return attach(timeline, ruler, {
    momentAt: (x) => toMoment(timeline.scale, cssPx(x)),
    grip: (anchor) => {
      selectedRange.set(null);
      return (moment) => {
        const range = rangeOf(anchor, moment);
        if ((range.to - range.from) / nsPerPx(timeline.scale) >= CLICK_PX) selectedRange.set(range);
      };
    },
  });
}

/** The minimap: dragging moves the window over the trace, a click brings it there, the wheel zooms. */
export function attachMinimap(timeline: Timeline, minimap: HTMLElement): () => void {
  const moveTo = (from: number): void => {
    const { from: was, to } = viewRange.get();
    setView(rangeOf(from, from + to - was));
  };
  return attach(timeline, minimap, {
    momentAt: (x, width) => traceNs((x / Math.max(1, width)) * wholeRange.get().to),
    grip: (pressed) => {
      const { from, to } = viewRange.get();
      const isInside = from <= pressed && pressed <= to;
      const offset = isInside ? pressed - from : (to - from) / 2;
      if (!isInside) moveTo(pressed - offset);
      return (moment) => moveTo(moment - offset);
    },
  });
}

function attach(timeline: Timeline, element: HTMLElement, strip: Strip): () => void {
  let moved: ((moment: TraceNs) => void) | null = null;
  const momentOf = (event: MouseEvent): TraceNs => {
    const box = element.getBoundingClientRect();
    return strip.momentAt(event.clientX - box.left, box.width);
  };
  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    moved = strip.grip(momentOf(event));
  };
  const move = (event: PointerEvent): void => moved?.(momentOf(event));
  const up = (): void => {
    moved = null;
  };
  const wheel = (event: WheelEvent): void => {
    event.preventDefault();
    const turn = turnOf(event, false);
    if (turn.kind === "zoom") zoomAround(momentOf(event), turn.factor);
    else if (turn.kind === "pan") panBy(turn.px * nsPerPx(timeline.scale));
  };
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("wheel", wheel);
  };
}
