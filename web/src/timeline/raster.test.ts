import { beforeAll, describe, expect, it } from "vitest";
import type { BinnedLane, ExactLane } from "../api/lanes";
import { rangeOf } from "../lib/units";
import type { LanePart } from "./answers";
import { type Palette, paletteOf } from "./palette";
import { Raster } from "./raster";

// Outside of a browser there is none; the raster needs its memory only.
beforeAll(() => {
  class Image {
    readonly data: Uint8ClampedArray;
    constructor(width: number, height: number) {
      this.data = new Uint8ClampedArray(width * height * 4);
    }
  }
  Object.assign(globalThis, { ImageData: Image });
});

const REASONS = [{ id: 7, reason: "futex", category: "synchronization", help: "" }] as const;
const NOTHING = { reasons: new Set<number>(), running: false, all: false };
const COLOURS: Readonly<Record<string, string>> = {
  "--lane": "#ffffff",
  "--running": "#00ff00",
  "--synchronization": "#ff00ff",
  "--faint": "#eeeeee",
};
const palette = (dimmed = NOTHING): Palette =>
  paletteOf((name) => COLOURS[name] ?? "#000000", REASONS, dimmed);
const LETTERS: Readonly<Record<number, string>> = {
  0xffffffff: ".",
  0xff00ff00: "R",
  0xffff00ff: "B",
  0xffeeeeee: "-",
};

/** The picture as letters: R running, B blocked, h hatch or its tint, - faint, . ground. */
function drawn(
  parts: readonly LanePart[],
  width: number,
  height: number,
  dimmed = NOTHING,
): string[] {
  const raster = new Raster();
  raster.resize(width, height);
  raster.begin(palette(dimmed), 1, () => 0);
  raster.lane(parts, 0, height, 0, 10, "plain");
  const pixels = new Uint32Array(raster.image?.data.buffer ?? new ArrayBuffer(0));
  return Array.from({ length: height }, (_, y) =>
    Array.from(pixels.subarray(y * width, (y + 1) * width), (pixel) => LETTERS[pixel] ?? "h").join(
      "",
    ),
  );
}

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
const RUNNING = 1;
const FUTEX = 39;
const QUEUED_AFTER_FUTEX = 103;

describe("a lane of pixels", () => {
  it("shows runs high, waits low, and queueing hatched", () => {
    const lane = exact([0, 30, RUNNING], [30, 60, FUTEX], [60, 100, QUEUED_AFTER_FUTEX]);
    const rows = drawn([{ lane, range: rangeOf(0, 100), nsPerBin: 0 }], 10, 5);
    expect(rows[0]).toBe("RRR.......");
    expect(rows[1]).toBe("RRR.......");
    expect(rows[4]).toMatch(/^RRRBBB[Bh]{4}$/);
    expect(rows[4]).toContain("h");
  });

  /** A run of a microsecond in a second of waiting is what somebody looks for. */
  it("never loses a run, however short", () => {
    const lane = exact([0, 49.99, FUTEX], [49.99, 50, RUNNING], [50, 100, FUTEX]);
    const rows = drawn([{ lane, range: rangeOf(0, 100), nsPerBin: 0 }], 10, 10);
    expect(rows[9]).toBe("BBBBRBBBBB");
  });

  it("stacks the shares of a bin", () => {
    const bins = [(0 << 16) | (RUNNING << 8) | 128, (0 << 16) | (FUTEX << 8) | 127];
    const lane: BinnedLane = { form: "binned", bins: Uint32Array.from(bins) };
    const rows = drawn([{ lane, range: rangeOf(0, 10), nsPerBin: 10 }], 1, 10);
    expect(rows.join("")).toBe("..BBBRRRRR");
  });

  it("is faint where the legend has it switched off", () => {
    const lane = exact([0, 50, RUNNING], [50, 100, FUTEX]);
    const part = { lane, range: rangeOf(0, 100), nsPerBin: 0 };
    const rows = drawn([part], 10, 5, { ...NOTHING, reasons: new Set([7]) });
    expect(rows[4]).toBe("RRRRR-----");
  });

  /** While finer data is on its way, the coarser fills in around it, and is not seen through it. */
  it("is drawn from the finest data at each place", () => {
    const coarse = { lane: exact([0, 100, FUTEX]), range: rangeOf(0, 100), nsPerBin: 100 };
    const fine = { lane: exact([40, 50, RUNNING]), range: rangeOf(30, 60), nsPerBin: 1 };
    expect(drawn([coarse, fine], 10, 5)[4]).toBe("BBB.R.BBBB");
  });
});

describe("dots", () => {
  const dotted = (moved: number): string[] => {
    const raster = new Raster();
    raster.resize(24, 12);
    raster.begin(palette(), 1, () => 0);
    raster.movePhase(moved);
    raster.dots(0, 0, 24, 12, 1);
    const pixels = new Uint32Array(raster.image?.data.buffer ?? new ArrayBuffer(0));
    return Array.from({ length: 12 }, (_, y) =>
      Array.from(pixels.subarray(y * 24, (y + 1) * 24), (pixel) => (pixel === 1 ? "o" : ".")).join(
        "",
      ),
    );
  };

  /** Where others may have run the ground is quiet: it must not be taken for a hatch. */
  it("are sparse and in every second row set between those above", () => {
    const rows = dotted(0).filter((row) => row.includes("o"));
    expect(rows.slice(0, 2)).toEqual(["o.....o.....o.....o.....", "...o.....o.....o.....o.."]);
    const count = dotted(0).join("").replaceAll(".", "").length;
    expect(count / (24 * 12)).toBeLessThan(0.08);
  });

  /** They lie on the time, not on the screen. */
  it("move with the view", () => {
    const moved = dotted(2);
    const still = dotted(0);
    moved.forEach((row, y) => expect(row.slice(0, -2)).toBe(still[y]?.slice(2)));
  });
});
