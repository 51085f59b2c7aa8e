// The columns of a report, as the answer itself describes them, and its cells: the same heads, units and digits
// as in the command line's tables, so that a person can hold one against the other. No number is computed here.
import type { Cell } from "../../api/decode";
import type { Report } from "../../api/types";
import { escaped } from "../../lib/escape";
import { fixed, grouped, reportLength } from "../../lib/format";

/** One row of a report: values by the key of their column. */
export type Row = Readonly<Record<string, Cell>>;

/** What is known of a column: its key in a row, its head, what it holds and means. */
export type Column = Pick<Report["columns"][number], "key" | "head" | "holds" | "help">;

/** A number as the column asks for. */
function numberText(column: Column, value: number): string {
  switch (column.holds) {
    case "time":
      return reportLength(value);
    case "percent":
      return fixed(value, 1);
    case "id":
      return String(value);
    case "number":
      return value >= 100 ? grouped(value) : value.toPrecision(3);
    default:
      return grouped(value);
  }
}

/** A value as a table shows it; a dash when it is not known. */
export function cellText(column: Column, cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "-";
  if (typeof cell === "number") return numberText(column, cell);
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  if (typeof cell === "string") return escaped(cell);
  return cell.length === 0 ? "-" : escaped(cell.join(", "));
}

/** Whether a column is set to the right: it holds numbers, or addresses, which are numbers too. */
export function isNumeric({ holds }: Column): boolean {
  return holds !== "text" && holds !== "texts";
}

/** The columns that a table of the command line shows, without those in which no row has a value. */
export function columnsOf(
  { columns, rows }: Pick<Report, "columns" | "rows">,
  table?: string,
): Column[] {
  const isKnown = (cell: Cell | undefined): boolean =>
    cell !== null && cell !== undefined && !(Array.isArray(cell) && cell.length === 0);
  const isShown = ({ tables }: Report["columns"][number]): boolean =>
    table === undefined ? tables.length > 0 : tables.includes(table);
  return columns.filter(
    (column) => isShown(column) && rows.some((row) => isKnown(row[column.key])),
  );
}
