// What is under the pointer, in words.
import { useAtom } from "../lib/use-atom";
import { hover } from "../state/pointer";
import { useSpotWords } from "./spot-words";

/** Distance from the pointer. */
const AWAY_PX = 14;
/** The `max-width` of `.tooltip` in timeline.css. */
const WIDEST_PX = 360;

export function Tooltip() {
  const at = useAtom(hover);
  const words = useSpotWords(at?.spot ?? null);
  if (at === null || words === null || at.spot.kind === "header") return null;
  const toLeft = at.x + AWAY_PX + WIDEST_PX > innerWidth;
  // How high it becomes is not known before it is drawn: it goes where there is more room.
  const above = at.y > innerHeight / 2;
  const place = {
    left: toLeft ? "auto" : `${at.x + AWAY_PX}px`,
    right: toLeft ? `${innerWidth - at.x + AWAY_PX}px` : "auto",
    top: above ? "auto" : `${at.y + AWAY_PX}px`,
    bottom: above ? `${innerHeight - at.y + AWAY_PX}px` : "auto",
  };
  return (
    <div class="tooltip" role="tooltip" style={place} aria-busy={words.loading}>
      <div class="tooltip-title">{words.title}</div>
      {words.lines.map((line, number) => (
        <div key={number}>{line}</div>
      ))}
    </div>
  );
}
