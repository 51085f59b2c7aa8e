// How long runs and waits are: a histogram over a logarithmic axis, with percentiles, of all or of one
// reason; and beside it the percentiles of each reason, as the report has them.
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Distribution } from "../../api/types";
import { grouped, lengthOf } from "../../lib/format";
import { Answered, RangeLine } from "../answered";
import { Choice } from "../choice";
import { ReasonChoice } from "../reason-choice";
import { reasonCell } from "../sheet/cells";
import { SheetTable } from "../sheet/sheet-table";
import { useRangeAnswer } from "../use-answer";
import { HistogramPlot } from "./histogram-plot";

const MEASURES = [
  { of: "ran", word: "runs", report: "run", means: "length of runs, by why they ended" },
  { of: "off", word: "off CPU", report: "off", means: "from leaving the CPU to running again" },
  { of: "blocked", word: "blocked", report: null, means: "from leaving the CPU to being woken" },
  { of: "runq", word: "run queue", report: "runq", means: "from being woken to running again" },
] as const;

type Measure = (typeof MEASURES)[number];
type Of = Measure["of"];

export function LengthsPanel() {
  const [of, setOf] = useState<Of>("runq");
  const [reason, setReason] = useState<string | null>(null);
  const measure = MEASURES.find((one) => one.of === of) ?? MEASURES[0];
  const answer = useRangeAnswer(`distribution ${of} ${reason ?? "all"}`, (range, signal) =>
    api.distribution(range, of, reason, signal),
  );
  return (
    <section class="panel" aria-label="Distributions of lengths">
      <RangeLine answer={answer}>
        <Choice
          label="Lengths of"
          options={MEASURES.map(({ of: value, word }) => ({ value, word }))}
          chosen={of}
          onChoose={setOf}
        />
        <ReasonChoice chosen={reason} onChoose={setReason} />
      </RangeLine>
      <div class="split">
        <Answered answer={answer}>
          {({ value }) => <Lengths distribution={value} means={measure.means} />}
        </Answered>
        {measure.report !== null && <Percentiles report={measure.report} />}
      </div>
    </section>
  );
}

function Lengths({
  distribution,
  means,
}: {
  readonly distribution: Distribution;
  readonly means: string;
}) {
  const { count, sum_ns, min_ns, max_ns, p50_ns, p90_ns, p99_ns } = distribution;
  const numbers: readonly (readonly [string, number | null])[] = [
    ["sum", sum_ns],
    ["shortest", min_ns],
    ["p50", p50_ns],
    ["p90", p90_ns],
    ["p99", p99_ns],
    ["longest", max_ns],
  ];
  return (
    <div class="lengths">
      <HistogramPlot distribution={distribution} />
      <dl class="numbers" title={means}>
        <div>
          <dt>count</dt>
          <dd>{grouped(count)}</dd>
        </div>
        {numbers.map(([name, ns]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{ns === null ? "-" : lengthOf(ns)}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

/** Percentiles of each reason: `swtch report --by reason`. */
function Percentiles({ report }: { readonly report: "run" | "off" | "runq" }) {
  const answer = useRangeAnswer("report reason", (range, signal) =>
    api.report("reason", range, {}, signal),
  );
  const ends = ["p50", "p90", "p99", "p99_9", "max"];
  const keys = ["reason", ...ends.map((end) => `${report}_${end}_ns`)];
  return (
    <div class="percentiles">
      <Answered answer={answer}>
        {({ value }) => (
          <SheetTable
            label="Percentiles by reason"
            rows={value.rows}
            columns={value.columns.filter(({ key }) => keys.includes(key))}
            all={value.columns}
            cell={reasonCell}
          />
        )}
      </Answered>
    </div>
  );
}
