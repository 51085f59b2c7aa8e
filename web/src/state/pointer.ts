// Where the pointer is, and where the keys are: the spot that is told about, each its own way.
import { atom } from "../lib/atom";
import type { Spot } from "../timeline/spot";

export interface Hover {
  readonly spot: Spot;
  /** Of the window, in px. */
  readonly x: number;
  readonly y: number;
}

/** Under the pointer; null when it is elsewhere or something is dragged. */
export const hover = atom<Hover | null>(null);

/** Under the keys; null until a key has moved there. */
export const focusSpot = atom<Spot | null>(null);

/** Where a click was: keys go on from there. */
export const clickedSpot = atom<Spot | null>(null);
