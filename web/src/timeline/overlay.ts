// What is drawn over the pixels: words in wide pieces, the selection, focus, and the links between lanes.
import type { Lane } from "../api/lanes";
import type { Chain, Critical, ReasonInfo } from "../api/types";
import { lengthOf } from "../lib/format";
import { type TimeScale, nsPerPx, toPx } from "../lib/scale";
import { type TraceNs, type TraceRange, traceNs } from "../lib/units";
import type { LaneRow, Lanes } from "./lanes";
import { type Palette, WAIT_HEIGHT } from "./palette";
import { placeAfter, stateOf } from "./piece";
import { FONT } from "./ruler";

/** Words are written where they have this much room. */
const LEAST_WORD_PX = 46;
/** More than this in one picture cannot be read anyway, and costs time. */
const MOST_WORDS = 400;

export interface Picture {
  readonly context: CanvasRenderingContext2D;
  readonly scale: TimeScale;
  readonly height: number;
  /** How far the lanes are scrolled. */
  readonly scroll: number;
  readonly palette: Palette;
  readonly lanes: Lanes;
}

export interface WordSource {
  /** Escaped. */
  nameOf(task: number): string;
  /** Its runs on a CPU have a ground of their own. */
  readonly selectedTask: number | null;
  readonly reasons: readonly ReasonInfo[];
}

/** Widths of words, measured once: names repeat. */
const widths = new Map<string, number>();
function widthOf(context: CanvasRenderingContext2D, words: string): number {
  const known = widths.get(words);
  if (known !== undefined) return known;
  if (widths.size > 5000) widths.clear();
  const width = context.measureText(words).width;
  widths.set(words, width);
  return width;
}

/** Words in the wide pieces of a lane; the answer is how many were written. */
export function drawWords(
  picture: Picture,
  row: LaneRow,
  lane: Lane,
  source: WordSource,
  left: number,
): number {
  if (lane.form !== "exact" || left <= 0) return 0;
  const { context, scale, palette } = picture;
  const perNs = 1 / nsPerPx(scale);
  const leastNs = LEAST_WORD_PX / perNs;
  const bottom = row.top + row.height - picture.scroll - 2;
  let written = 0;
  for (let at = placeAfter(lane, scale.range.from); at < lane.start.length; at++) {
    const start = lane.start[at] as number;
    if (start >= scale.range.to || written >= left) break;
    const end = lane.end[at] as number;
    if (end - start < leastNs) continue;
    const from = Math.max(0, (start - scale.range.from) * perNs);
    const room = Math.min(scale.width, (end - scale.range.from) * perNs) - from - 8;
    if (room < LEAST_WORD_PX - 8) continue;
    const state = lane.state[at] as number;
    const words = wordsOf(row, state, lane.who[at] as number, end - start, source);
    const shown = fitted(context, words, room);
    if (shown === null) continue;
    const part = stateOf(state).kind === "running" ? 1 : WAIT_HEIGHT;
    const middle = bottom - ((row.height - 4) * part) / 2;
    const isSelected = row.kind === "cpu" && lane.who[at] === source.selectedTask;
    const onRun = isSelected ? palette.selectedText : palette.runningText;
    context.fillStyle = row.kind === "thread" ? (palette.text[state] ?? "") : onRun;
    context.fillText(shown, from + 4, middle + 0.5);
    written += 1;
  }
  return written;
}

function wordsOf(
  row: LaneRow,
  state: number,
  who: number,
  length: number,
  source: WordSource,
): readonly string[] {
  const long = lengthOf(length);
  if (row.kind === "cpu") return [`${source.nameOf(who)} · ${long}`, source.nameOf(who)];
  if (row.kind === "user") return [`worker ${who}`];
  const piece = stateOf(state);
  if (piece.kind === "running") return [`CPU ${who} · ${long}`, long];
  // A hatched ground is hard to read on: the run queue is told by hovering.
  if (piece.kind !== "blocked" && piece.kind !== "off") return [];
  const reason = source.reasons.find(({ id }) => id === piece.reason)?.reason ?? "";
  return [`${reason} · ${long}`, reason];
}

/** The first of the words that has room, the last one cut if need be. */
function fitted(
  context: CanvasRenderingContext2D,
  words: readonly string[],
  room: number,
): string | null {
  const whole = words.find((one) => widthOf(context, one) <= room);
  if (whole !== undefined) return whole;
  const last = words.at(-1);
  if (last === undefined) return null;
  const keep = Math.floor((last.length * (room - 8)) / widthOf(context, last));
  return keep >= 4 ? `${last.slice(0, keep)}…` : null;
}

