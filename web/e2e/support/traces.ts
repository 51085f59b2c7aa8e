// Traces that the tests look at, made once before all of them: made-up ones, whose numbers are the same each
// time, and as root real ones.
import { access, mkdtemp, rm } from "node:fs/promises";
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
  /** A price list, made here and now. */
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
  const made = (
    name: string,
    switches: string,
    threads: string,
    cpus: string,
    seconds = "2",
  ): Promise<string> =>
    makeTrace(join(folder, `${name}.swtch`), { switches, threads, cpus, seconds });
  const recorded = async (name: string, ...command: readonly string[]): Promise<string | null> => {
    if (!isRoot()) return null;
    const path = join(folder, `${name}.swtch`);
    await swtch("record", "-o", path, "--stacks=0", "--", ...command);
    return path;
  };
  const prices = join(folder, "prices.json");
  // On a busy machine it ends with 1, for prices that stay unresolved, and writes the list all the same.
  await swtch("cost", "--quick", "-o", prices).catch(() => access(prices));
  project.provide("traces", {
    made: await made("made", "60000", "24", "4"),
    empty: await made("empty", "0", "1", "1"),
    crowded: await made("crowded", "60000", "20000", "8"),
    day: await made("day", "100000", "12", "2", "86400"),
    sampler: await recorded("sampler", swtchPath(), "workload", "sampler", "--quiet"),
    hostile: await recorded("hostile", "sh", "-c", HOSTILE),
    // It waits half a second before it begins, and tests look at the middle: long enough that the
    // middle is in its work, even where starting takes long.
    levels: await recorded("levels", examplePath("two_levels_load"), "fiber", "1", "4", "1500"),
    prices,
  });
  return () => rm(folder, { recursive: true, force: true });
}
