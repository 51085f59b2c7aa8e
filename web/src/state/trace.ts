// What the server says of the trace, and whether it still answers. While a trace is being recorded it is
// asked again every two seconds; a server that is gone every ten, for as long as the page is open.
import * as api from "../api/client";
import type { ReasonInfo, ThreadColumns, TraceInfo } from "../api/types";
import { atom, derived } from "../lib/atom";
import { type TraceRange, rangeOf, traceNs } from "../lib/units";

const RECORDING_EVERY_MS = 2_000;
const CUT_EVERY_MS = 10_000;
const GONE_EVERY_MS = 10_000;

export const trace = atom<TraceInfo | null>(null);
export const threads = atom<ThreadColumns | null>(null);

export type Connection =
  | { readonly kind: "opening" }
  | { readonly kind: "live" }
  | { readonly kind: "gone" }
  | { readonly kind: "refused"; readonly message: string; readonly advice: string | null };
export const connection = atom<Connection>({ kind: "opening" });

/** From the start to the end of the trace. */
export const wholeRange = derived([trace], (known): TraceRange =>
  rangeOf(0, Math.max(known?.duration_ns ?? 0, 1)),
);

export const duration = derived([trace], (known) => traceNs(known?.duration_ns ?? 0));

export const reasons = derived([trace], (known): readonly ReasonInfo[] => known?.reasons ?? []);

/** Where in the columns of `threads` a task is. */
export const placeOfTask = derived([threads], (columns) => {
  const places = new Map<number, number>();
  columns?.task.forEach((task, place) => places.set(task, place));
  return places;
});

/** The task with this tid; the last one, when the kernel has used the number again. */
export function taskOf(tid: unknown): number | null {
  const columns = threads.get();
  const place = columns?.tid.lastIndexOf(Number(tid)) ?? -1;
  return tid === null || place < 0 ? null : (columns?.task[place] ?? null);
}

/** Says that an answer came, or none: whoever asks tells it here. */
export function noteAnswer(error: unknown): void {
  if (error instanceof api.ApiError && error.unreachable) {
    connection.set({ kind: "gone" });
  }
}

/** Asks for the trace, and again when that makes sense. The answer ends it. */
export function followTrace(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let ended = false;

  const again = (ms: number): void => {
    if (!ended) {
      clearTimeout(timer);
      timer = setTimeout(() => void ask(), ms);
    }
  };
  const ask = async (): Promise<void> => {
    try {
      // When the page opens both are needed: one does not wait for the other.
      const columns = trace.get() === null ? api.threads() : null;
      columns?.catch(() => undefined);
      await take(await api.trace(), columns);
      const answer = trace.get();
      connection.set({ kind: "live" });
      if (answer?.state === "recording") again(RECORDING_EVERY_MS);
      // Its recorder may only have nothing to write: what is recorded sleeps.
      if (answer?.state === "cut") again(CUT_EVERY_MS);
    } catch (error) {
      if (error instanceof api.ApiError && !error.unreachable) {
        connection.set({ kind: "refused", message: error.message, advice: error.advice });
      } else if (error instanceof api.ApiError) {
        connection.set({ kind: "gone" });
      } else {
        const message = error instanceof Error ? error.message : "the answer is not understood";
        connection.set({ kind: "refused", message, advice: null });
      }
    }
  };
  // Another part of the page found the server gone: look whether it comes back.
  const unwatch = connection.watch(() => {
    if (connection.get().kind === "gone") again(GONE_EVERY_MS);
  });
  void ask();
  return () => {
    ended = true;
    clearTimeout(timer);
    unwatch();
  };
}

/** Whether there are prices by now: somebody may have made some since the page was opened. */
export async function lookForPrices(): Promise<void> {
  try {
    const { has_prices } = await api.trace();
    trace.update((known) =>
      known === null || known.has_prices === has_prices ? known : { ...known, has_prices },
    );
  } catch (error) {
    noteAnswer(error);
  }
}

/** `asked`: threads that are on their way already. */
async function take(answer: TraceInfo, asked: Promise<ThreadColumns> | null): Promise<void> {
  const known = trace.get();
  if (known !== null && known.generation === answer.generation && known.state === answer.state) {
    return;
  }
  const columns = await (asked ?? api.threads());
  threads.set(columns);
  trace.set(answer);
}
