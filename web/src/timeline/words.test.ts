import { describe, expect, it } from "vitest";
import { rangeOf, traceNs } from "../lib/units";
import type { Detail, ThreadColumns } from "../api/types";
import { type Names, spotWords } from "./words";
import type { LanePiece } from "./piece";

const NAMES: Names = {
  trace: null,
  reasons: [{ id: 7, reason: "futex", category: "synchronization", help: "" }],
  threads: { name: ["evil\u{1b}[31m\u{202e}"], tid: [42] } as unknown as ThreadColumns,
  placeOfTask: new Map([[5, 0]]),
};
const piece = (lane: string, state: number, who: number | null): LanePiece => ({
  lane,
  start: traceNs(1e6),
  end: traceNs(2.5e6),
  row: 1,
  who,
  state,
});
const words = (one: LanePiece): string => {
  const { title, lines } = spotWords({ kind: "piece", lane: one.lane, piece: one }, NAMES, null);
  return [title, ...lines].join(" | ");
};

describe("words of a spot", () => {
  it("say what a thread did and for how long", () => {
    expect(words(piece("t5", 1, 3))).toMatch(/^running on CPU 3 · 1\.50 ms/);
    expect(words(piece("t5", 39, null))).toMatch(/^blocked: futex · 1\.50 ms/);
    expect(words(piece("t5", 103, null))).toMatch(/^run queue, after futex · 1\.50 ms/);
    expect(words(piece("t5", 71, null))).toMatch(/^off the CPU: futex · 1\.50 ms/);
    expect(words(piece("t5", 127, null))).toMatch(/^run queue, new task · 1\.50 ms/);
  });

  /** Names are chosen by anyone. */
  it("show no hostile character of a name", () => {
    for (const lane of [piece("t5", 1, 0), piece("c0", 1, 5)]) {
      expect(words(lane)).toContain("evil\\x1b[31m\\u{202e} 42");
      expect(words(lane)).not.toMatch(/[\u{1b}\u{202e}]/u);
    }
  });

  /** What somebody blocked on was decided when it left: the row before has that verdict. */
  it("of a wait tell how sure its reason is, and on what evidence", () => {
    const before = {
      run: {
        reason: "futex",
        certainty: "inferred",
        rule: "guess_futex",
        rule_help: "the call was futex",
        evidence: [["state", "S (0x1)"]],
        price: { ns: 2100, low_ns: 1800, high_ns: 2600, kind: "thread", measured: true },
      },
    } as unknown as Detail;
    const waker = { task: 6, tid: 7, pid: 7, name: "waker", row: 3 };
    const wait = { waker, waker_kind: "task", runq_ns: 2000, stack: null, had_cpu: [] };
    const detail = { wait } as unknown as Detail;
    const one = piece("t5", 39, null);
    const spot = { kind: "piece", lane: "t5", piece: one } as const;
    const { lines } = spotWords(spot, NAMES, { detail, before });
    expect(lines).toContain("reason futex (inferred, rule guess_futex)");
    expect(lines).toContain("state: S (0x1)");
    expect(lines).toContain("price 2100 ns (1800 ns to 2600 ns, measured)");
    expect(lines).toContain("woken by waker 7");
    expect(lines).toContain("then 2.00 µs in the run queue");
  });

  /** Not only threads have a CPU that another one waits for. */
  it("of a wait in a run queue say who had the CPU, or why nobody had it", () => {
    const one = piece("t5", 103, null);
    const spot = { kind: "piece", lane: "t5", piece: one } as const;
    const lastLine = (what: string, thread: object | null): string | undefined => {
      const parts = [{ what, thread, ns: 3e6 }];
      const wait = { waker: null, waker_kind: null, runq_ns: 4e6, stack: null, had_cpu: parts };
      const detail = { wait } as unknown as Detail;
      return spotWords(spot, NAMES, { detail, before: null }).lines.at(-1);
    };
    expect(lastLine("task", { tid: 8, name: "hog" })).toBe("hog 8 had the CPU for 3.00 ms of it");
    expect(lastLine("interrupts", null)).toBe("interrupts took 3.00 ms of it");
    expect(lastLine("stolen", null)).toBe(
      "the hypervisor gave the CPU to others for 3.00 ms of it",
    );
    expect(lastLine("throttled", null)).toBe("its cgroup's quota was used up for 3.00 ms of it");
    expect(lastLine("idle", null)).toBe("the CPU was idle for 3.00 ms of it");
    expect(lastLine("not known", null)).toBe("it is not known who had the CPU for 3.00 ms of it");
  });

  it("of very many states add up those that are not told one by one", () => {
    const shares = [1, 39, 71, 103, 127, 7, 39, 71].map((state) => [state, 0.125] as const);
    const spot = { kind: "shares", lane: "t5", range: rangeOf(0, 1e6), shares } as const;
    expect(spotWords(spot, NAMES, null).lines.at(-2)).toBe("25 % in 2 other states");
  });

  it("of many states are their shares, and how to see more", () => {
    const spot = {
      kind: "shares",
      lane: "t5",
      range: rangeOf(0, 1e6),
      shares: [
        [39, 0.75],
        [1, 0.004],
      ],
    } as const;
    const { lines } = spotWords(spot, NAMES, null);
    expect(lines).toContain("75 % blocked: futex");
    expect(lines).toContain("under 1 % running");
    expect(lines.at(-1)).toBe("a click chooses the longest of them");
  });
});
