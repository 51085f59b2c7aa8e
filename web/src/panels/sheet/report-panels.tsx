// Reports of the command line for the range in question: what `swtch report --by …` prints.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Report } from "../../api/types";
import { derived } from "../../lib/atom";
import { wholeRange } from "../../state/trace";
import { Answered, RangeLine } from "../answered";
import { Choice } from "../choice";
import { spanOfRange, useRangeAnswer } from "../use-answer";
import { linkedCell } from "./cells";
import { columnsOf, type Row } from "./columns";
import { type More, SheetTable } from "./sheet-table";
import { MOST_SPANS } from "../../timeline/spans";

/** What the tables of the report by reason are called here, by their titles on the command line. */
const REASON_TABLES: Readonly<Record<string, string>> = {
  overview: "",
  "run lengths": "length of the run that ended",
  "run queue": "run-queue time of the wait that followed",
  "off CPU": "off-CPU time of the wait that followed",
};

/** The report by reason is four tables: nobody reads twenty columns at once. */
export function ReasonsPanel() {
  const words = Object.keys(REASON_TABLES);
  const [word, setWord] = useState(words[0] ?? "");
  const answer = useRangeAnswer("report reason", (range, signal) =>
    api.report("reason", range, {}, signal),
  );
  return (
    <section class="panel" aria-label="Reasons">
      <RangeLine answer={answer}>
        <Choice
          label="Columns"
          options={words.map((value) => ({ value, word: value }))}
          chosen={word}
          onChoose={setWord}
        />
      </RangeLine>
      <Answered answer={answer}>
        {({ value }) => (
          <ReportTable label={`Reasons: ${word}`} report={value} table={REASON_TABLES[word]} />
        )}
      </Answered>
    </section>
  );
}

/** Rows that are asked for at first, and at most: 20,000 threads wake each other in 300,000 pairs. */
const FIRST_ROWS = 1_000;
const MOST_ROWS = 25_000;

/** A report that may have very many rows: the first of them, and more when somebody wants more. */
function LongReport({
  by,
  label,
  head,
}: {
  readonly by: string;
  readonly label: string;
  readonly head: ComponentChildren;
}) {
  const [wanted, setWanted] = useState({ by, most: FIRST_ROWS });
  const most = wanted.by === by ? wanted.most : FIRST_ROWS;
  // One more than is shown tells whether there are more.
  const answer = useRangeAnswer(`report ${by} ${most}`, (range, signal) =>
    api.report(by, range, { top: most + 1 }, signal),
  );
  return (
    <>
      <RangeLine answer={answer}>{head}</RangeLine>
      <Answered answer={answer}>
        {({ value, about }) => (
          <ReportTable
            label={label}
            report={{ ...value, rows: value.rows.slice(0, most) }}
            more={
              value.rows.length <= most
                ? null
                : {
                    get: most < MOST_ROWS ? () => setWanted({ by, most: MOST_ROWS }) : null,
                    all: async () => (await api.report(by, spanOfRange(about))).rows,
                  }
            }
          />
        )}
      </Answered>
    </>
  );
}

const THREAD_TABLES = ["thread", "process", "syscall", "waker", "cpu", "cgroup"] as const;

export function ThreadsPanel() {
  const [by, setBy] = useState<(typeof THREAD_TABLES)[number]>("thread");
  const choice = (
    <Choice
      label="By"
      options={THREAD_TABLES.map((value) => ({ value, word: value }))}
      chosen={by}
      onChoose={setBy}
    />
  );
  return (
    <section class="panel" aria-label="Threads">
      <LongReport by={by} label={`Switches by ${by}`} head={choice} />
    </section>
  );
}

export function PreemptorsPanel() {
  const head = (
    <span class="muted">
      who had the CPU while tasks waited in the run queue, and whom that was taken from
    </span>
  );
  return (
    <section class="panel" aria-label="Who took my CPU">
      <LongReport by="preemptor" label="Who took the CPU" head={head} />
    </section>
  );
}

/** Spans are told of the whole trace, so that the list stays while one of them is looked at. */
const wholeTrace = derived([wholeRange], (range) => ({ range, which: "whole trace" as const }));

export function SpansPanel() {
  const answer = useRangeAnswer(
    "report span",
    (range, signal) => api.report("span", range, { top: MOST_SPANS }, signal),
    wholeTrace,
  );
  return (
    <section class="panel" aria-label="Spans">
      <RangeLine answer={answer}>
        <span class="muted">
          the slowest first; a click selects one, and Critical path tells what it rested on
        </span>
      </RangeLine>
      <Answered answer={answer}>
        {({ value }) => <ReportTable label="Spans by length" report={value} />}
      </Answered>
    </section>
  );
}

/** Shares of the whole are drawn, too. */
function shareOf(key: string, row: Row): number | null {
  const share = row[key];
  return key === "share_pct" && typeof share === "number" ? share : null;
}

interface ReportTableProps {
  readonly label: string;
  readonly report: Report;
  /** The title of the table whose columns are shown; without one, all that any table shows. */
  readonly table?: string | undefined;
  readonly more?: More | null;
}

/** A report with its sums and its notes. */
export function ReportTable({ label, report, table, more = null }: ReportTableProps) {
  return (
    <SheetTable
      label={label}
      rows={report.rows}
      columns={columnsOf(report, table)}
      all={report.columns}
      total={report.total}
      bar={shareOf}
      cell={linkedCell}
      more={more}
      notes={report.notes}
    />
  );
}
