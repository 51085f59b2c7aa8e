// The order of a table's rows, as a person asked for it by its heads.
import type { Cell } from "../../api/decode";
import type { Row } from "./columns";

/** By which column, and which end first. */
export interface Order {
  readonly key: string;
  readonly direction: "ascending" | "descending";
}

/** What a click on a head asks for: numbers begin with the largest, words with A. */
export function nextOrder(order: Order | null, key: string, numeric: boolean): Order {
  const first = numeric ? "descending" : "ascending";
  if (order?.key !== key) return { key, direction: first };
  return { key, direction: order.direction === "ascending" ? "descending" : "ascending" };
}

const words = new Intl.Collator("en", { numeric: true });

function isMissing(cell: Cell | undefined): cell is null | undefined {
  return cell === null || cell === undefined;
}

function compared(a: Cell, b: Cell): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return words.compare(String(a), String(b));
}

/** The rows in this order; those without a value come last either way, equal ones stay as they were. */
export function ordered(rows: readonly Row[], order: Order | null): readonly Row[] {
  if (order === null) return rows;
  const sign = order.direction === "ascending" ? 1 : -1;
  return [...rows].sort((left, right) => {
    const [a, b] = [left[order.key], right[order.key]];
    if (isMissing(a) || isMissing(b)) return Number(isMissing(a)) - Number(isMissing(b));
    return sign * compared(a, b);
  });
}
