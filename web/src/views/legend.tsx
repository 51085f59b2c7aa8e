// What the colours mean, and a filter: a category that is switched off is drawn faintly.
import { useState } from "preact/hooks";
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
import { counting, visibleCounts } from "../state/counts";
import { reasons, trace } from "../state/trace";
import { LaneKey } from "./lane-key";
import { LegendItem } from "./legend-item";

export function Legend() {
  const known = useAtom(reasons);
  const filtered = useAtom(isFiltered);
  const hasEveryTask = useAtom(trace)?.every_task ?? true;
  const isCounting = useAtom(counting);
  const [open, setOpen] = useState<Category | "running" | null>(null);
  return (
    <div class="legend" role="group" aria-label="Legend: what is shown" aria-busy={isCounting}>
      <RunningItem open={open === "running"} onOpen={(next) => setOpen(next ? "running" : null)} />
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
      {!hasEveryTask && (
        <span class="legend-key">
          <span class="swatch dotted" /> CPU idle or not recorded
        </span>
      )}
      {filtered && (
        <button type="button" class="button quiet" onClick={showAllReasons}>
          Show all
        </button>
      )}
    </div>
  );
}

interface MenuProps {
  readonly open: boolean;
  readonly onOpen: (open: boolean) => void;
}

function RunningItem({ open, onOpen }: MenuProps) {
  const hidden = useAtom(hideRunning);
  return (
    <LegendItem
      toggle={
        <button
          type="button"
          class="legend-toggle"
          aria-pressed={!hidden}
          onClick={() => hideRunning.update((off) => !off)}
        >
          <span class="swatch" style={{ background: "var(--running)", color: "var(--running)" }} />
          running
        </button>
      }
      menu="How lanes are drawn"
      open={open}
      onOpen={onOpen}
    >
      <LaneKey />
    </LegendItem>
  );
}

interface ItemProps extends MenuProps {
  readonly category: Category;
  readonly members: readonly ReasonInfo[];
}

function CategoryItem({ category, members, open, onOpen }: ItemProps) {
  const hidden = useAtom(hiddenReasons);
  const counts = useAtom(visibleCounts)?.byReason ?? null;
  const ids = members.map(({ id }) => id);
  const on = ids.some((id) => !hidden.has(id));
  const count = ids.reduce((sum, id) => sum + (counts?.get(id) ?? 0), 0);
  const colour = `var(--${category})`;
  return (
    <LegendItem
      toggle={
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
      }
      menu={members.length > 1 ? `Reasons of ${category}` : null}
      open={open}
      onOpen={onOpen}
    >
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
            {counts !== null && <span class="legend-count">{grouped(counts.get(id) ?? 0)}</span>}
          </button>
          <div class="legend-help">{help}</div>
        </div>
      ))}
    </LegendItem>
  );
}
