import { describe, expect, it } from "vitest";
import { rangeOf } from "../lib/units";
import { type GroundSource, groundWords, lifeOf, restOfCpu } from "./ground";

const source = (more: Partial<NonNullable<GroundSource["trace"]>> = {}): GroundSource => ({
  trace: {
    scope: "command sh\u{1b}[31m",
    every_task: false,
    cpus: [{ cpu: 0, node: null, core: null, switches: 9, first_ns: 1e6, last_ns: 9e6 }],
    ...more,
  },
  threads: {
    first_ns: [3e6, 0, 3e6],
    last_ns: [7e6, 9e6, 7e6],
    forked_ns: [2e6, null, null],
    exited_ns: [8e6, null, null],
    in_scope: [true, true, false],
  },
  placeOfTask: new Map([
    [5, 0],
    [6, 1],
    [7, 2],
  ]),
});

describe("the ground of a CPU", () => {
  /** Nobody recorded who else ran: an idle CPU must not be claimed. */
  it("of a recording of some threads is idle or not recorded, and says what was recorded", () => {
    expect(groundWords("c0", 5e6, source())).toEqual([
      "idle, or others ran: not recorded",
      "this recording is of: command sh\\x1b[31m",
    ]);
    expect(restOfCpu(0, rangeOf(5e6, 6e6), source())).toContain("not recorded");
  });

  it("of a recording of the whole machine is idle", () => {
    const whole = source({ scope: "whole system", every_task: true });
    expect(groundWords("c0", 5e6, whole)).toEqual(["idle: no thread had this CPU"]);
    expect(restOfCpu(0, rangeOf(5e6, 6e6), whole)).toBe("idle");
  });

  /** Who had the CPU before the first switch, or after the last, no switch tells. */
  it("is not known before its first switch, nor after its last", () => {
    const whole = source({ every_task: true });
    expect(groundWords("c0", 5e5, whole)[0]).toMatch(/^not known: before/);
    expect(groundWords("c0", 9.5e6, whole)[0]).toMatch(/^not known: after/);
    expect(groundWords("c3", 5e6, whole)[0]).toMatch(/^not known/);
    for (const range of [rangeOf(0, 2e6), rangeOf(8e6, 1e7)]) {
      expect(restOfCpu(0, range, whole)).toBe("idle, or not known");
    }
  });
});

describe("the ground of a thread", () => {
  it("is outside of its life before it was forked and after it exited", () => {
    expect(groundWords("t5", 1e6, source())).toEqual(["had not started yet: forked at 2.000 ms"]);
    expect(groundWords("t5", 8e6, source())).toEqual(["had ended, at 8.000 ms"]);
    expect(lifeOf("u5", source())).toEqual({ from: 2e6, to: 8e6 });
  });

  /** A thread that was there before the recording had started: it only had not switched yet. */
  it("is not known where neither is", () => {
    expect(lifeOf("t6", source())).toEqual({ from: -Infinity, to: Infinity });
    expect(groundWords("t5", 2.5e6, source())[0]).toMatch(/^not known: before the first/);
    expect(groundWords("t5", 7.5e6, source())[0]).toMatch(/^not known: after the last/);
    expect(groundWords("t6", 5e6, source())).toEqual(["not known here"]);
    expect(groundWords("t7", 5e6, source())[0]).toMatch(/^not recorded/);
  });
});
