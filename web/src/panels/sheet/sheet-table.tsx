// A report as a table: heads that sort, numbers to the right with their unit, the sum below, and
// a button that copies everything as CSV. What stands in it is what the server sent.
import type { ComponentChildren, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { escaped } from "../../lib/escape";
import { counted } from "../../lib/format";
import { useSize } from "../use-size";
import { cellText, headOf, isNumeric, type Row } from "./columns";
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
  /** Keys of the columns, from left to right. */
  readonly columns: readonly string[];
  /** What the rows sum to, as the server says it. */
  readonly total?: Row | null;
  /** Heads that say more than the key of their column. */
  readonly heads?: Readonly<Record<string, string>>;
  /** The length of the bar behind a cell, in percent; `null` for none. */
  readonly bar?: (key: string, row: Row) => number | null;
  /** What a cell shows instead of its plain text: a link, a colour. */
  readonly cell?: (key: string, row: Row) => ComponentChildren | undefined;
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
  total,
  heads,
  bar,
  cell,
  more = null,
  notes = [],
  children,
}: SheetProps) {
  const [order, setOrder] = useState<Order | null>(null);
  const [most, setMost] = useState(ROWS_AT_ONCE);
  const [isWide, frame, table] = useIsWide(rows, columns);

  const numeric = new Set(columns.filter((key) => isNumeric(key, rows)));
  const shown = ordered(rows, order).slice(0, most);
  const orderBy = (key: string): void => {
    // The largest of the first thousand need not be the largest.
    more?.get?.();
    setOrder(nextOrder(order, key, numeric.has(key)));
  };
  return (
    <div class="sheet-and-notes" ref={frame}>
      <div class="sheet-scroll" tabIndex={0} role="region" aria-label={label}>
        <table class="sheet" ref={table}>
          <thead>
            <tr>
              {columns.map((key) => (
                <Head
                  key={key}
                  head={heads?.[key] ?? headOf(key)}
                  numeric={numeric.has(key)}
                  direction={order?.key === key ? order.direction : "none"}
                  onOrder={() => orderBy(key)}
                />
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, place) => (
              <tr key={place}>
                {columns.map((key) => (
                  <td key={key} class={numeric.has(key) ? "number" : undefined}>
                    <Bar share={bar?.(key, row) ?? null} />
                    {cell?.(key, row) ?? cellText(key, row[key])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
          {total && (
            <tfoot>
              <tr>
                {columns.map((key) => (
                  <td key={key} class={numeric.has(key) ? "number" : undefined}>
                    {total[key] === null || total[key] === undefined
                      ? ""
                      : cellText(key, total[key])}
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
          <CopyCsv rows={more?.all ?? rows} />
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
  readonly head: string;
  readonly numeric: boolean;
  readonly direction: Order["direction"] | "none";
  readonly onOrder: () => void;
}

const ARROWS = { none: "", ascending: "▲", descending: "▼" };

function Head({ head, numeric, direction, onOrder }: HeadProps) {
  return (
    <th scope="col" class={numeric ? "number" : undefined} aria-sort={direction}>
      <button type="button" onClick={onOrder}>
        {head}
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
