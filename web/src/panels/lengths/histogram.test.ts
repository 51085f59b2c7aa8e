import { expect, test } from "vitest";
import { histogramOf } from "./histogram";

const empty = {
  of: "ran",
  count: 0,
  sum_ns: 0,
  min_ns: null,
  max_ns: null,
  p50_ns: null,
  p90_ns: null,
  p99_ns: null,
  buckets: [],
};

/** Ten times as long is always as far away. */
test("buckets stand where their logarithm is", () => {
  const drawn = histogramOf({
    ...empty,
    count: 30,
    p50_ns: 1000,
    buckets: [
      { from_ns: 100, to_ns: 1000, count: 10 },
      { from_ns: 1000, to_ns: 10_000, count: 20 },
    ],
  });
  expect(drawn.bars.map((bar) => [bar.x, bar.width, bar.height])).toEqual([
    [0, 0.5, 0.5],
    [0.5, 0.5, 1],
  ]);
  expect(drawn.ticks.map((tick) => tick.ns)).toEqual([100, 1000, 10_000]);
  expect(drawn.percentiles).toEqual([{ name: "p50", ns: 1000, x: 0.5 }]);
});

/** A wait of 0 ns exists (woken before it slept), and log 0 does not. */
test("lengths of zero stand at the left end", () => {
  const drawn = histogramOf({ ...empty, buckets: [{ from_ns: 0, to_ns: 10, count: 3 }] });
  expect(drawn.bars[0]).toMatchObject({ x: 0, width: 1 });
});

test("nothing to count draws nothing", () => {
  expect(histogramOf(empty).bars).toEqual([]);
});
