// What is under the keys, for who does not see it.
import { useAtom } from "../lib/use-atom";
import { focusSpot } from "../state/pointer";
import { useSpotWords } from "./spot-words";

export function Announcer() {
  const words = useSpotWords(useAtom(focusSpot));
  return (
    <div class="focus-words" role="status" aria-live="polite">
      {words === null ? "" : [words.title, ...words.lines].join(" · ")}
    </div>
  );
}
