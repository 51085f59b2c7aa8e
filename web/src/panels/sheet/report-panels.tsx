// Reports of the command line for the range in question: what `swtch report --by …` prints.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import { Answered, RangeLine } from "../answered";
import { Choice } from "../choice";
import { spanOfRange, useRangeAnswer } from "../use-answer";
import { linkedCell } from "./cells";
import { columnsOf, type Row } from "./columns";
import { type More, SheetTable } from "./sheet-table";

/** Columns that the command line's tables leave out, too, to fit on a screen. */
const NOT_SHOWN = new Set(["open_waits", "open_ns", "woken_by_waiters_pct", "folded"]);

/** Where waits have other columns, their number is left out as well; else it is what the report is about. */
const isLeftOut = (key: string, keys: readonly string[]): boolean =>
  NOT_SHOWN.has(key) || (key === "waits" && keys.includes("open_waits"));

interface Tables {
  /** Word of a view, and a pattern of its columns besides the first. */
  readonly [word: string]: (key: string) => boolean;
}

const isLength = (key: string): boolean => /_(p\d+(_9)?|max)_ns$/.test(key);

/** The report by reason is four tables, as on the command line: nobody reads twenty columns at once. */
const REASON_TABLES: Tables = {
  overview: (key) => !isLength(key),
  "run lengths": (key) => /^run_/.test(key),
  "run queue": (key) => /^runq_/.test(key),
  "off CPU": (key) => /^off_.*_ns$/.test(key) && key !== "off_ns",
};

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
          <ReportTable
            label={`Reasons: ${word}`}
            report={value}
            isShown={(key) => key === "reason" || (REASON_TABLES[word]?.(key) ?? false)}
          />
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

/** Shares of the whole are drawn, too. */
function shareOf(key: string, row: Row): number | null {
  const share = row[key];
  return key === "share_pct" && typeof share === "number" ? share : null;
}

interface ReportTableProps {
  readonly label: string;
  readonly report: {
    readonly rows: readonly Row[];
    readonly total: Row | null;
    readonly notes: readonly string[];
  };
  readonly isShown?: (key: string) => boolean;
  readonly more?: More | null;
}

/** A report with its sums and its notes. */
export function ReportTable({
  label,
  report,
  isShown = () => true,
  more = null,
}: ReportTableProps) {
  const keys = columnsOf(report.rows);
  const columns = keys.filter((key) => !isLeftOut(key, keys) && isShown(key));
  return (
    <SheetTable
      label={label}
      rows={report.rows}
      columns={columns}
      total={report.total}
      bar={shareOf}
      cell={linkedCell}
      more={more}
      notes={report.notes}
    />
  );
}
