// Details of rows, asked once: hovering back and forth asks nothing twice.
import * as api from "../api/client";
import type { Detail, Level } from "../api/types";
import { noteAnswer, trace } from "./trace";

const MOST = 300;
const kept = new Map<string, Promise<Detail>>();

/** Rows of a trace that grows do not change, but the last of each thread may: begin anew. */
trace.watch(() => kept.clear());

export function detailOf(row: number, level: Level): Promise<Detail> {
  const key = `${level}${row}`;
  const known = kept.get(key);
  if (known !== undefined) return known;
  const asked = api.detail(row, level).catch((error: unknown) => {
    kept.delete(key);
    noteAnswer(error);
    throw error;
  });
  kept.set(key, asked);
  const oldest = kept.keys().next();
  if (kept.size > MOST && oldest.done !== true) kept.delete(oldest.value);
  return asked;
}
