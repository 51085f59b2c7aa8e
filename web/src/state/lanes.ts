// The lanes as they stand on the page, and which of them are on the screen.
import { atom, derived } from "../lib/atom";
import { lanesOf } from "../timeline/lanes";
import { aliveIn, collapsed, laneFilter, laneSort, showOutOfScope } from "./filter";
import { threads, trace } from "./trace";

export const lanes = derived(
  [trace, threads, laneSort, laneFilter, aliveIn, showOutOfScope, collapsed],
  (known, columns, sort, filter, alive, outOfScope, closed) =>
    lanesOf(known, columns, { sort, filter, alive, outOfScope, collapsed: closed }),
);

/** Names of the lanes on the screen, from top to bottom: `c0`, `t12`, `u12`. */
export const visibleLanes = atom<readonly string[]>([]);
