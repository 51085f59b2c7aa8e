// Numbers that must not mix. A moment of the trace is not a place on the screen, though both are
// numbers: the brand makes the compiler say so, and costs nothing when the page runs.

/** A moment, or a length of time, in ns. Moments count from the start of the trace. A double holds them exactly up to 104 days. */
export type TraceNs = number & { readonly __unit: "trace ns" };

/** A length on the screen, in pixels of the style sheet. */
export type CssPx = number & { readonly __unit: "css px" };

export const traceNs = (ns: number): TraceNs => ns as TraceNs;
export const cssPx = (px: number): CssPx => px as CssPx;

/** A span of the trace, `from` before `to`. */
export interface TraceRange {
  readonly from: TraceNs;
  readonly to: TraceNs;
}

export function rangeOf(from: number, to: number): TraceRange {
  return from <= to
    ? { from: traceNs(from), to: traceNs(to) }
    : { from: traceNs(to), to: traceNs(from) };
}

export const spanOf = (range: TraceRange): TraceNs => traceNs(range.to - range.from);

export const sameRange = (a: TraceRange | null, b: TraceRange | null): boolean =>
  a === b || (a !== null && b !== null && a.from === b.from && a.to === b.to);

/** Whether two spans have a moment in common. */
export const overlap = (a: TraceRange, b: TraceRange): boolean => a.from < b.to && b.from < a.to;
