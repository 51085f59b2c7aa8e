// The lanes' data that is here, and what to ask for next. Answers are kept as they came: a span, cut
// into bins, with some lanes. A lane is drawn from the oldest trace to the newest, and of one from the
// coarsest answer to the finest, so that moving the view never waits for the server: what is here is
// drawn scaled until the better arrives.
import type { Lane, LanesAnswer } from "../api/lanes";
import { type TimeScale, nsPerPx } from "../lib/scale";
import { type TraceRange, overlap, rangeOf, spanOf } from "../lib/units";

/** Bins that one request may have (`api/lanes`). */
const MOST_BINS = 8192;
/** A bin may be this many pixels wide before finer ones are asked for. */
const COARSEST_BIN_PX = 1.5;
const MOST_ANSWERS = 40;
const MOST_BYTES = 64e6;

/** An answer that is here. */
interface Kept {
  readonly range: TraceRange;
  readonly nsPerBin: number;
  readonly generation: number;
  readonly lanes: ReadonlyMap<string, Lane>;
  readonly bytes: number;
  /** Grows with use: the answer with the smallest goes first. */
  used: number;
}

/** A part of a lane to draw from. */
export interface LanePart {
  readonly lane: Lane;
  readonly range: TraceRange;
  readonly nsPerBin: number;
}

/** What to ask for: a span, and into how many bins to cut it (`px` of `api/lanes`). */
export interface Wanted {
  readonly range: TraceRange;
  readonly px: number;
}

/**
 * The span and bins to ask for: half a view more on both sides, bins of about a pixel whose width is a
 * power of √2, in whole ns, and whose edges are multiples of 64 of them. A view that moves a little asks for the same again.
 */
export function wantedFor(scale: TimeScale, whole: TraceRange): Wanted {
  const span = spanOf(scale.range);
  let power = Math.floor(2 * Math.log2(Math.max(nsPerPx(scale), 1e-6)));
  for (;;) {
    const bin = Math.max(1, Math.round(2 ** (power / 2)));
    const block = bin * 64;
    const from = Math.max(Math.floor((scale.range.from - span / 2) / block) * block, 0);
    const least = Math.ceil((scale.range.to + span / 2) / block) * block;
    const to = Math.min(least, Math.ceil(whole.to / block) * block);
    const px = Math.max(1, Math.round((to - from) / bin));
    if (px <= MOST_BINS) return { range: rangeOf(from, Math.max(to, from + bin)), px };
    power += 1;
  }
}

export class Answers {
  private kept: Kept[] = [];
  private uses = 0;
  private generation = 0;

  /** Takes an answer for the lanes that were asked for, in that order. */
  take(names: readonly string[], answer: LanesAnswer, bytes: number): void {
    this.generation = Math.max(this.generation, answer.generation);
    const lanes = new Map<string, Lane>();
    names.forEach((name, place) => {
      const lane = answer.lanes[place];
      if (lane !== undefined) lanes.set(name, lane);
    });
    this.uses += 1;
    const nsPerBin = spanOf(answer.range) / answer.px;
    const { range, generation } = answer;
    this.kept.push({ range, nsPerBin, generation, lanes, bytes, used: this.uses });
    // What a newer trace says stands above: an older answer may reach beyond what was known then, and
    // is empty there.
    this.kept.sort((a, b) => a.generation - b.generation || b.nsPerBin - a.nsPerBin);
    this.forget();
  }

  /** A newer trace is there: what is here is drawn, but no longer enough. */
  outdate(generation: number): void {
    this.generation = Math.max(this.generation, generation);
  }

  /** From what a lane is drawn: older traces first, then the coarsest. What a later part covers wholly is left out. */
  partsOf(name: string, view: TraceRange): LanePart[] {
    const parts: LanePart[] = [];
    for (let place = this.kept.length - 1; place >= 0; place--) {
      const answer = this.kept[place];
      const lane = answer?.lanes.get(name);
      if (answer === undefined || lane === undefined || !overlap(answer.range, view)) continue;
      this.uses += 1;
      answer.used = this.uses;
      parts.unshift({ lane, range: answer.range, nsPerBin: answer.nsPerBin });
      if (covers(answer.range, view)) break;
    }
    return parts;
  }

  /** Whether a lane can be drawn as well as it can be seen. */
  suffices(name: string, scale: TimeScale, whole: TraceRange): boolean {
    const from = Math.max(scale.range.from, whole.from);
    const to = Math.min(scale.range.to, whole.to);
    if (from >= to) return true;
    // Of a wide window, no finer bins can be asked for than these.
    const wanted = wantedFor(scale, whole);
    const finest = spanOf(wanted.range) / wanted.px;
    const coarsest = Math.max(nsPerPx(scale) * COARSEST_BIN_PX, finest);
    return this.kept.some((answer) => {
      const lane = answer.lanes.get(name);
      if (lane === undefined || answer.generation < this.generation) return false;
      const fine = lane.form === "exact" || answer.nsPerBin <= coarsest;
      return fine && answer.range.from <= from && answer.range.to >= to;
    });
  }

  private forget(): void {
    let bytes = this.kept.reduce((sum, answer) => sum + answer.bytes, 0);
    while (this.kept.length > 1 && (this.kept.length > MOST_ANSWERS || bytes > MOST_BYTES)) {
      const leastUsed = this.kept.reduce((a, b) => (a.used <= b.used ? a : b));
      this.kept = this.kept.filter((answer) => answer !== leastUsed);
      bytes -= leastUsed.bytes;
    }
  }
}

const covers = (outer: TraceRange, inner: TraceRange): boolean =>
  outer.from <= inner.from && outer.to >= inner.to;
