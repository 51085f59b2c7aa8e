// The ground of a lane: what it means that nothing is drawn. On a CPU of a recording of the whole machine
// that is idle time; in any other recording nobody knows who had the CPU there. A thread has no time
// before it was forked and after it has exited.
import type { ThreadColumns, TraceInfo } from "../api/types";
import { escaped } from "../lib/escape";
import { momentAt } from "../lib/format";
import type { TraceRange } from "../lib/units";
import { laneKind, laneNumber } from "./piece";

/** Moments are told to the digit in which a person finds them on the ruler again. */
const MOMENT_STEP_NS = 1e3;

export interface GroundSource {
  readonly trace: Pick<TraceInfo, "scope" | "every_task" | "cpus"> | null;
  readonly threads: Pick<
    ThreadColumns,
    "first_ns" | "last_ns" | "forked_ns" | "exited_ns" | "in_scope"
  > | null;
  readonly placeOfTask: ReadonlyMap<number, number>;
}

/** From when to when a thread lived: without end on a side where that is not known. */
export interface Life {
  readonly from: number;
  readonly to: number;
}

export function lifeOf(lane: string, { threads, placeOfTask }: GroundSource): Life {
  const place = placeOfTask.get(laneNumber(lane)) ?? -1;
  return {
    from: threads?.forked_ns[place] ?? -Infinity,
    to: threads?.exited_ns[place] ?? Infinity,
  };
}

/** What nothing means at a moment of a lane: one line, or two. */
export function groundWords(lane: string, moment: number, source: GroundSource): string[] {
  return laneKind(lane) === "cpu"
    ? cpuWords(laneNumber(lane), moment, source)
    : [threadWords(lane, moment, source)];
}

const SCOPED_REST = "idle, or others ran: not recorded";

/** What the rest of a CPU's time was, where only a part of it is drawn. */
export function restOfCpu(number: number, range: TraceRange, { trace }: GroundSource): string {
  if (trace?.every_task !== true) return SCOPED_REST;
  const known = trace.cpus.find(({ cpu }) => cpu === number);
  const begins = known?.first_ns ?? Infinity;
  const ends = known?.last_ns ?? -Infinity;
  return begins <= range.from && range.to <= ends ? "idle" : "idle, or not known";
}

function cpuWords(number: number, moment: number, source: GroundSource): string[] {
  const { trace } = source;
  if (trace?.every_task !== true) {
    const scope = trace?.scope ?? "";
    const words = [SCOPED_REST];
    return scope === "" ? words : [...words, `this recording is of: ${escaped(scope)}`];
  }
  const known = trace.cpus.find(({ cpu }) => cpu === number);
  if (known === undefined || known.first_ns === null || moment < known.first_ns) {
    return ["not known: before the first switch that was recorded here"];
  }
  return known.last_ns !== null && moment >= known.last_ns
    ? ["not known: after the last switch that was recorded here"]
    : ["idle: no thread had this CPU"];
}

function threadWords(lane: string, moment: number, source: GroundSource): string {
  const { from, to } = lifeOf(lane, source);
  if (moment < from) return `had not started yet: forked at ${momentAt(from, MOMENT_STEP_NS)}`;
  if (moment >= to) return `had ended, at ${momentAt(to, MOMENT_STEP_NS)}`;
  if (laneKind(lane) === "user") return "no worker, as far as was recorded";
  const { threads, placeOfTask } = source;
  const place = placeOfTask.get(laneNumber(lane)) ?? -1;
  if (threads?.in_scope[place] === false) {
    return "not recorded: of this thread only its turns on the CPU are known";
  }
  if (moment < (threads?.first_ns[place] ?? 0)) {
    return "not known: before the first switch that was recorded of it";
  }
  return moment >= (threads?.last_ns[place] ?? Infinity)
    ? "not known: after the last switch that was recorded of it"
    : "not known here";
}
