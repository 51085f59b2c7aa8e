// The ruler: ticks at 1, 2 or 5 times a power of ten, each with as many digits as tell it from the next;
// and the selected range with its length.
import { type TimeScale, nsPerPx, tickDistance, toPx } from "../lib/scale";
import { lengthOf, momentAt } from "../lib/format";
import { type TraceRange, spanOf, traceNs } from "../lib/units";
import type { Palette } from "./palette";

export const RULER_PX = 30;
const LABEL_PX = 96;

export const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";

export function drawRuler(
  context: CanvasRenderingContext2D,
  ratio: number,
  scale: TimeScale,
  whole: TraceRange,
  selected: TraceRange | null,
  palette: Palette,
): void {
  const width = scale.width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.surfaceCss;
  context.fillRect(0, 0, width, RULER_PX);
  const step = tickDistance(nsPerPx(scale) * LABEL_PX);
  drawTicks(context, scale, whole, step, palette);
  if (selected !== null) drawSelected(context, scale, selected, palette);
}

function drawTicks(
  context: CanvasRenderingContext2D,
  scale: TimeScale,
  whole: TraceRange,
  step: number,
  palette: Palette,
): void {
  context.font = `11px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const fine = step / 5;
  const from = Math.max(whole.from, Math.floor(scale.range.from / step) * step);
  const count = Math.ceil((Math.min(scale.range.to, whole.to) - from) / fine);
  for (let tick = 0; tick <= count; tick++) {
    const moment = from + tick * fine;
    const x = Math.round(toPx(scale, traceNs(moment))) + 0.5;
    const coarse = tick % 5 === 0;
    context.fillStyle = palette.lineCss;
    context.fillRect(x - 0.5, coarse ? 16 : 24, 1, coarse ? RULER_PX - 16 : RULER_PX - 24);
    // Half a word at an edge says something else.
    const words = coarse && x >= 0 ? momentAt(moment, step) : "";
    if (words !== "" && x + 4 + context.measureText(words).width <= scale.width) {
      context.fillStyle = palette.muted;
      context.fillText(words, x + 4, 12);
    }
  }
}

function drawSelected(
  context: CanvasRenderingContext2D,
  scale: TimeScale,
  selected: TraceRange,
  palette: Palette,
): void {
  const from = toPx(scale, selected.from);
  const to = toPx(scale, selected.to);
  context.globalAlpha = 0.18;
  context.fillStyle = palette.accent;
  context.fillRect(from, 0, to - from, RULER_PX);
  context.globalAlpha = 1;
  context.fillRect(from, RULER_PX - 3, to - from, 3);
  const words = lengthOf(spanOf(selected));
  context.font = `600 11px ${FONT}`;
  const wide = context.measureText(words).width + 10;
  const middle = (Math.max(from, 0) + Math.min(to, scale.width)) / 2;
  if (to < 0 || from > scale.width) return;
  const left = Math.min(Math.max(middle - wide / 2, 2), scale.width - wide - 2);
  context.fillStyle = palette.surfaceCss;
  context.fillRect(left, 3, wide, 18);
  context.strokeStyle = palette.accent;
  context.strokeRect(left + 0.5, 3.5, wide - 1, 17);
  context.fillStyle = palette.words;
  context.fillText(words, left + 5, 12.5);
}
