import { describe, expect, it } from "vitest";
import { counted, estimate, fixed, grouped, lengthOf, momentAt, reportLength } from "./format";

describe("lengths", () => {
  /** The same digits as `Nanos` of swtch-core prints: page and command line must not differ. */
  it("are written as on the command line", () => {
    const shown = [0, 999, 1_000, 12_345, 123_456, 1_234_567, 1.25e9, 12.5e9, 321e9].map(
      reportLength,
    );
    expect(shown).toEqual([
      "0 ns",
      "999 ns",
      "1.00 µs",
      "12.3 µs",
      "123 µs",
      "1.23 ms",
      "1.25 s",
      "12.5 s",
      "321 s",
    ]);
  });

  /** Nobody reads 86400 s as a day; below 100 s the page and the reports say the same. */
  it("that are long are told in minutes, hours and days", () => {
    const shown = [45.6e9, 99.9e9, 100e9, 120e9, 321e9, 3599.6e9, 9_954e9, 86_400e9, 100_000e9];
    expect(shown.map(lengthOf)).toEqual([
      "45.6 s",
      "99.9 s",
      "1 min 40 s",
      "2 min",
      "5 min 21 s",
      "1 h",
      "2 h 46 min",
      "1 d",
      "1 d 4 h",
    ]);
    expect([-9_954e9, 0, 1.5e6].map(lengthOf)).toEqual(["-2 h 46 min", "0 ns", "1.50 ms"]);
  });

  it("that are estimated have three digits", () => {
    const shown = [1.234, 12.34, 123.4, 1_234, 12_345, 1_234_567].map(estimate);
    expect(shown).toEqual(["1.23 ns", "12.3 ns", "123 ns", "1234 ns", "12.3 µs", "1.23 ms"]);
  });
});

describe("counts", () => {
  it("are set in thousands", () => {
    expect([0, 999, 1_000, 12_345_678].map(grouped)).toEqual(["0", "999", "1,000", "12,345,678"]);
    expect([counted(1, "wait"), counted(2_000, "wait")]).toEqual(["1 wait", "2,000 waits"]);
  });
});

describe("moments on a ruler", () => {
  /** Two ticks must never carry the same words. */
  it("have as many digits as tell them from the next", () => {
    for (const step of [1, 5, 200, 1e3, 2e4, 1e6, 5e7, 1e9, 1e10]) {
      for (const start of [0, 3e5, 4.2e8, 7.5e9, 3.6e12]) {
        const first = Math.ceil(start / step) * step;
        const words = [0, 1, 2, 3].map((tick) => momentAt(first + tick * step, step));
        expect(new Set(words).size, words.join(" ")).toBe(4);
      }
    }
  });

  it("become a clock after a minute", () => {
    expect(momentAt(3_725e9, 1e9)).toBe("1:02:05");
    expect(momentAt(65.5e9, 1e8)).toBe("1:05.5");
    expect(momentAt(59.5e9, 1e8)).toBe("59.5 s");
  });
});

describe("digits", () => {
  /** Rust rounds what lies in the middle to the even digit; a page that does not differs in the last one. */
  it("in the middle of two are rounded as on the command line", () => {
    expect([54_250, 54_350, 54_750, 8_125, 102_500].map(lengthOf)).toEqual([
      "54.2 µs",
      "54.4 µs",
      "54.8 µs",
      "8.12 µs",
      "102 µs",
    ]);
    expect([fixed(6.25, 1), fixed(-6.75, 1), fixed(0.5, 0), fixed(1.005, 2)]).toEqual([
      "6.2",
      "-6.8",
      "0",
      "1.00",
    ]);
  });
});
