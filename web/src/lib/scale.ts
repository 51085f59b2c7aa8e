// From time to place and back, and what may be looked at.
import { type CssPx, type TraceNs, type TraceRange, cssPx, rangeOf, traceNs } from "./units";

/** What one view shows: a span of the trace across so many pixels. */
export interface TimeScale {
  readonly range: TraceRange;
  readonly width: CssPx;
}

export const nsPerPx = ({ range, width }: TimeScale): number =>
  (range.to - range.from) / Math.max(1, width);

export const toPx = (scale: TimeScale, moment: TraceNs): CssPx =>
  cssPx((moment - scale.range.from) / nsPerPx(scale));

export const toMoment = (scale: TimeScale, x: CssPx): TraceNs =>
  traceNs(scale.range.from + x * nsPerPx(scale));

/** The narrowest view: a pixel is then a fraction of a nanosecond, and nothing more can be seen. */
const NARROWEST_NS = 100;

/**
 * The nearest range that may be looked at: inside the trace but for a little air at both ends, and
 * neither wider than that nor narrower than what can be told apart.
 */
export function withinTrace(range: TraceRange, duration: TraceNs): TraceRange {
  const whole = Math.max(duration, NARROWEST_NS);
  const air = whole * 0.02;
  const widest = whole + 2 * air;
  const span = Math.min(Math.max(range.to - range.from, NARROWEST_NS), widest);
  const middle = (range.from + range.to) / 2;
  const from = Math.min(Math.max(middle - span / 2, -air), whole + air - span);
  return rangeOf(from, from + span);
}

/** The range made `factor` times as wide, `fixed` staying where it is. */
export function zoomed(range: TraceRange, fixed: TraceNs, factor: number): TraceRange {
  return rangeOf(fixed - (fixed - range.from) * factor, fixed + (range.to - fixed) * factor);
}

export const shifted = (range: TraceRange, by: number): TraceRange =>
  rangeOf(range.from + by, range.to + by);

const SECOND = 1e9;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** Above a minute moments are clocks, and clocks are divided by sixty. */
const CLOCK_STEPS = [
  ...[1, 2, 5, 10, 20, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * HOUR),
];

/** Distance between ticks of a ruler, not less than `least`: 1, 2 or 5 times a power of ten, or a clock's. */
export function tickDistance(least: number): TraceNs {
  if (least > 20 * SECOND) {
    const step = least <= 30 * SECOND ? 30 * SECOND : CLOCK_STEPS.find((one) => one >= least);
    if (step !== undefined) return traceNs(step);
  }
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-3)));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10;
  return traceNs(Math.max(step * power, 1));
}
