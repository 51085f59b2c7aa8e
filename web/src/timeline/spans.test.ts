import { expect, it } from "vitest";
import { traceNs } from "../lib/units";
import type { Spot } from "./spot";
import { spanWords, spansByLane } from "./spans";

const taskOf = (tid: unknown): number | null => (tid === 99 ? null : Number(tid) * 10);

const row = (span: string, tid: number, began_ns: number, length_ns: number) => ({
  span,
  trace_id: null,
  tid,
  began_ns,
  length_ns,
});

const at = (moment: number): Spot => ({ kind: "nothing", lane: "t10", moment: traceNs(moment) });

it("puts each span on the lane of its thread, but for those that a program published", () => {
  const published = { ...row("otel trace", 1, 0, 5), trace_id: "4bf92f35" };
  const lanes = spansByLane(
    [row("a", 1, 100, 50), row("b", 2, 0, 10), row("c", 1, 300, 20), row("d", 99, 0, 1), published],
    taskOf,
  );
  const ranges = (lane: string) => lanes.get(lane)?.map(({ range }) => [range.from, range.to]);
  expect([...lanes.keys()]).toEqual(["t10", "t20"]);
  expect(ranges("t10")).toEqual([
    [100, 150],
    [300, 320],
  ]);
});

it("names the spans that a spot lies in, three at most, with what others have named escaped", () => {
  const lanes = spansByLane([row("a\u001b[31m", 1, 100, 2_000_000)], taskOf);
  expect(spanWords(at(99), lanes)).toEqual([]);
  expect(spanWords(at(100), lanes)).toEqual(["in the span a\\x1b[31m, 2.00 ms"]);
  const five = spansByLane(
    Array.from({ length: 5 }, (_, place) => row("r", 1, place, 100)),
    taskOf,
  );
  expect(spanWords(at(50), five).at(-1)).toBe("and 2 more spans of the slowest");
  expect(spanWords({ kind: "header", lane: "t10" }, five)).toEqual([]);
});
