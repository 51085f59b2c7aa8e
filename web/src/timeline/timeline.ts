// The time line: from what is known and chosen to a picture, at most once a frame. It watches the atoms
// that can change the picture, asks for data it lacks, and answers what is at a place. Who moves the view
// is `pointer` and `keyboard`, who paints is `painter`; components around it are in `views/`.
//
//   canvas   ImageData of the lanes ▸ words and frames over it       one per frame, only when dirty
//   ruler    ticks, selected range
//   minimap  the whole trace
import type { Readable } from "../lib/atom";
import { type TimeScale, nsPerPx, toMoment } from "../lib/scale";
import { cssPx, rangeOf } from "../lib/units";
import { hiddenReasons, hideRunning } from "../state/filter";
import { lanesArea } from "../state/frame";
import { noteFirstPicture } from "../state/first-picture";
import { lanes, visibleLanes } from "../state/lanes";
import { chainOverlay, criticalOverlay } from "../state/overlay";
import { focusSpot } from "../state/pointer";
import { selectedPiece, selectedRange, selectedTask } from "../state/selection";
import { themeChanges } from "../state/theme";
import { connection, duration, reasons, trace, wholeRange } from "../state/trace";
import { viewRange } from "../state/view";
import { Answers, type LanePart } from "./answers";
import { type Row, rowAt, rowsBetween } from "./lanes";
import { MINIMAP_PX, drawMinimap, minimapCounts } from "./minimap";
import { LanePainter } from "./painter";
import { Requests } from "./requests";
import { RULER_PX, drawRuler } from "./ruler";
import { slowestSpans } from "./spans";
import { type Spot, spotAt } from "./spot";

export interface Elements {
  readonly scroller: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly ruler: HTMLCanvasElement;
  readonly minimap: HTMLCanvasElement;
}

/** Rows beyond the screen that are asked for with those on it. */
const MORE_ROWS = 12;
/** A piece this near to the pointer is meant. */
const NEAR_PX = 4;

export class Timeline {
  private readonly answers = new Answers();
  private readonly requests = new Requests(this.answers, () => this.redraw());
  private readonly painter: LanePainter;
  private readonly contexts: Readonly<
    Record<"canvas" | "ruler" | "minimap", CanvasRenderingContext2D>
  >;
  private readonly ends: (() => void)[] = [];
  private frame = 0;
  private width = cssPx(1);
  private height = cssPx(1);
  private ratio = 1;
  private minimapIsOld = true;
  private hasDrawn = false;

  constructor(private readonly elements: Elements) {
    this.contexts = {
      canvas: contextOf(elements.canvas),
      ruler: contextOf(elements.ruler),
      minimap: contextOf(elements.minimap),
    };
    this.painter = new LanePainter(this.contexts.canvas, (lane) => this.partsOf(lane));
    this.watch(
      [
        viewRange,
        lanes,
        selectedPiece,
        selectedRange,
        focusSpot,
        chainOverlay,
        connection,
        slowestSpans,
      ],
      () => this.redraw(),
    );
    this.watch(
      [themeChanges, reasons, hiddenReasons, hideRunning, selectedTask, criticalOverlay],
      () => this.recolour(),
    );
    this.watch([trace], () => {
      this.answers.outdate(trace.get()?.generation ?? 0);
      this.redraw();
    });
    this.watch([minimapCounts], () => {
      this.minimapIsOld = true;
      this.redraw();
    });
    const sizes = new ResizeObserver(() => this.resize());
    sizes.observe(elements.canvas);
    this.ends.push(() => sizes.disconnect());
    const scrolled = (): void => this.redraw();
    elements.scroller.addEventListener("scroll", scrolled, { passive: true });
    this.ends.push(() => elements.scroller.removeEventListener("scroll", scrolled));
    this.resize();
  }

  end(): void {
    cancelAnimationFrame(this.frame);
    this.requests.end();
    for (const end of this.ends) end();
  }

  get scale(): TimeScale {
    return { range: viewRange.get(), width: this.width };
  }

  /** What is at a place of the canvas; null below the last lane. */
  spotAt(x: number, y: number): Spot | null {
    const all = lanes.get();
    const at = y + this.elements.scroller.scrollTop;
    const row = at < 0 || at >= all.height ? undefined : all.rows[rowAt(all, at)];
    if (row === undefined) return null;
    if (row.kind === "header") return { kind: "header", lane: row.key };
    return this.spotOnLane(row.key, x);
  }