export function prepareWords({ context }: Picture): void {
  context.font = `10.5px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
}

export const mostWords = MOST_WORDS;

/** The range that is measured: its edges, and a veil over it. */
export function drawRange({ context, scale, height, palette }: Picture, range: TraceRange): void {
  const from = toPx(scale, range.from);
  const to = toPx(scale, range.to);
  context.fillStyle = palette.accent;
  context.globalAlpha = 0.1;
  context.fillRect(from, 0, to - from, height);
  context.globalAlpha = 1;
  context.fillRect(Math.round(from), 0, 1, height);
  context.fillRect(Math.round(to) - 1, 0, 1, height);
}

/** A frame around a stretch of a lane; never so narrow that it cannot be seen. */
export function drawFrame(
  picture: Picture,
  lane: string,
  range: TraceRange,
  style: "selected" | "focused",
): void {
  const row = picture.lanes.rows[picture.lanes.placeOf.get(lane) ?? -1];
  if (row === undefined) return;
  const { context, scale, palette } = picture;
  const from = Math.max(-4, toPx(scale, range.from));
  const to = Math.min(scale.width + 4, toPx(scale, range.to));
  if (to < -2 || from > scale.width + 2) return;
  const wide = Math.max(to - from, 3);
  const left = to - from < 3 ? (from + to) / 2 - 1.5 : from;
  const top = row.top - picture.scroll;
  context.lineWidth = 2;
  context.strokeStyle = palette.words;
  context.setLineDash(style === "focused" ? [4, 2] : []);
  context.strokeRect(left - 1, top + 1, wide + 2, row.height - 2);
  context.setLineDash([]);
  context.lineWidth = 1;
}

/** Where lane and moment are on the screen; lanes that are not shown have no place. */
function placeOf(picture: Picture, task: number, moment: TraceNs): [number, number] | null {
  const row = picture.lanes.rows[picture.lanes.placeOf.get(`t${task}`) ?? -1];
  if (row === undefined) return null;
  return [toPx(picture.scale, moment), row.top + row.height / 2 - picture.scroll];
}

/** Arrows from waker to woken, hop by hop; each on a ground of its own, as lanes have every colour. */
export function drawChain(picture: Picture, chain: Chain): void {
  const { context, palette } = picture;
  for (const [colour, width] of [
    [palette.laneCss, 4.5],
    [palette.words, 1.5],
  ] as const) {
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = width;
    for (const hop of chain.hops) drawHop(picture, hop, width);
  }
  context.lineWidth = 1;
}

function drawHop(picture: Picture, hop: Chain["hops"][number], width: number): void {
  if (hop.woken_ns === null) return;
  const { context, scale } = picture;
  const moment = traceNs(hop.woken_ns);
  const woken = placeOf(picture, hop.thread.task, moment);
  if (woken === null) return;
  if (hop.wait_from_ns !== null) {
    const from = Math.max(-6, toPx(scale, traceNs(hop.wait_from_ns)));
    const to = Math.min(scale.width + 6, woken[0]);
    if (to > from) context.strokeRect(from, woken[1] - 8, to - from, 18);
  }
  const waker = hop.waker === null ? null : placeOf(picture, hop.waker.task, moment);
  if (waker !== null) drawArrow(context, waker, woken, width);
}

function drawArrow(
  context: CanvasRenderingContext2D,
  from: readonly [number, number],
  to: readonly [number, number],
  width: number,
): void {
  if (to[0] < -20 || to[0] > 20_000 || from[1] === to[1]) return;
  const down = to[1] > from[1] ? 1 : -1;
  context.beginPath();
  context.arc(from[0], from[1], 1.5 + width, 0, 2 * Math.PI);
  context.fill();
  context.beginPath();
  context.moveTo(from[0], from[1]);
  context.lineTo(to[0], to[1] - down * 5);
  context.stroke();
  const half = 3.5 + width;
  context.beginPath();
  context.moveTo(to[0], to[1] + down * (width - 1.5));
  context.lineTo(to[0] - half, to[1] - down * (6 + width));
  context.lineTo(to[0] + half, to[1] - down * (6 + width));
  context.fill();
}

/** Lines where the critical path goes from one thread to another. */
export function drawCriticalLinks(picture: Picture, { pieces }: Critical): void {
  const { context, palette, scale } = picture;
  context.strokeStyle = palette.words;
  context.lineWidth = 1;
  context.beginPath();
  let lastX = -Infinity;
  for (let at = 1; at < pieces.length; at++) {
    const before = pieces[at - 1];
    const piece = pieces[at];
    if (before === undefined || piece === undefined) continue;
    const x = toPx(scale, traceNs(piece.from_ns));
    // Where links are denser than pixels, one stands for many.
    if (before.thread.task === piece.thread.task || x < 0 || x > scale.width || x - lastX < 1) {
      continue;
    }
    const from = placeOf(picture, before.thread.task, traceNs(piece.from_ns));
    const to = placeOf(picture, piece.thread.task, traceNs(piece.from_ns));
    if (from === null || to === null) continue;
    context.moveTo(x, from[1]);
    context.lineTo(x, to[1]);
    lastX = x;
  }
  context.stroke();
}

/** The pieces of a critical path as lanes, to be drawn like any other. */
export function criticalLanes(path: Critical): ReadonlyMap<string, Lane> {
  const byLane = new Map<string, Critical["pieces"]>();
  for (const piece of path.pieces) {
    const lane = `t${piece.thread.task}`;
    const known = byLane.get(lane);
    if (known === undefined) byLane.set(lane, [piece]);
    else known.push(piece);
  }
  const lanes = new Map<string, Lane>();
  for (const [lane, pieces] of byLane) {
    pieces.sort((a, b) => a.from_ns - b.from_ns);
    lanes.set(lane, {
      form: "exact",
      start: Float64Array.from(pieces, ({ from_ns }) => from_ns),
      end: Float64Array.from(pieces, ({ to_ns }) => to_ns),
      row: Uint32Array.from(pieces, ({ row }) => row ?? 0xffff_ffff),
      who: new Uint32Array(pieces.length),
      state: Uint8Array.from(pieces, ({ state }) => state),
    });
  }
  return lanes;
}
