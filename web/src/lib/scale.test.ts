import { describe, expect, it } from "vitest";
import { shifted, tickDistance, toMoment, toPx, withinTrace, zoomed } from "./scale";
import { cssPx, rangeOf, spanOf, traceNs } from "./units";

const SECOND = traceNs(1e9);

describe("a view", () => {
  it("reaches beyond the trace by a fiftieth of it at most", () => {
    expect(withinTrace(rangeOf(-5e9, 9e9), SECOND)).toEqual(rangeOf(-2e7, 1.02e9));
    const beyond = withinTrace(rangeOf(5e9, 5.1e9), SECOND);
    expect(beyond.to).toBeCloseTo(1.02e9);
    expect(spanOf(beyond)).toBeCloseTo(1e8);
  });

  /** Moments of a day go up to 8.64e13 ns. Doubles hold whole ns up to 9e15, so no zoom may be lost to rounding. */
  it("of a day can be zoomed to a hundred nanoseconds", () => {
    const day = traceNs(86_400e9);
    let view = rangeOf(0, day);
    for (let turn = 0; turn < 200; turn++) {
      view = withinTrace(zoomed(view, traceNs(43_200e9 + 17), 0.7), day);
    }
    expect(spanOf(view)).toBeCloseTo(100, 0);
    expect(Math.abs(view.from - 43_200e9)).toBeLessThan(200);
  });

  it("is shifted without a change of its width", () => {
    expect(shifted(rangeOf(1e6, 9e6), -2e6)).toEqual(rangeOf(-1e6, 7e6));
  });

  it("of an empty trace has a width", () => {
    expect(spanOf(withinTrace(rangeOf(0, 0), traceNs(0)))).toBeGreaterThan(0);
  });

  it("keeps the moment under the pointer while it zooms", () => {
    const scale = { range: rangeOf(1e6, 9e6), width: cssPx(800) };
    const moment = toMoment(scale, cssPx(200));
    const closer = { range: zoomed(scale.range, moment, 0.5), width: scale.width };
    expect(toPx(closer, moment)).toBeCloseTo(200);
  });
});

it("ticks stand at 1, 2 and 5", () => {
  expect([0.3, 1, 3, 7, 12, 480, 51_000].map(tickDistance)).toEqual([
    1, 1, 5, 10, 20, 500, 100_000,
  ]);
});

/** Steps of half a minute and more are shown as on a clock, where a step of 20,000 s would be one of 5:33:20. */
it("ticks from half a minute on stand at full minutes and hours", () => {
  expect([20e9, 20.1e9].map(tickDistance)).toEqual([20e9, 30e9]);
  expect([25e9, 40e9, 150e9, 1_000e9, 5_000e9, 80_000e9].map(tickDistance)).toEqual([
    30e9, 60e9, 300e9, 1_200e9, 7_200e9, 86_400e9,
  ]);
});
