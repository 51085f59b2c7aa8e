// What the colours mean, and a filter: a category that is switched off is drawn faintly.
import { useEffect, useRef, useState } from "preact/hooks";
import { CATEGORIES, type Category, type ReasonInfo } from "../api/types";
import { grouped } from "../lib/format";
import { useAtom } from "../lib/use-atom";
import {
  hiddenReasons,
  hideRunning,
  isFiltered,
  onlyReasons,
  showAllReasons,
  toggleReasons,
} from "../state/filter";
import { visibleCounts } from "../state/counts";
import { reasons } from "../state/trace";

export function Legend() {
  const known = useAtom(reasons);
  const filtered = useAtom(isFiltered);
  const noRunning = useAtom(hideRunning);
  const [open, setOpen] = useState<Category | null>(null);
  return (
    <div class="legend" role="group" aria-label="Legend: what is shown">
      <div class="legend-item">
        <button
          type="button"
          class="legend-toggle"
          aria-pressed={!noRunning}
          onClick={() => hideRunning.update((off) => !off)}
        >
          <span class="swatch" style={{ background: "var(--running)", color: "var(--running)" }} />
          running
        </button>
      </div>
      <span class="legend-key">
        <span class="swatch hatched" /> run queue
        <span class="swatch low" /> blocked:
      </span>
      {CATEGORIES.map((category) => {
        const members = known.filter((reason) => reason.category === category);
        return members.length === 0 ? null : (
          <CategoryItem
            key={category}
            category={category}
            members={members}
            open={open === category}
            onOpen={(next) => setOpen(next ? category : null)}
          />
        );
      })}
      {filtered && (
        <button type="button" class="button quiet" onClick={showAllReasons}>
          Show all
        </button>
      )}
    </div>
  );
}

interface ItemProps {
  readonly category: Category;
  readonly members: readonly ReasonInfo[];
  readonly open: boolean;
  readonly onOpen: (open: boolean) => void;
}

function CategoryItem({ category, members, open, onOpen }: ItemProps) {
  const hidden = useAtom(hiddenReasons);
  const counts = useAtom(visibleCounts);
  const box = useRef<HTMLDivElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const ids = members.map(({ id }) => id);
  const on = ids.some((id) => !hidden.has(id));
  const count = ids.reduce((sum, id) => sum + (counts?.get(id) ?? 0), 0);
  const colour = `var(--${category})`;

  useEffect(() => {
    if (!open) return undefined;
    // The legend scrolls, so its menus lie outside of it, by place.
    const under = box.current?.getBoundingClientRect();
    if (menu.current !== null && under !== undefined) {
      const room = innerWidth - menu.current.offsetWidth - 8;
      menu.current.style.left = `${Math.max(8, Math.min(under.left, room))}px`;
      menu.current.style.top = `${under.bottom + 2}px`;
    }
    const outside = (event: Event): void => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) onOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);

  return (
    <div
      class="legend-item"
      ref={box}
      onKeyDown={(event) => {
        if (event.key === "Escape" && open) {
          event.stopPropagation();
          onOpen(false);
          box.current?.querySelector<HTMLElement>(".legend-more")?.focus();
        }
      }}
    >
      <button
        type="button"
        class={`legend-toggle${counts !== null && count === 0 ? " none" : ""}`}
        aria-pressed={on}
        title="Click: on or off. Shift or double click: only this."
        onClick={({ shiftKey }) => (shiftKey ? onlyReasons(ids) : toggleReasons(ids, !on))}
        onDblClick={() => onlyReasons(ids)}
      >
        <span class="swatch" style={{ background: colour, color: colour }} />
        {category}
        {count > 0 && <span class="legend-count">{grouped(count)}</span>}
      </button>
      {members.length > 1 && (
        <button
          type="button"
          class="legend-more"
          aria-label={`Reasons of ${category}`}
          aria-expanded={open}
          onClick={() => onOpen(!open)}
        >
          ▾
        </button>
      )}
      {open && (
        <div class="legend-menu" ref={menu} role="group" aria-label={`Reasons of ${category}`}>
          {members.map(({ id, reason, help }) => (
            <div key={id}>
              <button
                type="button"
                class="legend-toggle"
                aria-pressed={!hidden.has(id)}
                onClick={() => toggleReasons([id], hidden.has(id))}
              >
                <span class="swatch" style={{ background: colour, color: colour }} />
                {reason}
                {counts !== null && (
                  <span class="legend-count">{grouped(counts.get(id) ?? 0)}</span>
                )}
              </button>
              <div class="legend-help">{help}</div>
            </div>
          ))}
        </div>
      )}
    </div>
  );
}
