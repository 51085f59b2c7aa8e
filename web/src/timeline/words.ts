// What a spot is, in words: the tooltip shows them, a screen reader reads them. All text from outside is
// escaped here, so nobody who shows the words has to think of it.
import type { Detail, Frame, ReasonInfo, Thread, ThreadColumns } from "../api/types";
import { escaped } from "../lib/escape";
import { counted, estimate, lengthOf, momentAt } from "../lib/format";
import { type GroundSource, groundWords, restOfCpu } from "./ground";
import { KERNEL, cpuGroups } from "./lanes";
import { type LanePiece, laneKind, laneNumber, stateOf } from "./piece";
import type { Spot } from "./spot";

export interface Names extends GroundSource {
  readonly reasons: readonly ReasonInfo[];
  readonly threads: ThreadColumns | null;
  readonly placeOfTask: ReadonlyMap<number, number>;
}

export interface Words {
  readonly title: string;
  readonly lines: readonly string[];
}

export function nameOfTask(task: number, names: Names): string {
  const place = names.placeOfTask.get(task);
  const name = place === undefined ? undefined : names.threads?.name[place];
  const tid = place === undefined ? undefined : names.threads?.tid[place];
  if (name === undefined || tid === undefined) return "a thread without a name";
  return threadWords({ name, tid });
}

const reasonWord = (id: number, { reasons }: Pick<Names, "reasons">): string =>
  reasons.find((reason) => reason.id === id)?.reason ?? "a reason this page does not know";

/** A state byte as a few words: `running`, `blocked: futex`, `run queue, after futex`. */
export function stateWords(byte: number, names: Pick<Names, "reasons">): string {
  const state = stateOf(byte);
  switch (state.kind) {
    case "running":
      return "running";
    case "blocked":
      return `blocked: ${reasonWord(state.reason, names)}`;
    case "off":
      return `off the CPU: ${reasonWord(state.reason, names)}`;
    case "runq":
      return state.reason === null
        ? "run queue, new task"
        : `run queue, after ${reasonWord(state.reason, names)}`;
    case "unknown":
      return "not known";
  }
}

function laneWords(lane: string, names: Names): string {
  const number = laneNumber(lane);
  switch (laneKind(lane)) {
    case "cpu":
      return `CPU ${number}`;
    case "user":
      return `workers of ${nameOfTask(number, names)}`;
    case "thread":
      return nameOfTask(number, names);
  }
}

function groupWords(key: string, { threads, trace }: Names): string {
  if (key === "cpus") return "CPUs";
  if (key === KERNEL) return "threads of the kernel itself";
  if (key.startsWith("g")) {
    const group = cpuGroups(trace?.cpus ?? []).find((group) => group.key === key);
    return group?.title ?? "CPUs";
  }
  const pid = Number(key.slice(1));
  const place = threads?.pid.indexOf(pid) ?? -1;
  return `process ${escaped(threads?.process[place] ?? "")} ${pid}`;
}

const percent = (share: number): string =>
  share < 0.01 ? "under 1 %" : `${Math.round(share * 100)} %`;

/** What is not drawn of a CPU's column is known, or known to be unknown. */
function restWords(spot: Extract<Spot, { kind: "shares" }>, names: Names): string[] {
  const rest = 1 - spot.shares.reduce((sum, [, share]) => sum + share, 0);
  // A share has 255 steps: less is rounding.
  if (laneKind(spot.lane) !== "cpu" || rest < 1 / 255) return [];
  return [`${percent(rest)} ${restOfCpu(laneNumber(spot.lane), spot.range, names)}`];
}

/** What the server told of a piece: its row, and for a wait the row before, whose verdict began it. */
export interface Told {
  readonly detail: Detail;
  readonly before: Detail | null;
}

export function spotWords(spot: Spot, names: Names, told: Told | null): Words {
  switch (spot.kind) {
    case "header":
      return { title: groupWords(spot.lane, names), lines: ["Enter opens or closes it"] };
    case "nothing":
      return {
        title: laneWords(spot.lane, names),
        lines: groundWords(spot.lane, spot.moment, names),
      };
    case "gap":
      return {
        title: `${laneWords(spot.lane, names)}: a gap of ${lengthOf(spot.gap.to_ns - spot.gap.from_ns)}`,
        lines: [`${counted(spot.gap.lost, "record")} lost here: what is shown is a lower bound`],
      };
    case "shares":
      return {
        title: laneWords(spot.lane, names),
        lines: [
          `in ${lengthOf(spot.range.to - spot.range.from)} at ${momentAt(spot.range.from, spot.range.to - spot.range.from)}:`,
          ...spot.shares
            .slice(0, 6)
            .map(([state, share]) => `${percent(share)} ${stateWords(state, names)}`),
          ...restWords(spot, names),
          "a click chooses the longest of them",
        ],
      };
    case "piece":
      return pieceWords(spot.piece, names, told);
  }
}

