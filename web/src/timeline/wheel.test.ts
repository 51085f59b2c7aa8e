import { expect, it } from "vitest";
import { turnOf } from "./wheel";

const NONE = {
  deltaX: 0,
  deltaY: 0,
  deltaMode: 0,
  ctrlKey: false,
  metaKey: false,
  shiftKey: false,
};

/** Somebody who scrolls a list of threads must not lose the place in time. */
it("a plain turn scrolls lanes, if there are more than fit", () => {
  expect(turnOf({ ...NONE, deltaY: 100 }, true)).toEqual({ kind: "scroll" });
  expect(turnOf({ ...NONE, deltaY: 100 }, false).kind).toBe("zoom");
});

it("Ctrl zooms: towards is in, away is out, and back again is where it was", () => {
  const turn = (deltaY: number): number => {
    const found = turnOf({ ...NONE, deltaY, ctrlKey: true }, true);
    return found.kind === "zoom" ? found.factor : NaN;
  };
  expect(turn(-120)).toBeLessThan(1);
  expect(turn(120) * turn(-120)).toBeCloseTo(1);
  // A wheel that spins freely must not jump through the trace.
  expect(turn(5000)).toBeLessThan(2);
});

it("sideways and Shift pan", () => {
  expect(turnOf({ ...NONE, deltaX: 30, deltaY: 4 }, true)).toEqual({ kind: "pan", px: 30 });
  expect(turnOf({ ...NONE, deltaY: 50, shiftKey: true }, true)).toEqual({ kind: "pan", px: 50 });
  expect(turnOf({ ...NONE, deltaX: 3, deltaMode: 1 }, true)).toEqual({ kind: "pan", px: 60 });
});
