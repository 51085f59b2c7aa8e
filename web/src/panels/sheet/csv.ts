// A report as CSV by RFC 4180: all its columns in raw units, byte for byte what
// `swtch report --format csv` prints of the same rows.
import { escaped } from "../../lib/escape";
import type { Cell } from "../../api/decode";
import { kindOf, type Row } from "./columns";

function rawText(key: string, cell: Cell | undefined): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return kindOf(key) === "percent" ? cell.toFixed(4) : String(cell);
  if (typeof cell === "object") return escaped(cell.join(";"));
  return escaped(String(cell));
}

/** A field, quoted where it must be. */
function field(text: string): string {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The head and one record a row. */
export function csvOf(rows: readonly Row[]): string {
  const keys = Object.keys(rows[0] ?? {});
  const record = (fields: readonly string[]): string => `${fields.map(field).join(",")}\r\n`;
  const body = rows.map((row) => record(keys.map((key) => rawText(key, row[key]))));
  return record(keys) + body.join("");
}
