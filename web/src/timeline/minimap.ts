// The whole trace in a strip: how many switches there were, and where the view is.
import * as api from "../api/client";
import { rangeOf } from "../lib/units";
import { firstPicture } from "../state/first-picture";
import { noteAnswer, trace, wholeRange } from "../state/trace";
import { atom } from "../lib/atom";
import type { Palette } from "./palette";

export const MINIMAP_PX = 34;
const BINS = 600;

/** Switches per bin over the whole trace; empty until the server has told. */
export const minimapCounts = atom<readonly number[]>([]);

/** Asks once, and again when the trace has grown. */
export function watchMinimap(): () => void {
  let asked = -1;
  const ask = async (): Promise<void> => {
    const known = trace.get();
    if (known === null || known.generation === asked || known.duration_ns === 0) return;
    asked = known.generation;
    try {
      const whole = wholeRange.get();
      const rate = await api.rate(rangeOf(whole.from, whole.to), BINS);
      const sums = new Array<number>(rate.bins).fill(0);
      for (const { counts } of rate.reasons) {
        counts.forEach((count, bin) => (sums[bin] = (sums[bin] ?? 0) + count));
      }
      minimapCounts.set(sums);
    } catch (error) {
      asked = -1;
      noteAnswer(error);
    }
  };
  void firstPicture.then(ask);
  return trace.watch(() => void ask());
}

export function drawMinimap(
  context: CanvasRenderingContext2D,
  ratio: number,
  width: number,
  counts: readonly number[],
  palette: Palette,
): void {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.surfaceCss;
  context.fillRect(0, 0, width, MINIMAP_PX);
  const most = Math.max(1, ...counts);
  const each = width / Math.max(1, counts.length);
  context.fillStyle = palette.muted;
  context.beginPath();
  context.moveTo(0, MINIMAP_PX);
  counts.forEach((count, bin) => {
    const top = MINIMAP_PX - Math.ceil((count / most) * (MINIMAP_PX - 6));
    context.lineTo(bin * each, top);
    context.lineTo((bin + 1) * each, top);
  });
  context.lineTo(width, MINIMAP_PX);
  context.globalAlpha = 0.6;
  context.fill();
  context.globalAlpha = 1;
}
