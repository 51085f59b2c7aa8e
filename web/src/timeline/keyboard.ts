// Keys: moving the view, and going from lane to lane and piece to piece without a pointer. The spot under
// the keys is announced in the words of the tooltip.
import { helpOpen } from "../state/frame";
import { toggleGroup } from "../state/filter";
import { lanes } from "../state/lanes";
import { chainOverlay, criticalOverlay } from "../state/overlay";
import { clickedSpot, focusSpot } from "../state/pointer";
import { clearSelection, selectedPiece, selectedRange, selectedTask } from "../state/selection";
import { fitView, panBy, reveal, showWhole, viewRange, zoomAround } from "../state/view";
import { nsPerPx, toPx } from "../lib/scale";
import { rangeOf, spanOf, traceNs } from "../lib/units";
import { choose } from "./choose";
import { HeldKeys, type Motion } from "./motion";
import { pieceAt, placeAfter, samePiece } from "./piece";
import { type Spot, momentOf } from "./spot";
import type { Timeline } from "./timeline";

const HELD: Readonly<Record<string, Motion>> = { w: "in", s: "out", a: "earlier", d: "later" };
/** How far a key goes where single pieces cannot be seen. */
const STEP_PX = 8;
const PAN_PART = 0.15;

/** Whether a key belongs to what has the focus: letters, or a question in front of the page. */
function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.closest("input, select, textarea, dialog") !== null || target.isContentEditable)
  );
}

export function attachKeys(timeline: Timeline, scroller: HTMLElement): () => void {
  const held = new HeldKeys(() => fixedPart(timeline));
  const down = (event: KeyboardEvent): void => {
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    const motion = HELD[event.key.toLowerCase()];
    if (motion !== undefined && !event.shiftKey) {
      held.press(motion);
      event.preventDefault();
      return;
    }
    const inLanes = event.target === scroller || event.target === document.body;
    if (general(event) || (inLanes && inside(event, timeline))) event.preventDefault();
  };
  const up = (event: KeyboardEvent): void => {
    const motion = HELD[event.key.toLowerCase()];
    if (motion !== undefined) held.release(motion);
  };
  const away = (): void => held.releaseAll();
  const redraw = (): void => timeline.redraw();
  document.addEventListener("keydown", down);
  document.addEventListener("keyup", up);
  window.addEventListener("blur", away);
  scroller.addEventListener("focus", redraw);
  scroller.addEventListener("blur", redraw);
  return () => {
    held.releaseAll();
    document.removeEventListener("keydown", down);
    document.removeEventListener("keyup", up);
    window.removeEventListener("blur", away);
    scroller.removeEventListener("focus", redraw);
    scroller.removeEventListener("blur", redraw);
  };
}

/** Zooming by key goes to what has the focus, if that can be seen. */
function fixedPart(timeline: Timeline): number {
  const spot = focusSpot.get();
  const moment = spot === null ? null : momentOf(spot);
  if (moment === null) return 0.5;
  const part = toPx(timeline.scale, moment) / timeline.scale.width;
  return part >= 0 && part <= 1 ? part : 0.5;
}

/** Keys that mean the same wherever the focus is. */
function general(event: KeyboardEvent): boolean {
  const range = viewRange.get();
  const middle = traceNs((range.from + range.to) / 2);
  switch (event.key) {
    case "+":
    case "=":
      zoomAround(middle, 0.6);
      return true;
    case "-":
    case "_":
      zoomAround(middle, 1 / 0.6);
      return true;
    case "0":
      showWhole();
      return true;
    case "f":
      return fitSelection();
    case "?":
      helpOpen.set(true);
      return true;
    case "/": {
      const search = document.querySelector<HTMLElement>("[data-search]");
      search?.focus();
      return search !== null;
    }
    case "Escape":
      clearSelection();
      selectedTask.set(null);
      focusSpot.set(null);
      clickedSpot.set(null);
      chainOverlay.set(null);
      criticalOverlay.set(null);
      return true;
    default:
      return false;
  }
}

function fitSelection(): boolean {
  const range = selectedRange.get() ?? selectedPiece.get()?.range ?? null;
  if (range === null) return false;
  fitView(range, selectedRange.get() === null ? 0.6 : 0.9);
  return true;
}

