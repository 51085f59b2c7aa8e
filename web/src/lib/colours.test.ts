// The colours of the style sheet, held against what people can tell apart.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { CATEGORIES } from "../api/types";
import { type Rgb, contrast, parseHex, textOn } from "./colours";

const sheet = readFileSync(new URL("../style/colours.css", import.meta.url), "utf8");

function theme(name: "light" | "dark"): (variable: string) => Rgb {
  const block = sheet.split(`[data-theme="${name}"]`)[1]?.split("}")[0] ?? "";
  return (variable) => {
    const value = new RegExp(`--${variable}:\\s*(#[0-9a-f]{6})`, "i").exec(block)?.[1];
    if (value === undefined) throw new Error(`${name} has no --${variable}`);
    return parseHex(value);
  };
}

/** Viénot, Brettel and Mollon 1999: what is left of a colour (linear light) for each kind of eye. */
const EYES: Readonly<Record<string, readonly (readonly [number, number, number])[]>> = {
  protan: [
    [0.11238, 0.88762, 0],
    [0.11238, 0.88762, 0],
    [0.00401, -0.00401, 1],
  ],
  deutan: [
    [0.29275, 0.70725, 0],
    [0.29275, 0.70725, 0],
    [-0.02234, 0.02234, 1],
  ],
};

const linear = (value: number): number => {
  const part = value / 255;
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
};

/** CIELAB of linear light (D65). */
function lab(light: readonly number[]): number[] {
  const [r = 0, g = 0, b = 0] = light;
  const f = (t: number): number =>
    t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27) * (t / 116) + 16 / 116;
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function seenBy(eye: string, colour: Rgb): number[] {
  const light = colour.map(linear);
  const matrix = EYES[eye] ?? [];
  return lab(matrix.map((row) => row.reduce((sum, part, at) => sum + part * (light[at] ?? 0), 0)));
}

const distance = (a: readonly number[], b: readonly number[]): number =>
  Math.hypot(...a.map((value, at) => value - (b[at] ?? 0)));

describe.each(["light", "dark"] as const)("the %s theme", (name) => {
  const colour = theme(name);
  const states = ["running", ...CATEGORIES];

  /** WCAG 2.2, 1.4.11: graphics that carry meaning have 3:1 against what is beside them. */
  it.each([
    ...states,
    "gap",
    "running-other",
    "running-third",
    "worker",
    "worker-other",
    "selection",
  ])("%s stands out from the ground of the lanes", (state) => {
    expect(contrast(colour(state), colour("lane"))).toBeGreaterThanOrEqual(3);
  });

  /** WCAG 2.2, 1.4.3. */
  it.each([
    ["text", "surface"],
    ["text", "ground"],
    ["text", "accent-soft"],
    ["muted", "surface"],
    ["muted", "ground"],
    ["muted", "sunken"],
    ["warn-text", "warn-ground"],
    ["accent", "surface"],
  ])("%s can be read on %s", (text, ground) => {
    expect(contrast(colour(text), colour(ground))).toBeGreaterThanOrEqual(4.5);
  });

  it.each(states)("words on %s can be read", (state) => {
    expect(contrast(textOn(colour(state)), colour(state))).toBeGreaterThanOrEqual(4.5);
  });

  /** Texture and height tell running, blocked and queueing apart; what for is told by colour. */
  it.each(Object.keys(EYES))("what most waits are for differs for %s eyes", (eye) => {
    const common = ["running", "preemption", "synchronization", "io", "sleep"];
    for (const [at, a] of common.entries()) {
      for (const b of common.slice(at + 1)) {
        const apart = distance(seenBy(eye, colour(a)), seenBy(eye, colour(b)));
        expect(apart, `${a} and ${b}`).toBeGreaterThanOrEqual(10);
      }
    }
  });
});
