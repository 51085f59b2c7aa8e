// A piece of a lane: what a thread (or a CPU, or a worker's thread) did for one stretch of time. The
// byte `state` of the wire says what; only this file knows its numbers.
import { type ExactLane, NOBODY } from "../api/lanes";
import { type TraceNs, type TraceRange, traceNs } from "../lib/units";

export const RUNNING = 1;
const BLOCKED = 32;
const OFF = 64;
const RUN_QUEUE = 96;
const NEW_TASK = 31;
const REASONS = 32;

export type PieceState =
  | { readonly kind: "running" }
  | { readonly kind: "blocked"; readonly reason: number }
  /** It had no CPU, and where it became runnable is not known. */
  | { readonly kind: "off"; readonly reason: number }
  /** `reason`: why it had left the CPU; null for a task that is new. */
  | { readonly kind: "runq"; readonly reason: number | null }
  | { readonly kind: "unknown" };

export function stateOf(byte: number): PieceState {
  if (byte === RUNNING) return { kind: "running" };
  if (byte >= BLOCKED && byte < BLOCKED + REASONS) {
    return { kind: "blocked", reason: byte - BLOCKED };
  }
  if (byte >= OFF && byte < OFF + REASONS) return { kind: "off", reason: byte - OFF };
  if (byte === RUN_QUEUE + NEW_TASK) return { kind: "runq", reason: null };
  if (byte >= RUN_QUEUE && byte < RUN_QUEUE + REASONS) {
    return { kind: "runq", reason: byte - RUN_QUEUE };
  }
  return { kind: "unknown" };
}

/** Which lane: of a thread, of the workers over a thread, of a CPU. */
export type LaneKind = "thread" | "user" | "cpu";

export interface LanePiece {
  /** The lane's name on the wire: `t12`, `u12`, `c0`. */
  readonly lane: string;
  readonly start: TraceNs;
  readonly end: TraceNs;
  /** What to ask its detail by; null for a piece that was still open at the end of the trace. */
  readonly row: number | null;
  /** CPU of a thread's run, task of a CPU's run, number of a worker; null for waits. */
  readonly who: number | null;
  readonly state: number;
}

export function laneKind(lane: string): LaneKind {
  return lane.startsWith("c") ? "cpu" : lane.startsWith("u") ? "user" : "thread";
}

/** The task of a thread's lane, the CPU of a CPU's. */
export const laneNumber = (lane: string): number => Number(lane.slice(1));

export function pieceAt(lane: string, data: ExactLane, place: number): LanePiece | null {
  const start = data.start[place];
  const end = data.end[place];
  if (start === undefined || end === undefined) return null;
  const row = data.row[place] ?? NOBODY;
  const who = data.who[place] ?? NOBODY;
  return {
    lane,
    start: traceNs(start),
    end: traceNs(end),
    row: row === NOBODY ? null : row,
    who: who === NOBODY ? null : who,
    state: data.state[place] ?? 0,
  };
}

/** The first place whose piece ends after `moment`. */
export function placeAfter(data: ExactLane, moment: number): number {
  let low = 0;
  let high = data.end.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((data.end[middle] ?? Infinity) > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The piece at a moment; with `near`, else one that is no farther away. */
export function findPiece(
  lane: string,
  data: ExactLane,
  moment: TraceNs,
  near: number,
): LanePiece | null {
  const place = placeAfter(data, moment);
  const after = pieceAt(lane, data, place);
  if (after !== null && after.start <= moment) return after;
  const before = place > 0 ? pieceAt(lane, data, place - 1) : null;
  const toAfter = after === null ? Infinity : after.start - moment;
  const toBefore = before === null ? Infinity : moment - before.end;
  if (Math.min(toAfter, toBefore) > near) return null;
  return toAfter < toBefore ? after : before;
}

/** The piece that has most of a range. */
export function longestOf(lane: string, data: ExactLane, range: TraceRange): LanePiece | null {
  let longest: LanePiece | null = null;
  let most = 0;
  for (let place = placeAfter(data, range.from); place < data.end.length; place++) {
    const piece = pieceAt(lane, data, place);
    if (piece === null || piece.start >= range.to) break;
    const length = Math.min(piece.end, range.to) - Math.max(piece.start, range.from);
    if (length > most) {
      longest = piece;
      most = length;
    }
  }
  return longest;
}

export const samePiece = (a: LanePiece | null, b: LanePiece | null): boolean =>
  a === b ||
  (a !== null && b !== null && a.lane === b.lane && a.start === b.start && a.state === b.state);
