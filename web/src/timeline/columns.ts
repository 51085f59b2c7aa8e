// A lane's part as columns of pixels: which stretches have one state, and which columns are a mixture,
// with the share of each state. Neither colours nor heights are known here.
//
//   pieces   ├──run──┤├blocked──────┤├run┤├┤├┤├┤
//   columns  │ run   │▒│ blocked    │▒▒▒▒▒▒▒▒▒▒│      ▒ more than one state in the column
//
// A stretch costs one call however long it is; a mixture costs its states. Time runs left to right, so one
// accumulator is enough: it holds the column that is not complete yet.
import type { BinnedLane, ExactLane, Lane } from "../api/lanes";
import { placeAfter } from "./piece";

/** What receives the columns. `to` is exclusive. */
export interface ColumnSink {
  /** `who`: of the piece that fills the stretch. */
  stretch(from: number, to: number, state: number, who: number): void;
  /** `states`: those present, `share` by state byte; both are valid during the call only. */
  mixture(from: number, to: number, states: Uint8Array, count: number, share: Float32Array): void;
}

/** Below this a share is rounding. */
const LEAST = 1e-4;

export class Columns {
  private readonly share = new Float32Array(256);
  private readonly states = new Uint8Array(256);
  private count = 0;
  private column = 0;
  private who = 0;

  constructor(private readonly sink: ColumnSink) {}

  /** Columns `first` to `last` (exclusive) of a view that begins at `origin` ns. */
  draw(
    lane: Lane,
    laneFrom: number,
    nsPerBin: number,
    origin: number,
    nsPerPx: number,
    first: number,
    last: number,
  ): void {
    this.count = 0;
    this.column = first;
    if (lane.form === "exact") this.exact(lane, origin, nsPerPx, first, last);
    else if (lane.form === "binned") {
      this.binned(lane, laneFrom, nsPerBin, origin, nsPerPx, first, last);
    }
    this.flush();
  }

  private exact(
    lane: ExactLane,
    origin: number,
    nsPerPx: number,
    first: number,
    last: number,
  ): void {
    const { start, end, state, who } = lane;
    const perNs = 1 / nsPerPx;
    const until = origin + last * nsPerPx;
    for (let at = placeAfter(lane, origin + first * nsPerPx); at < start.length; at++) {
      const begin = start[at] as number;
      if (begin >= until) break;
      const from = Math.max((begin - origin) * perNs, first);
      const to = Math.min(((end[at] as number) - origin) * perNs, last);
      this.who = who[at] as number;
      this.span(from, to, state[at] as number);
    }
  }

  private binned(
    { bins }: BinnedLane,
    laneFrom: number,
    nsPerBin: number,
    origin: number,
    nsPerPx: number,
    first: number,
    last: number,
  ): void {
    const pxPerBin = nsPerBin / nsPerPx;
    const offset = (laneFrom - origin) / nsPerPx;
    const firstBin = Math.max(0, Math.floor((first - offset) / pxPerBin));
    let at = lowerBound(bins, firstBin * 65536);
    this.who = 0;
    while (at < bins.length) {
      const bin = (bins[at] as number) >>> 16;
      let next = at + 1;
      while (next < bins.length && (bins[next] as number) >>> 16 === bin) next++;
      const from = Math.max(offset + bin * pxPerBin, first);
      const to = Math.min(offset + (bin + 1) * pxPerBin, last);
      if (from >= last) break;
      if (to > from) this.bin(bins, at, next, from, to);
      at = next;
    }
  }

  /** The shares of one bin, over the columns it touches. */
  private bin(bins: Uint32Array, at: number, next: number, from: number, to: number): void {
    const firstColumn = Math.floor(from);
    const lastColumn = Math.floor(to);
    if (firstColumn === lastColumn) {
      this.addBin(bins, at, next, firstColumn, to - from);
      return;
    }
    this.addBin(bins, at, next, firstColumn, firstColumn + 1 - from);
    if (lastColumn > firstColumn + 1) {
      this.addBin(bins, at, next, firstColumn + 1, 1);
      this.emit(firstColumn + 1, lastColumn);
    }
    if (to > lastColumn) this.addBin(bins, at, next, lastColumn, to - lastColumn);
  }

  /** Every entry of every bin on the screen comes through here in every frame: nothing is called inside. */
  private addBin(bins: Uint32Array, at: number, next: number, column: number, part: number): void {
    if (column !== this.column) {
      this.flush();
      this.column = column;
    }
    const { share, states } = this;
    const unit = Math.max(part, LEAST) / 255;
    let count = this.count;
    for (let entry = at; entry < next; entry++) {
      const bits = bins[entry] as number;
      if ((bits & 255) === 0) continue;
      const state = (bits >>> 8) & 255;
      const known = share[state] as number;
      if (known === 0) states[count++] = state;
      share[state] = known + unit * (bits & 255);
    }
    this.count = count;
  }

  private span(from: number, to: number, state: number): void {
    const firstColumn = Math.floor(from);
    const lastColumn = Math.floor(to);
    if (firstColumn === lastColumn) {
      this.add(firstColumn, state, to - from);
      return;
    }
    let whole = firstColumn;
    if (from > firstColumn) {
      this.add(firstColumn, state, firstColumn + 1 - from);
      whole += 1;
    }
    if (lastColumn > whole) {
      this.flush();
      this.sink.stretch(whole, lastColumn, state, this.who);
    }
    if (to > lastColumn) this.add(lastColumn, state, to - lastColumn);
  }

  private add(column: number, state: number, share: number): void {
    if (column !== this.column) {
      this.flush();
      this.column = column;
    }
    const known = this.share[state] as number;
    if (known === 0) {
      this.states[this.count] = state;
      this.count += 1;
    }
    this.share[state] = known + Math.max(share, LEAST);
  }

  private flush(): void {
    this.emit(this.column, this.column + 1);
  }

  private emit(from: number, to: number): void {
    const { count, states, share } = this;
    if (count === 0) return;
    const only = states[0] as number;
    if (count === 1 && (share[only] as number) > 0.995) {
      this.sink.stretch(from, to, only, this.who);
    } else {
      this.sink.mixture(from, to, states, count, share);
    }
    for (let at = 0; at < count; at++) share[states[at] as number] = 0;
    this.count = 0;
  }
}

/** The first place whose entry is not below `entry`. */
function lowerBound(bins: Uint32Array, entry: number): number {
  let low = 0;
  let high = bins.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((bins[middle] as number) < entry) low = middle + 1;
    else high = middle;
  }
  return low;
}
