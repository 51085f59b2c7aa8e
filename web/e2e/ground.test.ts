// Where nothing is drawn: what that means is told, and differs by what was recorded.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Locator, Page } from "playwright-core";
import { expect, inject, onTestFinished, test } from "vitest";
import { lanesBox, picture, settled } from "./support/browser";
import { browsing, visit } from "./support/visit";

const { made, hostile, prices } = inject("traces");

let chromium: Browser;
browsing((started) => (chromium = started));

/** A page of a trace; nothing may go wrong in it. */
async function pageOf(trace: string): Promise<Page> {
  const { page, complaints } = await visit(chromium, trace, "--prices", prices);
  onTestFinished(() => {
    expect(complaints).toEqual([]);
  });
  await settled(page);
  return page;
}

const laneNames = (page: Page, words: string): Locator =>
  page.locator(".lane-label:not(.group)", { hasText: words });

/** What the tooltip says along the lane with this name, from left to right. */
async function saidAlong(page: Page, name: Locator, places = 60): Promise<string[]> {
  const lanes = await lanesBox(page);
  const label = await name.boundingBox();
  if (label === null) throw new Error("the lane is not on the page");
  const said: string[] = [];
  for (let place = 0; place < places; place += 1) {
    const x = lanes.x + 2 + ((lanes.width - 4) * place) / (places - 1);
    await page.mouse.move(x, label.y + label.height / 2);
    said.push(await page.getByRole("tooltip").innerText());
  }
  return said;
}

const LEGEND = "CPU idle or not recorded";

/** Others had the CPU, too, and nobody wrote it down: "idle" would be a lie. */
test.skipIf(hostile === null)(
  "a blank CPU of a recording of one command may have had others",
  async () => {
    const page = await pageOf(hostile ?? "");
    const said = await saidAlong(page, laneNames(page, "CPU 0"));
    const blank = said.filter((words) => words.includes("others ran: not recorded"));
    expect(blank.length).toBeGreaterThan(0);
    expect(blank.join("\n")).toMatch(/this recording is of: command sh/);
    expect(said.join("\n")).not.toContain("no thread had this CPU");
    expect(await page.locator(".legend").innerText()).toContain(LEGEND);
    await picture(page, "10-scoped");
  },
);

test("a blank CPU of a recording of everything was idle", async () => {
  const page = await pageOf(made);
  for (let press = 0; press < 14; press += 1) await page.keyboard.press("+");
  await settled(page);
  const said = await saidAlong(page, laneNames(page, "CPU 0"));
  expect(said.join("\n")).toContain("idle: no thread had this CPU");
  expect(said.join("\n")).not.toContain("not recorded");
  expect(await page.locator(".legend").innerText()).not.toContain(LEGEND);
});

/** A short life is no riddle: outside of it there was nothing to record. */
test.skipIf(hostile === null)(
  "before its fork and after its exit a thread is told so",
  async () => {
    const page = await pageOf(hostile ?? "");
    await page.getByPlaceholder(/only threads like/i).fill("sleep");
    await settled(page);
    await page.getByRole("combobox", { name: "Order" }).selectOption("start");
    const lanes = laneNames(page, "sleep");
    expect(await lanes.count()).toBeGreaterThan(2);
    const first = await saidAlong(page, lanes.first());
    expect(first.at(-1)).toMatch(/had ended, at/);
    await page.locator(".lane-scroller").evaluate((scroller) => {
      scroller.scrollTop = scroller.scrollHeight;
    });
    await settled(page);
    const last = await saidAlong(page, lanes.last());
    expect(last.at(0)).toMatch(/had not started yet: forked at/);
    // Of a switch that the kernel did not report to tracing the page knows nothing, and the trace counts it.
    const { counts } = JSON.parse(await readFile(join(hostile ?? "", "meta.json"), "utf8")) as {
      counts: { lost: number; untraced_in_scope: number };
    };
    const isAllKnown = counts.lost + counts.untraced_in_scope === 0;
    expect(isAllKnown && first.join("\n").includes("not known here")).toBe(false);
  },
);

/** Three greens without a word would be taken for three meanings. */
test("shades, textures and grounds are explained where they are asked about", async () => {
  const page = await pageOf(made);
  await page.getByRole("button", { name: "How lanes are drawn" }).click();
  const menu = page.getByRole("group", { name: "How lanes are drawn" });
  expect(await menu.innerText()).toMatch(/three shades for each process/);
  expect(await menu.innerText()).toMatch(/the thread that is selected/);
  await page.keyboard.press("Escape");
  await expect.poll(() => menu.count()).toBe(0);
  await page.keyboard.press("?");
  expect(await page.getByRole("dialog").innerText()).toMatch(/three shades for each process/);
});
