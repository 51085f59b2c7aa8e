// Copies a table as CSV, and says whether that worked: browsers may refuse the clipboard.
import { useEffect, useState } from "preact/hooks";
import { csvOf } from "./csv";
import type { Row } from "./columns";

type Outcome = "not asked" | "copied" | "refused";

const SAID: Record<Outcome, string> = {
  "not asked": "Copy as CSV",
  copied: "Copied",
  refused: "The browser refused",
};

/** How long the button tells the outcome before it offers to copy again. */
const TOLD_MS = 2_000;

export function CopyCsv({ rows }: { readonly rows: readonly Row[] }) {
  const [outcome, setOutcome] = useState<Outcome>("not asked");
  useEffect(() => {
    if (outcome === "not asked") return;
    const timer = setTimeout(() => setOutcome("not asked"), TOLD_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = (): void => {
    navigator.clipboard.writeText(csvOf(rows)).then(
      () => setOutcome("copied"),
      () => setOutcome("refused"),
    );
  };
  return (
    <button type="button" class="button" onClick={copy} aria-live="polite">
      {SAID[outcome]}
    </button>
  );
}
