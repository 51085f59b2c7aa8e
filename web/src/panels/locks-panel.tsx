// What was waited for: each lock, pipe or queue with its waiters and with those who ended the waits.
// The kernel does not say who held a lock; who released it is inferred from who woke its waiters.
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import * as api from "../api/client";
import type { Locks, Thread } from "../api/types";
import { escaped } from "../lib/escape";
import { counted, grouped, lengthOf, reportLength } from "../lib/format";
import { useAtom } from "../lib/use-atom";
import { reasons } from "../state/trace";
import { Answered, RangeLine } from "./answered";
import { RowLink, Swatch, ThreadLink } from "./names";
import type { Column, Row } from "./sheet/columns";
import { SheetTable } from "./sheet/sheet-table";
import { useRangeAnswer } from "./use-answer";

type Key = Locks["keys"][number];

/** So many of the hottest at first, and at most; a list that ends in keys of one wait each helps nobody. */
const FIRST_KEYS = 50;
const MOST_KEYS = 1_000;

export function LocksPanel() {
  const [most, setMost] = useState(FIRST_KEYS);
  const ask = (range: api.Span, signal: AbortSignal): Promise<Locks> =>
    api.locks(range, most, signal);
  const answer = useRangeAnswer(`locks ${most}`, ask);
  return (
    <section class="panel" aria-label="Locks">
      <RangeLine answer={answer}>
        <span class="muted">what was waited for; who released it is inferred from who woke it</span>
      </RangeLine>
      <Answered answer={answer}>
        {({ value: { keys, all } }) => (
          <KeyTable keys={keys}>
            {all !== null && all > keys.length && (
              <p class="muted">
                The {grouped(keys.length)} with the most blocked time, of {grouped(all)}.{" "}
                {most < MOST_KEYS && (
                  <button type="button" class="button" onClick={() => setMost(MOST_KEYS)}>
                    More
                  </button>
                )}
              </p>
            )}
          </KeyTable>
        )}
      </Answered>
    </section>
  );
}

const column = (key: string, head: string, holds: string): Column => ({
  key,
  head,
  holds,
  help: "",
});

const COLUMNS: readonly Column[] = [
  column("key", "waited for", "text"),
  column("blocked_ns", "blocked", "time"),
  column("waits", "waits", "count"),
  column("max_ns", "longest", "time"),
  column("waiters", "waiters", "text"),
  column("releasers", "released by (inferred)", "text"),
];

/** A copy of the table has the reason, too. */
const COPIED = [...COLUMNS, column("reason", "reason", "text")];

function KeyTable({
  keys,
  children,
}: {
  readonly keys: readonly Key[];
  readonly children: ComponentChildren;
}) {
  const known = useAtom(reasons);
  const keyOfRow = useMemo(() => new Map(keys.map((key) => [rowOf(key), key])), [keys]);
  const most = Math.max(...keys.map((key) => key.blocked_ns), 1);
  const cell = (column: Column, row: Row): ComponentChildren | undefined => {
    const key = keyOfRow.get(row);
    if (key === undefined) return undefined;
    switch (column.key) {
      case "key":
        return (
          <>
            <Swatch
              category={known.find((one) => one.reason === key.reason)?.category ?? "unknown"}
            />
            {escaped(key.key)}
          </>
        );
      case "max_ns":
        return <Longest of={key} />;
      case "waiters":
        return <Waiters of={key} />;
      case "releasers":
        return <Releasers of={key} />;
      default:
        return undefined;
    }
  };
  return (
    <SheetTable
      label="What was waited for"
      rows={[...keyOfRow.keys()]}
      columns={COLUMNS}
      all={COPIED}
      bar={(key, row) =>
        key === "blocked_ns" ? ((keyOfRow.get(row)?.blocked_ns ?? 0) * 100) / most : null
      }
      cell={cell}
    >
      {children}
    </SheetTable>
  );
}

function Waiters({ of }: { readonly of: Key }) {
  const people = of.waiters.map((thread) => ({
    thread,
    words: `${lengthOf(thread.blocked_ns)} in ${counted(thread.waits, "wait")}`,
  }));
  return <People people={people} count={of.waiters_count} />;
}

function Releasers({ of }: { readonly of: Key }) {
  const people = of.releasers.map((thread) => ({ thread, words: counted(thread.wakes, "time") }));
  return <People people={people} count={null} />;
}

function Longest({ of }: { readonly of: Key }) {
  if (of.longest_row === null) return <>{reportLength(of.max_ns)}</>;
  return (
    <RowLink
      row={of.longest_row}
      part="blocked"
      label={`${lengthOf(of.max_ns)}: go to the longest wait for ${escaped(of.key)}`}
    >
      {reportLength(of.max_ns)}
    </RowLink>
  );
}

/** How many are named before the rest is only counted. */
const NAMED = 3;
/** How many the server names; of others it tells only the number, or that there may be more. */
const TOLD = 8;

interface PeopleProps {
  readonly people: readonly { readonly thread: Thread; readonly words: string }[];
  /** Those that are not told included; null where the server does not count them. */
  readonly count: number | null;
}

function People({ people, count }: PeopleProps) {
  const rest = (count ?? people.length) - NAMED;
  const atLeast = count === null && people.length >= TOLD ? "at least " : "";
  return (
    <ul class="people">
      {people.slice(0, NAMED).map(({ thread, words }) => (
        <li key={thread.task}>
          <ThreadLink thread={thread} /> <span class="muted">{words}</span>
        </li>
      ))}
      {rest > 0 && <li class="muted">{`and ${atLeast}${grouped(rest)} more`}</li>}
    </ul>
  );
}

const namesOf = (
  people: readonly { readonly name: string; readonly tid: number | null }[],
): string[] => people.map(({ name, tid }) => (tid === null ? name : `${name}/${tid}`));

function rowOf(key: Key): Row {
  return {
    key: key.key,
    reason: key.reason,
    waits: key.waits,
    blocked_ns: key.blocked_ns,
    max_ns: key.max_ns,
    waiters: namesOf(key.waiters),
    releasers: namesOf(key.releasers),
  };
}
