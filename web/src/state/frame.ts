// How the page is divided: which panels are open and how large they are.
import { atom } from "../lib/atom";

/** Whether the panel at the side is open. */
export const sideOpen = atom(false);
/** Its width in px of the style sheet. */
export const sideWidth = atom(340);

export const bottomOpen = atom(true);
export const bottomHeight = atom(Math.round(Math.min(230, innerHeight * 0.28)));

/** The id of the open tab at the bottom. */
export const bottomTab = atom("rate");

export const helpOpen = atom(false);
