// Colours for what is drawn on a canvas: those of the style sheet, read when they are needed, because
// the theme may have changed.
import type { Category, ReasonInfo } from "../api/types";

const variable = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the style sheet in red, green and blue; grey when it is written another way than `#rrggbb`. */
function partsOf(colour: string): readonly [number, number, number] {
  const digits = /^#([0-9a-f]{6})$/i.exec(colour)?.[1] ?? "808080";
  const number = parseInt(digits, 16);
  return [number >> 16, (number >> 8) & 0xff, number & 0xff];
}

/** `share` of the way from one colour to another. */
export function mixed(from: string, to: string, share: number): string {
  const [start, end] = [partsOf(from), partsOf(to)];
  const parts = start.map((part, place) =>
    Math.round(part + ((end[place] ?? part) - part) * share),
  );
  return `rgb(${parts.join(" ")})`;
}

/** Steps by which the reasons of one category are set apart, towards the ground. */
const SHADES = [0, 0.3, 0.5, 0.15, 0.4, 0.6, 0.22, 0.7];

/** A colour for each reason: its category's, with the reasons of one category in shades. */
export function reasonColours(reasons: readonly ReasonInfo[]): ReadonlyMap<number, string> {
  const ground = variable("--surface");
  const seen = new Map<Category, number>();
  const colours = new Map<number, string>();
  for (const { id, category } of reasons) {
    const place = seen.get(category) ?? 0;
    seen.set(category, place + 1);
    colours.set(id, mixed(variable(`--${category}`), ground, SHADES[place % SHADES.length] ?? 0));
  }
  return colours;
}

export interface Ink {
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly ground: string;
  readonly accent: string;
  readonly font: string;
}

/** For letters and lines. */
export function ink(): Ink {
  return {
    text: variable("--text"),
    muted: variable("--muted"),
    line: variable("--line"),
    ground: variable("--surface"),
    accent: variable("--accent"),
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
  };
}

/** Colours of the boxes of a flame graph, by what a frame is. */
export function frameColours(): Readonly<Record<string, string>> {
  const ground = variable("--surface");
  const soft = (name: string, share: number): string => mixed(variable(name), ground, share);
  return {
    process: soft("--accent", 0.72),
    thread: soft("--accent", 0.72),
    user: soft("--running", 0.66),
    kernel: soft("--preemption", 0.62),
    found: soft("--synchronization", 0.35),
    other: soft("--sleep", 0.7),
  };
}
