// A histogram of lengths over a logarithmic axis: each bucket as wide as it is on that axis, so
// that a microsecond and a second have room beside each other.
import type { Distribution } from "../../api/types";

/** A bucket's bar, in shares of the whole width and height. */
export interface BucketBar {
  readonly x: number;
  readonly width: number;
  readonly height: number;
  readonly from_ns: number;
  readonly to_ns: number;
  readonly count: number;
}

/** A mark on the axis. */
export interface Mark {
  readonly x: number;
  readonly ns: number;
}

export interface Histogram {
  readonly bars: readonly BucketBar[];
  /** Powers of ten. */
  readonly ticks: readonly Mark[];
  readonly percentiles: readonly (Mark & { readonly name: string })[];
  readonly most: number;
}

/** The shortest length that has a place: a logarithm has no zero. */
const SHORTEST_NS = 1;

export function histogramOf(distribution: Distribution): Histogram {
  const buckets = distribution.buckets.filter((bucket) => bucket.count > 0);
  const most = buckets.reduce((highest, bucket) => Math.max(highest, bucket.count), 0);
  const shortest = Math.min(...buckets.map((bucket) => Math.max(bucket.from_ns, SHORTEST_NS)));
  const longest = Math.max(...buckets.map((bucket) => bucket.to_ns));
  if (buckets.length === 0) return { bars: [], ticks: [], percentiles: [], most: 0 };

  // Whole powers of ten at both ends: the axis does not twitch while a person pans.
  const first = Math.floor(Math.log10(shortest));
  const last = Math.max(Math.ceil(Math.log10(longest)), first + 1);
  const placeOf = (ns: number): number =>
    (Math.log10(Math.max(ns, SHORTEST_NS)) - first) / (last - first);
  const bars = buckets.map(({ from_ns, to_ns, count }) => {
    const x = placeOf(from_ns);
    return { x, width: placeOf(to_ns) - x, height: count / most, from_ns, to_ns, count };
  });
  const ticks: Mark[] = [];
  for (let power = first; power <= last; power += 1) {
    ticks.push({ x: placeOf(10 ** power), ns: 10 ** power });
  }
  const named = [
    { name: "p50", ns: distribution.p50_ns },
    { name: "p90", ns: distribution.p90_ns },
    { name: "p99", ns: distribution.p99_ns },
  ];
  const percentiles = named.flatMap(({ name, ns }) =>
    ns === null ? [] : [{ name, ns, x: placeOf(ns) }],
  );
  return { bars, ticks, percentiles, most };
}
