// What a person has chosen: a piece of a lane (a run, or the wait before it), a thread, a range.
import type { Level } from "../api/types";
import { atom, derived } from "../lib/atom";
import type { TraceRange } from "../lib/units";
import { wholeRange } from "./trace";
import { isWhole, viewRange } from "./view";

/** A piece is told by its row, and by which half of the row it is: the wait, or the run after it. */
export interface Piece {
  readonly row: number;
  readonly level: Level;
  /** Which part of the row was clicked; null when the row came from elsewhere (a link). */
  readonly part: "run" | "blocked" | "off" | "runq" | null;
  /** The lane it was chosen on, when there was one. */
  readonly lane: string | null;
  /** Where it lies, when that is known already. */
  readonly range: TraceRange | null;
}

/** The piece whose detail is shown. */
export const selectedPiece = atom<Piece | null>(null);

/** The thread whose lane and runs stand out. */
export const selectedTask = atom<number | null>(null);

/** The range that is measured. */
export const selectedRange = atom<TraceRange | null>(null);

export interface RangeInQuestion {
  readonly range: TraceRange;
  /** Why this range: as words of a sentence. */
  readonly which: "selected range" | "visible range" | "whole trace";
}

/** What of the trace is on the screen. */
export const visibleRange = derived(
  [isWhole, viewRange, wholeRange],
  (whole, visible, all): RangeInQuestion => {
    if (whole) return { range: all, which: "whole trace" };
    const from = Math.max(visible.from, all.from);
    const to = Math.min(visible.to, all.to);
    return {
      range: { from: from as TraceRange["from"], to: Math.max(from, to) as TraceRange["to"] },
      which: "visible range",
    };
  },
);

/** What panels are about: the selected range, else what is visible. */
export const rangeInQuestion = derived(
  [selectedRange, visibleRange],
  (selected, visible): RangeInQuestion =>
    selected === null ? visible : { range: selected, which: "selected range" },
);

export function clearSelection(): void {
  selectedPiece.set(null);
  selectedRange.set(null);
}
