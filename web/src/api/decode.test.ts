import { describe, expect, it } from "vitest";
import { number, optional, list, oneOf, record, string } from "./decode";
import * as types from "./types";

describe("decoders", () => {
  /** The message must lead to the field: it is what a report of a fault will hold. */
  it("name the place where an answer is not understood", () => {
    const decode = record({ hops: list(record({ row: number })) });
    expect(() => decode({ hops: [{ row: 1 }, { row: "2" }] }, "")).toThrow(/hops\[1\]\.row/);
  });

  it("pass over keys they do not know", () => {
    expect(record({ a: string })({ a: "x", later: 1 }, "")).toEqual({ a: "x" });
  });

  it("take absence for null only where that is allowed", () => {
    expect(record({ a: optional(number) })({}, "")).toEqual({ a: null });
    expect(() => record({ a: number })({}, "")).toThrow(/a should be a number/);
  });

  it("refuse words that are not in a closed list", () => {
    expect(() => oneOf("os", "user")("kernel", "level")).toThrow(/level should be os or user/);
  });

  it("read a flame graph to its leaves", () => {
    const leaf = { name: "b", module: "libc", kind: "user", ns: 5, waits: 1 };
    const root = types.flame({ name: "all", ns: 5, waits: 1, children: [leaf] }, "");
    expect(root.children[0]).toEqual({ ...leaf, children: [] });
  });
});
