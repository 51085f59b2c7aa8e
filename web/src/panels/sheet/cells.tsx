// Cells that say more than their text: reasons with the colour of their category, threads as links.
import type { ComponentChildren } from "preact";
import { CATEGORIES, type Category } from "../../api/types";
import { reasons, taskOf } from "../../state/trace";
import { rangeOf } from "../../lib/units";
import { showStretch, showThread } from "../../state/navigate";
import { Swatch } from "../names";
import { cellText, type Column, type Row } from "./columns";

const isCategory = (word: unknown): word is Category => CATEGORIES.some((one) => one === word);

function categoryOf(row: Row, reason: unknown): Category | null {
  if (isCategory(row["category"])) return row["category"];
  return reasons.get().find((one) => one.reason === reason)?.category ?? null;
}

/** Reasons with their colour. */
export function reasonCell(column: Column, row: Row): ComponentChildren | undefined {
  const { key } = column;
  if (key !== "reason" && key !== "main_reason") return undefined;
  const category = categoryOf(row, row[key]);
  if (category === null) return undefined;
  return (
    <>
      <Swatch category={category} />
      {cellText(column, row[key])}
    </>
  );
}

/** Which columns hold the name of a thread, and which its tid. */
const NAMES_OF_THREADS: Readonly<Record<string, string>> = {
  thread: "tid",
  preemptor: "tid",
  waker: "waker_tid",
  woken: "woken_tid",
};

/** A span leads to its thread and its stretch of time. */
function spanCell(column: Column, row: Row): ComponentChildren | undefined {
  const task = taskOf(row["tid"]);
  const [began, length] = [row["began_ns"], row["length_ns"]];
  if (task === null || typeof began !== "number" || typeof length !== "number") return undefined;
  // A published trace is in several stretches, of which the row has only the begin.
  const show = (): void =>
    typeof row["trace_id"] === "string"
      ? showThread(task)
      : showStretch(task, rangeOf(began, began + length));
  return (
    <button type="button" class="link" onClick={show}>
      {cellText(column, row["span"])}
    </button>
  );
}

/** As `reasonCell`, and threads and spans lead to their lane. */
export function linkedCell(column: Column, row: Row): ComponentChildren | undefined {
  const { key } = column;
  if (key === "span") return spanCell(column, row);
  const tidKey = NAMES_OF_THREADS[key];
  if (tidKey === undefined) return reasonCell(column, row);
  const task = taskOf(row[tidKey]);
  if (task === null) return undefined;
  return (
    <button type="button" class="link" onClick={() => showThread(task)}>
      {cellText(column, row[key])}
    </button>
  );
}
