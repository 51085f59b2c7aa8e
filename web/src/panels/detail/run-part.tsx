// The run and why it ended: reason, how sure that is, the rule and the evidence, who came next, the price.
import type { Detail, Price, Run } from "../../api/types";
import { escaped } from "../../lib/escape";
import { estimate, lengthOf } from "../../lib/format";
import { useAtom } from "../../lib/use-atom";
import { reasons, trace } from "../../state/trace";
import { inCode } from "../answered";
import { Swatch, ThreadLink } from "../names";
import { Fact, Facts, Length, Moment, NotRecorded } from "./facts";

export function RunPart({ detail }: { readonly detail: Detail }) {
  const { run } = detail;
  const known = useAtom(reasons).find((one) => one.reason === run.reason);
  const hasPrices = useAtom(trace)?.has_prices ?? false;
  // Its thread keeps the CPU when a worker leaves, and prices are of the kernel's switches.
  const isKernels = detail.level === "os";
  return (
    <section class="detail-part">
      <h3>
        Ran <Length ns={run.ns} />
        <small>
          <Moment ns={run.from_ns} /> to <Moment ns={run.to_ns} />
        </small>
      </h3>
      <Verdict
        run={run}
        help={detail.level === "os" ? known?.help : run.rule_help}
        level={detail.level}
      />
      <Facts>
        {run.irq_ns > 0 && <Fact name="interrupts">{lengthOf(run.irq_ns)} of it</Fact>}
        {run.stolen_ns > 0 && (
          <Fact name="stolen">{lengthOf(run.stolen_ns)} of it, by the hypervisor</Fact>
        )}
        {run.syscall !== null && <Fact name="system call">{escaped(run.syscall)}</Fact>}
        {run.wait_on !== null && <Fact name="waits for">{escaped(run.wait_on)}</Fact>}
        {isKernels && (
          <Fact name={run.category === "preemption" ? "preempted by" : "next on the CPU"}>
            <Next run={run} />
          </Fact>
        )}
        {run.nominator !== null && (
          <Fact name="asked for by the wakeup of">
            <ThreadLink thread={run.nominator} />
          </Fact>
        )}
        {run.need_resched_delay_ns !== null && (
          <Fact name="asked to leave">{lengthOf(run.need_resched_delay_ns)} before it left</Fact>
        )}
        {run.user_task !== null && (
          <Fact name="worker">
            {typeof run.user_task === "string" ? escaped(run.user_task) : run.user_task}
          </Fact>
        )}
        {isKernels && (
          <Fact name="price">
            {run.price === null ? (
              <span class="muted">
                {hasPrices ? "none in the list" : inCode("there is no list: `swtch cost --save`")}
              </span>
            ) : (
              <PriceWords price={run.price} />
            )}
          </Fact>
        )}
      </Facts>
    </section>
  );
}

/** `help` says what the reason means: of a worker what its rule says, for the reason's own words are of the kernel. */
function Verdict({
  run,
  help,
  level,
}: {
  readonly run: Run;
  readonly help: string | null | undefined;
  readonly level: Detail["level"];
}) {
  const sayer = level === "os" ? "the kernel" : "its scheduler";
  return (
    <div class="verdict" data-category={run.category}>
      <p class="verdict-reason">
        <Swatch category={run.category} />
        <b>{escaped(run.reason)}</b> <span class="muted">{run.category}</span>
      </p>
      {help !== null && help !== undefined && <p>{escaped(help)}</p>}
      <p>
        <span class="certainty" data-certainty={run.certainty}>
          {run.certainty}
        </span>{" "}
        {run.certainty === "certain" ? `${sayer} said so` : "concluded by a rule of swtch"}
      </p>
      <details>
        <summary>Rule and evidence</summary>
        <p>
          <code>{escaped(run.rule)}</code>
          {run.rule_help !== null && <>: {escaped(run.rule_help)}</>}
        </p>
        <Facts>
          {run.cause !== null && <Fact name="cause">{escaped(run.cause)}</Fact>}
          {run.evidence.map(([name, words]) => (
            <Fact key={name} name={escaped(name)}>
              {escaped(words)}
            </Fact>
          ))}
        </Facts>
      </details>
    </div>
  );
}

function Next({ run }: { readonly run: Run }) {
  if (run.next === null) return <NotRecorded />;
  return typeof run.next === "string" ? <>{escaped(run.next)}</> : <ThreadLink thread={run.next} />;
}

function PriceWords({ price }: { readonly price: Price }) {
  return (
    <>
      {estimate(price.ns)}{" "}
      <span class="muted">
        ({estimate(price.low_ns)} to {estimate(price.high_ns)}),{" "}
        {price.measured ? "measured" : "estimated"}: {escaped(price.kind)}
      </span>
    </>
  );
}
