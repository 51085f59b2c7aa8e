// What panels draw over the time line: the chain of wakeups behind a wait, and the critical path of a
// thread. At most one of each; both are gone when another trace or selection makes them stale.
import type { Chain, Critical, Thread } from "../api/types";
import { atom } from "../lib/atom";
import type { TraceRange } from "../lib/units";

/** Who woke it, who woke that one …: drawn as arrows from lane to lane. */
export const chainOverlay = atom<Chain | null>(null);

export interface CriticalOverlay {
  readonly thread: Thread;
  readonly range: TraceRange;
  readonly path: Critical;
}

/** What a thread's time rested on: its pieces stand out, everything else is dimmed. */
export const criticalOverlay = atom<CriticalOverlay | null>(null);
