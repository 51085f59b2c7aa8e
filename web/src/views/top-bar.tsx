// The bar at the top: what trace this is, the search, and how the page looks.
import { useAtom } from "../lib/use-atom";
import { escaped } from "../lib/escape";
import { grouped, lengthOf } from "../lib/format";
import { SearchBox } from "../panels";
import { helpOpen } from "../state/frame";
import { THEMES, theme } from "../state/theme";
import { trace } from "../state/trace";
import type { TraceInfo } from "../api/types";

export function TopBar() {
  const known = useAtom(trace);
  return (
    <header class="top-bar">
      <h1 class="brand">
        <Mark />
        <span>swtch</span>
        <span class="trace-name">{known === null ? "" : escaped(known.name)}</span>
      </h1>
      {known !== null && (
        <details class="head-lines">
          <summary>
            {lengthOf(known.duration_ns)} · {grouped(known.switches)} switches ·{" "}
            {grouped(known.lost)} lost
            {known.untraced > 0 && `, ${grouped(known.untraced)} not traced`}
          </summary>
          <pre class="head-text">{headOf(known)}</pre>
        </details>
      )}
      <span class="spring" />
      <SearchBox />
      <ThemeChoice />
      <button
        type="button"
        class="button icon-button"
        aria-label="Help: keys and how to read the lanes"
        onClick={() => helpOpen.set(true)}
      >
        ?
      </button>
    </header>
  );
}

/** The first lines of every report, and when it was. */
function headOf({ head, wall_start: start }: TraceInfo): string {
  const lines = head.map(escaped);
  const began = start === null ? null : new Date(start);
  if (began !== null && !Number.isNaN(began.getTime())) {
    lines.push(`began  ${began.toISOString().replace("T", " ").replace("Z", " UTC")}`);
  }
  return lines.join("\n");
}

function Mark() {
  return (
    <svg class="brand-mark" viewBox="0 0 16 16" aria-hidden="true">
      <path d="M1 4h6v3H1zM9 9h6v3H9z" fill="var(--running)" />
      <path d="M7 4h2v8H7z" fill="var(--preemption)" />
    </svg>
  );
}

function ThemeChoice() {
  const chosen = useAtom(theme);
  return (
    <label>
      <span class="hidden-but-read">Colours</span>
      <select
        value={chosen}
        onChange={({ currentTarget }) => {
          const next = THEMES.find((one) => one === currentTarget.value);
          if (next !== undefined) theme.set(next);
        }}
      >
        {THEMES.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
}
