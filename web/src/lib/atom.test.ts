import { describe, expect, it } from "vitest";
import { atom, derived } from "./atom";

describe("atoms", () => {
  it("tell of changes, and only of changes", () => {
    const count = atom(1);
    let told = 0;
    const end = count.watch(() => (told += 1));
    count.set(1);
    count.set(2);
    count.update((value) => value + 1);
    end();
    count.set(9);
    expect([told, count.get()]).toEqual([2, 9]);
  });

  /** Lanes of 20,000 threads are derived: they must not be computed for every frame. */
  it("derived from others are computed when one of these has changed", () => {
    const a = atom(1);
    const b = atom(10);
    let computed = 0;
    const sum = derived([a, b], (x, y) => {
      computed += 1;
      return x + y;
    });
    expect([sum.get(), sum.get(), computed]).toEqual([11, 11, 1]);
    b.set(20);
    expect([sum.get(), computed]).toEqual([21, 2]);
  });

  it("may stop watching while they tell", () => {
    const a = atom(0);
    const told: string[] = [];
    const end = a.watch(() => {
      told.push("first");
      end();
    });
    a.watch(() => told.push("second"));
    a.set(1);
    a.set(2);
    expect(told).toEqual(["first", "second", "second"]);
  });
});
