// Draws the stacked bands, and the axes that say how much and when.
import { useEffect, useRef } from "preact/hooks";
import { momentAt } from "../../lib/format";
import { tickDistance } from "../../lib/scale";
import { spanOf, type TraceRange } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { themeChanges } from "../../state/theme";
import { reasons } from "../../state/trace";
import { ink, reasonColours, type Ink } from "../colours";
import { sharpened, useSize, type Size } from "../use-size";
import { marksUpTo, perSecond, rateText, type Stack } from "./stack";

/** Room below the bars for the moments, in px of the style sheet. */
const AXIS_HEIGHT = 16;
/** Room above, so that the fullest bar does not touch the edge. */
const AIR = 4;
/** Least distance between two moments of the axis. */
const TICK_PX = 110;

interface Drawing {
  readonly context: CanvasRenderingContext2D;
  readonly size: Size;
  readonly stack: Stack;
  readonly range: TraceRange;
}

export function StackCanvas({
  stack,
  range,
}: {
  readonly stack: Stack;
  readonly range: TraceRange;
}) {
  const [frame, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const changes = useAtom(themeChanges);
  useEffect(() => {
    const context = canvas.current === null ? null : sharpened(canvas.current, size);
    if (context === null || size.width === 0) return;
    const drawing = { context, size, stack, range };
    context.clearRect(0, 0, size.width, size.height);
    drawBands(drawing);
    drawRates(drawing);
    drawMoments(drawing);
  }, [stack, range, size, changes]);
  return (
    <div class="stack-canvas" ref={frame}>
      <canvas ref={canvas} aria-hidden="true" />
    </div>
  );
}

/** Where a pile of so many switches ends, from the top. */
function placeOf({ size, stack }: Drawing, count: number): number {
  const height = size.height - AXIS_HEIGHT - AIR;
  return AIR + height * (1 - count / Math.max(stack.most, 1));
}

function drawBands(drawing: Drawing): void {
  const { context, size, stack } = drawing;
  const step = size.width / Math.max(stack.bins, 1);
  const colours = reasonColours(reasons.get());
  for (const band of stack.bands) {
    context.fillStyle = colours.get(band.reason.id) ?? "grey";
    for (let bin = 0; bin < stack.bins; bin += 1) {
      const [lower, upper] = [band.lower[bin] ?? 0, band.upper[bin] ?? 0];
      if (upper === lower) continue;
      const top = placeOf(drawing, upper);
      context.fillRect(bin * step, top, Math.max(step - 0.5, 0.5), placeOf(drawing, lower) - top);
    }
  }
}

function drawRates(drawing: Drawing): void {
  const { context, size, stack } = drawing;
  const pen = ink();
  context.font = pen.font;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  const most = perSecond(stack.most, stack.binNs);
  for (const mark of marksUpTo(most, 3)) {
    const y = Math.round(placeOf(drawing, (mark * stack.binNs) / 1e9)) - 0.5;
    context.fillStyle = pen.line;
    context.fillRect(0, y, size.width, 1);
    if (mark > 0) label(context, `${rateText(mark)}/s`, 2, y + (y < 14 ? 13 : 0), pen);
  }
}

function drawMoments({ context, size, range }: Drawing): void {
  const pen = ink();
  const span = spanOf(range);
  const step = tickDistance((span * TICK_PX) / Math.max(size.width, 1));
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  for (let at = Math.ceil(range.from / step) * step; at <= range.to; at += step) {
    const x = ((at - range.from) / span) * size.width;
    context.fillStyle = pen.line;
    context.fillRect(Math.round(x), size.height - AXIS_HEIGHT, 1, 4);
    if (x < 24 || x > size.width - 24) continue;
    context.fillStyle = pen.muted;
    context.fillText(momentAt(at, step), x, size.height - 3);
  }
}

/** Text that can be read on any band: on a ground of its own. */
function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  pen: Ink,
): void {
  const width = context.measureText(text).width;
  context.fillStyle = pen.ground;
  context.fillRect(x, y - 13, width + 6, 13);
  context.fillStyle = pen.muted;
  context.fillText(text, x + 3, y);
}
