// The row as one bar in time order: blocked, in the run queue, running, each as long as it took. A wait that
// cannot be split is one part.
import type { Detail } from "../../api/types";
import { lengthOf } from "../../lib/format";

interface Part {
  readonly word: string;
  readonly kind: string;
  readonly ns: number;
}

function partsOf({ level, run, wait }: Detail): Part[] {
  const category = wait?.category ?? "unknown";
  const queue = level === "os" ? "in the run queue" : "in its scheduler's queue";
  const parts = [
    { word: "off the CPU", kind: category, ns: unsplit(wait) },
    { word: "blocked", kind: category, ns: wait?.blocked_ns ?? 0 },
    { word: queue, kind: "queue", ns: wait?.runq_ns ?? 0 },
    { word: "ran", kind: "running", ns: run.ns ?? 0 },
  ];
  return parts.filter((part) => part.ns > 0);
}

/** The wait, where neither of its parts is known. */
function unsplit(wait: Detail["wait"]): number {
  if (wait === null || wait.from_ns === null || wait.to_ns === null) return 0;
  return wait.blocked_ns === null && wait.runq_ns === null ? wait.to_ns - wait.from_ns : 0;
}

export function RowBar({ detail }: { readonly detail: Detail }) {
  const parts = partsOf(detail);
  if (parts.length === 0) return null;
  const words = parts.map(({ word, ns }) => `${word} ${lengthOf(ns)}`).join(", then ");
  return (
    <figure class="row-bar">
      <div class="row-bar-parts" role="img" aria-label={words}>
        {parts.map(({ word, kind, ns }) => (
          <span key={word} data-kind={kind} style={{ flexGrow: ns }} />
        ))}
      </div>
      <figcaption>
        {parts.map(({ word, ns }) => (
          <span key={word}>
            {word} <b>{lengthOf(ns)}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}
