// Which lanes are shown, in what order, and which reasons stand out.
import { atom, derived } from "../lib/atom";
import type { TraceInfo } from "../api/types";
import type { TraceRange } from "../lib/units";
import { CPUS_OF_GROUP, KERNEL, cpuGroups } from "../timeline/lanes";
import { reasons } from "./trace";

/** Reasons that the legend has switched off, by id. Their time is drawn faintly. */
export const hiddenReasons = atom<ReadonlySet<number>>(new Set());

/** Whether the legend has running time switched off. */
export const hideRunning = atom(false);

export const isFiltered = derived(
  [hiddenReasons, hideRunning],
  (hidden, running) => hidden.size > 0 || running,
);

export type LaneSort = "CPU time" | "start" | "switches" | "wait" | "name";
export const LANE_SORTS: readonly LaneSort[] = ["CPU time", "start", "switches", "wait", "name"];
/** Who used the CPU is what most people look for first. */
export const laneSort = atom<LaneSort>("CPU time");

/** Words that name, tid or pid of a shown thread contain. */
export const laneFilter = atom("");

/** Only threads that were alive in this range are shown. It stays as it was set while the view moves on. */
export const aliveIn = atom<TraceRange | null>(null);

/** Threads that were not asked for, but had the CPU: shown only when asked for. */
export const showOutOfScope = atom(false);

/** Groups that are closed: `cpus`, `g` and a CPU, `kernel`, or `p` and a pid. The kernel's threads mostly sleep. */
export const collapsed = atom<ReadonlySet<string>>(new Set([KERNEL]));

/** More CPUs than this would push every thread off the screen. */
const MANY_CPUS = 16;

/** How lanes begin, by what is known of the trace when it is opened. */
export function suitLanes({ cpus, state }: TraceInfo): void {
  if (cpus.length > MANY_CPUS) {
    const groups = cpus.length > CPUS_OF_GROUP ? cpuGroups(cpus) : [];
    const keys = groups.flatMap(({ key }) => (key === null ? [] : [key]));
    collapsed.set(new Set(["cpus", KERNEL, ...keys]));
  }
  // While CPU time still grows, an order by it would move lanes under the pointer.
  if (state === "recording") laneSort.set("start");
}

export function toggleReasons(ids: readonly number[], on: boolean): void {
  hiddenReasons.update((hidden) => {
    const next = new Set(hidden);
    for (const id of ids) {
      if (on) next.delete(id);
      else next.add(id);
    }
    return next;
  });
}

/** Only these reasons stand out, or all again if they were the only ones. */
export function onlyReasons(ids: readonly number[]): void {
  const others = reasons.get().filter(({ id }) => !ids.includes(id));
  const hidden = hiddenReasons.get();
  const already = others.every(({ id }) => hidden.has(id)) && hideRunning.get();
  hideRunning.set(!already);
  hiddenReasons.set(already ? new Set() : new Set(others.map(({ id }) => id)));
}

export function showAllReasons(): void {
  hiddenReasons.set(new Set());
  hideRunning.set(false);
}

export function toggleGroup(key: string): void {
  collapsed.update((closed) => {
    const next = new Set(closed);
    if (!next.delete(key)) next.add(key);
    return next;
  });
}
