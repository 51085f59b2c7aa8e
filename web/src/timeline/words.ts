// What a spot is, in words: the tooltip shows them, a screen reader reads them. All text from outside is
// escaped here, so nobody who shows the words has to think of it.
import type { Detail, Frame, ReasonInfo, Thread, ThreadColumns, Wait } from "../api/types";
import { escaped } from "../lib/escape";
import { counted, estimate, lengthOf, momentAt } from "../lib/format";
import { type GroundSource, groundWords, restOfCpu } from "./ground";
import { KERNEL, cpuGroups } from "./lanes";
import { type LanePiece, laneKind, laneNumber, stateOf } from "./piece";
import type { Spot } from "./spot";

/** What the words of a spot name: reasons by number, threads by their place, CPUs of the trace. */
export interface Names extends GroundSource {
  readonly reasons: readonly ReasonInfo[];
  readonly threads: ThreadColumns | null;
  readonly placeOfTask: ReadonlyMap<number, number>;
}

/** The words of a spot: a title, and lines below it. */
export interface Words {
  readonly title: string;
  readonly lines: readonly string[];
}

/** Name and id of the thread of a task. */
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
  const name = threads?.process[place];
  return name === undefined ? `process ${pid}` : `process ${escaped(name)} ${pid}`;
}

const percent = (share: number): string =>
  share < 0.01 ? "under 1 %" : `${Math.round(share * 100)} %`;

/** The share of a CPU's column that is not drawn, in words: idle, of tasks that were not recorded, or not known. */
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

/** The most states of a column that are told one by one. */
const MOST_SHARES = 6;

function sharesWords({ shares }: Extract<Spot, { kind: "shares" }>, names: Names): string[] {
  const lines = shares
    .slice(0, MOST_SHARES)
    .map(([state, share]) => `${percent(share)} ${stateWords(state, names)}`);
  const rest = shares.slice(MOST_SHARES);
  if (rest.length === 0) return lines;
  const share = rest.reduce((sum, [, share]) => sum + share, 0);
  return [...lines, `${percent(share)} in ${counted(rest.length, "other state")}`];
}

/** The words of a spot. `told` is what the server told of a piece; null until it has, and for other spots. */
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
          ...sharesWords(spot, names),
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
    return {
      title: `${who} · ${length}`,
      lines: [`on ${lane}, ${at}`, ...runLines(detail, "ended by")],
    };
  }
  if (kind === "user") {
    return {
      title: `worker ${piece.who ?? "?"} · ${length}`,
      lines: [lane, at, ...runLines(detail, "ended by")],
    };
  }
  const state = stateOf(piece.state);
  const what =
    state.kind === "running"
      ? `running on CPU ${piece.who ?? "?"}`
      : stateWords(piece.state, names);
  const lines =
    state.kind === "running" ? runLines(detail, "ended by") : waitLines(told, state.kind);
  return { title: `${what} · ${length}`, lines: [`${lane}, ${at}`, ...lines] };
}

/** Evidence that is left out: scheduling classes are nearly always the same, and the detail has them. */
const CLASSES: ReadonlySet<string> = new Set(["class", "successor's class"]);

/** Why a run ended, how sure that is, on what evidence, at what price. The label stands before the reason. */
function runLines(detail: Detail | null, label: "ended by" | "reason"): string[] {
  if (detail === null) return [];
  const { run } = detail;
  const lines = [
    `${label} ${run.reason} (${run.certainty}${run.certainty === "inferred" ? `, rule ${escaped(run.rule)}` : ""})`,
  ];
  if (run.rule_help !== null && run.rule_help !== "") lines.push(escaped(run.rule_help));
  const telling = run.evidence.filter(([what]) => !CLASSES.has(what)).slice(0, 4);
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
  switch (kind) {
    case "off":
      lines.push("when it could run again is not known: blocked, then in a run queue");
      break;
    case "runq": {
      // The largest part comes first.
      const first = wait.had_cpu[0];
      if (first !== undefined) lines.push(hadCpuWords(first));
      break;
    }
    case "blocked":
      if (wait.runq_ns !== null && wait.runq_ns > 0) {
        lines.push(`then ${lengthOf(wait.runq_ns)} in the run queue`);
      }
      break;
    case "unknown":
      break;
  }
  const frame = tellingFrame(wait.stack ?? []);
  if (frame !== null) lines.push(`in ${escaped(frame)}`);
  return lines;
}

/** Who or what had the CPU in a part of a wait in the run queue. */
function hadCpuWords({ what, thread, ns }: Wait["had_cpu"][number]): string {
  const time = `${lengthOf(ns)} of it`;
  if (thread !== null) return `${threadWords(thread)} had the CPU for ${time}`;
  switch (what) {
    case "interrupts":
      return `interrupts took ${time}`;
    case "stolen":
      return `the hypervisor gave the CPU to others for ${time}`;
    case "throttled":
      return `its cgroup's quota was used up for ${time}`;
    case "idle":
      return `the CPU was idle for ${time}`;
    default:
      return `it is not known who had the CPU for ${time}`;
  }
}

/** Every wait ends in these: they say nothing about it. */
const SCHEDULING = /^_*(io_|preempt_)?schedul/;

/**
 * One frame of a stack whose innermost frame comes first: the innermost that is named in user mode, which is often a
 * function of the C library; without one, the kernel's function that waited.
 */
function tellingFrame(stack: readonly Frame[]): string | null {
  const named = stack.filter(({ symbol }) => symbol !== null);
  const user = named.find(({ kind }) => kind === "user");
  const kernel = named.find(({ symbol }) => !SCHEDULING.test(symbol ?? ""));
  return (user ?? kernel)?.symbol ?? null;
}
