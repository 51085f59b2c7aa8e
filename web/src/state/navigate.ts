// Going to a row: from a link in a panel, a hop of a chain, a hit of the search.
import * as api from "../api/client";
import type { Detail, Level } from "../api/types";
import { atom } from "../lib/atom";
import { type TraceRange, rangeOf } from "../lib/units";
import { sideOpen } from "./frame";
import { aliveIn, collapsed, laneFilter, showOutOfScope } from "./filter";
import { type Piece, selectedPiece, selectedRange, selectedTask } from "./selection";
import { KERNEL } from "../timeline/lanes";
import { noteAnswer, placeOfTask, threads } from "./trace";
import { reveal } from "./view";

/** A lane that should be scrolled to; `nonce` tells two wishes for the same lane apart. */
export interface LaneWish {
  readonly lane: string;
  readonly nonce: number;
}
export const wantedLane = atom<LaneWish | null>(null);
let wishes = 0;

/** Scrolls to a thread's lane, opening what hides it. */
export function showThread(task: number, level: Level = "os"): void {
  selectedTask.set(task);
  const columns = threads.get();
  const place = placeOfTask.get().get(task);
  if (columns !== null && place !== undefined) {
    if (columns.in_scope[place] === false) showOutOfScope.set(true);
    laneFilter.set("");
    aliveIn.set(null);
    const group = columns.kernel[place] === true ? KERNEL : `p${columns.pid[place] ?? 0}`;
    collapsed.update((closed) => without(closed, group));
  }
  wishes += 1;
  wantedLane.set({ lane: `${level === "user" ? "u" : "t"}${task}`, nonce: wishes });
}

function without(closed: ReadonlySet<string>, key: string): ReadonlySet<string> {
  if (!closed.has(key)) return closed;
  const next = new Set(closed);
  next.delete(key);
  return next;
}

/** Where a row lies: its run, with the wait before it when the run's start is not known. */
function rangeOfRow(detail: Detail): TraceRange {
  const { run, wait } = detail;
  const from = run.from_ns ?? wait?.from_ns ?? run.to_ns;
  return rangeOf(from, run.to_ns);
}

function rangeOfPart(detail: Detail, part: Piece["part"]): TraceRange {
  const { wait } = detail;
  const until = wait?.to_ns ?? detail.run.from_ns ?? detail.run.to_ns;
  if (wait !== null && part === "blocked") {
    return rangeOf(wait.from_ns ?? until, wait.woken_ns ?? until);
  }
  if (wait !== null && part === "off") return rangeOf(wait.from_ns ?? until, until);
  if (wait !== null && part === "runq") {
    return rangeOf(wait.woken_ns ?? wait.from_ns ?? until, until);
  }
  return rangeOfRow(detail);
}

/**
 * Selects a row, shows its thread's lane and moves the view so that it can be seen. `part`: which part of
 * it is meant; a wait that a chain names is `blocked`.
 */
export async function goToRow(
  row: number,
  level: Level = "os",
  part: Piece["part"] = "run",
): Promise<void> {
  try {
    const detail = await api.detail(row, level);
    const range = rangeOfPart(detail, part);
    const lane = `${level === "user" ? "u" : "t"}${detail.thread.task}`;
    selectedPiece.set({ row, level, part, lane, range });
    sideOpen.set(true);
    showThread(detail.thread.task, level);
    reveal(range);
  } catch (error) {
    noteAnswer(error);
    throw error;
  }
}

/** Selects a stretch of a thread's time, shows its lane and moves the view so that the stretch can be seen. */
export function showStretch(task: number, range: TraceRange): void {
  selectedPiece.set(null);
  selectedRange.set(range);
  sideOpen.set(true);
  showThread(task);
  reveal(range);
}

/** Selects the thread of a lane that is on the screen already, or lets it go. */
export function showThreadHere(lane: string): void {
  const task = Number(lane.slice(1));
  selectedTask.update((known) => (known === task ? null : task));
}
