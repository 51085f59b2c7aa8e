// How the columns of a report are shown: the same heads, units and digits as in the command line's
// tables, so that a person can hold one against the other.
//
// A key tells its unit (`off_ns`, `share_pct`); the head drops it, because there each length
// carries its own. The rules are those of `crates/swtch-output/src/sheet.rs`; no number is computed here.
import type { Cell } from "../../api/decode";
import { escaped } from "../../lib/escape";
import { fixed, grouped, reportLength } from "../../lib/format";

/** One row of a report: values by the key of their column. */
export type Row = Readonly<Record<string, Cell>>;

/** What a column's values are, as its key says. */
export type ColumnKind = "time" | "percent" | "id" | "ratio" | "count";

const IDS = /(^|_)(tid|pid|cpu|number|cgroup_id)$/;

/** What the numbers of this column are. */
export function kindOf(key: string): ColumnKind {
  if (key.endsWith("_ns")) return "time";
  if (key.endsWith("_pct")) return "percent";
  if (key.endsWith("_per_s") || key === "per_s") return "ratio";
  return IDS.test(key) ? "id" : "count";
}

/** Head of a column: its key in words, without the unit that the cells carry. */
export function headOf(key: string): string {
  const words = key
    .replace(/_ns$/, "")
    .replaceAll("_", " ")
    .replace("p99 9", "p99.9")
    .replace("cpu", "CPU");
  return words.endsWith(" pct") ? `${words.slice(0, -" pct".length)} %` : words;
}

/** A number as the column's kind asks for. */
function numberText(kind: ColumnKind, value: number): string {
  switch (kind) {
    case "time":
      return reportLength(value);
    case "percent":
      return fixed(value, 1);
    case "id":
      return String(value);
    case "ratio":
      return value >= 100 ? grouped(value) : value.toPrecision(3);
    case "count":
      return grouped(value);
  }
}

/** A value as a table shows it; a dash when it is not known. */
export function cellText(key: string, cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "-";
  if (typeof cell === "number") return numberText(kindOf(key), cell);
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (typeof cell === "string") return escaped(cell);
  return cell.length === 0 ? "-" : escaped(cell.join(", "));
}

/** Whether a column is set to the right: it holds numbers, or addresses, which are numbers too. */
export function isNumeric(key: string, rows: readonly Row[]): boolean {
  const known = rows.find((row) => row[key] !== null && row[key] !== undefined)?.[key];
  return typeof known === "number" || (typeof known === "string" && /^0x[0-9a-f]+$/.test(known));
}

/** The columns of a report, in its own order, without those in which no row has a value. */
export function columnsOf(rows: readonly Row[]): string[] {
  const first = rows[0];
  if (first === undefined) return [];
  const isKnown = (cell: Cell | undefined): boolean =>
    cell !== null && cell !== undefined && !(Array.isArray(cell) && cell.length === 0);
  return Object.keys(first).filter((key) => rows.some((row) => isKnown(row[key])));
}
