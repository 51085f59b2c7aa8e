// Names beside the lanes: those on the screen and a few more, however many there are.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";
import { escaped } from "../lib/escape";
import { grouped } from "../lib/format";
import { useAtom } from "../lib/use-atom";
import { collapsed, toggleGroup } from "../state/filter";
import { lanes } from "../state/lanes";
import { focusSpot } from "../state/pointer";
import { selectedTask } from "../state/selection";
import { showThreadHere } from "../state/navigate";
import { threads } from "../state/trace";
import { type HeaderRow, type LaneRow, rowsBetween } from "../timeline/lanes";

const MORE_PX = 300;

export function LaneLabels({ scroller }: { readonly scroller: RefObject<HTMLElement> }) {
  const all = useAtom(lanes);
  const [seen, setSeen] = useState({ top: 0, height: 800 });
  const task = useAtom(selectedTask);
  const focused = useAtom(focusSpot)?.lane;
  useAtom(collapsed);

  useEffect(() => {
    const element = scroller.current;
    if (element === null) return undefined;
    // In steps, so that scrolling a little draws nothing again.
    const look = (): void => {
      const top = Math.floor(element.scrollTop / 100) * 100;
      setSeen((known) =>
        known.top === top && known.height === element.clientHeight
          ? known
          : { top, height: element.clientHeight },
      );
    };
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);

  const rows = rowsBetween(all, seen.top - MORE_PX, seen.top + seen.height + MORE_PX);
  return (
    <div class="lane-height" style={{ height: `${all.height}px` }}>
      {rows.map((row) =>
        row.kind === "header" ? (
          <GroupLabel key={row.key} row={row} focused={row.key === focused} />
        ) : (
          <LaneLabel
            key={row.key}
            row={row}
            selected={row.kind !== "cpu" && row.key.slice(1) === String(task)}
            focused={row.key === focused}
          />
        ),
      )}
    </div>
  );
}

/** Deeper processes are not set in any more: their names need the room. */
const DEEPEST = 5;
const STEP_PX = 10;

const placed = (row: { top: number; height: number; depth: number }) => ({
  top: `${row.top}px`,
  height: `${row.height}px`,
  left: `${Math.min(row.depth, DEEPEST) * STEP_PX}px`,
});

function GroupLabel({ row, focused }: { readonly row: HeaderRow; readonly focused: boolean }) {
  const title = escaped(row.title);
  return (
    <div class={`lane-label group${focused ? " focused" : ""}`} style={placed(row)}>
      <button
        type="button"
        class="group-toggle"
        tabIndex={-1}
        aria-expanded={row.open}
        title={row.pid === null ? title : `${title}, process ${row.pid}`}
        onClick={() => toggleGroup(row.key)}
      >
        <span class="group-arrow" aria-hidden="true">
          {row.open ? "▾" : "▸"}
        </span>
        <span class="lane-name">{title}</span>
        {row.pid !== null && <span class="lane-number">{row.pid}</span>}
        {row.count > 1 && <span class="group-count">{grouped(row.count)}</span>}
      </button>
    </div>
  );
}

interface LaneLabelProps {
  readonly row: LaneRow;
  readonly selected: boolean;
  readonly focused: boolean;
}

function LaneLabel({ row, selected, focused }: LaneLabelProps) {
  const title = escaped(row.title);
  const known = threads.get();
  const outside = row.place >= 0 && known?.in_scope[row.place] === false;
  const state = `${selected ? " selected" : ""}${focused ? " focused" : ""}${outside ? " outside" : ""}${row.single ? " single" : ""}`;
  if (row.kind === "cpu") {
    return (
      <div class={`lane-label${state}`} style={placed(row)} title={`${title} ${row.where}`.trim()}>
        <span class="lane-name">{title}</span>
        {row.where !== "" && <span class="lane-number">{row.where}</span>}
      </div>
    );
  }
  if (row.kind === "user") {
    return (
      <div class={`lane-label user${state}`} style={placed(row)} title={`workers of ${title}`}>
        <span class="lane-name">workers</span>
      </div>
    );
  }
  return (
    <div
      class={`lane-label${state}`}
      style={placed(row)}
      title={`${title}, thread ${row.number}${outside ? ", not asked for: only its turns on the CPU are known" : ""}`}
      onClick={() => showThreadHere(row.key)}
    >
      <span class="lane-name">{title}</span>
      <span class="lane-number">{row.number}</span>
    </div>
  );
}
