import { expect, test } from "vitest";
import {
  boxAt,
  boxesOf,
  found,
  heightOf,
  neighbour,
  pathOf,
  sameBox,
  wideBoxes,
  withoutKernel,
} from "./layout";
import type { FlameNode } from "./layout";

function node(name: string, ns: number, children: readonly FlameNode[] = []): FlameNode {
  return { name, module: null, kind: "user", ns, waits: 1, children };
}

const tree = node("all", 100, [
  node("small", 10),
  node("wide", 90, [node("lock", 60, [node("lock_slow", 60)]), node("read", 20)]),
]);
const root = boxesOf(tree);

/** A person looks at the left first: there the widest stands. */
test("the widest child stands at the left, under its parent", () => {
  const places = [...wideBoxes(root, 0)].map((box) => [box.node.name, box.x0, box.x1, box.depth]);
  expect(places).toEqual([
    ["all", 0, 1, 0],
    ["wide", 0, 0.9, 1],
    ["lock", 0, 0.6, 2],
    ["lock_slow", 0, 0.6, 3],
    ["read", 0.6, 0.8, 2],
    ["small", 0.9, 1, 1],
  ]);
  expect(heightOf(root)).toBe(4);
});

/** What cannot be seen is not drawn, so that a million frames cost what a screen of them does. */
test("narrow boxes are left out with all below them", () => {
  expect([...wideBoxes(root, 0.5)].map((box) => box.node.name)).not.toContain("read");
});

test("a place leads to the box drawn there, or to none", () => {
  expect(boxAt(root, 0.7, 2)?.node.name).toBe("read");
  expect(boxAt(root, 0.85, 2)).toBeNull();
  expect(boxAt(root, 0.95, 9)).toBeNull();
});

test("arrows lead to children, parents and neighbours, and stay at the ends", () => {
  const wide = neighbour(root, "ArrowDown");
  expect(wide.node.name).toBe("wide");
  expect(neighbour(wide, "ArrowRight").node.name).toBe("small");
  expect(neighbour(wide, "ArrowLeft")).toBe(wide);
  expect(neighbour(root, "ArrowUp")).toBe(root);
});

/** `lock_slow` lies inside `lock`: its time is found once. */
test("time of nested finds counts once", () => {
  const hits = found(root, "LOCK");
  expect([hits.boxes.size, hits.ns]).toEqual([2, 60]);
  expect(found(root, "  ").boxes.size).toBe(0);
});

/** Another range has another tree; a zoom stays where its frame still is. */
test("a zoom is found again in the next answer, as deep as it goes", () => {
  const deep = boxAt(root, 0.1, 3);
  const next = boxesOf(node("all", 50, [node("wide", 50, [node("lock", 40)])]));
  const again = sameBox(next, deep);
  expect(pathOf(again).map((box) => box.node.name)).toEqual(["all", "wide", "lock"]);
});

/** Two ways into the scheduler are one wait for whoever reads the program. */
test("without the kernel's functions the time stays, and equal reasons are one", () => {
  const kernel = (name: string, ns: number): FlameNode => ({
    ...node(name, ns, [{ ...node("futex", ns), kind: "reason" }]),
    kind: "kernel",
  });
  const all = node("all", 30, [node("main", 30, [kernel("do_futex", 20), kernel("schedule", 10)])]);
  const [main] = withoutKernel(all).children;
  expect(main?.ns).toBe(30);
  expect(main?.children.map(({ name, ns, waits }) => [name, ns, waits])).toEqual([
    ["futex", 30, 2],
  ]);
});
