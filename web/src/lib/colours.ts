// Colours as numbers: what a canvas' pixels hold, and whether two can be told apart.

/** Red, green, blue, 0 to 255. */
export type Rgb = readonly [number, number, number];

/** `#rrggbb` or `#rgb`; black for anything else, which no style sheet of ours has. */
export function parseHex(text: string): Rgb {
  const hex = text.trim().replace(/^#/, "");
  const full = hex.length === 3 ? [...hex].map((digit) => digit + digit).join("") : hex;
  const value = /^[0-9a-f]{6}$/i.test(full) ? parseInt(full, 16) : 0;
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** As `ImageData` holds it, read as one little-endian number. */
export const packed = ([red, green, blue]: Rgb): number =>
  ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** `share` of `a`, the rest of `b`. */
export const mixed = (a: Rgb, b: Rgb, share: number): Rgb => [
  Math.round(a[0] * share + b[0] * (1 - share)),
  Math.round(a[1] * share + b[1] * (1 - share)),
  Math.round(a[2] * share + b[2] * (1 - share)),
];

export const css = ([red, green, blue]: Rgb): string => `rgb(${red} ${green} ${blue})`;

/** Relative luminance (WCAG 2.2). */
function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Contrast of two colours, 1 to 21 (WCAG 2.2). */
export function contrast(a: Rgb, b: Rgb): number {
  const [darker, lighter] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (lighter + 0.05) / (darker + 0.05);
}

// Pure, because then one of the two has at least 4.58:1 on any colour.
const BLACK: Rgb = [0, 0, 0];
const WHITE: Rgb = [255, 255, 255];

/** Black or white, whichever can be read on this ground. */
export const textOn = (ground: Rgb): Rgb =>
  contrast(ground, BLACK) >= contrast(ground, WHITE) ? BLACK : WHITE;
