// Names that are markup or escape codes are shown as what they are, everywhere, and do nothing.
import type { Page } from "playwright-core";
import { expect, inject, test } from "vitest";
import { lanesBox, openTab, picture, settled } from "./support/browser";
import { visiting } from "./support/visit";

const { hostile, prices } = inject("traces");
const MARKUP = "<img onerror=1>";
/** Escape, bell and a mark that turns the direction of reading, by their numbers. */
const ESCAPED = "\\x1b[31mred\\x07\\u{202e}";

let page: Page;
let complaints: readonly string[];
visiting(hostile, ["--prices", prices], (visit) => ({ page, complaints } = visit));

/** Control characters and marks of direction that a person would be shown as such. */
const raw = (): Promise<string[]> =>
  page.evaluate(() => [
    ...new Set(
      document.body.innerText.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/g),
    ),
  ]);

test.skipIf(hostile === null)("names in lanes are text", async () => {
  await settled(page);
  const names = await page.locator(".lane-scroller").innerText();
  expect(names).toContain(MARKUP);
  expect(names).toContain(ESCAPED);
  await picture(page, "7-hostile-names");
});

test.skipIf(hostile === null)("names in every panel are text", async () => {
  for (const tab of await page.getByRole("tab").allInnerTexts()) {
    await openTab(page, tab);
    expect(await raw(), tab).toEqual([]);
    expect(await page.locator("img").count(), tab).toBe(0);
  }
  await openTab(page, "Threads");
  const table = await page.locator(".sheet").innerText();
  expect(table).toContain(MARKUP);
  expect(table).toContain(ESCAPED);
});

test.skipIf(hostile === null)("a name is found, and its detail is text", async () => {
  await page.getByRole("search").getByRole("combobox").fill("<img");
  const hit = page.getByRole("option").first();
  await hit.waitFor();
  expect(await hit.innerText()).toContain(MARKUP);
  await hit.click();
  await settled(page);
  const label = await page.locator(".lane-label", { hasText: MARKUP }).first().boundingBox();
  const lanes = await lanesBox(page);
  if (label === null) throw new Error("the lane was not shown");
  await page.mouse.click(lanes.x + lanes.width / 2, label.y + label.height * 0.7);
  expect(await page.locator(".detail h2").innerText()).toContain(MARKUP);
  await settled(page);
  await picture(page, "7-hostile-detail");
  expect(await raw()).toEqual([]);
});

/** Neither a script nor a request came of a name. */
test.skipIf(hostile === null)("no name did anything", () => {
  expect(complaints).toEqual([]);
});
