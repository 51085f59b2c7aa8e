import { describe, expect, it } from "vitest";
import type { ThreadColumns, TraceInfo } from "../api/types";
import { rangeOf } from "../lib/units";
import { type LaneChoice, cpuGroups, lanesOf, rowAt, rowsBetween } from "./lanes";

type Thread = readonly [pid: number, tid: number, name: string, run: number];

function columns(threads: readonly Thread[], more: Partial<ThreadColumns> = {}): ThreadColumns {
  const of = <T>(value: (thread: Thread, at: number) => T): T[] => threads.map(value);
  return {
    generation: 1,
    task: of((_, at) => at + 1),
    tid: of(([, tid]) => tid),
    pid: of(([pid]) => pid),
    name: of(([, , name]) => name),
    process: of(([pid]) => `process ${pid}`),
    parent: of(() => null),
    first_ns: of(() => 0),
    last_ns: of(() => 0),
    forked_ns: of(() => null),
    exited_ns: of(() => null),
    run_ns: of(([, , , run]) => run),
    switches: of(() => 0),
    blocked_ns: of(() => 0),
    runq_ns: of(() => 0),
    kernel: of(() => false),
    in_scope: of(() => true),
    user: of(() => false),
    ...more,
  };
}

const TRACE = {
  cpus: [
    { cpu: 0, node: null, core: null, switches: 1 },
    { cpu: 2, node: null, core: null, switches: 1 },
  ],
} as unknown as TraceInfo;
const ALL: LaneChoice = {
  sort: "start",
  filter: "",
  alive: null,
  outOfScope: false,
  collapsed: new Set(),
};
const keys = (threads: ThreadColumns, choice: Partial<LaneChoice> = {}): string[] =>
  lanesOf(null, threads, { ...ALL, ...choice }).rows.map(({ key }) => key);

const FOUR = columns([
  [10, 10, "postgres", 5],
  [20, 20, "redis", 50],
  [10, 11, "walwriter", 30],
  [20, 21, "bio_close", 1],
]);