/** Keys of the lanes. */
function inside(event: KeyboardEvent, timeline: Timeline): boolean {
  switch (event.key) {
    case "Home":
      showWhole();
      return true;
    case "ArrowUp":
      return stepLane(timeline, -1);
    case "ArrowDown":
      return stepLane(timeline, 1);
    case "PageUp":
      return stepLane(timeline, -10);
    case "PageDown":
      return stepLane(timeline, 10);
    case "ArrowLeft":
      return event.shiftKey ? extendRange(timeline, -1) : stepPiece(timeline, -1);
    case "ArrowRight":
      return event.shiftKey ? extendRange(timeline, 1) : stepPiece(timeline, 1);
    case "Enter":
    case " ":
      return open(timeline);
    default:
      return false;
  }
}

/** Where keys go on from: what they are at, else what was clicked. */
const cursor = (): Spot | null => focusSpot.get() ?? clickedSpot.get();

function stepLane(timeline: Timeline, by: number): boolean {
  const all = lanes.get();
  if (all.rows.length === 0) return false;
  const spot = cursor();
  const from = spot === null ? undefined : all.placeOf.get(spot.lane);
  const next = from === undefined ? 0 : Math.min(Math.max(from + by, 0), all.rows.length - 1);
  const row = all.rows[next];
  if (row === undefined) return false;
  timeline.scrollTo(row);
  if (row.kind === "header") {
    focusSpot.set({ kind: "header", lane: row.key });
    return true;
  }
  const moment = spot === null ? null : momentOf(spot);
  const { scale } = timeline;
  const x = moment === null ? scale.width / 2 : toPx(scale, moment) + 0.01;
  focusSpot.set(timeline.spotOnLane(row.key, Math.min(Math.max(x, 0), scale.width)));
  return true;
}

function stepPiece(timeline: Timeline, by: -1 | 1): boolean {
  const spot = cursor();
  if (spot === null || spot.kind === "header") {
    panBy(by * PAN_PART * spanOf(viewRange.get()));
    return true;
  }
  const { scale } = timeline;
  const moment = momentOf(spot) ?? traceNs(0);
  const part = timeline
    .partsOf(spot.lane)
    .findLast(({ range }) => range.from <= moment && moment < range.to);
  if (part?.lane.form === "exact") {
    const known = spot.kind === "piece" ? spot.piece : null;
    let place = placeAfter(part.lane, moment);
    const here = pieceAt(spot.lane, part.lane, place);
    if (known !== null ? samePiece(here, known) : by < 0) place += by;
    const piece = pieceAt(spot.lane, part.lane, place);
    if (piece === null) return true;
    focusSpot.set({ kind: "piece", lane: spot.lane, piece });
    keepInView(rangeOf(piece.start, piece.end));
    return true;
  }
  const next = traceNs(moment + by * STEP_PX * nsPerPx(scale));
  keepInView(rangeOf(next, next));
  focusSpot.set(timeline.spotOnLane(spot.lane, toPx(timeline.scale, next) + 0.01));
  return true;
}

/** Pans so that the beginning of a range is on the screen; never zooms. */
function keepInView(range: { readonly from: number; readonly to: number }): void {
  const view = viewRange.get();
  const air = spanOf(view) * 0.1;
  if (range.from > view.to - air) panBy(range.from - view.to + air);
  else if (range.to < view.from + air) panBy(range.to - view.from - air);
}

function extendRange(timeline: Timeline, by: -1 | 1): boolean {
  const known = selectedRange.get();
  const step = by * 10 * nsPerPx(timeline.scale);
  if (known !== null) {
    selectedRange.set(rangeOf(known.from, Math.max(known.from, known.to + step)));
    return true;
  }
  const view = viewRange.get();
  const spot = cursor();
  const moment = (spot === null ? null : momentOf(spot)) ?? traceNs((view.from + view.to) / 2);
  selectedRange.set(rangeOf(moment, moment + step));
  return true;
}

/** The detail of what has the focus; a group is opened or closed, shares are zoomed into. */
function open(timeline: Timeline): boolean {
  const spot = cursor();
  if (spot === null) return false;
  if (spot.kind === "header") toggleGroup(spot.lane);
  else if (spot.kind === "shares") {
    zoomAround(spot.range.from, 0.15);
    focusSpot.set(timeline.spotOnLane(spot.lane, toPx(timeline.scale, spot.range.from) + 0.01));
  } else {
    choose(spot);
    if (spot.kind === "piece") reveal(rangeOf(spot.piece.start, spot.piece.end));
  }
  return true;
}
