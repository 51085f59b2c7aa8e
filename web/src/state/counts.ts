// Switches by reason in the visible range, for the legend: asked when the view has come to rest.
import * as api from "../api/client";
import { atom } from "../lib/atom";
import { firstPicture } from "./first-picture";
import { rangeInQuestion } from "./selection";
import { noteAnswer, trace } from "./trace";

const REST_MS = 250;

/** By reason's id; null as long as nothing is known. */
export const visibleCounts = atom<ReadonlyMap<number, number> | null>(null);

export function countVisible(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking: AbortController | null = null;
  const ask = async (): Promise<void> => {
    await firstPicture;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const rate = await api.rate(rangeInQuestion.get().range, 1, signal);
      visibleCounts.set(
        new Map(rate.reasons.map(({ id, counts }) => [id, counts.reduce((a, b) => a + b, 0)])),
      );
    } catch (error) {
      if (!signal.aborted) {
        visibleCounts.set(null);
        noteAnswer(error);
      }
    }
  };
  const later = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => void ask(), REST_MS);
  };
  const ends = [rangeInQuestion.watch(later), trace.watch(later)];
  return () => {
    clearTimeout(timer);
    asking?.abort();
    ends.forEach((end) => end());
  };
}
