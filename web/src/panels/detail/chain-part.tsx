// The chain of wakeups behind a wait: who woke it, who woke that one, and so on until it ends. Each hop
// leads to its row; the time line draws the whole chain.
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Chain, Detail } from "../../api/types";
import { escaped } from "../../lib/escape";
import { counted, lengthOf } from "../../lib/format";
import { useAtom } from "../../lib/use-atom";
import { chainOverlay } from "../../state/overlay";
import { noteAnswer } from "../../state/trace";
import { RowLink, ThreadName } from "../names";
import { refusalOf } from "../use-answer";

export function ChainPart({ detail }: { readonly detail: Detail }) {
  const chain = useAtom(chainOverlay);
  const [failed, setFailed] = useState<string | null>(null);
  const follow = async (): Promise<void> => {
    try {
      setFailed(null);
      chainOverlay.set(await api.chain(detail.row));
    } catch (error) {
      noteAnswer(error);
      setFailed(refusalOf(error).message);
    }
  };
  return (
    <section class="detail-part">
      <div class="part-buttons">
        <button
          type="button"
          class="button"
          disabled={detail.wait === null}
          onClick={() => void follow()}
        >
          Wake chain
        </button>
        {chain !== null && (
          <button type="button" class="button quiet" onClick={() => chainOverlay.set(null)}>
            Clear
          </button>
        )}
        <span class="muted">who woke it, and who woke that one</span>
      </div>
      {failed !== null && <p role="alert">{escaped(failed)}</p>}
      {chain !== null && <Hops chain={chain} here={detail.row} />}
    </section>
  );
}

function Hops({ chain, here }: { readonly chain: Chain; readonly here: number }) {
  return (
    <>
      <h4>{counted(chain.hops.length - 1, "waker")} back</h4>
      <ol class="hops">
        {chain.hops.map((hop) => (
          <li key={hop.row} aria-current={hop.row === here ? "true" : undefined}>
            <RowLink row={hop.row} part="blocked">
              <ThreadName thread={hop.thread} />
            </RowLink>{" "}
            {hop.reason !== null && <b>{escaped(hop.reason)}</b>}{" "}
            {hop.wait_from_ns !== null && hop.woken_ns !== null && (
              <>
                {hop.woken_ns > hop.wait_from_ns
                  ? `blocked ${lengthOf(hop.woken_ns - hop.wait_from_ns)}`
                  : "runnable all the time"}
              </>
            )}
            {hop.waker !== null && (
              <span class="muted">
                , woken by {escaped(hop.waker.name)} {hop.waker.tid}
              </span>
            )}
          </li>
        ))}
      </ol>
      <p class="muted">It ends there: {escaped(chain.ends)}.</p>
    </>
  );
}
