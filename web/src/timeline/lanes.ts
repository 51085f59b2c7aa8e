// Which lanes there are, from top to bottom: CPUs (in groups where there are many, or several NUMA nodes), then
// threads by process, each process below its parent, and at the end the kernel's own threads. Pure; the places on the screen are sums of heights,
// so that a lane is found by bisection among 20,000.
import type { ThreadColumns, TraceInfo } from "../api/types";
import type { LaneSort } from "../state/filter";
import { type CssPx, type TraceRange, cssPx } from "../lib/units";

export const HEADER_PX = 24;
export const THREAD_PX = 24;
export const CPU_PX = 20;
export const USER_PX = 12;

export interface HeaderRow {
  readonly kind: "header";
  /** `cpus`, `g` and the first CPU of a group, `kernel`, or `p` and a pid: what `collapsed` holds. */
  readonly key: string;
  /** As it came, not escaped. */
  readonly title: string;
  readonly pid: number | null;
  readonly count: number;
  readonly open: boolean;
  /** How many of its ancestors are shown. */
  readonly depth: number;
  readonly top: CssPx;
  readonly height: CssPx;
}

export interface LaneRow {
  readonly kind: "cpu" | "thread" | "user";
  /** Its name on the wire. */
  readonly key: string;
  readonly title: string;
  /** Place in the columns of threads; -1 for a CPU. */
  readonly place: number;
  /** Where a CPU is: its node, and with whom it shares its core; empty where all are alike. */
  readonly where: string;
  /** A number apart from the name: the tid, the CPU; null where it is not known. */
  readonly number: number | null;
  /** Whether it stands for a process of its own, without a line above. */
  readonly single: boolean;
  /** How many ancestors of its process are shown. */
  readonly depth: number;
  readonly top: CssPx;
  readonly height: CssPx;
}

export type Row = HeaderRow | LaneRow;

/** Whether a row is of CPUs: the line above all of them or above a group, or the lane of one. */
export const isOfCpus = ({ kind, key }: Row): boolean =>
  kind === "cpu" || (kind === "header" && (key === "cpus" || key.startsWith("g")));

export interface Lanes {
  readonly rows: readonly Row[];
  readonly height: CssPx;
  readonly placeOf: ReadonlyMap<string, number>;
}

export interface LaneChoice {
  readonly sort: LaneSort;
  readonly filter: string;
  /** Only threads that lived in this range. */
  readonly alive: TraceRange | null;
  readonly outOfScope: boolean;
  readonly collapsed: ReadonlySet<string>;
}

/** What the kernel's own threads are folded under. */
export const KERNEL = "kernel";

interface Group {
  /** null: the kernel's own threads. */
  readonly pid: number | null;
  /** Places of the threads that are shown. */
  readonly members: number[];
  /** It has no other thread than its first: a line for the process would say nothing more. */
  readonly single: boolean;
}

/** A row before it has its place. */
type Unplaced = Omit<HeaderRow, "top"> | Omit<LaneRow, "top">;

export function lanesOf(
  trace: TraceInfo | null,
  threads: ThreadColumns | null,
  choice: LaneChoice,
): Lanes {
  const rows: Row[] = [];
  let top = 0;
  const add = (row: Unplaced): void => {
    rows.push({ ...row, top: cssPx(top) });
    top += row.height;
  };
  if (trace !== null && trace.cpus.length > 0) {
    addCpus(trace, choice, add);
  }
  if (threads !== null) {
    const { processes, kernel } = groupsOf(threads, choice);
    for (const { group, depth } of asTree(threads, processes)) {
      addGroup(threads, group, depth, choice, add);
    }
    if (kernel.members.length > 0) addGroup(threads, kernel, 0, choice, add);
  }
  return { rows, height: cssPx(top), placeOf: new Map(rows.map(({ key }, at) => [key, at])) };
}

type Cpu = TraceInfo["cpus"][number];

/** CPUs that are folded together. */
export interface CpuGroup {
  /** null: there is one group only, and no line for it. */
  readonly key: string | null;
  readonly title: string;
  readonly cpus: readonly Cpu[];
}

/** More CPUs than this are shown in groups: a screen has room for as many lanes. */
export const CPUS_OF_GROUP = 64;

