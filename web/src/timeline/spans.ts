// The slowest spans on the lanes of their threads: a bracket at the upper edge, from begin to end.
import * as api from "../api/client";
import type { Report } from "../api/types";
import { atom } from "../lib/atom";
import { escaped } from "../lib/escape";
import { counted, lengthOf } from "../lib/format";
import { toPx } from "../lib/scale";
import { type TraceNs, type TraceRange, rangeOf, traceNs } from "../lib/units";
import { firstPicture } from "../state/first-picture";
import { noteAnswer, taskOf, trace } from "../state/trace";
import type { LaneRow } from "./lanes";
import type { Picture } from "./overlay";
import type { Spot } from "./spot";

/** As many as the list of spans has. */
export const MOST_SPANS = 1_000;

/** A span of one thread. */
export interface LaneSpan {
  readonly range: TraceRange;
  /** Its name, escaped, and its length. */
  readonly words: string;
}

type SpansByLane = ReadonlyMap<string, readonly LaneSpan[]>;

/** The slowest spans by the lane of their thread; empty until the server has told, and where a trace has none. */
export const slowestSpans = atom<SpansByLane>(new Map());

/** Asks once, and again when the trace has grown. */
export function watchSpans(): () => void {
  let asked = -1;
  const ask = async (): Promise<void> => {
    const known = trace.get();
    if (known === null || !known.has_spans || known.generation === asked) return;
    asked = known.generation;
    try {
      const { rows } = await api.report("span", null, { top: MOST_SPANS });
      slowestSpans.set(spansByLane(rows, taskOf));
    } catch (error) {
      asked = -1;
      noteAnswer(error);
    }
  };
  void firstPicture.then(ask);
  return trace.watch(() => void ask());
}

/**
 * Each span of a report on the lane of its thread. One that a program published is left out: it may be in several
 * stretches and on several threads, of which a row has only the first.
 */
export function spansByLane(
  rows: Report["rows"],
  taskOf: (tid: unknown) => number | null,
): SpansByLane {
  const lanes = new Map<string, LaneSpan[]>();
  for (const row of rows) {
    const [began, length] = [row["began_ns"], row["length_ns"]];
    const task = typeof row["trace_id"] === "string" ? null : taskOf(row["tid"]);
    if (task === null || typeof began !== "number" || typeof length !== "number") continue;
    const words = `${escaped(String(row["span"]))}, ${lengthOf(length)}`;
    const span = { range: rangeOf(began, began + length), words };
    const known = lanes.get(`t${task}`);
    if (known === undefined) lanes.set(`t${task}`, [span]);
    else known.push(span);
  }
  return lanes;
}

/** The words of what is marked where a spot is; a spot of many pieces names at most three. */
export function spanWords(spot: Spot, lanes: SpansByLane): string[] {
  const range = rangeOfSpot(spot);
  if (range === null) return [];
  const here = (lanes.get(spot.lane) ?? []).filter(
    (span) => span.range.from <= range.to && range.from <= span.range.to,
  );
  const named = here.slice(0, 3).map(({ words }) => `in the span ${words}`);
  const more = here.length - named.length;
  return more > 0 ? [...named, `and ${counted(more, "more span")} of the slowest`] : named;
}

function rangeOfSpot(spot: Spot): TraceRange | null {
  switch (spot.kind) {
    case "piece":
      return rangeOf(spot.piece.start, spot.piece.end);
    case "shares":
      return spot.range;
    case "nothing":
      return rangeOf(spot.moment, spot.moment);
    case "gap":
    case "header":
      return null;
  }
}

/** Brackets over a lane; where they are denser than pixels, one stands for many. */
export function drawSpans(picture: Picture, row: LaneRow, lanes: SpansByLane): void {
  const { context, scale, palette, scroll } = picture;
  const top = Math.round(row.top - scroll) + 1;
  context.fillStyle = palette.words;
  for (const { range } of lanes.get(row.key) ?? []) {
    if (range.to < scale.range.from || range.from > scale.range.to) continue;
    const at = (moment: TraceNs): number =>
      Math.round(Math.min(Math.max(toPx(scale, moment), -2), scale.width + 2));
    const [from, to] = [at(traceNs(range.from)), at(traceNs(range.to))];
    context.fillRect(from, top, Math.max(to - from, 1), 1);
    context.fillRect(from, top, 1, 4);
    context.fillRect(Math.max(to - 1, from), top, 1, 4);
  }
}
