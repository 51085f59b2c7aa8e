// What is under the pointer, in words. The detail of a piece is asked for when the pointer has come to rest.
import { useEffect, useState } from "preact/hooks";
import { useAtom } from "../lib/use-atom";
import { detailOf } from "../state/details";
import { hover } from "../state/pointer";
import { placeOfTask, reasons, threads, trace } from "../state/trace";
import { type LanePiece, laneKind, stateOf } from "../timeline/piece";
import type { Spot } from "../timeline/spot";
import { type Told, type Words, spotWords } from "../timeline/words";

const REST_MS = 90;

/** What the server tells of a piece. A wait began with the verdict on the run before it. */
async function tellOf({ row, lane, state }: LanePiece): Promise<Told | null> {
  if (row === null) return null;
  const level = laneKind(lane) === "user" ? "user" : "os";
  const detail = await detailOf(row, level);
  const isWait = stateOf(state).kind !== "running";
  const before = isWait && detail.previous_row !== null ? detail.previous_row : null;
  return { detail, before: before === null ? null : await detailOf(before, level) };
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
  const names = {
    trace: trace.get(),
    reasons: reasons.get(),
    threads: threads.get(),
    placeOfTask: placeOfTask.get(),
  };
  const isKnown = known?.spot === spot;
  const words = spotWords(spot, names, isKnown ? known.told : null);
  return { ...words, loading: spot.kind === "piece" && !isKnown };
}

const AWAY_PX = 14;
const WIDEST_PX = 360;
const HIGHEST_PX = 190;

export function Tooltip() {
  const at = useAtom(hover);
  const words = useSpotWords(at?.spot ?? null);
  if (at === null || words === null || at.spot.kind === "header") return null;
  const toLeft = at.x + AWAY_PX + WIDEST_PX > innerWidth;
  const above = at.y + AWAY_PX + HIGHEST_PX > innerHeight;
  const place = {
    left: toLeft ? "auto" : `${at.x + AWAY_PX}px`,
    right: toLeft ? `${innerWidth - at.x + AWAY_PX}px` : "auto",
    top: above ? "auto" : `${at.y + AWAY_PX}px`,
    bottom: above ? `${innerHeight - at.y + AWAY_PX}px` : "auto",
  };
  return (
    <div class="tooltip" role="tooltip" style={place} aria-busy={words.loading}>
      <div class="tooltip-title">{words.title}</div>
      {words.lines.map((line, at) => (
        <div key={at}>{line}</div>
      ))}
    </div>
  );
}
