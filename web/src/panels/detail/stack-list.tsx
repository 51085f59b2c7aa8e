// A stack, innermost frame first: function, where it stands, and whether the kernel or the program.
import type { Frame } from "../../api/types";
import { escaped } from "../../lib/escape";

export function StackList({
  title,
  frames,
}: {
  readonly title: string;
  readonly frames: readonly Frame[] | null;
}) {
  if (frames === null || frames.length === 0) {
    return (
      <p class="no-stack">
        {title}: <span class="muted">not read</span>
      </p>
    );
  }
  return (
    <details class="stack" open>
      <summary>{title}</summary>
      <ol>
        {frames.map((frame, place) => (
          <li key={place} data-kind={frame.kind}>
            <span class="frame-symbol">{frameName(frame)}</span>
            <span class="frame-place">{placeWords(frame)}</span>
            {frame.note !== null && <span class="muted"> ({frame.note})</span>}
          </li>
        ))}
      </ol>
    </details>
  );
}

/** The function; its place in the module when it has no name. */
function frameName({ symbol, offset }: Frame): string {
  if (symbol !== null) return escaped(symbol);
  return offset === null ? "(no name)" : `0x${offset.toString(16)}`;
}

function placeWords({ module, file, line }: Frame): string {
  const origin = module === null ? "" : `[${escaped(module).replace(/^\[|\]$/g, "")}]`;
  if (file === null) return origin;
  const name = escaped(file.split("/").at(-1) ?? file);
  return `${origin} ${name}${line === null ? "" : `:${line}`}`;
}
