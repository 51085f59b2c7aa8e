// How the page is divided: which panels are open and how large they are.
import { atom } from "../lib/atom";

/** Whether the panel at the side is open. */
export const sideOpen = atom(false);
/** Its width in px of the style sheet. */
export const sideWidth = atom(340);

export const bottomOpen = atom(true);
export const bottomHeight = atom(Math.round(Math.min(300, innerHeight * 0.32)));

/** Where the lanes are drawn, in px from the left edge of the window: what shows the same time stands in line. */
export interface LanesArea {
  readonly left: number;
  readonly width: number;
}
export const lanesArea = atom<LanesArea>({ left: 0, width: 0 });

/** The id of the open tab at the bottom. */
export const bottomTab = atom("verdict");

export const helpOpen = atom(false);
