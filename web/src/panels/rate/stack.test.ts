import { expect, test } from "vitest";
import type { ReasonInfo } from "../../api/types";
import { rangeOf } from "../../lib/units";
import { binAt, marksUpTo, perSecond, rateText, stackOf } from "./stack";

const reasons: ReasonInfo[] = [
  { id: 0, reason: "slice", category: "preemption", help: "" },
  { id: 7, reason: "futex", category: "synchronization", help: "" },
];
const RANGE = rangeOf(5e6, 8e6);
const rate = {
  bin_ns: 1e6,
  bins: 3,
  reasons: [
    { id: 7, counts: [1, 2, 0] },
    { id: 0, counts: [4, 0, 1] },
  ],
};

/** The order of bands is that of the closed list, whatever the server began with. */
test("bands stand on each other and the highest pile is the axis", () => {
  const stack = stackOf(rate, RANGE, reasons, () => true);
  expect(stack.bands.map((band) => [band.reason.reason, band.lower, band.upper])).toEqual([
    ["slice", [0, 0, 0], [4, 0, 1]],
    ["futex", [4, 0, 1], [5, 2, 1]],
  ]);
  expect([stack.most, stack.total]).toEqual([5, 8]);
});

/** A reason that the legend switched off takes no height. */
test("hidden reasons are not in the pile", () => {
  const stack = stackOf(rate, RANGE, reasons, (id) => id !== 0);
  expect([stack.most, stack.total, stack.bands.length]).toEqual([2, 3, 1]);
});

test("an empty trace has an axis, too", () => {
  const stack = stackOf({ bin_ns: 0, bins: 0, reasons: [] }, rangeOf(0, 0), reasons, () => true);
  expect([stack.most, perSecond(0, 0), marksUpTo(stack.most, 4)]).toEqual([0, 0, [0]]);
});

/** The view may reach beyond the trace, and moves on while the answer is of an earlier one. */
test("a moment outside of the bins has no bin", () => {
  const stack = stackOf(rate, RANGE, reasons, () => true);
  const bins = [4.9e6, 5e6, 6.5e6, 7.99e6, 8e6].map((moment) => binAt(stack, moment));
  expect(bins).toEqual([null, 0, 1, 2, null]);
});

test("marks are round and rates short", () => {
  expect(marksUpTo(870, 4)).toEqual([0, 500]);
  expect(marksUpTo(1000, 4)).toEqual([0, 500, 1000]);
  expect([0, 0.25, 2, 87.4, 870, 12_345, 1_250_000].map(rateText)).toEqual([
    "0",
    "0.25",
    "2",
    "87.4",
    "870",
    "12.3k",
    "1.25M",
  ]);
});
