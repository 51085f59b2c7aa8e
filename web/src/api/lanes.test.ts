import { describe, expect, it } from "vitest";
import { DecodeError } from "./decode";
import { NOBODY, decodeLanes } from "./lanes";

const HEAD = 32;

function head(buffer: ArrayBuffer, lanes: number): DataView {
  const view = new DataView(buffer);
  view.setUint32(0, 0x4c575331, true);
  view.setUint32(4, lanes, true);
  view.setUint32(8, 3, true);
  view.setUint32(12, 100, true);
  view.setFloat64(16, 1000, true);
  view.setFloat64(24, 2000, true);
  return view;
}

/** One exact lane of three pieces (75 bytes, padded to 80), then one of one bin entry (4, padded to 8). */
function answer(): ArrayBuffer {
  const buffer = new ArrayBuffer(HEAD + 8 + 80 + 8 + 8);
  const view = head(buffer, 2);
  view.setUint32(HEAD, 1, true);
  view.setUint32(HEAD + 4, 3, true);
  const at = HEAD + 8;
  [900, 1100, 1500].forEach((start, n) => view.setFloat64(at + 8 * n, start, true));
  [1100, 1500, 2600].forEach((end, n) => view.setFloat64(at + 24 + 8 * n, end, true));
  [7, 7, NOBODY].forEach((row, n) => view.setUint32(at + 48 + 4 * n, row, true));
  [NOBODY, 1, NOBODY].forEach((who, n) => view.setUint32(at + 60 + 4 * n, who, true));
  [39, 1, 45].forEach((state, n) => view.setUint8(at + 72 + n, state));
  const next = at + 80;
  view.setUint32(next, 2, true);
  view.setUint32(next + 4, 1, true);
  view.setUint32(next + 8, ((40_000 << 16) | (1 << 8) | 255) >>> 0, true);
  return buffer;
}

describe("the binary answer of lanes", () => {
  /** Columns are views at their offsets: one wrong padding would shift all lanes after it. */
  it("has every column of every lane", () => {
    const { generation, px, range, lanes } = decodeLanes(answer());
    expect([generation, px, range]).toEqual([3, 100, { from: 1000, to: 2000 }]);
    const [exact, binned] = lanes;
    if (exact?.form !== "exact" || binned?.form !== "binned") throw new Error("wrong forms");
    expect([...exact.start]).toEqual([900, 1100, 1500]);
    expect([...exact.end]).toEqual([1100, 1500, 2600]);
    expect([...exact.row]).toEqual([7, 7, NOBODY]);
    expect([...exact.who]).toEqual([NOBODY, 1, NOBODY]);
    expect([...exact.state]).toEqual([39, 1, 45]);
    // Bins above 32,767 set the sign bit of a signed number.
    expect((binned.bins[0] ?? 0) >>> 16).toBe(40_000);
  });

  it("may know nothing of a lane", () => {
    const buffer = new ArrayBuffer(HEAD + 8);
    head(buffer, 1);
    expect(decodeLanes(buffer).lanes).toEqual([{ form: "empty" }]);
  });

  /** An answer cut by a closing server must not be drawn as if time had stopped. */
  it("is refused when it is cut short", () => {
    const whole = answer();
    for (const length of [0, 16, HEAD + 4, HEAD + 40, whole.byteLength - 8]) {
      expect(() => decodeLanes(whole.slice(0, length))).toThrow(DecodeError);
    }
  });

  it("is refused when it is something else", () => {
    expect(() => decodeLanes(new TextEncoder().encode("<!doctype html>".repeat(9)).buffer)).toThrow(
      DecodeError,
    );
  });
});
