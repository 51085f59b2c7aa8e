// A report as CSV by RFC 4180: all its columns in raw units, byte for byte what
// `swtch report --format csv` prints of the same rows.
import { escaped } from "../../lib/escape";
import type { Cell } from "../../api/decode";
import type { Column, Row } from "./columns";

function rawText({ holds }: Column, cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return holds === "percent" ? cell.toFixed(4) : String(cell);
  if (typeof cell === "object") return escaped(cell.join(";"));
  return escaped(String(cell));
}

/** A field, quoted where it must be. */
function field(text: string): string {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The head and one record a row. */
export function csvOf(columns: readonly Column[], rows: readonly Row[]): string {
  const record = (fields: readonly string[]): string => `${fields.map(field).join(",")}\r\n`;
  const body = rows.map((row) => record(columns.map((column) => rawText(column, row[column.key]))));
  return record(columns.map(({ key }) => key)) + body.join("");
}
