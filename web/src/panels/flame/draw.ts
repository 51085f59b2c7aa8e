// Draws the boxes of a flame graph: those wide enough to be seen, with as much of their name as fits.
import { escaped } from "../../lib/escape";
import { reasons } from "../../state/trace";
import { frameColours, ink, reasonColours, type Ink } from "../colours";
import { pathOf, wideBoxes } from "./layout";
import type { Box } from "./layout";

/** Height of a row of boxes, in px of the style sheet. */
export const ROW_HEIGHT = 18;
/** A narrower box is not drawn. */
const NARROWEST_PX = 0.7;
/** A narrower box has no room for a letter. */
const LETTERS_FROM_PX = 22;

/** What of the graph is drawn, and what stands out. */
export interface Shown {
  readonly zoomed: Box;
  readonly pointed: Box | null;
  readonly cursor: Box | null;
  readonly found: ReadonlySet<Box>;
  readonly searched: boolean;
}

/** Which part of the whole width the zoomed box and its children are drawn from. */
export function viewOf(zoomed: Box): { readonly start: number; readonly width: number } {
  return { start: zoomed.x0, width: Math.max(zoomed.x1 - zoomed.x0, 1e-12) };
}

export function drawFlame(context: CanvasRenderingContext2D, width: number, shown: Shown): void {
  const { zoomed } = shown;
  const view = viewOf(zoomed);
  const pen = ink();
  const colours = boxColours();
  context.clearRect(0, 0, width, context.canvas.height);
  context.font = pen.font;
  context.textBaseline = "middle";
  const drawAt = (box: Box, x: number, boxWidth: number): void => {
    drawBox(context, box, x, boxWidth, shown, colours(box, shown), pen);
  };
  for (const caller of pathOf(zoomed).slice(0, -1)) drawAt(caller, 0, width);
  for (const box of wideBoxes(zoomed, (NARROWEST_PX / Math.max(width, 1)) * view.width)) {
    drawAt(
      box,
      ((box.x0 - view.start) / view.width) * width,
      ((box.x1 - box.x0) / view.width) * width,
    );
  }
}

function boxColours(): (box: Box, shown: Shown) => string {
  const byKind = frameColours();
  const known = reasons.get();
  const byReason = reasonColours(known);
  return (box, { searched, found }) => {
    const { node } = box;
    if (searched) {
      const isFound = found.has(box);
      return (isFound ? byKind["found"] : byKind["other"]) ?? "grey";
    }
    const reason = known.find((one) => node.kind === "reason" && node.name.includes(one.reason));
    const own = reason === undefined ? undefined : byReason.get(reason.id);
    return own ?? byKind[node.kind ?? "other"] ?? byKind["other"] ?? "grey";
  };
}

function drawBox(
  context: CanvasRenderingContext2D,
  box: Box,
  x: number,
  width: number,
  shown: Shown,
  colour: string,
  pen: Ink,
): void {
  const y = box.depth * ROW_HEIGHT;
  const gap = width > 3 ? 1 : 0;
  context.fillStyle = colour;
  context.fillRect(x, y, Math.max(width - gap, 0.5), ROW_HEIGHT - 1);
  if (box === shown.pointed || box === shown.cursor) {
    context.strokeStyle = box === shown.cursor ? pen.accent : pen.text;
    context.lineWidth = 2;
    context.strokeRect(x + 1, y + 1, Math.max(width - gap - 2, 0.5), ROW_HEIGHT - 3);
  }
  if (width < LETTERS_FROM_PX) return;
  context.fillStyle = pen.text;
  const text = fitting(context, escaped(box.node.name), width - 8);
  context.fillText(text, x + 4, y + ROW_HEIGHT / 2);
}

/** As much of the text as fits, with an ellipsis where it is cut. */
function fitting(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let [fits, least] = [0, text.length];
  while (fits < least - 1) {
    const middle = (fits + least) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) fits = middle;
    else least = middle;
  }
  return fits === 0 ? "" : `${text.slice(0, fits)}…`;
}
