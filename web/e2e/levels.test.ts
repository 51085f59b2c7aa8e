// Two levels in one picture: over the thread of a user-mode scheduler stands who of its workers runs.
import type { Page } from "playwright-core";
import { expect, inject, test } from "vitest";
import { coloursOf, lanesBox, picture, settled } from "./support/browser";
import { visiting } from "./support/visit";

const { levels, prices } = inject("traces");

let page: Page;
let complaints: readonly string[];
visiting(levels, ["--prices", prices], (visit) => ({ page, complaints } = visit));

/** The names of the workers' lane, and of the lane of their thread. */
async function lanesOfScheduler() {
  const label = page.locator(".lane-label.user").first();
  const name = (await label.getAttribute("title"))?.replace(/^workers of /, "") ?? "";
  const thread = await page
    .locator(".lane-label:not(.user):not(.group)", { hasText: name })
    .first()
    .boundingBox();
  const workers = await label.boundingBox();
  if (workers === null || thread === null) throw new Error("the scheduler has no lanes");
  return { workers, thread };
}

test.skipIf(levels === null)("a row of workers stands right over their thread", async () => {
  await settled(page);
  const { workers, thread } = await lanesOfScheduler();
  expect(workers.y + workers.height).toBeCloseTo(thread.y, 0);
  expect(workers.height).toBeLessThan(thread.height);
  expect(await coloursOf(page, "canvas.lanes")).toBeGreaterThan(4);
});

/** Near enough to see single runs, the row says which worker it was. */
test.skipIf(levels === null)("hovering over it tells which worker ran", async () => {
  const lanes = await lanesBox(page);
  const { workers } = await lanesOfScheduler();
  await page.locator(".lane-scroller").focus();
  const told = new Set<string>();
  // At one place the thread may have had no CPU, on a busy machine: then another one is looked at.
  for (const place of [0.5, 0.3, 0.7, 0.1, 0.9]) {
    if (told.size > 1) break;
    await page.keyboard.press("0");
    await page.mouse.move(lanes.x + lanes.width * place, workers.y + 6);
    for (let turn = 0; turn < 9; turn += 1) await page.mouse.wheel(0, -240);
    await settled(page);
    for (let step = 0; step < 60; step += 1) {
      await page.mouse.move(lanes.x + 5 + (lanes.width - 10) * (step / 60), workers.y + 6);
      const words = await page.getByRole("tooltip").innerText();
      const worker = /^worker \d+ · [\d.]+ [nµm]?s/.exec(words)?.[0].split(" · ")[0];
      if (worker !== undefined) told.add(worker);
    }
  }
  expect([...told].length).toBeGreaterThan(1);
  await picture(page, "11-levels");
});

test.skipIf(levels === null)("a click on a worker's run opens the detail of that run", async () => {
  const lanes = await lanesBox(page);
  const { workers } = await lanesOfScheduler();
  const tooltip = page.getByRole("tooltip");
  // Between two runs there is a moment of the scheduler's own: the first place that is a worker's.
  for (let x = lanes.x + lanes.width / 2; ; x += 3) {
    await page.mouse.move(x, workers.y + 6);
    const worker = /^worker (\d+)/.exec(await tooltip.innerText())?.[1];
    if (worker === undefined) continue;
    await page.mouse.click(x, workers.y + 6);
    const detail = page.locator(".detail");
    await detail.getByRole("heading", { level: 2 }).waitFor();
    await settled(page);
    expect(await detail.innerText()).toContain("a worker's switch");
    // A price of the kernel's list would be that of another event.
    expect(await detail.innerText()).not.toMatch(/price|Who had the CPU/);
    expect(await detail.innerText()).toMatch(new RegExp(`worker\\s+${worker}\\b`, "i"));
    break;
  }
  await picture(page, "11-levels-detail");
  expect(complaints).toEqual([]);
});
