// Search by name, pid or function: what is found leads to the lane, or to the longest wait in the function.
import type { JSX } from "preact";
import { useId, useState } from "preact/hooks";
import * as api from "../api/client";
import type { Found } from "../api/types";
import { escaped } from "../lib/escape";
import { counted, lengthOf } from "../lib/format";
import { goToRow, showThread } from "../state/navigate";
import { useAnswer } from "./use-answer";

/** One thing that was found, and where it leads. */
interface Hit {
  readonly words: string;
  readonly more: string;
  readonly go: (() => void) | null;
}

/** More do not fit under the box; the words can be made narrower. */
const MOST = 12;

function hitsOf({ threads, functions }: Found): Hit[] {
  const ofThreads = threads.map(({ task, tid, pid, name }) => ({
    words: escaped(name),
    more: `thread ${tid} of process ${pid}`,
    go: () => showThread(task),
  }));
  const ofFunctions = functions.map(({ symbol, module, role, waits, ns, longest_row: row }) => ({
    words: escaped(symbol),
    more: `${module === null ? "" : `${escaped(module)} · `}${role === "woke" ? "ended " : ""}${counted(waits, "wait")}, ${lengthOf(ns)}`,
    go: row === null ? null : () => void goToRow(row, "os", "blocked").catch(() => undefined),
  }));
  return [...ofThreads, ...ofFunctions];
}

export function SearchBox() {
  const [words, setWords] = useState("");
  const [chosen, setChosen] = useState(0);
  const [open, setOpen] = useState(false);
  const id = useId();
  const wanted = words.trim();
  const answer = useAnswer(wanted === "" ? null : wanted, (signal) => api.search(wanted, signal));
  const all = answer.value === null ? [] : hitsOf(answer.value);
  const hits = all.slice(0, MOST);
  const go = (hit: Hit | undefined): void => {
    if (hit?.go === undefined || hit.go === null) return;
    hit.go();
    setOpen(false);
  };
  const isOpen = open && wanted !== "";
  const keyed = (event: JSX.TargetedKeyboardEvent<HTMLInputElement>): void => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && hits.length > 0) {
      setOpen(true);
      setChosen((place) => (place + step + hits.length) % hits.length);
    } else if (event.key === "Enter") {
      go(hits[chosen]);
    } else if (event.key === "Escape" && isOpen) {
      setOpen(false);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="search" role="search">
      <input
        type="search"
        role="combobox"
        data-search
        placeholder="Thread, pid or function"
        aria-label="Search threads, processes and functions"
        aria-expanded={isOpen}
        aria-controls={`${id}hits`}
        aria-autocomplete="list"
        {...(isOpen && hits.length > 0 ? { "aria-activedescendant": `${id}hit${chosen}` } : {})}
        value={words}
        spellcheck={false}
        autocomplete="off"
        onInput={(event) => {
          setWords(event.currentTarget.value);
          setChosen(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={keyed}
      />
      {isOpen && (
        <div class="search-hits">
          <ul role="listbox" id={`${id}hits`} aria-label="What was found">
            {hits.map((hit, place) => (
              <li
                key={place}
                id={`${id}hit${place}`}
                role="option"
                aria-selected={place === chosen}
                aria-disabled={hit.go === null}
                // The box keeps the focus: a click must not end the search before it has led anywhere.
                onPointerDown={(event) => event.preventDefault()}
                onClick={() => go(hit)}
              >
                <span>{hit.words}</span> <span class="muted">{hit.more}</span>
              </li>
            ))}
          </ul>
          <p class="muted" role="status">
            {statusWords(answer.loading, answer.refusal?.message ?? null, all.length, hits.length)}
          </p>
        </div>
      )}
    </div>
  );
}

function statusWords(
  loading: boolean,
  refusal: string | null,
  found: number,
  shown: number,
): string {
  if (loading) return "searching …";
  if (refusal !== null) return escaped(refusal);
  if (found === 0) return "nothing of that name";
  return found > shown ? `${shown} of ${found}: type more to narrow it` : counted(found, "hit");
}
