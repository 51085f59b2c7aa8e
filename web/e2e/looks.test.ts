// For everybody: without a pointer, at 200 %, in a narrow window, in both themes, and as axe sees it.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, Page } from "playwright-core";
import { describe, expect, inject, test } from "vitest";
import { open, openTab, picture, settled } from "./support/browser";
import type { Viewer } from "./support/program";
import { serving } from "./support/visit";

const { made, sampler, prices } = inject("traces");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let chromium: Browser;
let viewer: Viewer;
serving(sampler ?? made, ["--prices", prices], (served) => ({ chromium, viewer } = served));

interface Finding {
  readonly id: string;
  readonly impact: string;
  readonly nodes: readonly {
    readonly target: readonly string[];
    readonly failureSummary?: string;
  }[];
}

/** What axe finds serious or critical, as lines that say where. */
async function seriousFindings(page: Page): Promise<string[]> {
  // By the protocol, not as an element of the page: its content policy lets no foreign script in.
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const { axe: tool } = window as unknown as {
      axe: { run(options: object): Promise<{ violations: Finding[] }> };
    };
    // Of what is right nothing is told, and there are no sheets or media of others to be fetched.
    return (await tool.run({ resultTypes: ["violations"], preload: false })).violations;
  });
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) =>
      nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary ?? ""}`),
    );
}

/** Opens the detail of some piece. */
async function openDetail(page: Page): Promise<void> {
  await page.locator(".lane-scroller").focus();
  for (let press = 0; press < 8; press += 1) await page.keyboard.press("+");
  await settled(page);
  for (let press = 0; press < 5; press += 1) await page.keyboard.press("ArrowDown");
  for (let press = 0; press < 2; press += 1) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.locator(".detail h2").waitFor();
}

describe.each(["light", "dark"] as const)("%s", (colorScheme) => {
  test("axe finds nothing serious in any panel", async () => {
    const { page, close } = await open(chromium, viewer.url, { colorScheme });
    await openDetail(page);
    await page.keyboard.press("0");
    for (const tab of await page.getByRole("tab").allInnerTexts()) {
      await openTab(page, tab);
      expect(await seriousFindings(page), tab).toEqual([]);
      await picture(page, `8-${colorScheme}-${tab.toLowerCase().replaceAll(" ", "-")}`);
    }
    await page.keyboard.press("?");
    expect(await seriousFindings(page), "help").toEqual([]);
    await close();
  });
});

test("the theme can be chosen against the system's", async () => {
  const { page, close } = await open(chromium, viewer.url, { colorScheme: "light" });
  const ground = (): Promise<string> =>
    page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.getByRole("combobox", { name: "Colours" }).selectOption("dark");
  expect(await ground()).not.toBe(light);
  await page.reload();
  expect(await ground()).not.toBe(light);
  await close();
});

describe.each([
  ["at 200 % zoom", { viewport: { width: 720, height: 450 }, deviceScaleFactor: 2 }],
  ["800 by 600", { viewport: { width: 800, height: 600 } }],
] as const)("%s", (name, options) => {
  /** Nothing is cut off: the page itself never scrolls sideways, and all tabs can be reached. */
  test("everything can be reached", async () => {
    const { page, close } = await open(chromium, viewer.url, options);
    await openDetail(page);
    for (const tab of await page.getByRole("tab").allInnerTexts()) {
      await openTab(page, tab);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(over, tab).toBeLessThanOrEqual(0);
    }
    const lanes = await page.locator(".lane-scroller").boundingBox();
    expect(lanes?.height ?? 0).toBeGreaterThan(60);
    await picture(page, `9-${name.replaceAll(/[^a-z0-9]+/gi, "-")}`);
    await close();
  });
});

/** The way of someone who has no pointer: Tab and arrows only, from the address bar to a wake chain. */
test("all can be done by keyboard", async () => {
  const { page, complaints, close } = await open(chromium, viewer.url);
  const focused = (): Promise<string> =>
    page.evaluate(
      () =>
        document.activeElement?.getAttribute("aria-label") ??
        document.activeElement?.textContent ??
        "",
    );
  const tabTo = async (wanted: RegExp): Promise<void> => {
    for (let press = 0; press < 80; press += 1) {
      await page.keyboard.press("Tab");
      if (wanted.test(await focused())) return;
    }
    throw new Error(`Tab does not lead to ${wanted}`);
  };
  await tabTo(/^Lanes/);
  for (let press = 0; press < 8; press += 1) await page.keyboard.press("+");
  await settled(page);
  for (let press = 0; press < 5; press += 1) await page.keyboard.press("ArrowDown");
  for (let press = 0; press < 2; press += 1) await page.keyboard.press("ArrowRight");
  await expect.poll(() => page.locator(".focus-words").innerText()).not.toBe("");
  await page.keyboard.press("Enter");
  await page.locator(".detail h2").waitFor();

  await tabTo(/^Wake chain$/);
  await page.keyboard.press("Enter");
  await page.locator(".hops li, .detail [role=alert]").first().waitFor();

  await tabTo(/^Verdict$/);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await settled(page);
  await tabTo(/^switches/);
  await page.keyboard.press("Enter");
  expect(await page.locator('th[aria-sort="descending"]').innerText()).toContain("switches");
  expect(complaints).toEqual([]);
  await close();
});

/** A chart is brushed by arrows as by the mouse. */
test("the rate is brushed and zoomed by keyboard", async () => {
  const { page, close } = await open(chromium, viewer.url);
  await openTab(page, "Rate");
  await page.locator(".rate-chart").focus();
  for (const key of ["ArrowRight", "Shift+PageDown", "Shift+PageDown", "Enter"]) {
    await page.keyboard.press(key);
  }
  await settled(page);
  expect(await page.locator(".range-words").innerText()).toMatch(/^visible range/i);
  await close();
});

test("the flame graph is walked, zoomed and left by keyboard", async () => {
  const { page, close } = await open(chromium, viewer.url);
  await openTab(page, "Off-CPU");
  const told = page.locator(".flame-told");
  await page.locator(".flame-graph").focus();
  const root = await told.innerText();
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "Enter"])
    await page.keyboard.press(key);
  expect(await told.innerText()).not.toBe(root);
  await page.getByRole("button", { name: "Show all" }).waitFor();
  for (let press = 0; press < 3; press += 1) await page.keyboard.press("Escape");
  expect(await told.innerText()).toBe(root);
  await close();
});