function pieceWords(piece: LanePiece, names: Names, told: Told | null): Words {
  const detail = told?.detail ?? null;
  const length = lengthOf(piece.end - piece.start);
  const at = `at ${momentAt(piece.start, Math.max(1, (piece.end - piece.start) / 10))}`;
  const kind = laneKind(piece.lane);
  const lane = laneWords(piece.lane, names);
  if (kind === "cpu") {
    const who = piece.who === null ? "a task without a name" : nameOfTask(piece.who, names);
    return { title: `${who} · ${length}`, lines: [`on ${lane}, ${at}`, ...runLines(detail)] };
  }
  if (kind === "user") {
    return {
      title: `worker ${piece.who ?? "?"} · ${length}`,
      lines: [lane, at, ...runLines(detail)],
    };
  }
  const state = stateOf(piece.state);
  const what =
    state.kind === "running"
      ? `running on CPU ${piece.who ?? "?"}`
      : stateWords(piece.state, names);
  const lines = state.kind === "running" ? runLines(detail) : waitLines(told, state.kind);
  return { title: `${what} · ${length}`, lines: [`${lane}, ${at}`, ...lines] };
}

/** Why a run ended, how sure that is, on what evidence, at what price. */
function runLines(detail: Detail | null, verb = "ended by"): string[] {
  if (detail === null) return [];
  const { run } = detail;
  const lines = [
    `${verb} ${run.reason} (${run.certainty}${run.certainty === "inferred" ? `, rule ${escaped(run.rule)}` : ""})`,
  ];
  if (run.rule_help !== null && run.rule_help !== "") lines.push(escaped(run.rule_help));
  // Classes are nearly always the same; the detail has them.
  const telling = run.evidence.filter(([what]) => !what.includes("class")).slice(0, 4);
  if (telling.length > 0) {
    const words = telling.map(([what, value]) => `${what}: ${value}`);
    lines.push(escaped(words.join(" · ")));
  }
  // Prices are of the kernel's switches.
  if (run.price !== null && detail.level !== "user") {
    const { ns, low_ns, high_ns, measured } = run.price;
    lines.push(
      `price ${estimate(ns)} (${estimate(low_ns)} to ${estimate(high_ns)}, ${measured ? "measured" : "estimated"})`,
    );
  }
  return lines;
}

const threadWords = ({ name, tid }: Pick<Thread, "name" | "tid">): string =>
  tid === null ? escaped(name) : `${escaped(name)} ${tid}`;

function waitLines(told: Told | null, kind: "blocked" | "off" | "runq" | "unknown"): string[] {
  const wait = told?.detail.wait ?? null;
  if (told === null || wait === null) return [];
  const lines = runLines(told.before, "reason");
  if (wait.waker !== null) {
    lines.push(`woken by ${threadWords(wait.waker)}`);
  } else if (wait.waker_kind !== null && wait.waker_kind !== "none") {
    lines.push(`woken by ${wait.waker_kind}`);
  }
  if (kind === "off") {
    lines.push("when it could run again is not known: blocked, then in a run queue");
  } else if (kind === "runq") {
    const first = wait.had_cpu[0];
    if (first !== undefined) {
      const who = first.thread === null ? first.what : threadWords(first.thread);
      lines.push(`${who} had the CPU for ${lengthOf(first.ns)} of it`);
    }
  } else if (wait.runq_ns !== null && wait.runq_ns > 0) {
    lines.push(`then ${lengthOf(wait.runq_ns)} in the run queue`);
  }
  const frame = tellingFrame(wait.stack ?? []);
  if (frame !== null) lines.push(`in ${escaped(frame)}`);
  return lines;
}

/** Every wait ends in these: they say nothing about it. */
const SCHEDULING = /^_*(io_|preempt_)?schedul/;

/** The frame that tells most in one line: the program's own, else what the kernel waited in. */
function tellingFrame(stack: readonly Frame[]): string | null {
  const named = stack.filter(({ symbol }) => symbol !== null);
  const own = named.find(({ kind }) => kind === "user");
  const kernel = named.find(({ symbol }) => !SCHEDULING.test(symbol ?? ""));
  return (own ?? kernel)?.symbol ?? null;
}
