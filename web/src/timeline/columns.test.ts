import { describe, expect, it } from "vitest";
import type { BinnedLane, ExactLane } from "../api/lanes";
import { type ColumnSink, Columns } from "./columns";

/** `[start, end, state]` */
function exact(...pieces: readonly (readonly [number, number, number])[]): ExactLane {
  return {
    form: "exact",
    start: Float64Array.from(pieces, ([start]) => start),
    end: Float64Array.from(pieces, ([, end]) => end),
    row: new Uint32Array(pieces.length),
    who: new Uint32Array(pieces.length),
    state: Uint8Array.from(pieces, ([, , state]) => state),
  };
}

/** `[bin, state, share]` */
function binned(...entries: readonly (readonly [number, number, number])[]): BinnedLane {
  const bins = entries.map(([bin, state, share]) => ((bin << 16) | (state << 8) | share) >>> 0);
  return { form: "binned", bins: Uint32Array.from(bins) };
}

interface Drawn {
  /** As text: `0-3:1` a stretch, `3:1=0.50 39=0.25` a mixture. */
  readonly words: string[];
  /** Time drawn by state, in columns. */
  readonly sums: Map<number, number>;
}

function drawn(draw: (columns: Columns) => void): Drawn {
  const words: string[] = [];
  const sums = new Map<number, number>();
  const count = (state: number, columns: number): void => {
    sums.set(state, (sums.get(state) ?? 0) + columns);
  };
  const sink: ColumnSink = {
    stretch(from, to, state) {
      words.push(`${from}-${to}:${state}`);
      count(state, to - from);
    },
    mixture(from, to, states, n, share) {
      const parts = [...states.slice(0, n)].map((state) => {
        const part = share[state] ?? 0;
        count(state, part * (to - from));
        return `${state}=${part.toFixed(2)}`;
      });
      words.push(`${from}${to > from + 1 ? `-${to}` : ""}:${parts.join(" ")}`);
    },
  };
  draw(new Columns(sink));
  return { words, sums };
}

describe("pieces as columns", () => {
  it("that are wide are one stretch each", () => {
    const lane = exact([0, 30, 1], [30, 100, 39]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 0, 0, 10, 0, 10));
    expect(words).toEqual(["0-3:1", "3-10:39"]);
  });

  /** An edge within a column belongs to both sides, by their shares. */
  it("share the column in which they meet", () => {
    const lane = exact([0, 35, 1], [35, 100, 39]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 0, 0, 10, 0, 10));
    expect(words).toEqual(["0-3:1", "3:1=0.50 39=0.50", "4-10:39"]);
  });

  it("that are narrow add up", () => {
    const lane = exact([0, 2, 1], [2, 4, 39], [4, 6, 1], [20, 21, 1]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 0, 0, 10, 0, 10));
    expect(words).toEqual(["0:1=0.40 39=0.20", "2:1=0.10"]);
  });

  it("that begin before or end after are cut to the columns asked for", () => {
    const lane = exact([-500, 50, 1], [50, 9000, 39]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 0, 0, 10, 2, 8));
    expect(words).toEqual(["2-5:1", "5-8:39"]);
  });

  /** However pieces fall on columns, no time is drawn twice or left out. */
  it("keep the sum of time", () => {
    let seed = 3;
    const random = (): number => {
      seed = (seed * 1_664_525 + 1_013_904_223) >>> 0;
      return seed / 2 ** 32;
    };
    for (let round = 0; round < 50; round++) {
      const pieces: [number, number, number][] = [];
      let now = 0;
      while (now < 1000) {
        const end = Math.min(1000, now + random() ** 4 * 100 + 0.1);
        pieces.push([now, end, random() < 0.5 ? 1 : 39]);
        now = end;
      }
      const step = 1 + random() * 20;
      const last = Math.ceil(1000 / step);
      const { sums } = drawn((columns) => columns.draw(exact(...pieces), 0, 0, 0, step, 0, last));
      const truth = pieces.reduce((sum, [a, b, s]) => (s === 1 ? sum + b - a : sum), 0);
      expect(Math.abs((sums.get(1) ?? 0) * step - truth)).toBeLessThan(2);
    }
  });
});

describe("bins as columns", () => {
  it("of the same width are drawn as they are", () => {
    const lane = binned([0, 1, 255], [1, 1, 51], [1, 39, 204], [5, 1, 255]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 10, 0, 10, 0, 10));
    expect(words).toEqual(["0-1:1", "1:1=0.20 39=0.80", "5-6:1"]);
  });

  /** After zooming in, old bins are stretched until finer ones come. */
  it("that are wider than a column are repeated", () => {
    const lane = binned([1, 1, 51], [1, 39, 204]);
    const { sums } = drawn((columns) => columns.draw(lane, 0, 40, 0, 10, 0, 20));
    expect(sums.get(1)).toBeCloseTo(0.8);
    expect(sums.get(39)).toBeCloseTo(3.2);
  });

  /** After zooming out, several fall into one column. */
  it("that are narrower than a column add up", () => {
    const lane = binned([0, 1, 255], [1, 39, 255], [2, 1, 255], [3, 39, 255]);
    const { words } = drawn((columns) => columns.draw(lane, 0, 5, 0, 20, 0, 3));
    expect(words).toEqual(["0:1=0.50 39=0.50"]);
  });
});
