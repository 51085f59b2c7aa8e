// Switches by reason in the visible range, for the legend: asked when the view has come to rest.
import * as api from "../api/client";
import { atom } from "../lib/atom";
import type { TraceRange } from "../lib/units";
import { firstPicture } from "./first-picture";
import { rangeInQuestion } from "./selection";
import { noteAnswer, trace } from "./trace";

const REST_MS = 250;

export interface Counts {
  /** Of which range they are: they lag behind what is asked. */
  readonly range: TraceRange;
  readonly byReason: ReadonlyMap<number, number>;
}

/** null as long as nothing is known. */
export const visibleCounts = atom<Counts | null>(null);

/** Whether other counts are on their way. */
export const counting = atom(false);

export function countVisible(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asking: AbortController | null = null;
  const ask = async (): Promise<void> => {
    await firstPicture;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    try {
      const { range } = rangeInQuestion.get();
      const { reasons } = await api.rate(range, 1, signal);
      const sums = reasons.map(({ id, counts }) => [id, counts[0] ?? 0] as const);
      visibleCounts.set({ range, byReason: new Map(sums) });
    } catch (error) {
      if (signal.aborted) return;
      visibleCounts.set(null);
      noteAnswer(error);
    }
    counting.set(false);
  };
  const later = (): void => {
    counting.set(true);
    asking?.abort();
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
