import { describe, expect, it } from "vitest";
import type { Lane, LanesAnswer } from "../api/lanes";
import { cssPx, rangeOf } from "../lib/units";
import { Answers, wantedFor } from "./answers";

const WHOLE = rangeOf(0, 1e9);
const scale = (from: number, to: number, width = 1000) => ({
  range: rangeOf(from, to),
  width: cssPx(width),
});
const BINNED: Lane = { form: "binned", bins: new Uint32Array(1) };
const EXACT: Lane = {
  form: "exact",
  start: new Float64Array(0),
  end: new Float64Array(0),
  row: new Uint32Array(0),
  who: new Uint32Array(0),
  state: new Uint8Array(0),
};
const answer = (from: number, to: number, px: number, lane: Lane, generation = 1): LanesAnswer => ({
  generation,
  px,
  range: rangeOf(from, to),
  lanes: [lane],
});

describe("what is asked for", () => {
  it("has a margin on both sides and bins of about a pixel", () => {
    const { range, px } = wantedFor(scale(4e8, 5e8), WHOLE);
    expect(range.from).toBeLessThanOrEqual(3.5e8);
    expect(range.to).toBeGreaterThanOrEqual(5.5e8);
    const pxPerBin = (range.to - range.from) / px / 1e5;
    expect(pxPerBin).toBeGreaterThan(0.65);
    expect(pxPerBin).toBeLessThanOrEqual(1.01);
  });

  /** The server refuses more than 8192 bins; a wide window must not ask in vain. */
  it("never has more bins than the server gives", () => {
    for (const width of [300, 2000, 7680]) {
      for (let span = 100; span <= 1e9; span *= 3.7) {
        const { range, px } = wantedFor(scale(0, span, width), WHOLE);
        expect(px).toBeLessThanOrEqual(8192);
        expect(Number.isInteger((range.to - range.from) / px)).toBe(true);
      }
    }
  });

  it("is enough when it has come", () => {
    for (const width of [300, 2000, 5120, 7680]) {
      for (let span = 100; span <= 1e9; span *= 3.7) {
        const view = scale(0, span, width);
        const { range, px } = wantedFor(view, WHOLE);
        const answers = new Answers();
        answers.take(["t1"], answer(range.from, range.to, px, BINNED), 8);
        expect(answers.suffices("t1", view, WHOLE)).toBe(true);
      }
    }
  });

  it("is the same after a small move", () => {
    const a = wantedFor(scale(4e8, 5e8), WHOLE);
    expect(wantedFor(scale(4e8 + 1000, 5e8 + 1000), WHOLE)).toEqual(a);
  });
});

describe("what is here", () => {
  it("suffices when bins are about a pixel and the view is covered", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(0, 1e9, 1000, BINNED), 8);
    expect(answers.suffices("t1", scale(0, 1e9), WHOLE)).toBe(true);
    expect(answers.suffices("t1", scale(0, 2e8), WHOLE)).toBe(false);
    expect(answers.suffices("t2", scale(0, 1e9), WHOLE)).toBe(false);
  });

  /** Every piece is known: no zoom needs more. */
  it("suffices at any zoom when it is exact", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(0, 1e9, 1000, EXACT), 8);
    expect(answers.suffices("t1", scale(5, 1000), WHOLE)).toBe(true);
  });

  it("does not suffice when the trace has grown", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(0, 1e9, 1000, EXACT, 1), 8);
    answers.outdate(2);
    expect(answers.suffices("t1", scale(0, 1e9), WHOLE)).toBe(false);
    expect(answers.partsOf("t1", rangeOf(0, 1e9))).toHaveLength(1);
  });

  it("is drawn from coarse to fine, and no coarser than needed", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(4e8, 5e8, 1000, BINNED), 8);
    answers.take(["t1"], answer(0, 1e9, 1000, BINNED), 8);
    const bins = (from: number, to: number): number[] =>
      answers.partsOf("t1", rangeOf(from, to)).map(({ nsPerBin }) => nsPerBin);
    expect(bins(3e8, 4.5e8)).toEqual([1e6, 1e5]);
    expect(bins(4.1e8, 4.5e8)).toEqual([1e5]);
    expect(bins(6e8, 7e8)).toEqual([1e6]);
  });

  /** An answer reaches beyond the end that was known then, and is empty there: it must not hide what came. */
  it("is drawn with what a newer trace says on top, however coarse", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(0, 1e9, 10_000, BINNED, 1), 8);
    answers.take(["t1"], answer(0, 8e8, 100, BINNED, 2), 8);
    const bins = (from: number, to: number): number[] =>
      answers.partsOf("t1", rangeOf(from, to)).map(({ nsPerBin }) => nsPerBin);
    expect(bins(1e8, 7e8)).toEqual([8e6]);
    expect(bins(1e8, 9e8)).toEqual([1e5, 8e6]);
  });

  /** A page left open for a day must not grow. */
  it("is bounded, and what is looked at stays", () => {
    const answers = new Answers();
    answers.take(["t1"], answer(0, 1e9, 1000, BINNED), 1e6);
    for (let at = 0; at < 500; at++) {
      answers.take([`t${at + 2}`], answer(0, 1e9, 1000, BINNED), 1e6);
      answers.partsOf("t1", WHOLE);
    }
    expect(answers.partsOf("t1", WHOLE)).toHaveLength(1);
    expect(answers.partsOf("t2", WHOLE)).toHaveLength(0);
  });
});
