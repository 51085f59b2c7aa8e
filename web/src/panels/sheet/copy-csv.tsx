// Copies a table as CSV, and says whether that worked: browsers may refuse the clipboard. Of a table that
// shows the first of many rows, the others are asked for when it is copied.
import { useEffect, useState } from "preact/hooks";
import { noteAnswer } from "../../state/trace";
import { csvOf } from "./csv";
import type { Column, Row } from "./columns";

type Outcome = "not asked" | "copied" | "refused";

const SAID: Record<Outcome, string> = {
  "not asked": "Copy as CSV",
  copied: "Copied",
  refused: "Could not be copied",
};

/** How long the button tells the outcome before it offers to copy again. */
const TOLD_MS = 2_000;

type Rows = readonly Row[];

interface CopyProps {
  readonly columns: readonly Column[];
  readonly rows: Rows | (() => Promise<Rows>);
}

export function CopyCsv({ columns, rows }: CopyProps) {
  const [outcome, setOutcome] = useState<Outcome>("not asked");
  useEffect(() => {
    if (outcome === "not asked") return;
    const timer = setTimeout(() => setOutcome("not asked"), TOLD_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async (): Promise<void> => {
    try {
      const all = typeof rows === "function" ? await rows() : rows;
      await navigator.clipboard.writeText(csvOf(columns, all));
      setOutcome("copied");
    } catch (error) {
      noteAnswer(error);
      setOutcome("refused");
    }
  };
  return (
    <button type="button" class="button" onClick={() => void copy()} aria-live="polite">
      {SAID[outcome]}
    </button>
  );
}
