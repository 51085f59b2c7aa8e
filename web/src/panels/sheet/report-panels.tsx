// Reports of the command line for the range in question: what `swtch report --by …` prints.
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import { escaped } from "../../lib/escape";
import { Answered, RangeLine } from "../answered";
import { Choice } from "../choice";
import { useRangeAnswer } from "../use-answer";
import { linkedCell } from "./cells";
import { columnsOf, type Row } from "./columns";
import { SheetTable } from "./sheet-table";

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

const THREAD_TABLES = ["thread", "process", "syscall", "waker", "cpu", "cgroup"] as const;

export function ThreadsPanel() {
  const [by, setBy] = useState<(typeof THREAD_TABLES)[number]>("thread");
  const answer = useRangeAnswer(`report ${by}`, (range, signal) =>
    api.report(by, range, {}, signal),
  );
  return (
    <section class="panel" aria-label="Threads">
      <RangeLine answer={answer}>
        <Choice
          label="By"
          options={THREAD_TABLES.map((value) => ({ value, word: value }))}
          chosen={by}
          onChoose={setBy}
        />
      </RangeLine>
      <Answered answer={answer}>
        {({ value }) => <ReportTable label={`Switches by ${by}`} report={value} />}
      </Answered>
    </section>
  );
}

export function PreemptorsPanel() {
  const answer = useRangeAnswer("report preemptor", (range, signal) =>
    api.report("preemptor", range, {}, signal),
  );
  return (
    <section class="panel" aria-label="Who took my CPU">
      <RangeLine answer={answer}>
        <span class="muted">
          who had the CPU while tasks waited in the run queue, and whom that was taken from
        </span>
      </RangeLine>
      <Answered answer={answer}>
        {({ value }) => <ReportTable label="Who took the CPU" report={value} />}
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
  readonly report: {
    readonly rows: readonly Row[];
    readonly total: Row | null;
    readonly notes: readonly string[];
  };
  readonly isShown?: (key: string) => boolean;
}

/** A report with its sums and its notes. */
export function ReportTable({ label, report, isShown = () => true }: ReportTableProps) {
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
    >
      <Notes notes={report.notes} />
    </SheetTable>
  );
}

/** What a reader must know to read the numbers right. */
export function Notes({ notes }: { readonly notes: readonly string[] }) {
  if (notes.length === 0) return null;
  return (
    <ul class="notes">
      {notes.map((note) => (
        <li key={note}>{escaped(note)}</li>
      ))}
    </ul>
  );
}
