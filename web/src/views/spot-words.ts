// The words of a spot, with what the server tells of it. The detail of a piece is asked for when the pointer, or the
// focus, has come to rest.
import { useEffect, useState } from "preact/hooks";
import { detailOf } from "../state/details";
import { placeOfTask, reasons, threads, trace } from "../state/trace";
import { type LanePiece, laneKind, stateOf } from "../timeline/piece";
import { slowestSpans, spanWords } from "../timeline/spans";
import type { Spot } from "../timeline/spot";
import { type Told, type Words, spotWords } from "../timeline/words";

/** How long the pointer rests before the server is asked. */
const REST_MS = 90;

/**
 * Asks the server for the detail of a piece and, for a wait, for that of the run before, whose verdict says why the
 * wait began.
 */
async function tellOf({ row, lane, state }: LanePiece): Promise<Told | null> {
  if (row === null) return null;
  const level = laneKind(lane) === "user" ? "user" : "os";
  const detail = await detailOf(row, level);
  if (stateOf(state).kind === "running" || detail.previous_row === null) {
    return { detail, before: null };
  }
  return { detail, before: await detailOf(detail.previous_row, level) };
}

/** The words of a spot, and whether the server is about to tell more of it. */
export interface SpotWords extends Words {
  readonly loading: boolean;
}

/** The words of a spot, with what the server tells of it as soon as that is known. */
export function useSpotWords(spot: Spot | null): SpotWords | null {
  const [known, setKnown] = useState<{ spot: Spot; told: Told | null } | null>(null);
  useEffect(() => {
    if (spot?.kind !== "piece") return undefined;
    const { piece } = spot;
    let isCurrent = true;
    const timer = setTimeout(() => {
      tellOf(piece).then(
        (told) => isCurrent && setKnown({ spot, told }),
        // Without a detail the words say less; what failed is told by the banner.
        () => isCurrent && setKnown({ spot, told: null }),
      );
    }, REST_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [spot]);
  if (spot === null) return null;
  // Read and not followed: the words are made anew with each spot.
  const names = {
    trace: trace.get(),
    reasons: reasons.get(),
    threads: threads.get(),
    placeOfTask: placeOfTask.get(),
  };
  const isKnown = known?.spot === spot;
  const words = spotWords(spot, names, isKnown ? known.told : null);
  const lines = [...words.lines, ...spanWords(spot, slowestSpans.get())];
  return { ...words, lines, loading: spot.kind === "piece" && !isKnown };
}