/** CPUs by node, siblings of a core next to each other, and many of them in groups. */
export function cpuGroups(cpus: readonly Cpu[]): readonly CpuGroup[] {
  const first = (core: string | null, cpu: number): number =>
    core === null ? cpu : Number.parseInt(core, 10);
  const node = (cpu: Cpu): number => cpu.node ?? Number.MAX_SAFE_INTEGER;
  const ordered = [...cpus].sort(
    (a, b) => node(a) - node(b) || first(a.core, a.cpu) - first(b.core, b.cpu) || a.cpu - b.cpu,
  );
  const groups: Cpu[][] = [];
  for (const cpu of ordered) {
    const last = groups.at(-1);
    const fits = last !== undefined && last.length < CPUS_OF_GROUP && last[0]?.node === cpu.node;
    if (fits) last.push(cpu);
    else groups.push([cpu]);
  }
  if (groups.length < 2) return groups.map((alone) => ({ key: null, title: "", cpus: alone }));
  return groups.map((group) => {
    const of = group[0]?.node ?? null;
    const numbers = `CPUs ${listed(group.map(({ cpu }) => cpu))}`;
    const title = of === null ? numbers : `Node ${of}: ${numbers}`;
    return { key: `g${group[0]?.cpu ?? 0}`, title, cpus: group };
  });
}

/** Numbers as the kernel lists them: `0-3,8`. */
function listed(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && last[1] + 1 === number) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
}

function addCpus(trace: TraceInfo, choice: LaneChoice, add: (row: Unplaced) => void): void {
  const open = !choice.collapsed.has("cpus");
  const height = cssPx(HEADER_PX);
  const count = trace.cpus.length;
  add({ kind: "header", key: "cpus", title: "CPUs", pid: null, count, open, depth: 0, height });
  if (!open) return;
  for (const { key, title, cpus } of cpuGroups(trace.cpus)) {
    const depth = key === null ? 0 : 1;
    const shown = key === null || !choice.collapsed.has(key);
    if (key !== null) {
      const of = { pid: null, count: cpus.length, open: shown, depth, height };
      add({ kind: "header", key, title, ...of });
    }
    if (shown) for (const cpu of cpus) addCpu(cpu, depth, add);
  }
}

function addCpu({ cpu, node, core }: Cpu, depth: number, add: (row: Unplaced) => void): void {
  const words = [
    ...(node === null ? [] : [`node ${node}`]),
    ...(core === null ? [] : [`one core: CPUs ${core}`]),
  ];
  const at = { place: -1, number: cpu, single: false, depth, height: cssPx(CPU_PX) };
  add({ kind: "cpu", key: `c${cpu}`, title: `CPU ${cpu}`, where: words.join(", "), ...at });
}

function addGroup(
  threads: ThreadColumns,
  { pid, members, single }: Group,
  depth: number,
  choice: LaneChoice,
  add: (row: Unplaced) => void,
): void {
  const first = members[0] ?? 0;
  const isKernel = pid === null;
  const key = isKernel ? KERNEL : `p${pid}`;
  // Who looks for a thread wants to see it.
  const isSought = isKernel && choice.filter.trim() !== "";
  const open = single || isSought || !choice.collapsed.has(key);
  const title = isKernel ? "Kernel threads" : threads.process[first] || (threads.name[first] ?? "");
  if (!single) {
    const height = cssPx(HEADER_PX);
    add({ kind: "header", key, title, pid, count: members.length, open, depth, height });
  }
  if (!open) return;
  for (const place of members) {
    const task = threads.task[place] ?? 0;
    const at = {
      place,
      where: "",
      title: threads.name[place] ?? "",
      number: threads.tid[place] ?? null,
      single,
      depth,
    };
    if (threads.user[place] === true) {
      add({ kind: "user", key: `u${task}`, ...at, height: cssPx(USER_PX) });
    }
    add({ kind: "thread", key: `t${task}`, ...at, height: cssPx(THREAD_PX) });
  }
}

/** Processes with their threads, both in the order that is asked for, and the kernel's own threads. */
function groupsOf(
  threads: ThreadColumns,
  choice: LaneChoice,
): { readonly processes: Group[]; readonly kernel: Group } {
  const kernel: Group = { pid: null, members: [], single: false };
  const groups = new Map<number, number[]>();
  const all = new Map<number, number>();
  const wanted = choice.filter.trim().toLowerCase();
  for (let place = 0; place < threads.task.length; place++) {
    const pid = threads.pid[place] ?? 0;
    all.set(pid, (all.get(pid) ?? 0) + 1);
    if (!isShown(threads, place, wanted, choice)) continue;
    if (threads.kernel[place] === true) {
      kernel.members.push(place);
      continue;
    }
    const members = groups.get(pid);
    if (members === undefined) groups.set(pid, [place]);
    else members.push(place);
  }
  const ordered = [...groups].map(([pid, members]) => ({
    pid,
    members,
    single: all.get(pid) === 1 && threads.tid[members[0] ?? 0] === pid,
  }));
  for (const { members } of [...ordered, kernel]) members.sort(orderOf(threads, choice.sort));
  return { processes: ordered.sort(groupOrder(threads, choice.sort)), kernel };
}

