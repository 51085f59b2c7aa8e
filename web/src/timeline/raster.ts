// Pixels. Lanes are written straight into the memory of an `ImageData`, 32 bits at a time: that takes a few
// milliseconds a frame even where the browser has no graphics processor, and does not depend on how
// many switches there are. Words and outlines are drawn over it afterwards, by `overlay`.
import type { ColumnSink } from "./columns";
import { Columns } from "./columns";
import type { LanePart } from "./answers";
import type { Palette } from "./palette";

/** Even the shortest run in a column can be seen: this many pixels of the style sheet high. */
const LEAST_HEIGHT_PX = 2;

/** How running pieces are coloured: all the same, or in shades by which task or worker ran. */
export type Shading = "plain" | "by task" | "by worker";

export class Raster implements ColumnSink {
  width = 0;
  height = 0;
  image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private readonly columns = new Columns(this);

  // Of the lane that is being drawn.
  private palette: Palette | null = null;
  private bottom = 0;
  private laneHeight = 0;
  private ratio = 1;
  private phase = 0;
  private shading: Shading = "plain";
  private shadeOf: (who: number) => number = () => 0;

  resize(width: number, height: number): void {
    if (width === this.width && height === this.height && this.image !== null) return;
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    this.image = new ImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  begin(palette: Palette, ratio: number, shadeOf: (who: number) => number): void {
    this.palette = palette;
    this.ratio = ratio;
    this.shadeOf = shadeOf;
    this.pixels.fill(palette.lane);
  }

  /** Other colours from here on. */
  colourWith(palette: Palette): void {
    this.palette = palette;
  }

  /** A rectangle, cut to the picture. */
  fill(left: number, top: number, right: number, bottom: number, colour: number): void {
    const from = Math.max(0, left);
    const to = Math.min(this.width, right);
    if (from >= to) return;
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); y++) {
      this.pixels.fill(colour, y * this.width + from, y * this.width + to);
    }
  }

  /** Slanting lines: something is missing here. */
  hatch(left: number, top: number, right: number, bottom: number, colour: number): void {
    const period = Math.max(4, Math.round(7 * this.ratio));
    const thick = Math.max(1, Math.round(1.6 * this.ratio));
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); y++) {
      const row = y * this.width;
      for (let x = Math.max(0, left); x < Math.min(this.width, right); x++) {
        if ((x + y + this.phase) % period < thick) this.pixels[row + x] = colour;
      }
    }
  }

  private get dotPeriod(): number {
    return 6 * Math.max(1, Math.round(this.ratio));
  }

  /** Sparse dots: what was here was not recorded. They stand still among themselves as the view moves. */
  dots(left: number, top: number, right: number, bottom: number, colour: number): void {
    const period = this.dotPeriod;
    const size = period / 6;
    const from = Math.max(0, left);
    const to = Math.min(this.width, right);
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); y++) {
      const line = y - top - size;
      if (line < 0 || line % (period / 2) >= size) continue;
      const shift = Math.floor(line / (period / 2)) % 2 === 0 ? 0 : period / 2;
      const row = y * this.width;
      for (let x = from - ((from + this.phase + shift) % period); x < to; x += period) {
        const end = Math.min(x + size, to);
        if (end > from) this.pixels.fill(colour, row + Math.max(x, from), row + end);
      }
    }
  }

  /** How far hatches and dots have moved with the view, so that they stay with what they mark. */
  movePhase(px: number): void {
    // A multiple of every pattern's own period.
    const period = Math.max(4, Math.round(7 * this.ratio)) * 8 * this.dotPeriod;
    this.phase = ((Math.round(px) % period) + period) % period;
  }

  /** A lane from its parts, coarsest first. Each is drawn only where no finer one reaches. */
  lane(
    parts: readonly LanePart[],
    top: number,
    height: number,
    origin: number,
    nsPerPx: number,
    shading: Shading,
  ): void {
    if (top + height <= 0 || top >= this.height) return;
    this.bottom = top + height;
    this.laneHeight = height;
    this.shading = shading;
    let [doneFrom, doneTo] = [0, 0];
    for (let place = parts.length - 1; place >= 0; place--) {
      const part = parts[place];
      if (part === undefined) continue;
      const first = Math.max(0, Math.round((part.range.from - origin) / nsPerPx));
      const last = Math.min(this.width, Math.round((part.range.to - origin) / nsPerPx));
      const isFirst = doneFrom === doneTo;
      // One that lies apart from what is drawn would leave a hole between: a coarser one covers both.
      if (first >= last || (!isFirst && (first > doneTo || last < doneFrom))) continue;
      if (isFirst) {
        this.part(part, origin, nsPerPx, first, last);
        [doneFrom, doneTo] = [first, last];
      } else {
        this.part(part, origin, nsPerPx, first, doneFrom);
        this.part(part, origin, nsPerPx, doneTo, last);
        [doneFrom, doneTo] = [Math.min(first, doneFrom), Math.max(last, doneTo)];
      }
    }
  }

  private part(part: LanePart, origin: number, nsPerPx: number, first: number, last: number): void {
    if (first >= last) return;
    this.columns.draw(part.lane, part.range.from, part.nsPerBin, origin, nsPerPx, first, last);
  }

  stretch(from: number, to: number, state: number, who: number): void {
    const { palette } = this;
    if (palette === null) return;
    const part = palette.height[state] as number;
    const top = this.bottom - Math.max(1, Math.round(this.laneHeight * part));
    if (this.shading !== "plain" && part === 1) {
      const shade =
        this.shading === "by task"
          ? palette.running[this.shadeOf(who)]
          : palette.workers[who % palette.workers.length];
      if (shade === undefined) return;
      this.plain(from, to, top, this.bottom, shade);
      // A line of ground between neighbours, where there is room for it.
      if (to - from > 6 * this.ratio) this.plain(from, from + 1, top, this.bottom, palette.lane);
      return;
    }
    this.band(from, to, top, this.bottom, state, palette);
  }

  mixture(from: number, to: number, states: Uint8Array, count: number, share: Float32Array): void {
    const { palette, bottom, laneHeight } = this;
    if (palette === null) return;
    const { order, height, mixed } = palette;
    const least = Math.max(1, Math.round(LEAST_HEIGHT_PX * this.ratio));
    const top = bottom - laneHeight;
    let y = bottom;
    let exact = 0;
    for (let wanted = 0; wanted <= 2 && y > top; wanted++) {
      // Waits may vanish in a column, runs and the run queue may not: they are what is looked for.
      const smallest = wanted === 2 ? 0 : least;
      for (let at = 0; at < count; at++) {
        const state = states[at] as number;
        if (order[state] !== wanted) continue;
        exact += (share[state] as number) * (height[state] as number) * laneHeight;
        const next = Math.max(top, Math.min(y - smallest, Math.round(bottom - exact)));
        if (next < y) {
          const isWorker = wanted === 0 && this.shading === "by worker";
          const colour = isWorker ? palette.workers[0] : mixed[state];
          this.plain(from, to, next, y, colour as number);
          y = next;
        }
      }
    }
  }

  private band(
    from: number,
    to: number,
    top: number,
    bottom: number,
    state: number,
    palette: Palette,
  ): void {
    const colour = palette.solid[state] as number;
    const between = palette.between[state] as number;
    if (colour === between) this.plain(from, to, top, bottom, colour);
    else this.hatched(from, to, top, bottom, colour, between);
  }

  private plain(from: number, to: number, top: number, bottom: number, colour: number): void {
    const { pixels, width } = this;
    const first = Math.max(0, top);
    const last = Math.min(this.height, bottom);
    if (to - from === 1) {
      const end = last * width + from;
      for (let at = first * width + from; at < end; at += width) pixels[at] = colour;
    } else if (to - from < 12) {
      for (let y = first; y < last; y++) {
        for (let at = y * width + from; at < y * width + to; at++) pixels[at] = colour;
      }
    } else {
      for (let y = first; y < last; y++) pixels.fill(colour, y * width + from, y * width + to);
    }
  }

  private hatched(
    from: number,
    to: number,
    top: number,
    bottom: number,
    colour: number,
    between: number,
  ): void {
    const { pixels, width, phase } = this;
    const bit = this.ratio > 1.5 ? 4 : 2;
    for (let y = Math.max(0, top); y < Math.min(this.height, bottom); y++) {
      const row = y * width;
      for (let x = from; x < to; x++) {
        pixels[row + x] = ((x + y + phase) & bit) === 0 ? colour : between;
      }
    }
  }
}
