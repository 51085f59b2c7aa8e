// The first visit: the page opens, shows the trace, moves by wheel, pointer, keys and brush.
import type { Page } from "playwright-core";
import { expect, inject, test } from "vitest";
import { coloursOf, lanesBox, openTab, picture, settled } from "./support/browser";
import { visiting } from "./support/visit";

const { made, prices } = inject("traces");

let page: Page;
let complaints: readonly string[];
visiting(made, ["--prices", prices], (visit) => ({ page, complaints } = visit));

/** The words about the range above a panel: where the view is. */
const rangeWords = async (): Promise<string> => {
  await settled(page);
  return page.locator(".range-words").innerText();
};

const whole = async (): Promise<void> => {
  await page.locator(".lane-scroller").focus();
  await page.keyboard.press("0");
  expect(await rangeWords()).toMatch(/^whole trace/i);
};

/** The picture is there without anybody doing anything. */
test("a trace opens with lanes, a minimap and a ruler that are drawn", async () => {
  await expect.poll(() => coloursOf(page, "canvas.lanes")).toBeGreaterThan(4);
  await expect.poll(() => coloursOf(page, ".minimap canvas")).toBeGreaterThan(1);
  expect(await page.title()).toContain("made.swtch");
  expect(await page.locator(".top-bar").innerText()).toContain("60,000 switches");
  await picture(page, "1-opened");
});

/** The first thing to read says what stands out, and leads there. */
test("the verdict leads to the switches that it speaks of", async () => {
  await whole();
  const verdict = page.getByRole("tab", { name: "Verdict", exact: true });
  expect(await verdict.getAttribute("aria-selected")).toBe("true");
  await page.locator(".causes > li").first().waitFor();
  await picture(page, "1-verdict");
  const only = page.getByRole("button", { name: /^Show only/ }).first();
  await only.click();
  const pressed = page.locator(".legend [aria-pressed=false]");
  await expect.poll(() => pressed.count()).toBeGreaterThan(0);
  await only.click();
  await expect.poll(() => pressed.count()).toBe(0);
  await page
    .getByRole("button", { name: /^Longest wait/ })
    .first()
    .click();
  expect(await rangeWords()).toMatch(/^visible range/i);
  await whole();
});

/** What lies under the pointer stays under it. */
test("the wheel zooms to the pointer and 0 shows everything again", async () => {
  await whole();
  const box = await lanesBox(page);
  await page.mouse.move(box.x + box.width * 0.75, box.y + 60);
  await page.keyboard.down("Control");
  for (let turn = 0; turn < 8; turn += 1) await page.mouse.wheel(0, -240);
  await page.keyboard.up("Control");
  const words = await rangeWords();
  expect(words).toMatch(/^visible range/i);
  const [from = 0, to = 0] = await viewed();
  const middle = 1.5e9;
  expect(from).toBeLessThan(middle);
  expect(to).toBeGreaterThan(middle);
  expect(to - from).toBeLessThan(1e9);
  await picture(page, "2-zoomed");
  await whole();
});

/** The range of the last question about the visible range, in ns. */
const viewed = async (): Promise<number[]> => {
  const asked = page.waitForRequest(
    (request) => request.url().includes("api/rate?") && request.url().includes("bins=300"),
  );
  await openTab(page, "Reasons");
  await openTab(page, "Rate");
  const address = new URL((await asked).url());
  return ["from", "to"].map((key) => Number(address.searchParams.get(key)));
};

/** A drag moves the picture with the hand; the span stays as long. */
test("dragging pans", async () => {
  await whole();
  for (let press = 0; press < 4; press += 1) await page.keyboard.press("+");
  await settled(page);
  const [from = 0, to = 0] = await viewed();
  const box = await lanesBox(page);
  await page.mouse.move(box.x + box.width * 0.8, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50, { steps: 6 });
  await page.mouse.up();
  await settled(page);
  const [laterFrom = 0, laterTo = 0] = await viewed();
  expect(laterFrom).toBeGreaterThan(from);
  expect(Math.abs(laterTo - laterFrom - (to - from))).toBeLessThan(10);
  await whole();
});

