// The one binary answer: lanes of a span, cut to the pixels that were asked for.
//
//   u32 magic · u32 lanes · u32 generation · u32 px · f64 from · f64 to, then per lane, as asked:
//   u32 form · u32 n
//     exact : f64 start[n] · f64 end[n] · u32 row[n] · u32 who[n] · u8 state[n] · zeros up to 8
//     binned: u32 bin[n] = bin << 16 | state << 8 | share · zeros up to 8
//
// Everything is little-endian and lies at a multiple of its size, so columns are views into the
// buffer and nothing is copied. Every machine that runs a browser is little-endian.
import { DecodeError } from "./decode";
import { type TraceRange, rangeOf } from "../lib/units";

const MAGIC = 0x4c575331;
const NOT_KNOWN = 0;
const EXACT = 1;
const BINNED = 2;

/** In `row`: a piece that is not in a row yet. In `who`: nobody. */
export const NOBODY = 0xffff_ffff;

/** Every piece, in order of time. The first may begin before the span, the last end after it. */
export interface ExactLane {
  readonly form: "exact";
  readonly start: Float64Array;
  readonly end: Float64Array;
  readonly row: Uint32Array;
  readonly who: Uint32Array;
  readonly state: Uint8Array;
}

/** Shares of each bin by state: `bin << 16 | state << 8 | share`, share in 1/255 of the bin. */
export interface BinnedLane {
  readonly form: "binned";
  readonly bins: Uint32Array;
}

export interface EmptyLane {
  readonly form: "empty";
}

export type Lane = ExactLane | BinnedLane | EmptyLane;

export interface LanesAnswer {
  readonly generation: number;
  /** Number of bins of the span. */
  readonly px: number;
  readonly range: TraceRange;
  readonly lanes: readonly Lane[];
}

const toEight = (offset: number): number => (offset + 7) & ~7;

export function decodeLanes(buffer: ArrayBuffer): LanesAnswer {
  const view = new DataView(buffer);
  if (buffer.byteLength < 32 || view.getUint32(0, true) !== MAGIC) {
    throw new DecodeError("lanes", "lanes of a trace", buffer);
  }
  const count = view.getUint32(4, true);
  const lanes: Lane[] = [];
  let offset = 32;
  for (let place = 0; place < count; place++) {
    if (offset + 8 > buffer.byteLength) {
      throw new DecodeError(`lanes[${place}]`, "whole", buffer);
    }
    const form = view.getUint32(offset, true);
    const n = view.getUint32(offset + 4, true);
    offset += 8;
    const size = form === EXACT ? toEight(25 * n) : form === BINNED ? toEight(4 * n) : 0;
    if (form > BINNED || offset + size > buffer.byteLength) {
      throw new DecodeError(`lanes[${place}]`, "whole", buffer);
    }
    lanes.push(laneAt(buffer, offset, form, n));
    offset += size;
  }
  return {
    generation: view.getUint32(8, true),
    px: view.getUint32(12, true),
    range: rangeOf(view.getFloat64(16, true), view.getFloat64(24, true)),
    lanes,
  };
}

function laneAt(buffer: ArrayBuffer, offset: number, form: number, n: number): Lane {
  if (form === NOT_KNOWN || n === 0) {
    return { form: "empty" };
  }
  if (form === BINNED) {
    return { form: "binned", bins: new Uint32Array(buffer, offset, n) };
  }
  return {
    form: "exact",
    start: new Float64Array(buffer, offset, n),
    end: new Float64Array(buffer, offset + 8 * n, n),
    row: new Uint32Array(buffer, offset + 16 * n, n),
    who: new Uint32Array(buffer, offset + 20 * n, n),
    state: new Uint8Array(buffer, offset + 24 * n, n),
  };
}
