// Where the boxes of a flame graph stand: outermost frames on top, each as wide as the time that
// was spent blocked in it, children left-aligned under their parent, the widest first.
//
// ```text
//   ┌──────────────── all ────────────────┐   depth 0, x from 0 to 1
//   ├──── postgres ─────┬─── redis ───────┤   depth 1
//   ├── LWLock… ──┬─────┤
// ```
//
// The layout is made once per answer; zooming only asks for another part of it.

import type { Flame } from "../../api/types";

/** A frame and what was spent below it. */
export type FlameNode = Flame;

/** The tree without the kernel's frames: what lies on them moves down to the program's own. */
export function withoutKernel(node: FlameNode): FlameNode {
  const children = node.children.flatMap((child) =>
    child.kind === "kernel" ? withoutKernel(child).children : [withoutKernel(child)],
  );
  return { ...node, children: merged(children) };
}

/** Equal frames under one parent are one. */
function merged(nodes: readonly FlameNode[]): FlameNode[] {
  const groups = new Map<string, FlameNode>();
  for (const node of nodes) {
    const key = `${node.kind ?? ""} ${node.module ?? ""} ${node.name}`;
    const known = groups.get(key);
    groups.set(key, known === undefined ? node : joined(known, node));
  }
  return [...groups.values()];
}

const joined = (a: FlameNode, b: FlameNode): FlameNode => ({
  ...a,
  ns: a.ns + b.ns,
  waits: a.waits + b.waits,
  children: merged([...a.children, ...b.children]),
});

/** A frame's place: a share of the whole width, from `x0` to `x1`, in the row `depth`. */
export interface Box {
  readonly node: FlameNode;
  readonly parent: Box | null;
  readonly depth: number;
  readonly x0: number;
  readonly x1: number;
  readonly children: readonly Box[];
}

/** The boxes of a tree; the root is as wide as everything. */
export function boxesOf(root: FlameNode): Box {
  const whole = Math.max(root.ns, 1);
  const place = (node: FlameNode, parent: Box | null, x0: number, depth: number): Box => {
    const children: Box[] = [];
    const box = { node, parent, depth, x0, x1: x0 + node.ns / whole, children };
    let x = x0;
    for (const child of [...node.children].sort((a, b) => b.ns - a.ns)) {
      children.push(place(child, box, x, depth + 1));
      x += child.ns / whole;
    }
    return box;
  };
  return place(root, null, 0, 0);
}

/** Every box that is at least `narrowest` wide, in no order a reader may rely on but parents first. */
export function* wideBoxes(box: Box, narrowest: number): Generator<Box> {
  if (box.x1 - box.x0 < narrowest) return;
  yield box;
  for (const child of box.children) yield* wideBoxes(child, narrowest);
}

/** How many rows the boxes below this one take, itself included. */
export function heightOf(box: Box): number {
  return 1 + box.children.reduce((most, child) => Math.max(most, heightOf(child)), 0);
}

/** The box at a place of the width, in this row. */
export function boxAt(root: Box, x: number, depth: number): Box | null {
  let box: Box | undefined = root;
  while (box !== undefined && box.depth < depth) {
    box = box.children.find((child) => child.x0 <= x && x < child.x1);
  }
  return box !== undefined && box.x0 <= x && x <= box.x1 ? box : null;
}

/** From the outermost frame to this one. */
export function pathOf(box: Box): Box[] {
  const path: Box[] = [];
  for (let at: Box | null = box; at !== null; at = at.parent) path.unshift(at);
  return path;
}

/** The box to which an arrow key leads; itself when there is none. */
export function neighbour(box: Box, key: string): Box {
  if (key === "ArrowDown") return box.children[0] ?? box;
  if (box.parent === null) return box;
  if (key === "ArrowUp") return box.parent;
  const place = box.parent.children.indexOf(box);
  const step = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  return box.parent.children[place + step] ?? box;
}

/** The box with the same names from the outermost frame on, in another answer's layout. */
export function sameBox(root: Box, other: Box | null): Box {
  let box = root;
  for (const step of other === null ? [] : pathOf(other).slice(1)) {
    const next = box.children.find((child) => child.node.name === step.node.name);
    if (next === undefined) return box;
    box = next;
  }
  return box;
}

/** What a search finds: its boxes, and the time in them, none of it counted twice. */
export interface Found {
  readonly boxes: ReadonlySet<Box>;
  readonly ns: number;
}

/** Frames whose name or module holds these words. Of nested finds only the outermost's time counts. */
export function found(root: Box, words: string): Found {
  const wanted = words.trim().toLowerCase();
  const boxes = new Set<Box>();
  let ns = 0;
  const visit = (box: Box, isInside: boolean): void => {
    const { name, module } = box.node;
    const isHit = `${name}\n${module ?? ""}`.toLowerCase().includes(wanted);
    if (isHit) boxes.add(box);
    if (isHit && !isInside) ns += box.node.ns;
    for (const child of box.children) visit(child, isInside || isHit);
  };
  if (wanted !== "") visit(root, false);
  return { boxes, ns };
}
