import { expect, it } from "vitest";
import { escaped } from "./escape";

/** The same characters, in the same words, as `escaped` of the command line. */
it("a name cannot reach, turn or hide text", () => {
  expect(escaped("\u{1b}[2J\n\t\u{7f}")).toBe("\\x1b[2J\\x0a\\x09\\x7f");
  expect(escaped("C1 \u{9b}31m")).toBe("C1 \\x9b31m");
  expect(escaped("a\u{202e}b\u{200b}\u{feff}")).toBe("a\\u{202e}b\\u{200b}\\u{feff}");
  expect(escaped("x\u{2028}y\u{e0041}")).toBe("x\\u{2028}y\\u{e0041}");
});

it("letters of any language stay, and so does markup", () => {
  expect(escaped("größe 日本 عربى")).toBe("größe 日本 عربى");
  expect(escaped("<img onerror=alert(1)>")).toBe("<img onerror=alert(1)>");
});
