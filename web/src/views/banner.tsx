// A line above the page for what a person must know first: the server is gone or refuses, or the trace is
// still being recorded or not whole.
import { escaped } from "../lib/escape";
import { useAtom } from "../lib/use-atom";
import { connection, trace } from "../state/trace";
import { followNewest, following } from "../state/view";

/** Shows only the most important message, or nothing. */
export function Banner() {
  const state = useAtom(connection);
  const known = useAtom(trace);
  if (state.kind === "gone") {
    const name = known === null ? "…" : escaped(known.name);
    return (
      <div class="banner" role="status">
        The server has ended; run <code>swtch view {name}</code> again. What is already here can
        still be looked at.
      </div>
    );
  }
  if (state.kind === "refused") {
    return (
      <div class="banner" role="alert">
        <strong>{escaped(state.message)}</strong>
        {state.advice !== null && <span>{escaped(state.advice)}</span>}
      </div>
    );
  }
  if (known?.state === "recording") return <Recording />;
  if (known !== null && known.note !== null) {
    return (
      <div class="banner" role="status">
        {escaped(known.note)}
      </div>
    );
  }
  return null;
}

function Recording() {
  const keepsUp = useAtom(following);
  return (
    <div class="banner" role="status">
      <span>
        This trace is still being recorded; what is new comes every two seconds or more seldom.
      </span>
      {!keepsUp && (
        <button type="button" class="button" onClick={followNewest}>
          Follow the newest
        </button>
      )}
    </div>
  );
}
