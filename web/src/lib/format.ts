// Numbers in words, the same as on the command line (`Nanos` of swtch-core, `text.rs` of swtch-output).

/**
 * So many digits after the point. What lies in the middle of two goes to the even one, as in Rust;
 * `toFixed` takes the larger: 54,250 ns are 54.2 µs there and were 54.3 µs here.
 */
export function fixed(value: number, digits: number): string {
  const text = value.toFixed(digits);
  // Only a fraction of a power of two can lie in the middle exactly, and these products are exact.
  const isMiddle =
    Number.isInteger(value * 2 ** (digits + 1)) &&
    Math.abs((Math.abs(value) * 10 ** digits) % 1) === 0.5;
  if (!isMiddle) return text;
  const below = Math.floor(Math.abs(value) * 10 ** digits);
  const even = below % 2 === 0 ? below : below + 1;
  return (Math.sign(value) * (even / 10 ** digits)).toFixed(digits);
}

/** A length with three digits and its unit, as in the tables of reports: `1.25 ms`, `86400 s`. */
export function reportLength(ns: number): string {
  const size = Math.abs(ns);
  if (size < 1e3) {
    return `${Math.round(ns)} ns`;
  }
  const [value, unit] =
    size < 1e6 ? [ns / 1e3, "µs"] : size < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  const shown = Math.abs(value);
  return `${fixed(value, shown < 10 ? 2 : shown < 100 ? 1 : 0)} ${unit}`;
}

/** From here on seconds alone would be counted out by the reader. */
const LONG_NS = 99.95e9;

/** Two units of which the smaller is counted; so many of it make the larger, and from `until` on the next pair serves. */
const PAIRS = [
  { smallNs: 1e9, small: "s", large: "min", per: 60, until: 3600 },
  { smallNs: 60e9, small: "min", large: "h", per: 60, until: 24 * 60 },
  { smallNs: 3600e9, small: "h", large: "d", per: 24, until: Infinity },
] as const;

/** A length as a person says it: as reports have it, and a long one in days, hours, minutes: `2 h 46 min`. */
export function lengthOf(ns: number): string {
  const size = Math.abs(ns);
  if (size < LONG_NS) return reportLength(ns);
  for (const { smallNs, small, large, per, until } of PAIRS) {
    const count = Math.round(size / smallNs);
    if (count >= until) continue;
    const rest = count % per;
    const words = `${grouped(Math.floor(count / per))} ${large}`;
    return `${ns < 0 ? "-" : ""}${words}${rest === 0 ? "" : ` ${rest} ${small}`}`;
  }
  return reportLength(ns);
}

/** An estimate with three digits; `ns` below 10 µs, because tables are read down. */
export function estimate(ns: number): string {
  const size = Math.abs(ns);
  if (size < 9.995) return `${fixed(ns, 2)} ns`;
  if (size < 99.95) return `${fixed(ns, 1)} ns`;
  if (size < 9_999.5) return `${fixed(ns, 0)} ns`;
  if (size < 999_950) return `${fixed(ns / 1e3, 1)} µs`;
  return `${fixed(ns / 1e6, 2)} ms`;
}

/** A count with its thousands set apart: `1,234,567`. */
export const grouped = (count: number): string =>
  Math.round(count)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");

/** A count and the noun for it: `1 wait`, `2 waits`. */
export const counted = (count: number, noun: string): string =>
  `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A moment since the start of the trace with every digit that differs at this distance of ticks. */
export function momentAt(ns: number, step: number): string {
  const sign = ns < 0 ? "−" : "";
  const size = Math.abs(ns);
  const [unit, name] =
    size < 1e3 && step < 1e3
      ? [1, "ns"]
      : size < 1e6 && step < 1e6
        ? [1e3, "µs"]
        : size < 1e9 && step < 1e9
          ? [1e6, "ms"]
          : [1e9, "s"];
  const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(unit / Math.max(step, 1)) - 1e-9)));
  if (unit === 1e9 && size >= 60e9) {
    return sign + clock(size, digits);
  }
  const text = (size / unit).toFixed(digits);
  const [whole = "", part] = text.split(".");
  return `${sign}${whole}${part === undefined ? "" : `.${thin(part)}`} ${name}`;
}

/** `1:02:03.5` for moments beyond the first minute. */
function clock(ns: number, digits: number): string {
  const factor = 10 ** digits;
  const rounded = Math.round((ns / 1e9) * factor) / factor;
  const seconds = rounded % 60;
  const minutes = Math.floor(rounded / 60) % 60;
  const hours = Math.floor(rounded / 3600);
  const width = digits > 0 ? digits + 3 : 2;
  const [whole = "", part] = seconds.toFixed(digits).padStart(width, "0").split(".");
  const head = hours > 0 ? `${hours}:${minutes.toString().padStart(2, "0")}` : `${minutes}`;
  return `${head}:${whole}${part === undefined ? "" : `.${thin(part)}`}`;
}

/** Digits after the point in threes, apart by a thin space. */
const thin = (digits: string): string => digits.replace(/(\d{3})(?=\d)/g, "$1\u2009");
