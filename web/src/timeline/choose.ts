// Choosing what is at a spot: by a click, or by Enter.
import { rangeOf } from "../lib/units";
import { toggleGroup } from "../state/filter";
import { sideOpen } from "../state/frame";
import { type Piece, selectedPiece, selectedTask } from "../state/selection";
import { type LanePiece, laneKind, laneNumber, stateOf } from "./piece";
import type { Spot } from "./spot";

export function choose(spot: Spot): void {
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
