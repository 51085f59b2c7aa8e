// The page: bars above, lanes and the detail in the middle, panels below.
import { useAtom } from "../lib/use-atom";
import { connection, trace } from "../state/trace";
import { Banner } from "./banner";
import { Bottom } from "./bottom";
import { Help } from "./help";
import { Legend } from "./legend";
import { Side } from "./side";
import { TimelineArea } from "./timeline-area";
import { TopBar } from "./top-bar";

export function App() {
  const known = useAtom(trace);
  return (
    <div class="frame">
      <button type="button" class="skip button" onClick={toLanes}>
        To the lanes
      </button>
      <TopBar />
      <Banner />
      {known === null ? (
        <Waiting />
      ) : (
        <main class="frame-main">
          <Legend />
          <div class="frame-middle">
            <TimelineArea />
            <Side />
          </div>
          <Bottom />
        </main>
      )}
      <Help />
    </div>
  );
}

/** The first stop of the Tab key: past the bars, which have some thirty. */
function toLanes(): void {
  document.querySelector<HTMLElement>("[data-lanes]")?.focus();
}

function Waiting() {
  const state = useAtom(connection);
  return (
    <main class="empty-page" aria-busy={state.kind === "opening"}>
      {state.kind === "opening" ? "Opening the trace …" : "There is no trace to show."}
    </main>
  );
}
