// The wait before the run: what it was for, who ended it, who had the CPU meanwhile, and in which
// stack it waited.
import type { Detail, Wait } from "../../api/types";
import { escaped } from "../../lib/escape";
import { useAtom } from "../../lib/use-atom";
import { reasons } from "../../state/trace";
import { RowLink, Swatch, ThreadLink } from "../names";
import { Fact, Facts, Length, Moment, NotRecorded } from "./facts";
import { HadCpu } from "./had-cpu";
import { StackList } from "./stack-list";

export function WaitPart({ detail }: { readonly detail: Detail }) {
  const { wait } = detail;
  if (wait === null) {
    return (
      <section class="detail-part">
        <h3>The wait before</h3>
        <p class="muted">Not in the trace: the run is the first that is known of this thread.</p>
      </section>
    );
  }
  return (
    <section class="detail-part">
      <h3>
        Waited <Length ns={lengthOfWait(wait)} />
        <small>
          <Moment ns={wait.from_ns} /> to <Moment ns={wait.to_ns} />
        </small>
      </h3>
      <WaitReason wait={wait} level={detail.level} />
      <Facts>
        {hadBlocked(wait) && (
          <Fact name="blocked">
            <Length ns={wait.blocked_ns} />
          </Fact>
        )}
        <Fact name="woken by">
          <WokenBy wait={wait} />
        </Fact>
        <Fact name={detail.level === "os" ? "in the run queue" : "in its scheduler's queue"}>
          <Length ns={wait.runq_ns} />
        </Fact>
      </Facts>
      {detail.level === "os" && wait.runq_ns !== null && wait.runq_ns > 0 && (
        <HadCpu parts={wait.had_cpu} whole={wait.runq_ns} />
      )}
      {detail.level === "os" && hadBlocked(wait) && (
        <>
          <StackList title="Stack in which it waited" frames={wait.stack} />
          <StackList title="Stack of the waker, as it ended the wait" frames={wait.waker_stack} />
          <StackList title="Stack of who held Python's lock meanwhile" frames={wait.holder_stack} />
        </>
      )}
    </section>
  );
}

/** Whether it slept: who loses the CPU or yields stays runnable, and nobody has to wake it. */
function hadBlocked(wait: Wait): boolean {
  return wait.category !== "preemption" && wait.category !== "yield";
}

function lengthOfWait(wait: Wait): number | null {
  if (wait.from_ns !== null && wait.to_ns !== null) return wait.to_ns - wait.from_ns;
  if (wait.blocked_ns === null && wait.runq_ns === null) return null;
  return (wait.blocked_ns ?? 0) + (wait.runq_ns ?? 0);
}

function WaitReason({ wait, level }: { readonly wait: Wait; readonly level: Detail["level"] }) {
  const known = useAtom(reasons).find((one) => one.reason === wait.reason);
  if (wait.reason === null) return <p class="muted">Why it had left is not recorded.</p>;
  return (
    <p class="verdict-reason">
      <Swatch category={wait.category ?? "unknown"} />
      <b>{escaped(wait.reason)}</b>{" "}
      <span class="muted">{(level === "os" ? known?.help : null) ?? wait.category}</span>
    </p>
  );
}

function WokenBy({ wait }: { readonly wait: Wait }) {
  const { waker, waker_kind: kind, wake_cpu: cpu } = wait;
  if (waker === null && !hadBlocked(wait)) return <>nobody: it could run all the time</>;
  const where = cpu === null ? null : <span class="muted"> on CPU {cpu}</span>;
  if (waker === null) {
    return kind === null ? (
      <NotRecorded />
    ) : (
      <>
        {escaped(kind)}
        {where}
      </>
    );
  }
  return (
    <>
      <ThreadLink thread={waker} />
      {where}
      {waker.row !== null && (
        <>
          {" "}
          <RowLink
            row={waker.row}
            label={`go there: the run in which ${escaped(waker.name)} woke it`}
          >
            go there
          </RowLink>
        </>
      )}
    </>
  );
}
