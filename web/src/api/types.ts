// What the server answers, as decoders: the type follows from the check.
// Keys are the wire's own, units in the name; moments are ns since the start of the trace.
import {
  type Decoded,
  type Decoder,
  boolean,
  cell,
  either,
  entries,
  list,
  number,
  oneOf,
  optional,
  pair,
  record,
  string,
} from "./decode";

export const CATEGORIES = [
  "preemption",
  "yield",
  "synchronization",
  "io",
  "sleep",
  "memory",
  "wait",
  "exit",
  "unknown",
] as const;
export type Category = (typeof CATEGORIES)[number];
export type Level = "os" | "user";

export const reasonInfo = record({
  id: number,
  reason: string,
  category: oneOf(...CATEGORIES),
  help: string,
});
export type ReasonInfo = Decoded<typeof reasonInfo>;

export const gap = record({
  cpu: number,
  from_ns: number,
  to_ns: number,
  lost: number,
  level: oneOf("os", "user"),
});
export type Gap = Decoded<typeof gap>;

export const traceInfo = record({
  schema: string,
  generation: number,
  state: oneOf("finished", "recording", "cut"),
  note: optional(string),
  name: string,
  head: list(string),
  wall_start: optional(string),
  duration_ns: number,
  switches: number,
  lost: number,
  /** Switches that the kernel made and did not report to tracing: they are in no row. */
  untraced: number,
  threads: number,
  /** What was recorded, in words: a command, process ids, `whole system`; empty where it is not told. */
  scope: string,
  /** Whether a CPU on which nothing is recorded was idle; else others may have had it. */
  every_task: boolean,
  /** `first_ns` to `last_ns`: the span in which it is known who had the CPU. */
  cpus: list(
    record({
      cpu: number,
      /** Its NUMA node; null where there is only one, or it is not known. */
      node: optional(number),
      /** The CPUs of its core as a list, `0,64`; null when it has the core alone. */
      core: optional(string),
      switches: number,
      first_ns: optional(number),
      last_ns: optional(number),
    }),
  ),
  reasons: list(reasonInfo),
  gaps: list(gap),
  has_stacks: boolean,
  has_spans: boolean,
  has_prices: boolean,
});
export type TraceInfo = Decoded<typeof traceInfo>;

/** Columns, one entry per thread, in order of first appearance. */
export const threadColumns = record({
  generation: number,
  task: list(number),
  /** null: a task that was never named. */
  tid: list(optional(number)),
  pid: list(optional(number)),
  name: list(string),
  process: list(string),
  /** Process id of the parent of its process. */
  parent: list(optional(number)),
  first_ns: list(number),
  last_ns: list(number),
  /** When it began and ended; null where that was before or after the recording, or not seen. */
  forked_ns: list(optional(number)),
  exited_ns: list(optional(number)),
  run_ns: list(number),
  switches: list(number),
  blocked_ns: list(number),
  runq_ns: list(number),
  kernel: list(boolean),
  in_scope: list(boolean),
  user: list(boolean),
});
export type ThreadColumns = Decoded<typeof threadColumns>;

export const thread = record({
  task: number,
  /** null: a task that was never named. */
  tid: optional(number),
  pid: optional(number),
  name: string,
});
export type Thread = Decoded<typeof thread>;

/** `{"thread": {…}, …}` as one object: a thread that did something. */
const threadAnd =
  <Shape extends Record<string, Decoder<unknown>>>(
    shape: Shape,
  ): Decoder<Thread & { [Key in keyof Shape]: Decoded<Shape[Key]> }> =>
  (value, at) => ({ ...record({ thread })(value, at).thread, ...record(shape)(value, at) });

export const frame = record({
  symbol: optional(string),
  module: optional(string),
  offset: optional(number),
  file: optional(string),
  line: optional(number),
  kind: oneOf("kernel", "user"),
  /** What is not known of it. */
  note: optional(string),
});
export type Frame = Decoded<typeof frame>;

export const price = record({
  low_ns: number,
  high_ns: number,
  ns: number,
  kind: string,
  measured: boolean,
});
export type Price = Decoded<typeof price>;

export const run = record({
  from_ns: optional(number),
  to_ns: number,
  ns: optional(number),
  /** Of `ns`: interrupts, and what the hypervisor took. */
  irq_ns: number,
  stolen_ns: number,
  reason: string,
  category: oneOf(...CATEGORIES),
  certainty: oneOf("certain", "inferred"),
  rule: string,
  rule_help: optional(string),
  cause: optional(string),
  evidence: list(pair(string, string)),
  syscall: optional(string),
  wait_on: optional(string),
  next: optional(either(string, thread)),
  nominator: optional(thread),
  need_resched_delay_ns: optional(number),
  user_task: optional(either(number, string)),
  price: optional(price),
});
export type Run = Decoded<typeof run>;

