// Paints the lanes: pixels first, then words, frames and links over them. The time line passes the data of a
// lane (`partsOf`) and what part of the lanes is on the screen (`Screen`); the rest is read from the state.
import type { Lane } from "../api/lanes";
import type { TimeScale } from "../lib/scale";
import { type CssPx, overlap, rangeOf } from "../lib/units";
import { hiddenReasons, hideRunning } from "../state/filter";
import { lanes } from "../state/lanes";
import { chainOverlay, criticalOverlay } from "../state/overlay";
import { focusSpot } from "../state/pointer";
import { selectedPiece, selectedRange, selectedTask } from "../state/selection";
import { duration, placeOfTask, reasons, threads, trace, wholeRange } from "../state/trace";
import type { LanePart } from "./answers";
import { type GroundSource, lifeOf } from "./ground";
import type { LaneRow, Row } from "./lanes";
import * as overlay from "./overlay";
import { type Palette, paletteOf } from "./palette";
import { Raster } from "./raster";
import { drawSpans, slowestSpans } from "./spans";
import { nameOfTask } from "./words";

/** Ground above and below what is drawn of a lane. */
const LANE_AIR_PX = 2;
const SHADING = { thread: "plain", cpu: "by task", user: "by worker" } as const;
/** Shades of the palette in which runs on a CPU differ by process. */
const PROCESS_SHADES = 3;
/** The shade of the runs of the selected thread: the one after those by process. */
const SELECTED_SHADE = PROCESS_SHADES;

/** What part of the lanes is on the screen. */
export interface Screen {
  readonly rows: readonly Row[];
  readonly scale: TimeScale;
  readonly height: CssPx;
  /** How far the lanes are scrolled. */
  readonly scroll: number;
  /** Pixels of the device for each of the style sheet. */
  readonly ratio: number;
  readonly hasFocus: boolean;
}

/** Where a lane lies in the picture, in pixels of the picture. */
interface Place {
  readonly top: number;
  readonly height: number;
  /** Ground above and below. */
  readonly air: number;
  /** The moment at the left edge, and time per pixel. */
  readonly origin: number;
  readonly step: number;
}

/** The colours of all lanes. */
export interface LaneColours {
  /** With what is hidden dimmed. */
  readonly palette: Palette;
  /** Undimmed: for what stands out of a dimmed picture. */
  readonly bright: Palette;
}

