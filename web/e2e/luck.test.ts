// Bad luck: nothing to see, too much to see, a whole day, a trace that is still growing, no prices, no server.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { expect, inject, onTestFinished, test } from "vitest";
import { coloursOf, open, openTab, picture, settled } from "./support/browser";
import { swtchPath, view } from "./support/program";
import { browsing, visit } from "./support/visit";

const { made, empty, crowded, day, sampler, prices } = inject("traces");

let chromium: Browser;
browsing((started) => (chromium = started));

/** No switch is a trace, too: it says so instead of drawing nothing. */
test("a trace without a switch opens and every panel says that there is nothing", async () => {
  const { page, complaints } = await visit(chromium, empty, "--prices", prices);
  for (const tab of await page.getByRole("tab").allInnerTexts()) {
    await openTab(page, tab);
    expect((await page.locator(".panel").innerText()).length, tab).toBeGreaterThan(10);
  }
  expect(complaints).toEqual([]);
  await picture(page, "9-empty");
});

test("20,000 threads can be scrolled, and a table of them stays quick", async () => {
  const { page, complaints } = await visit(chromium, crowded, "--prices", prices);
  await openTab(page, "Threads");
  expect(await page.locator(".sheet tbody tr").count()).toBeLessThanOrEqual(200);
  const height = await page.locator(".lane-scroller").evaluate((scroller) => scroller.scrollHeight);
  expect(height).toBeGreaterThan(20_000 * 10);
  await page.locator(".lane-scroller").evaluate((scroller) => {
    scroller.scrollTop = scroller.scrollHeight / 2;
  });
  await settled(page);
  expect(await page.locator("body *").count()).toBeLessThan(20_000);
  await picture(page, "9-crowded");
  expect(complaints).toEqual([]);
});

/** 20,000 threads wake each other in tens of thousands of pairs: only what is looked at is asked for. */
test("a table of very many rows asks for the first, and for more when they are wanted", async () => {
  const { page, complaints } = await visit(chromium, crowded, "--prices", prices);
  const sizes: number[] = [];
  page.on("response", (response) => {
    if (!response.url().includes("api/report?by=waker")) return;
    void response.body().then((body) => sizes.push(body.length));
  });
  await openTab(page, "Threads");
  await page.locator(".panel .choice").getByRole("button", { name: "waker" }).click();
  await settled(page);
  expect(sizes).toHaveLength(1);
  expect(sizes[0]).toBeLessThan(1e6);
  const beside = page.locator(".sheet-beside");
  expect(await beside.innerText()).toContain("The first 1,000 rows");
  // The longest wait need not be among the first thousand pairs.
  await page.getByRole("button", { name: "blocked", exact: true }).click();
  await settled(page);
  await expect.poll(() => beside.innerText()).toContain("heads sort among them");
  expect(sizes).toHaveLength(2);
  expect(await page.locator(".sheet tbody tr").count()).toBeLessThanOrEqual(200);
  await openTab(page, "Locks");
  expect(await page.locator(".sheet tbody tr").count()).toBe(50);
  expect(await page.locator(".panel").innerText()).toMatch(
    /The 50 with the most blocked time, of [\d,]+/,
  );
  await page.getByRole("button", { name: "More", exact: true }).click();
  await settled(page);
  expect(await page.locator(".sheet tbody tr").count()).toBe(200);
  expect(complaints).toEqual([]);
});

/** Moments of a day are told in hours; the lanes are drawn as those of a second are. */
test("a trace of a day is drawn and told in hours", async () => {
  const { page, complaints } = await visit(chromium, day, "--prices", prices);
  await expect.poll(() => coloursOf(page, "canvas.lanes")).toBeGreaterThan(4);
  for (let press = 0; press < 4; press += 1) await page.keyboard.press("+");
  await settled(page);
  expect(await page.locator(".range-words").innerText()).toMatch(/\d+:\d\d:\d\d/);
  await page.keyboard.press("0");
  await settled(page);
  expect(await page.locator(".range-words").innerText()).toMatch(/^whole trace: 1 d$/i);
  expect(await page.locator(".top-bar").innerText()).toMatch(/1 d · 100,000 switches/);
  expect(complaints).toEqual([]);
  await picture(page, "9-day");
});

