// A list of facts: what is known, and plainly "not recorded" for what is not.
import type { ComponentChildren } from "preact";
import { lengthOf, momentAt } from "../../lib/format";

export function Facts({ children }: { readonly children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}

export function Fact({
  name,
  children,
}: {
  readonly name: string;
  readonly children: ComponentChildren;
}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function NotRecorded() {
  return <span class="muted">not recorded</span>;
}

/** A length, or that it is not known. */
export function Length({ ns }: { readonly ns: number | null }) {
  return ns === null ? <NotRecorded /> : <>{lengthOf(ns)}</>;
}

/** A moment since the start of the trace, to the nanosecond. */
export function Moment({ ns }: { readonly ns: number | null }) {
  return ns === null ? <NotRecorded /> : <span class="moment">{momentAt(ns, 1)}</span>;
}