/** Each process behind its parent, where that is shown; else as they come. */
function asTree(
  threads: ThreadColumns,
  groups: readonly Group[],
): { readonly group: Group; readonly depth: number }[] {
  const shown = new Set(groups.map(({ pid }) => pid));
  const below = new Map<number | null, Group[]>();
  for (const group of groups) {
    const parent = threads.parent[group.members[0] ?? 0] ?? null;
    const under = parent !== group.pid && shown.has(parent) ? parent : null;
    below.set(under, [...(below.get(under) ?? []), group]);
  }
  const rows: { group: Group; depth: number }[] = [];
  const placed = new Set<Group>();
  const place = (group: Group, depth: number): void => {
    if (placed.has(group)) return;
    placed.add(group);
    rows.push({ group, depth });
    for (const child of below.get(group.pid) ?? []) place(child, depth + 1);
  };
  for (const group of below.get(null) ?? []) place(group, 0);
  // Ids come round: two processes may each seem to be the other's parent.
  for (const group of groups) place(group, 0);
  return rows;
}

function isShown(
  threads: ThreadColumns,
  place: number,
  wanted: string,
  { outOfScope, alive }: LaneChoice,
): boolean {
  if (!outOfScope && threads.in_scope[place] === false) return false;
  const [first, last] = [threads.first_ns[place] ?? 0, threads.last_ns[place] ?? 0];
  if (alive !== null && (last < alive.from || first > alive.to)) return false;
  if (wanted === "") return true;
  const words = [
    threads.name[place] ?? "",
    threads.process[place] ?? "",
    String(threads.tid[place] ?? ""),
    String(threads.pid[place] ?? ""),
  ];
  return words.some((word) => word.toLowerCase().includes(wanted));
}

/** What is sorted by, largest first; null for an order that is not by a number. */
function measure(threads: ThreadColumns, sort: LaneSort): ((place: number) => number) | null {
  switch (sort) {
    case "CPU time":
      return (place) => threads.run_ns[place] ?? 0;
    case "switches":
      return (place) => threads.switches[place] ?? 0;
    case "wait":
      return (place) => (threads.blocked_ns[place] ?? 0) + (threads.runq_ns[place] ?? 0);
    case "start":
    case "name":
      return null;
  }
}

function orderOf(threads: ThreadColumns, sort: LaneSort): (a: number, b: number) => number {
  const size = measure(threads, sort);
  if (size !== null) return (a, b) => size(b) - size(a) || a - b;
  if (sort === "name") {
    return (a, b) => (threads.name[a] ?? "").localeCompare(threads.name[b] ?? "") || a - b;
  }
  return (a, b) => a - b;
}

function groupOrder(threads: ThreadColumns, sort: LaneSort): (a: Group, b: Group) => number {
  const size = measure(threads, sort);
  const first = ({ members }: Group): number => members[0] ?? 0;
  if (size !== null) {
    const sums = new Map<Group, number>();
    const sum = (group: Group): number => {
      const known = sums.get(group);
      if (known !== undefined) return known;
      const value = group.members.reduce((total, place) => total + size(place), 0);
      sums.set(group, value);
      return value;
    };
    return (a, b) => sum(b) - sum(a) || first(a) - first(b);
  }
  if (sort === "name") {
    const name = (group: Group): string => threads.process[first(group)] ?? "";
    return (a, b) => name(a).localeCompare(name(b)) || first(a) - first(b);
  }
  return (a, b) => first(a) - first(b);
}

/** The place of the row at a height; the last one below the end. */
export function rowAt(lanes: Lanes, y: number): number {
  let low = 0;
  let high = lanes.rows.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if ((lanes.rows[middle]?.top ?? 0) <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The rows between two heights. */
export function rowsBetween(lanes: Lanes, top: number, bottom: number): readonly Row[] {
  if (lanes.rows.length === 0) return [];
  return lanes.rows.slice(rowAt(lanes, top), rowAt(lanes, bottom) + 1);
}