/** The part that was brushed fills the width. */
test("a drag over the rate zooms there", async () => {
  await whole();
  await openTab(page, "Rate");
  const box = await page.locator(".rate-chart").boundingBox();
  if (box === null) throw new Error("there is no chart");
  await page.mouse.move(box.x + box.width * 0.25, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 40, { steps: 5 });
  await page.mouse.up();
  await settled(page);
  const [from = 0, to = 0] = await viewed();
  expect(from / 1e9).toBeCloseTo(0.5, 1);
  expect(to / 1e9).toBeCloseTo(1.0, 1);
  await whole();
});

/** A spike stands below its cause: both are at the same place, whatever else takes room. */
test("the rate stands in line with the lanes", async () => {
  await whole();
  await openTab(page, "Rate");
  // The lanes are measured when they have their new size: the chart follows a frame later.
  const inLine = (): Promise<void> =>
    expect
      .poll(async () => {
        const lanes = await lanesBox(page);
        const chart = await page.locator(".rate-chart").boundingBox();
        return [(chart?.x ?? 0) - lanes.x, (chart?.width ?? 0) - lanes.width];
      })
      .toEqual([0, 0]);
  await inLine();
  const { width } = await lanesBox(page);
  const lane = await page
    .locator(".lane-label:not(.group)", { hasText: "worker" })
    .first()
    .boundingBox();
  await page.mouse.click((await lanesBox(page)).x + width / 2, (lane?.y ?? 0) + 10);
  await page.keyboard.press("+");
  await settled(page);
  await page.getByRole("button", { name: "Close the detail" }).waitFor();
  expect((await lanesBox(page)).width).toBeLessThan(width);
  await inLine();
  await page.getByRole("button", { name: "Close the detail" }).click();
  await inLine();
});

/** With a selection the bars stay where they are, and the numbers are those of the selection. */
test("a selected range is marked in the rate and counted below it", async () => {
  await whole();
  const box = await lanesBox(page);
  const all = await page.locator(".bin-numbers").innerText();
  await page.keyboard.down("Shift");
  await page.mouse.move(box.x + box.width * 0.25, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 50, { steps: 5 });
  await page.mouse.up();
  await page.keyboard.up("Shift");
  await page.mouse.move(box.x - 20, box.y + 50);
  const numbers = page.locator(".bin-numbers");
  await expect.poll(() => numbers.innerText()).toMatch(/^selected \d+ ms[^]*switches\/s/);
  const futex = (words: string): number =>
    Number(/futex ([\d,]+)/.exec(words)?.[1]?.replaceAll(",", ""));
  expect(futex(await numbers.innerText()) / futex(all)).toBeCloseTo(0.25, 1);
  const part = await page.locator(".rate-chart .selected-part").boundingBox();
  expect((part?.x ?? 0) - box.x).toBeCloseTo(box.width * 0.25, -1);
  expect(part?.width).toBeCloseTo(box.width * 0.25, -1);
  await picture(page, "2-selected");
  await page.keyboard.press("Escape");
  await expect.poll(() => numbers.innerText()).toMatch(/^all bars/);
});

/** A category that is switched off in the legend takes no part in the rate's pile. */
test("the legend filters", async () => {
  await whole();
  await openTab(page, "Rate");
  const numbers = page.locator(".bin-numbers");
  expect(await numbers.innerText()).toContain("futex");
  const toggle = page.getByRole("button", { name: /^synchronization/ });
  await toggle.click();
  expect(await toggle.getAttribute("aria-pressed")).toBe("false");
  expect(await numbers.innerText()).not.toContain("futex");
  await page.getByRole("button", { name: "Show all" }).click();
  expect(await numbers.innerText()).toContain("futex");
});

/** A name in the filter leaves its lanes. */
test("lanes are filtered by name", async () => {
  await whole();
  const labels = page.locator(".lane-scroller");
  const before = (await labels.innerText()).length;
  const box = page.getByPlaceholder(/only threads like/i);
  await box.fill("no such thread");
  await expect.poll(async () => (await labels.innerText()).length).toBeLessThan(before);
  await box.fill("");
  await expect.poll(async () => (await labels.innerText()).length).toBe(before);
});

/** The last one of this file: whatever was done, nothing was refused or thrown. */
test("nothing went wrong on the way", () => {
  expect(complaints).toEqual([]);
});