export class LanePainter {
  private readonly raster = new Raster();
  /** null: to be read again from the style sheet. */
  private known: LaneColours | null = null;
  private critical: ReadonlyMap<string, Lane> = new Map();

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly partsOf: (lane: string) => readonly LanePart[],
  ) {}

  /** To be called when the colours have changed, what is dimmed, or which path stands out. */
  recolour(): void {
    const shown = criticalOverlay.get();
    this.critical = shown === null ? new Map() : overlay.criticalLanes(shown.path);
    this.known = null;
  }

  colours(): LaneColours {
    if (this.known === null) {
      const style = getComputedStyle(document.documentElement);
      const read = (variable: string): string => style.getPropertyValue(variable);
      const none = { reasons: new Set<number>(), running: false, all: false };
      const dimmed = {
        reasons: hiddenReasons.get(),
        running: hideRunning.get(),
        all: criticalOverlay.get() !== null,
      };
      this.known = {
        palette: paletteOf(read, reasons.get(), dimmed),
        bright: paletteOf(read, reasons.get(), none),
      };
    }
    return this.known;
  }

  paint(screen: Screen): void {
    const colours = this.colours();
    this.paintLanes(screen, colours);
    this.paintOver(screen, colours.palette);
  }

  /** Everything that is made of pixels. */
  private paintLanes({ rows, scale, height, scroll, ratio }: Screen, colours: LaneColours): void {
    const { raster } = this;
    const { palette } = colours;
    const source = { trace: trace.get(), threads: threads.get(), placeOfTask: placeOfTask.get() };
    raster.resize(Math.round(scale.width * ratio), Math.round(height * ratio));
    const origin = scale.range.from;
    const step = (scale.range.to - origin) / raster.width;
    const whole = wholeRange.get();
    raster.begin(palette, ratio, this.shades());
    raster.movePhase(origin / step);
    const begin = Math.round((whole.from - origin) / step);
    const end = Math.round((whole.to - origin) / step);
    raster.fill(0, 0, begin, raster.height, palette.outside);
    raster.fill(end, 0, raster.width, raster.height, palette.outside);
    const air = Math.round(LANE_AIR_PX * ratio);
    for (const row of rows) {
      const top = Math.round((row.top - scroll) * ratio);
      const bottom = Math.round((row.top + row.height - scroll) * ratio);
      if (row.kind === "header") {
        raster.fill(0, top, raster.width, bottom, palette.header);
        continue;
      }
      raster.fill(0, bottom - 1, raster.width, bottom, palette.line);
      const place = { top: top + air, height: bottom - top - 2 * air, air, origin, step };
      this.paintLane(row, place, colours, source);
    }
    // Not subject to the transform, unlike all that follows.
    if (raster.image !== null) this.context.putImageData(raster.image, 0, 0);
  }

  private paintLane(row: LaneRow, place: Place, colours: LaneColours, source: GroundSource): void {
    const { raster } = this;
    const { palette, bright } = colours;
    const { top, height, origin, step } = place;
    this.paintGround(row, place, palette, source);
    raster.lane(this.partsOf(row.key), top, height, origin, step, SHADING[row.kind]);
    const standingOut = this.critical.get(row.key);
    if (standingOut !== undefined) {
      const part = { lane: standingOut, range: rangeOf(0, duration.get()), nsPerBin: 0 };
      raster.colourWith(bright);
      raster.lane([part], top, height, origin, step, "plain");
      raster.colourWith(palette);
    }
    if (row.kind === "cpu") this.paintGaps(row, place, palette);
  }

  /**
   * What is seen where nothing is drawn over it: dots on a CPU on which others may have run, and before and
   * after the life of a thread the same colour as outside of the trace.
   */
  private paintGround(row: LaneRow, place: Place, palette: Palette, source: GroundSource): void {
    const { raster } = this;
    const { top, height, air, origin, step } = place;
    const whole = wholeRange.get();
    const columnOf = (moment: number): number =>
      Math.round((Math.min(Math.max(moment, whole.from), whole.to) - origin) / step);
    const [begin, end] = [columnOf(whole.from), columnOf(whole.to)];
    if (row.kind === "cpu") {
      if (source.trace?.every_task !== false) return;
      raster.dots(begin, top, end, top + height, palette.dots);
    } else {
      const life = lifeOf(row.key, source);
      // Up to the line between lanes.
      const [above, below] = [top - air, top + height + air - 1];
      raster.fill(begin, above, columnOf(life.from), below, palette.outside);
      raster.fill(columnOf(life.to), above, end, below, palette.outside);
    }
  }

  private paintGaps(row: LaneRow, { top, height, origin, step }: Place, palette: Palette): void {
    const { raster } = this;
    for (const gap of trace.get()?.gaps ?? []) {
      if (gap.cpu !== row.number) continue;
      const from = Math.round((gap.from_ns - origin) / step);
      // The shortest gap can be seen, too.
      const to = Math.max(from + 2, Math.round((gap.to_ns - origin) / step));
      if (to > 0 && from < raster.width) raster.hatch(from, top, to, top + height, palette.gap);
    }
  }

  /** Runs on a CPU differ by process; those of the selected thread stand out. */
  private shades(): (task: number) => number {
    const selected = selectedTask.get();
    const places = placeOfTask.get();
    const pids = threads.get()?.pid ?? [];
    return (task) => {
      if (task === selected) return SELECTED_SHADE;
      return (pids[places.get(task) ?? -1] ?? task) % PROCESS_SHADES;
    };
  }

  /** What is drawn over the pixels. */
  private paintOver(screen: Screen, palette: Palette): void {
    const { context } = this;
    const { rows, scale, height, scroll, ratio } = screen;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const picture = { context, scale, height, scroll, palette, lanes: lanes.get() };
    // In a dimmed picture words of what is dimmed would stand out most.
    if (criticalOverlay.get() === null) this.paintWords(picture, rows);
    const spans = slowestSpans.get();
    for (const row of rows) if (row.kind === "thread") drawSpans(picture, row, spans);
    const range = selectedRange.get();
    if (range !== null) overlay.drawRange(picture, range);
    const critical = criticalOverlay.get();
    if (critical !== null) overlay.drawCriticalLinks(picture, critical.path);
    const chain = chainOverlay.get();
    if (chain !== null) overlay.drawChain(picture, chain);
    const piece = selectedPiece.get();
    if (piece !== null && piece.lane !== null && piece.range !== null) {
      overlay.drawFrame(picture, piece.lane, piece.range, "selected");
    }
    if (screen.hasFocus) paintFocus(picture);
  }

  private paintWords(picture: overlay.Picture, rows: readonly Row[]): void {
    const names = {
      trace: trace.get(),
      reasons: reasons.get(),
      threads: threads.get(),
      placeOfTask: placeOfTask.get(),
    };
    const source = {
      nameOf: (task: number) => nameOfTask(task, names),
      selectedTask: selectedTask.get(),
      reasons: names.reasons,
    };
    overlay.prepareWords(picture);
    let left = overlay.mostWords;
    for (const row of rows) {
      if (row.kind === "header" || row.kind === "user") continue;
      const finest = this.partsOf(row.key).at(-1);
      if (finest !== undefined && overlap(finest.range, picture.scale.range)) {
        left -= overlay.drawWords(picture, row, finest.lane, source, left);
      }
    }
  }
}

function paintFocus(picture: overlay.Picture): void {
  const spot = focusSpot.get();
  if (spot === null) return;
  const { range } = picture.scale;
  if (spot.kind === "piece") {
    const { start, end } = spot.piece;
    overlay.drawFrame(picture, spot.lane, rangeOf(start, end), "focused");
  } else {
    overlay.drawFrame(picture, spot.lane, spot.kind === "shares" ? spot.range : range, "focused");
  }
}
