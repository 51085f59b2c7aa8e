import { expect, it } from "vitest";
import type { ExactLane } from "../api/lanes";
import { rangeOf } from "../lib/units";
import { longestOf } from "./piece";

/** Pieces that follow each other without a hole, each as long as told; rows count up from 0. */
function lane(...lengths: readonly number[]): ExactLane {
  const ends = lengths.map((_, place) => lengths.slice(0, place + 1).reduce((a, b) => a + b, 0));
  return {
    form: "exact",
    start: Float64Array.from(ends, (end, place) => end - (lengths[place] ?? 0)),
    end: Float64Array.from(ends),
    row: Uint32Array.from(lengths, (_, place) => place),
    who: new Uint32Array(lengths.length),
    state: new Uint8Array(lengths.length),
  };
}

it("chooses the piece that has most of a range", () => {
  const data = lane(100, 10, 30, 20, 200);
  const rowIn = (from: number, to: number): number | null | undefined =>
    longestOf("t1", data, rangeOf(from, to))?.row;
  expect(rowIn(100, 160)).toBe(2);
  // A long piece of which little lies in the range is not what is seen there.
  expect(rowIn(95, 165)).toBe(2);
  expect(rowIn(0, 400)).toBe(4);
  expect(rowIn(400, 500)).toBeUndefined();
});
