// A report as a table: heads that sort, numbers to the right with their unit, the sum below, and
// a button that copies everything as CSV. What stands in it is what the server sent.
import type { ComponentChildren, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { escaped } from "../../lib/escape";
import { counted } from "../../lib/format";
import { useSize } from "../use-size";
import { cellText, type Column, isNumeric, type Row } from "./columns";
import { CopyCsv } from "./copy-csv";
import { nextOrder, ordered, type Order } from "./order";

/** A report of 20,000 threads has as many rows; no person reads them, and the page must stay quick. */
const ROWS_AT_ONCE = 200;

/** What is asked of rows that are the first of more. */
export interface More {
  /** Gets more of them; null when so many are here that the page takes no more. */
  readonly get: (() => void) | null;
  /** All of them, for a copy. */
  readonly all: () => Promise<readonly Row[]>;
}

export interface SheetProps {
  /** What the rows are, for those who cannot see the tab above. */
  readonly label: string;
  readonly rows: readonly Row[];
  /** The columns that are shown, from left to right. */
  readonly columns: readonly Column[];
  /** All columns of the rows, for a copy of them; those that are shown when left out. */
  readonly all?: readonly Column[];
  /** What the rows sum to, as the server says it. */
  readonly total?: Row | null;
  /** The length of the bar behind a cell, in percent; `null` for none. */
  readonly bar?: (key: string, row: Row) => number | null;
  /** What a cell shows instead of its plain text: a link, a colour. */
  readonly cell?: (column: Column, row: Row) => ComponentChildren | undefined;
  /** Set when `rows` are the first of more. */
  readonly more?: More | null;
  /** What a reader must know to read the numbers right. */
  readonly notes?: readonly string[];
  /** What else stands beside the table. */
  readonly children?: ComponentChildren;
}

export function SheetTable(props: SheetProps) {
  if (props.rows.length === 0) return <p class="muted">No rows in this range.</p>;
  return <FilledTable {...props} />;
}

function FilledTable({
  label,
  rows,
  columns,
  all = columns,
  total,
  bar,
  cell,
  more = null,
  notes = [],
  children,
}: SheetProps) {
  const [order, setOrder] = useState<Order | null>(null);
  const [most, setMost] = useState(ROWS_AT_ONCE);
  const [isWide, frame, table] = useIsWide(rows, columns);

  const shown = ordered(rows, order).slice(0, most);
  const orderBy = (column: Column): void => {
    // The largest of the first thousand need not be the largest.
    more?.get?.();
    setOrder(nextOrder(order, column.key, isNumeric(column)));
  };
  return (
    <div class="sheet-and-notes" ref={frame}>
      <div class="sheet-scroll" tabIndex={0} role="region" aria-label={label}>
        <table class="sheet" ref={table}>
          <thead>
            <tr>
              {columns.map((column) => (
                <Head
                  key={column.key}
                  column={column}
                  direction={order?.key === column.key ? order.direction : "none"}
                  onOrder={() => orderBy(column)}
                />
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, place) => (
              <tr key={place}>
                {columns.map((column) => (
                  <td key={column.key} class={isNumeric(column) ? "number" : undefined}>
                    <Bar share={bar?.(column.key, row) ?? null} />
                    {cell?.(column, row) ?? cellText(column, row[column.key])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
          {total && (
            <tfoot>
              <tr>
                {columns.map((column) => (
                  <td key={column.key} class={isNumeric(column) ? "number" : undefined}>
                    {total[column.key] === null || total[column.key] === undefined
                      ? ""
                      : cellText(column, total[column.key])}
                  </td>
                ))}
              </tr>
            </tfoot>
          )}
        </table>
      </div>
      <div class="sheet-beside">
        <p class="sheet-foot">
          <MoreRows
            hidden={rows.length - shown.length}
            onShow={() => setMost(most * 5)}
            more={more}
          />
          <CopyCsv columns={all} rows={more?.all ?? rows} />
        </p>
        {more !== null && (
          <p class="muted">
            The first {counted(rows.length, "row")}
            {more.get === null && "; heads sort among them, the copy has all"}.
          </p>
        )}
        <Notes notes={notes} folded={isWide} />
        {children}
      </div>
    </div>
  );
}

interface NotesProps {
  readonly notes: readonly string[];
  readonly folded: boolean;
}

function Notes({ notes, folded }: NotesProps) {
  if (notes.length === 0) return null;
  const list = (
    <ul class="notes">
      {notes.map((note) => (
        <li key={note}>{escaped(note)}</li>
      ))}
    </ul>
  );
  if (!folded) return list;
  return (
    <details class="notes-folded">
      <summary>{counted(notes.length, "note")}</summary>
      {list}
    </details>
  );
}

/** Notes need so much room beside a table. */
const NOTES_PX = 250;

/** Whether a table is so wide that notes beside it would cover columns. */
function useIsWide(
  ...sources: readonly unknown[]
): [boolean, RefObject<HTMLDivElement>, RefObject<HTMLTableElement>] {
  const [frame, { width }] = useSize<HTMLDivElement>();
  const table = useRef<HTMLTableElement>(null);
  const [isWide, setIsWide] = useState(false);
  useLayoutEffect(() => {
    if (table.current !== null) setIsWide(table.current.offsetWidth + NOTES_PX > width);
  }, [width, ...sources]);
  return [isWide, frame, table];
}

interface MoreProps {
  /** Rows that are here and not drawn. */
  readonly hidden: number;
  readonly onShow: () => void;
  readonly more: More | null;
}

function MoreRows({ hidden, onShow, more }: MoreProps) {
  const click = hidden > 0 ? onShow : more?.get;
  if (click === null || click === undefined) return null;
  return (
    <button type="button" class="button" onClick={click}>
      {more === null ? counted(hidden, "more row") : "More rows"}
    </button>
  );
}

interface HeadProps {
  readonly column: Column;
  readonly direction: Order["direction"] | "none";
  readonly onOrder: () => void;
}

const ARROWS = { none: "", ascending: "▲", descending: "▼" };

function Head({ column, direction, onOrder }: HeadProps) {
  return (
    <th
      scope="col"
      class={isNumeric(column) ? "number" : undefined}
      aria-sort={direction}
      title={column.help === "" ? undefined : column.help}
    >
      <button type="button" onClick={onOrder}>
        {column.head}
        <span class="sort-arrow" aria-hidden="true">
          {ARROWS[direction]}
        </span>
      </button>
    </th>
  );
}

/** The share as a length behind its number: a column of bars is compared at a glance. */
function Bar({ share }: { readonly share: number | null }) {
  if (share === null) return null;
  return (
    <span class="share-bar" aria-hidden="true" style={{ width: `${Math.min(share, 100)}%` }} />
  );
}
