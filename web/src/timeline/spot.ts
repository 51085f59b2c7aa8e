// What is at a place of a lane: one piece, or, where many fit into a pixel, the shares of a bin.
import type { Gap } from "../api/types";
import type { BinnedLane } from "../api/lanes";
import { type TraceNs, type TraceRange, rangeOf } from "../lib/units";
import type { LanePart } from "./answers";
import { type LanePiece, findPiece, samePiece } from "./piece";

export type Spot =
  | { readonly kind: "piece"; readonly lane: string; readonly piece: LanePiece }
  | {
      readonly kind: "shares";
      readonly lane: string;
      readonly range: TraceRange;
      /** State bytes with their share of the bin, largest first. */
      readonly shares: readonly (readonly [number, number])[];
    }
  | { readonly kind: "gap"; readonly lane: string; readonly gap: Gap; readonly moment: TraceNs }
  | { readonly kind: "nothing"; readonly lane: string; readonly moment: TraceNs }
  | { readonly kind: "header"; readonly lane: string };

/** What the finest part that reaches to `moment` says. `near`: how far a piece may be away. */
export function spotAt(
  lane: string,
  parts: readonly LanePart[],
  moment: TraceNs,
  near: number,
): Spot {
  const part = parts.findLast(({ range }) => range.from <= moment && moment < range.to);
  if (part?.lane.form === "exact") {
    const piece = findPiece(lane, part.lane, moment, near);
    if (piece !== null) return { kind: "piece", lane, piece };
  } else if (part?.lane.form === "binned") {
    const bin = Math.floor((moment - part.range.from) / part.nsPerBin);
    const shares = sharesOf(part.lane, bin);
    const from = part.range.from + bin * part.nsPerBin;
    if (shares.length > 0) {
      return { kind: "shares", lane, range: rangeOf(from, from + part.nsPerBin), shares };
    }
  }
  return { kind: "nothing", lane, moment };
}

function sharesOf({ bins }: BinnedLane, bin: number): [number, number][] {
  let low = 0;
  let high = bins.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((bins[middle] ?? 0) >>> 16 < bin) low = middle + 1;
    else high = middle;
  }
  const shares: [number, number][] = [];
  for (let at = low; at < bins.length && (bins[at] ?? 0) >>> 16 === bin; at++) {
    const bits = bins[at] ?? 0;
    shares.push([(bits >>> 8) & 255, (bits & 255) / 255]);
  }
  return shares.sort((a, b) => b[1] - a[1]);
}

/** The moment a spot stands for: where keys go on from. */
export function momentOf(spot: Spot): TraceNs | null {
  switch (spot.kind) {
    case "piece":
      return spot.piece.start;
    case "shares":
      return spot.range.from;
    case "gap":
    case "nothing":
      return spot.moment;
    case "header":
      return null;
  }
}

export function sameSpot(a: Spot | null, b: Spot | null): boolean {
  if (a === b) return true;
  if (a === null || b === null || a.kind !== b.kind || a.lane !== b.lane) return false;
  if (a.kind === "piece" && b.kind === "piece") return samePiece(a.piece, b.piece);
  if (a.kind === "shares" && b.kind === "shares") {
    return a.range.from === b.range.from && a.range.to === b.range.to;
  }
  return a.kind === "header" || momentOf(a) === momentOf(b);
}