/** A bill needs prices; the panel says how to get them instead of showing zeros. */
test("without a price list the bill says how to get one", async () => {
  const nowhere = await mkdtemp(join(tmpdir(), "swtch-web-home-"));
  onTestFinished(() => rm(nowhere, { recursive: true, force: true }));
  const { page, complaints } = await visit(chromium, made, {
    XDG_DATA_HOME: nowhere,
    HOME: nowhere,
  });
  await openTab(page, "Bill");
  expect(await page.locator(".panel").innerText()).toContain("swtch cost --save");
  await picture(page, "9-no-prices");
  await page.getByRole("button", { name: "Look again" }).click();
  await settled(page);
  expect(await page.locator(".panel").innerText()).toContain("swtch cost --save");
  // Nothing went wrong: a browser that has 404 in its console makes people look for a fault.
  expect(complaints).toEqual([]);
});

/** The page stays as it is, says so, and does not fill the screen with errors. */
test("when the server has ended the page says so and keeps what it shows", async () => {
  const { page, viewer } = await visit(chromium, made, "--prices", prices);
  await openTab(page, "Reasons");
  await viewer.end();
  await openTab(page, "Threads");
  await page
    .getByText(/server has ended|does not answer/)
    .first()
    .waitFor();
  expect(await coloursOf(page, "canvas.lanes")).toBeGreaterThan(4);
  await picture(page, "9-server-gone");
});

/** What is recorded while somebody looks appears by itself. */
test.skipIf(sampler === null)("a trace that is being recorded is followed", async () => {
  const folder = await mkdtemp(join(tmpdir(), "swtch-web-growing-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const trace = join(folder, "growing.swtch");
  const load = ["sh", "-c", "for i in $(seq 400); do sleep 0.05; done"];
  const recorder = spawn(swtchPath(), ["record", "-d", "15", "-o", trace, "--", ...load], {
    stdio: "ignore",
  });
  const ended = new Promise((gone) => recorder.on("exit", gone));
  onTestFinished(async () => {
    recorder.kill("SIGINT");
    await ended;
  });
  await expect.poll(() => existsSync(join(trace, "frame.arrows")), { timeout: 20_000 }).toBe(true);
  const { page, complaints } = await visit(chromium, trace, "--prices", prices);
  await openTab(page, "Reasons");
  const total = async (): Promise<number> =>
    Number((await page.locator(".sheet tfoot td").nth(2).innerText()).replaceAll(",", ""));
  const before = await total();
  await expect.poll(total, { timeout: 20_000 }).toBeGreaterThan(before);
  await picture(page, "9-growing");
  expect(complaints).toEqual([]);
});

/** A tab that is left open for a day: what is looked at goes away again, and at rest nothing is asked. */
test("long use leaves nothing behind, and a page at rest asks nothing", async () => {
  const viewer = await view(made, "--prices", prices);
  onTestFinished(() => viewer.end());
  // The page's clock can be put forward: what it does after an hour, it does now.
  const { page, close } = await open(chromium, viewer.url, {}, (page) => page.clock.install());
  onTestFinished(() => close());
  const session = await page.context().newCDPSession(page);
  const heapMb = async (): Promise<number> => {
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    return usedSize / 2 ** 20;
  };
  const use = async (rounds: number): Promise<void> => {
    for (let round = 0; round < rounds; round += 1) {
      await page.locator(".lane-scroller").focus();
      for (const key of ["+", "+", "ArrowDown", "ArrowRight", "Enter"]) {
        await page.keyboard.press(key);
      }
      await page
        .getByRole("tab")
        .nth(round % 8)
        .click();
      await page.clock.fastForward(120);
      if (round % 5 === 4) await page.keyboard.press("0");
    }
    await settled(page);
  };
  await use(10);
  const before = await heapMb();
  await use(50);
  expect((await heapMb()) - before).toBeLessThan(10);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.clock.fastForward("01:00:00");
  await settled(page);
  expect(asked).toEqual([]);
});
