// Choosing what is at a spot: by a click, or by Enter. Where many pieces share a pixel, the longest of
// them is meant: the one that can be seen.
import * as api from "../api/client";
import { rangeOf } from "../lib/units";
import { toggleGroup } from "../state/filter";
import { sideOpen } from "../state/frame";
import { type Piece, selectedPiece, selectedTask } from "../state/selection";
import { noteAnswer } from "../state/trace";
import { type LanePiece, laneKind, laneNumber, longestOf, stateOf } from "./piece";
import type { Spot } from "./spot";

/** The finest picture that the server draws of a lane: single pieces of what one pixel holds. */
const FINEST_PX = 8192;

let asked: AbortController | null = null;

export function choose(spot: Spot): void {
  asked?.abort();
  if (spot.kind === "header") {
    toggleGroup(spot.lane);
    return;
  }
  const kind = laneKind(spot.lane);
  if (spot.kind === "piece") {
    selectedTask.set(kind === "cpu" ? spot.piece.who : laneNumber(spot.lane));
    selectPiece(spot.piece);
  } else {
    selectedPiece.set(null);
    selectedTask.set(kind === "cpu" ? null : laneNumber(spot.lane));
    if (spot.kind === "shares") void chooseLongest(spot);
  }
}

/** Of the pieces that share a pixel. With too many for single ones the thread stays chosen, and no piece. */
async function chooseLongest({ lane, range }: Extract<Spot, { kind: "shares" }>): Promise<void> {
  asked = new AbortController();
  const { signal } = asked;
  try {
    const { answer } = await api.lanes(range, FINEST_PX, [lane], signal);
    const [data] = answer.lanes;
    const longest = data?.form === "exact" ? longestOf(lane, data, range) : null;
    if (longest === null || signal.aborted) return;
    if (laneKind(lane) === "cpu") selectedTask.set(longest.who);
    selectPiece(longest);
  } catch (error) {
    if (!signal.aborted) noteAnswer(error);
  }
}

function selectPiece(piece: LanePiece): void {
  if (piece.row === null) {
    selectedPiece.set(null);
    return;
  }
  const state = stateOf(piece.state);
  const part: Piece["part"] =
    state.kind === "running" ? "run" : state.kind === "unknown" ? null : state.kind;
  selectedPiece.set({
    row: piece.row,
    level: laneKind(piece.lane) === "user" ? "user" : "os",
    part,
    lane: piece.lane,
    range: rangeOf(piece.start, piece.end),
  });
  sideOpen.set(true);
}