export const wait = record({
  syscall: optional(string),
  wait_on: optional(string),
  from_ns: optional(number),
  woken_ns: optional(number),
  to_ns: optional(number),
  reason: optional(string),
  category: optional(oneOf(...CATEGORIES)),
  blocked_ns: optional(number),
  runq_ns: optional(number),
  /** The task that woke it, and the row it was in then; null when no task did (`waker_kind` says what). */
  waker: optional(threadAnd({ row: optional(number) })),
  waker_kind: optional(string),
  wake_cpu: optional(number),
  stack: optional(list(frame)),
  waker_stack: optional(list(frame)),
  /** Of who held the lock that it waited for, where a runtime tells it. */
  holder_stack: optional(list(frame)),
  had_cpu: list(record({ what: string, thread: optional(thread), ns: number })),
});
export type Wait = Decoded<typeof wait>;

export const detail = record({
  row: number,
  level: oneOf("os", "user"),
  thread,
  cpu: optional(number),
  run,
  wait: optional(wait),
  previous_row: optional(number),
  next_row: optional(number),
});
export type Detail = Decoded<typeof detail>;

export const chain = record({
  hops: list(
    record({
      row: number,
      thread,
      wait_from_ns: optional(number),
      woken_ns: optional(number),
      reason: optional(string),
      waker: optional(thread),
    }),
  ),
  ends: string,
});
export type Chain = Decoded<typeof chain>;

/** Time by state of a piece, the longest first. */
const byState = list(record({ state: number, ns: number }));

export const states = record({ by_state: byState });
export type States = Decoded<typeof states>;

export const critical = record({
  pieces: list(
    record({ thread, from_ns: number, to_ns: number, state: number, row: optional(number) }),
  ),
  by_state: byState,
  by_thread: list(record({ thread, ns: number })),
  covered_ns: number,
  ends: optional(string),
});
export type Critical = Decoded<typeof critical>;

export const rate = record({
  bin_ns: number,
  bins: number,
  reasons: list(record({ id: number, counts: list(number) })),
});
export type Rate = Decoded<typeof rate>;

export const distribution = record({
  of: string,
  count: number,
  sum_ns: number,
  min_ns: optional(number),
  max_ns: optional(number),
  p50_ns: optional(number),
  p90_ns: optional(number),
  p99_ns: optional(number),
  buckets: list(record({ from_ns: number, to_ns: number, count: number })),
});
export type Distribution = Decoded<typeof distribution>;

/** A report of the command line: it says which columns its rows have, and which of its tables show them. */
const reportShape = {
  schema: string,
  columns: list(
    record({ key: string, head: string, holds: string, help: string, tables: list(string) }),
  ),
  rows: list(entries(cell)),
  total: optional(entries(cell)),
  notes: list(string),
};
export const report = record(reportShape);
export type Report = Decoded<typeof report>;

/** A cause, or what only happens often: that has no number. */
export const finding = record({
  name: string,
  number: optional(number),
  reason: optional(string),
  seen: string,
  places: list(string),
  advice: optional(string),
  advice_unless: optional(string),
  worth: optional(record({ words: string })),
  /** The longest wait that it brought. */
  longest: optional(record({ task: number, from_ns: number, to_ns: number })),
});
export type Finding = Decoded<typeof finding>;

/** The verdict of `swtch explain`. */
export const explained = record({
  findings: list(finding),
  without_findings: optional(string),
});
export type Explained = Decoded<typeof explained>;

/** One price of the list, and what of the trace was billed at it. */
export const tariff = record({
  reason: string,
  successor: string,
  switches: number,
  direct_ns: number,
  direct_low_ns: number,
  direct_high_ns: number,
  source: string,
  estimated_because: optional(list(string)),
});
export type Tariff = Decoded<typeof tariff>;

/** A report of what the switches cost, with the prices it stands on. */
export const bill = record({
  ...reportShape,
  prices: record({
    origin: record({
      hostname: string,
      kernel_release: string,
      cpu_model: optional(string),
      measured_at: string,
    }),
    effort: string,
    warnings: list(string),
    tariffs: list(tariff),
  }),
});
export type Bill = Decoded<typeof bill>;

export interface Flame {
  readonly name: string;
  readonly module: string | null;
  readonly kind: string | null;
  readonly ns: number;
  readonly waits: number;
  readonly children: readonly Flame[];
}
const flameNode = record({
  name: string,
  module: optional(string),
  kind: optional(string),
  ns: number,
  waits: number,
  children: (value, at): Flame[] =>
    value === undefined || value === null ? [] : list(flame)(value, at),
});
export function flame(value: unknown, at: string): Flame {
  return flameNode(value, at);
}

export const locks = record({
  keys: list(
    record({
      key: string,
      reason: string,
      waits: number,
      blocked_ns: number,
      max_ns: number,
      waiters: list(threadAnd({ waits: number, blocked_ns: number })),
      waiters_count: optional(number),
      releasers: list(threadAnd({ wakes: number })),
      longest_row: optional(number),
    }),
  ),
  /** How many keys there are, those that were not asked for among them. */
  all: optional(number),
});
export type Locks = Decoded<typeof locks>;

export const found = record({
  more: optional(boolean),
  threads: list(thread),
  functions: list(
    record({
      symbol: string,
      module: optional(string),
      /** Whether the waits began in it, or their wakers were in it. */
      role: oneOf("waited", "woke"),
      waits: number,
      ns: number,
      longest_row: optional(number),
    }),
  ),
});
export type Found = Decoded<typeof found>;

export const refusal = record({ error: string, advice: optional(string) });
