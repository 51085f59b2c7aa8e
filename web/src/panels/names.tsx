// Threads, reasons and rows as panels name them: harmless text, and links that lead to the time line.
import type { ComponentChildren } from "preact";
import type { Category, Level, Thread } from "../api/types";
import { escaped } from "../lib/escape";
import { goToRow, showThread } from "../state/navigate";
import type { Piece } from "../state/selection";

/** A spot in the colour of a category; the word beside it says the same to those who see no colour. */
export function Swatch({ category }: { readonly category: Category | "running" }) {
  return <span class="swatch" data-category={category} aria-hidden="true" />;
}

/** A spot in a colour of its own, where reasons of one category are told apart. */
export function Spot({ colour }: { readonly colour: string | undefined }) {
  return <span class="swatch" data-category style={{ background: colour }} aria-hidden="true" />;
}

/** A thread's name and number. */
export function ThreadName({ thread }: { readonly thread: Thread }) {
  return (
    <>
      {escaped(thread.name)} <span class="tid">{thread.tid}</span>
    </>
  );
}

/** Leads to the thread's lane. */
export function ThreadLink({ thread }: { readonly thread: Thread }) {
  return (
    <button type="button" class="link" onClick={() => showThread(thread.task)}>
      <ThreadName thread={thread} />
    </button>
  );
}

/** Leads to a row: selects it, shows its lane and moves the view there. */
export function RowLink({
  row,
  level = "os",
  part = "run",
  label,
  children,
}: {
  readonly row: number;
  readonly level?: Level;
  readonly part?: Piece["part"];
  /** For those who hear the link alone. */
  readonly label?: string;
  readonly children: ComponentChildren;
}) {
  return (
    <button
      type="button"
      class="link"
      aria-label={label}
      // A server that is gone is said by the page's banner; there is nothing to add here.
      onClick={() => void goToRow(row, level, part).catch(() => undefined)}
    >
      {children}
    </button>
  );
}
