// Counts per bin by reason, stacked: who stands on whom, how high, and what the axis says.
import type { Rate, ReasonInfo } from "../../api/types";
import type { TraceRange } from "../../lib/units";

/** One reason's band: from `lower` to `upper` switches in each bin. */
export interface Band {
  readonly reason: ReasonInfo;
  readonly counts: readonly number[];
  readonly lower: readonly number[];
  readonly upper: readonly number[];
}

export interface Stack {
  /** What the bins cut. */
  readonly range: TraceRange;
  readonly bands: readonly Band[];
  readonly bins: number;
  readonly binNs: number;
  /** Switches in the fullest bin. */
  readonly most: number;
  /** Switches in all bins. */
  readonly total: number;
}

/** Bands of the reasons that are shown, in the order of the closed list: a category stays together. */
export function stackOf(
  rate: Rate,
  range: TraceRange,
  reasons: readonly ReasonInfo[],
  isShown: (id: number) => boolean,
): Stack {
  const counts = new Map(rate.reasons.map((one) => [one.id, one.counts]));
  const bands: Band[] = [];
  let top: readonly number[] = new Array<number>(rate.bins).fill(0);
  let total = 0;
  for (const reason of reasons) {
    const own = counts.get(reason.id);
    if (own === undefined || !isShown(reason.id)) continue;
    const lower = top;
    const upper = lower.map((height, bin) => height + (own[bin] ?? 0));
    bands.push({ reason, counts: own, lower, upper });
    total += own.reduce((sum, count) => sum + count, 0);
    top = upper;
  }
  const most = top.reduce((highest, height) => Math.max(highest, height), 0);
  return { range, bands, bins: rate.bins, binNs: rate.bin_ns, most, total };
}

/** The bin of a moment; `null` outside of them. */
export function binAt({ range, bins, binNs }: Stack, moment: number): number | null {
  const bin = Math.floor((moment - range.from) / Math.max(binNs, Number.MIN_VALUE));
  return bin >= 0 && bin < bins ? bin : null;
}

/** So many switches of one bin, per second. */
export const perSecond = (count: number, binNs: number): number =>
  binNs > 0 ? (count * 1e9) / binNs : 0;

/** Round marks of an axis from 0 to `top`, about as many as asked for. */
export function marksUpTo(top: number, about: number): number[] {
  if (!(top > 0)) return [0];
  const least = top / Math.max(about, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10);
  const marks: number[] = [];
  for (let place = 0; place * step <= top * 1.0001; place += 1) marks.push(place * step);
  return marks;
}

/** A rate with at most three digits: `870`, `12.3k`, `1.25M`. */
export function rateText(rate: number): string {
  const size = Math.abs(rate);
  if (size < 1e3) return String(Number(rate.toPrecision(size < 10 ? 2 : 3)));
  const [value, unit] = size < 1e6 ? [rate / 1e3, "k"] : [rate / 1e6, "M"];
  return `${Number(value.toPrecision(3))}${unit}`;
}