describe("lanes", () => {
  it("are CPUs, then threads by process", () => {
    const { rows } = lanesOf(TRACE, FOUR, ALL);
    const found = rows.map(({ key }) => key);
    expect(found).toEqual(["cpus", "c0", "c2", "p10", "t1", "t3", "p20", "t2", "t4"]);
  });

  const cpus = (places: readonly (readonly [number, number | null, string | null])[]): TraceInfo =>
    ({
      cpus: places.map(([cpu, node, core]) => ({ cpu, node, core, switches: 1 })),
    }) as unknown as TraceInfo;

  /** As on a Xeon with two sockets: the numbers of siblings are far apart. */
  it("of CPUs are grouped by node, with siblings next to each other", () => {
    const xeon = cpus([
      [0, 0, "0,4"],
      [1, 0, "1,5"],
      [2, 1, "2,6"],
      [3, 1, "3,7"],
      [4, 0, "0,4"],
      [5, 0, "1,5"],
      [6, 1, "2,6"],
      [7, 1, "3,7"],
    ]);
    const { rows } = lanesOf(xeon, null, ALL);
    expect(rows.map(({ key }) => key)).toEqual([
      "cpus",
      "g0",
      "c0",
      "c4",
      "c1",
      "c5",
      "g2",
      "c2",
      "c6",
      "c3",
      "c7",
    ]);
    expect(rows[1]).toMatchObject({ title: "Node 0: CPUs 0-1,4-5", count: 4, depth: 1 });
    expect(rows[3]).toMatchObject({ title: "CPU 4", where: "node 0, one core: CPUs 0,4" });
    const closed = lanesOf(xeon, null, { ...ALL, collapsed: new Set(["g0"]) }).rows;
    expect(closed.map(({ key }) => key)).toEqual(["cpus", "g0", "g2", "c2", "c6", "c3", "c7"]);
  });

  it("of many CPUs are in groups that can be folded", () => {
    const many = cpus(Array.from({ length: 1024 }, (_, cpu) => [cpu, null, null] as const));
    const groups = cpuGroups(many.cpus);
    expect(groups).toHaveLength(16);
    expect(groups[15]).toMatchObject({ key: "g960", title: "CPUs 960-1023" });
    const { rows } = lanesOf(many, null, ALL);
    expect(rows).toHaveLength(1 + 16 + 1024);
    const few = cpus(Array.from({ length: 64 }, (_, cpu) => [cpu, null, null] as const));
    expect(cpuGroups(few.cpus)).toMatchObject([{ key: null }]);
  });

  it("stand below their parent, wherever the order puts that", () => {
    const tree = columns(
      [
        [20, 20, "worker", 50],
        [10, 10, "master", 5],
        [30, 30, "job", 1],
        [40, 40, "other", 20],
      ],
      { parent: [10, 1, 20, 999] },
    );
    const { rows } = lanesOf(null, tree, { ...ALL, sort: "CPU time" });
    const told = rows.map(({ key, depth }) => `${key} ${depth}`);
    expect(told).toEqual(["t4 0", "t2 0", "t1 1", "t3 2"]);
  });

  it("are all there when two processes seem to be each other's parent", () => {
    const round = columns(
      [
        [10, 10, "a", 1],
        [20, 20, "b", 1],
        [30, 30, "c", 1],
      ],
      { parent: [20, 10, 30] },
    );
    expect(keys(round)).toEqual(["t3", "t1", "t2"]);
  });

  it("of the kernel are folded at the end, and found all the same", () => {
    const mixed = columns(
      [
        [2, 2, "kworker/0:1", 90],
        [10, 10, "postgres", 5],
        [3, 3, "ksoftirqd/0", 1],
      ],
      { kernel: [true, false, true] },
    );
    expect(keys(mixed)).toEqual(["t2", "kernel", "t1", "t3"]);
    expect(keys(mixed, { collapsed: new Set(["kernel"]) })).toEqual(["t2", "kernel"]);
    expect(keys(mixed, { collapsed: new Set(["kernel"]), filter: "ksoft" })).toEqual([
      "kernel",
      "t3",
    ]);
  });

  it("are sorted within their process, and processes by what their threads add up to", () => {
    expect(keys(FOUR, { sort: "CPU time" })).toEqual(["p20", "t2", "t4", "p10", "t3", "t1"]);
    expect(keys(FOUR, { sort: "name" })).toEqual(["p10", "t1", "t3", "p20", "t4", "t2"]);
  });

  it("are found by name, process, tid and pid", () => {
    expect(keys(FOUR, { filter: "WAL" })).toEqual(["p10", "t3"]);
    expect(keys(FOUR, { filter: "21" })).toEqual(["p20", "t4"]);
    expect(keys(FOUR, { filter: "process 20" })).toEqual(["p20", "t2", "t4"]);
  });

  it("of a closed process are not there, its name is", () => {
    expect(keys(FOUR, { collapsed: new Set(["p10"]) })).toEqual(["p10", "p20", "t2", "t4"]);
  });

  /** Who was not asked for had the CPU, but its own waits may be unknown. */
  it("of threads that were not asked for are shown on request", () => {
    const threads = columns(
      [
        [10, 10, "a", 1],
        [30, 30, "b", 1],
      ],
      { in_scope: [true, false] },
    );
    expect(keys(threads)).toEqual(["t1"]);
    expect(keys(threads, { outOfScope: true })).toEqual(["t1", "t2"]);
  });

  /** A shell script starts hundreds of processes that live for a moment. */
  it("of threads that did not live in a range can be left out", () => {
    const threads = columns(
      [
        [10, 10, "a", 1],
        [30, 30, "b", 1],
      ],
      { first_ns: [0, 500], last_ns: [400, 900] },
    );
    expect(keys(threads, { alive: rangeOf(450, 600) })).toEqual(["t2"]);
    expect(keys(threads, { alive: rangeOf(300, 600) })).toEqual(["t1", "t2"]);
  });

  it("of workers lie over their thread", () => {
    expect(keys(columns([[10, 10, "a", 1]], { user: [true] }))).toEqual(["u1", "t1"]);
  });

  /** A database has a process per client: a line for each would halve what fits on the screen. */
  it("of a process with one thread have no line above them, unless others are only hidden", () => {
    expect(keys(columns([[10, 10, "a", 1]]))).toEqual(["t1"]);
    expect(keys(columns([[10, 11, "a", 1]]))).toEqual(["p10", "t1"]);
    expect(keys(FOUR, { filter: "wal" })).toEqual(["p10", "t3"]);
  });

  it("of 20,000 threads are found by bisection", () => {
    const many = Array.from({ length: 20_000 }, (_, at): Thread => [at >> 3, at, "t", 1]);
    const all = lanesOf(TRACE, columns(many), ALL);
    for (const at of [0, 1, 9_999, all.rows.length - 1]) {
      const row = all.rows[at];
      if (row === undefined) throw new Error("no row");
      expect(rowAt(all, row.top)).toBe(at);
      expect(rowAt(all, row.top + row.height - 0.5)).toBe(at);
    }
    expect(rowsBetween(all, 100_000, 100_800).length).toBeLessThan(40);
    expect(rowAt(all, 1e9)).toBe(all.rows.length - 1);
  });

  it("of nothing are none", () => {
    expect(rowsBetween(lanesOf(null, null, ALL), 0, 100)).toEqual([]);
  });
});
