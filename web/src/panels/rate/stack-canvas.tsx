// Draws the stacked bands at the places of the lanes above, the moments below them, and beside them, under
// the names of the lanes, how much.
import { useEffect, useRef } from "preact/hooks";
import { momentAt } from "../../lib/format";
import { type TimeScale, nsPerPx, tickDistance, toPx } from "../../lib/scale";
import { traceNs } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { themeChanges } from "../../state/theme";
import { reasons } from "../../state/trace";
import { ink, reasonColours, type Ink } from "../colours";
import { sharpened, useSize, type Size } from "../use-size";
import { marksUpTo, perSecond, rateText, type Stack } from "./stack";

/** Room below the bars for the moments, in px of the style sheet. */
const AXIS_HEIGHT = 16;
/** Room above, so that the fullest bar does not touch the edge. */
const AIR = 6;
/** As on the ruler, so that both have the same moments. */
const TICK_PX = 96;
/** Between a rate and the bars. */
const GUTTER = 8;

interface Drawing {
  readonly context: CanvasRenderingContext2D;
  readonly height: number;
  /** Where the bars begin. */
  readonly left: number;
  readonly scale: TimeScale;
  readonly stack: Stack;
  readonly pen: Ink;
}

interface Props {
  readonly stack: Stack;
  readonly scale: TimeScale;
  readonly left: number;
}

export function StackCanvas({ stack, scale, left }: Props) {
  const [frame, { height }] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const changes = useAtom(themeChanges);
  const { range, width } = scale;
  const size: Size = { width: left + width, height };
  useEffect(() => {
    const context = canvas.current === null ? null : sharpened(canvas.current, size);
    if (context === null || height === 0) return;
    context.clearRect(0, 0, size.width, height);
    const drawing = { context, height, left, scale, stack, pen: ink() };
    drawMoments(drawing);
    drawRates(drawing);
    drawBands(drawing);
  }, [stack, range, width, left, height, changes]);
  return (
    <div class="stack-canvas" ref={frame} style={{ width: `${size.width}px` }}>
      <canvas ref={canvas} aria-hidden="true" />
    </div>
  );
}

/** Where a pile of so many switches ends, from the top. */
function placeOf({ height, stack }: Drawing, count: number): number {
  return AIR + (height - AXIS_HEIGHT - AIR) * (1 - count / Math.max(stack.most, 1));
}

function drawBands(drawing: Drawing): void {
  const { context, left, scale, stack, height } = drawing;
  const step = stack.binNs / nsPerPx(scale);
  const first = left + toPx(scale, stack.range.from);
  const colours = reasonColours(reasons.get());
  context.save();
  // The answer may be of an earlier view: what lies beside this one is cut off.
  context.beginPath();
  context.rect(left, 0, scale.width, height);
  context.clip();
  for (const band of stack.bands) {
    context.fillStyle = colours.get(band.reason.id) ?? "grey";
    for (let bin = 0; bin < stack.bins; bin += 1) {
      const [lower, upper] = [band.lower[bin] ?? 0, band.upper[bin] ?? 0];
      if (upper === lower) continue;
      const top = placeOf(drawing, upper);
      const wide = Math.max(step - 0.5, 0.5);
      context.fillRect(first + bin * step, top, wide, placeOf(drawing, lower) - top);
    }
  }
  context.restore();
}

function drawRates(drawing: Drawing): void {
  const { context, left, scale, stack, pen } = drawing;
  context.font = pen.font;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const most = perSecond(stack.most, stack.binNs);
  for (const mark of marksUpTo(most, 3)) {
    const y = Math.round(placeOf(drawing, (mark * stack.binNs) / 1e9)) - 0.5;
    context.fillStyle = pen.line;
    context.fillRect(left - 4, y, scale.width + 4, 1);
    context.fillStyle = pen.muted;
    if (mark > 0) context.fillText(`${rateText(mark)}/s`, left - GUTTER, y + 0.5);
  }
}

function drawMoments({ context, left, scale, height, pen }: Drawing): void {
  const step = tickDistance(nsPerPx(scale) * TICK_PX);
  const { from, to } = scale.range;
  context.font = pen.font;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  for (let at = Math.ceil(Math.max(from, 0) / step) * step; at <= to; at += step) {
    const x = Math.round(left + toPx(scale, traceNs(at)));
    context.fillStyle = pen.line;
    context.fillRect(x, AIR, 1, height - AIR);
    const words = momentAt(at, step);
    if (x + 4 + context.measureText(words).width > left + scale.width) continue;
    context.fillStyle = pen.muted;
    context.fillText(words, x + 4, height - 3);
  }
}
