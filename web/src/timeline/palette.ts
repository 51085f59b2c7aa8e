// What each state looks like: colour by category, height and texture by kind. Read from the style sheet
// once per theme, so that lanes and legend can never differ.
//
//   running   whole height, plain        (the thread had a CPU)
//   run queue low, hatched               (it could have run, and something else had the CPU)
//   blocked   low, plain                 (it waited, in the colour of what for)
//   off       low, pale                  (one of the two: when it could run again is not known)
import type { ReasonInfo } from "../api/types";
import { type Rgb, css, mixed, packed, parseHex, textOn } from "../lib/colours";
import { stateOf } from "./piece";

/** Height of a wait as a part of the lane's. */
export const WAIT_HEIGHT = 0.6;

/** How much of its colour is left of a wait that cannot be told to be blocked or queued. */
const PALE = 0.45;

export interface Palette {
  readonly lane: number;
  readonly header: number;
  readonly line: number;
  readonly outside: number;
  readonly dots: number;
  readonly gap: number;
  readonly faint: number;
  /** By state byte: the colour, and the colour between the hatches (the same where nothing is hatched). */
  readonly solid: Uint32Array;
  readonly between: Uint32Array;
  /** By state byte: hatches seen from afar, where a column holds more than one state. */
  readonly mixed: Uint32Array;
  /** By state byte: how much of the lane's height it takes. */
  readonly height: Float32Array;
  /** Where in the stack of a mixed column it lies: 0 at the bottom. */
  readonly order: Uint8Array;
  /** By state byte: the colour of words on it. */
  readonly text: readonly string[];
  /** Running, in the three shades by which neighbours on a CPU differ, and of the selected thread. */
  readonly running: readonly number[];
  /** Which worker a user-mode scheduler runs: two colours in turn, none of them that of a CPU's time. */
  readonly workers: readonly number[];
  readonly runningText: string;
  readonly selectedText: string;
  readonly words: string;
  readonly laneCss: string;
  readonly muted: string;
  readonly accent: string;
  readonly lineCss: string;
  readonly groundCss: string;
  readonly surfaceCss: string;
  readonly sunkenCss: string;
  readonly gapCss: string;
}

export interface Dimmed {
  readonly reasons: ReadonlySet<number>;
  readonly running: boolean;
  /** Everything is faint: something else stands out. */
  readonly all: boolean;
}

export function paletteOf(
  read: (variable: string) => string,
  reasons: readonly ReasonInfo[],
  dimmed: Dimmed,
): Palette {
  const colour = (name: string): Rgb => parseHex(read(`--${name}`));
  const lane = colour("lane");
  const faint = colour("faint");
  const solid = new Uint32Array(256);
  const between = new Uint32Array(256);
  const afar = new Uint32Array(256);
  const height = new Float32Array(256).fill(WAIT_HEIGHT);
  const order = new Uint8Array(256).fill(2);
  const text = new Array<string>(256).fill(read("--text"));
  const byId = new Map(reasons.map((reason) => [reason.id, reason.category]));
  const runs = [colour("running"), colour("running-other"), colour("running-third")];
  const noRuns = dimmed.running || dimmed.all;

  for (let byte = 0; byte < 256; byte++) {
    const state = stateOf(byte);
    const reason = state.kind === "running" || state.kind === "unknown" ? null : state.reason;
    const category = (reason === null ? undefined : byId.get(reason)) ?? "unknown";
    const own = state.kind === "running" ? colour("running") : colour(category);
    const hidden = isDimmed(state.kind === "running", reason, dimmed);
    const shown = hidden ? faint : state.kind === "off" ? mixed(own, lane, PALE) : own;
    solid[byte] = packed(shown);
    between[byte] = packed(state.kind === "runq" ? mixed(shown, lane, hidden ? 0.4 : 0.3) : shown);
    afar[byte] = packed(state.kind === "runq" ? mixed(shown, lane, hidden ? 0.6 : 0.55) : shown);
    text[byte] = hidden ? read("--muted") : css(textOn(state.kind === "off" ? lane : own));
    if (state.kind === "running") height[byte] = 1;
    order[byte] = state.kind === "running" ? 0 : state.kind === "runq" ? 1 : 2;
  }
  return {
    lane: packed(lane),
    header: packed(colour("ground")),
    line: packed(mixed(colour("line"), lane, 0.7)),
    outside: packed(colour("sunken")),
    dots: packed(mixed(colour("line-strong"), lane, 0.7)),
    gap: packed(colour("gap")),
    faint: packed(faint),
    solid,
    between,
    mixed: afar,
    height,
    order,
    text,
    running: [...runs.map((one) => packed(noRuns ? faint : one)), packed(colour("text"))],
    workers: [colour("worker"), colour("worker-other")].map((one) => packed(noRuns ? faint : one)),
    runningText: noRuns ? read("--muted") : css(textOn(colour("running"))),
    selectedText: css(textOn(colour("text"))),
    words: read("--text").trim(),
    laneCss: read("--lane").trim(),
    muted: read("--muted").trim(),
    accent: read("--selection").trim(),
    lineCss: read("--line").trim(),
    groundCss: read("--ground").trim(),
    surfaceCss: read("--surface").trim(),
    sunkenCss: read("--sunken").trim(),
    gapCss: read("--gap").trim(),
  };
}

function isDimmed(running: boolean, reason: number | null, dimmed: Dimmed): boolean {
  if (dimmed.all) return true;
  if (running) return dimmed.running;
  return reason !== null && dimmed.reasons.has(reason);
}
