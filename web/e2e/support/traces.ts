// Traces that the tests look at, made once before all of them: made-up ones, whose numbers are the same each
// time, and as root real ones.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { examplePath, makeTrace, swtch, swtchPath } from "./program";

/** Paths; `null` for what this user may not record. */
export interface Traces {
  /** Made up: 60,000 switches of 24 threads in three processes. */
  readonly made: string;
  /** Made up: no switch at all. */
  readonly empty: string;
  /** Made up: 20,000 threads. */
  readonly crowded: string;
  /** Made up: a whole day. */
  readonly day: string;
  /** Recorded: every reason there is, with stacks. */
  readonly sampler: string | null;
  /** Recorded: threads that call themselves markup and escape codes. */
  readonly hostile: string | null;
  /** Recorded: four workers of a user-mode scheduler on one thread. */
  readonly levels: string | null;
  /** A made-up price list. */
  readonly prices: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    traces: Traces;
  }
}

const isRoot = (): boolean => process.getuid?.() === 0;

/** A shell that takes a name nobody should take, and waits for children, so that it switches. */
const HOSTILE = `
nap() { for i in 1 2 3 4 5 6 7 8; do sleep 0.02; done; }
( printf '<img onerror=1>' > /proc/self/comm; nap ) &
( printf '\\033[31mred\\007\\342\\200\\256' > /proc/self/comm; nap ) &
wait
`;

export default async function makeTraces(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), "swtch-web-"));
  const prices = join(folder, "prices.json");
  const made = (
    name: string,
    switches: string,
    threads: string,
    cpus: string,
    more: Readonly<Record<string, string>> = {},
  ): Promise<string> =>
    makeTrace(join(folder, `${name}.swtch`), { switches, threads, cpus, seconds: "2", ...more });
  const recorded = async (name: string, ...command: readonly string[]): Promise<string | null> => {
    if (!isRoot()) return null;
    const path = join(folder, `${name}.swtch`);
    await swtch("record", "-o", path, "--", ...command);
    return path;
  };
  const [ordinary, empty, crowded, day] = await Promise.all([
    made("made", "60000", "24", "4", { prices, spans: "40" }),
    made("empty", "0", "1", "1"),
    made("crowded", "60000", "20000", "8"),
    made("day", "100000", "12", "2", { seconds: "86400" }),
  ]);
  project.provide("traces", {
    made: ordinary,
    empty,
    crowded,
    day,
    sampler: await recorded("sampler", swtchPath(), "workload", "sampler", "--quiet"),
    hostile: await recorded("hostile", "sh", "-c", HOSTILE),
    // It waits half a second before it begins, and tests look at the middle: long enough that the
    // middle is in its work, even where starting takes long.
    levels: await recorded("levels", examplePath("two_levels_load"), "fiber", "1", "4", "1500"),
    prices,
  });
  return () => rm(folder, { recursive: true, force: true });
}
