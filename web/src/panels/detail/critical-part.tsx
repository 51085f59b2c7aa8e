// The critical path of a thread over the range in question: what its time rested on. Its own runs
// and waits for the CPU, and while it was blocked those of whoever woke it, and so on.
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Thread } from "../../api/types";
import { escaped } from "../../lib/escape";
import { lengthOf } from "../../lib/format";
import { spanOf } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { criticalOverlay, type CriticalOverlay } from "../../state/overlay";
import { rangeInQuestion } from "../../state/selection";
import { noteAnswer, reasons } from "../../state/trace";
import { sumWords } from "./states-part";
import { rangeWords } from "../answered";
import { ThreadLink } from "../names";
import { refusalOf } from "../use-answer";

export function CriticalPart({ thread }: { readonly thread: Thread | null }) {
  const shown = useAtom(criticalOverlay);
  const about = useAtom(rangeInQuestion);
  const [failed, setFailed] = useState<string | null>(null);
  const find = async (of: Thread): Promise<void> => {
    const { range } = about;
    try {
      setFailed(null);
      const path = await api.critical(of.task, range);
      criticalOverlay.set({ thread: of, range, path });
    } catch (error) {
      noteAnswer(error);
      setFailed(refusalOf(error).message);
    }
  };
  if (thread === null && shown === null) return null;
  return (
    <section class="detail-part">
      <div class="part-buttons">
        {thread !== null && (
          <button type="button" class="button" onClick={() => void find(thread)}>
            Critical path
          </button>
        )}
        {shown !== null && (
          <button type="button" class="button quiet" onClick={() => criticalOverlay.set(null)}>
            Clear
          </button>
        )}
        {thread !== null && <span class="muted">over the {rangeWords(about)}</span>}
      </div>
      {failed !== null && <p role="alert">{escaped(failed)}</p>}
      {shown !== null && <ByThread shown={shown} />}
    </section>
  );
}

function ByThread({ shown }: { readonly shown: CriticalOverlay }) {
  const { path, thread, range } = shown;
  const known = useAtom(reasons);
  const most = Math.max(...path.by_thread.map(({ ns }) => ns), 1);
  return (
    <>
      <h4>
        What {escaped(thread.name)} {thread.tid} rested on
      </h4>
      <ul class="by-thread">
        {path.by_thread.map((one) => (
          <li key={one.thread.task}>
            <span class="had-cpu-bar" aria-hidden="true">
              <span style={{ width: `${(one.ns * 100) / most}%` }} />
            </span>
            <span class="had-cpu-who">
              <ThreadLink thread={one.thread} />
            </span>
            <span class="had-cpu-ns">{lengthOf(one.ns)}</span>
          </li>
        ))}
      </ul>
      <p>{sumWords(path.by_state, spanOf(range), known)}</p>
      <p class="had-cpu-sum">
        <span>explained, of {lengthOf(spanOf(range))}</span>{" "}
        <span>{lengthOf(path.covered_ns)}</span>
      </p>
      {path.ends !== null && path.ends !== undefined && (
        <p class="muted">Not all of it: {path.ends}.</p>
      )}
    </>
  );
}