  spotOnLane(lane: string, x: number): Spot {
    const { scale } = this;
    const moment = toMoment(scale, cssPx(x));
    const near = nsPerPx(scale) * NEAR_PX;
    if (lane.startsWith("c")) {
      const gap = trace
        .get()
        ?.gaps.find(
          ({ cpu, from_ns, to_ns }) =>
            `c${cpu}` === lane && from_ns - near <= moment && moment <= to_ns + near,
        );
      if (gap !== undefined) return { kind: "gap", lane, gap, moment };
    }
    return spotAt(lane, this.partsOf(lane), moment, near);
  }

  /** The lane's data that is here, finest last. */
  partsOf(lane: string): LanePart[] {
    const view = viewRange.get();
    const end = Math.max(duration.get(), 1);
    const seen = rangeOf(
      Math.max(0, Math.min(view.from, end)),
      Math.min(Math.max(view.to, 0), end),
    );
    return this.answers.partsOf(lane, seen);
  }

  redraw(): void {
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    }
  }

  private watch(sources: readonly Readable<unknown>[], told: () => void): void {
    for (const source of sources) this.ends.push(source.watch(told));
  }

  private recolour(): void {
    this.painter.recolour();
    this.minimapIsOld = true;
    this.redraw();
  }

  private resize(): void {
    const { canvas, ruler, minimap } = this.elements;
    this.ratio = devicePixelRatio;
    this.width = cssPx(Math.max(1, canvas.clientWidth));
    this.height = cssPx(Math.max(1, canvas.clientHeight));
    setSize(canvas, this.width, this.height, this.ratio);
    setSize(ruler, this.width, RULER_PX, this.ratio);
    setSize(minimap, this.width, MINIMAP_PX, this.ratio);
    this.minimapIsOld = true;
    lanesArea.set({ left: canvas.getBoundingClientRect().left, width: this.width });
    // At once: a canvas whose size has changed is empty until it is drawn.
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.draw();
  }

  private draw(): void {
    if (devicePixelRatio !== this.ratio) {
      this.resize();
      return;
    }
    const { scale, ratio, height } = this;
    const { scroller } = this.elements;
    const scroll = scroller.scrollTop;
    const rows = rowsBetween(lanes.get(), scroll, scroll + height);
    const hasFocus = document.activeElement === scroller;
    this.painter.paint({ rows, scale, height, scroll, ratio, hasFocus });
    const { palette } = this.painter.colours();
    const selected = selectedRange.get();
    drawRuler(this.contexts.ruler, ratio, scale, wholeRange.get(), selected, palette);
    if (this.minimapIsOld) {
      this.minimapIsOld = false;
      drawMinimap(this.contexts.minimap, ratio, this.width, minimapCounts.get(), palette);
    }
    this.markFirst(rows);
    tellVisible(rows);
    this.requests.ask(wantedLanes(rows, scroll), scale, wholeRange.get());
    scroller.setAttribute("aria-busy", String(this.requests.underWay));
  }

  /** Tells when lanes can first be seen. */
  private markFirst(rows: readonly Row[]): void {
    if (this.hasDrawn || !rows.some(({ key }) => this.partsOf(key).length > 0)) return;
    this.hasDrawn = true;
    noteFirstPicture();
  }

  /** Scrolls so that a row can be seen. */
  scrollTo(row: Row): void {
    const { scroller } = this.elements;
    const top = scroller.scrollTop;
    if (row.top < top) scroller.scrollTop = Math.max(0, row.top - 24);
    else if (row.top + row.height > top + this.height) {
      scroller.scrollTop = row.top + row.height - this.height + 24;
    }
  }
}

/** Opaque, and read by the processor: pixels are written by us, not drawn by a graphics processor. */
function contextOf(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const context = canvas.getContext("2d", { alpha: false });
  if (context === null) throw new Error("this browser cannot draw on a canvas");
  return context;
}

function setSize(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): void {
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
}

function tellVisible(rows: readonly Row[]): void {
  const names = rows.flatMap((row) => (row.kind === "header" ? [] : [row.key]));
  const known = visibleLanes.get();
  if (names.length !== known.length || names.some((name, at) => name !== known[at])) {
    visibleLanes.set(names);
  }
}

/** Those on the screen first, then some on both sides. */
function wantedLanes(rows: readonly Row[], scroll: number): string[] {
  const all = lanes.get();
  const first = rowAt(all, scroll);
  const after = first + rows.length;
  const near = [
    ...all.rows.slice(after, after + MORE_ROWS),
    ...all.rows.slice(Math.max(0, first - MORE_ROWS), first),
  ];
  return [...rows, ...near].flatMap((row) => (row.kind === "header" ? [] : [row.key]));
}
