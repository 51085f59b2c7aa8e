// A wait and its story: hover, click, who had the CPU, the chain of wakeups, the critical path.
import type { Page } from "playwright-core";
import { expect, inject, test } from "vitest";
import { lanesBox, openTab, picture, settled } from "./support/browser";
import { swtch, type Viewer } from "./support/program";
import { visiting } from "./support/visit";

const { made, prices } = inject("traces");

let page: Page;
let viewer: Viewer;
let complaints: readonly string[];
visiting(made, ["--prices", prices], (visit) => ({ page, viewer, complaints } = visit));

const detail = () => page.locator(".detail");

const VERDICT = /certain|inferred/;

/** Chooses a piece as someone without a pointer does: the first lane of a thread, the piece in the middle. */
async function choosePiece(steps: number): Promise<void> {
  await page.locator(".lane-scroller").focus();
  await page.keyboard.press("0");
  for (let press = 0; press < 14; press += 1) await page.keyboard.press("+");
  await settled(page);
  // Past the head and the lanes of the four CPUs and the head of the first process.
  for (let press = 0; press < 7; press += 1) await page.keyboard.press("ArrowDown");
  for (let press = 0; press < steps; press += 1) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await detail().getByRole("heading", { level: 2 }).waitFor();
  await settled(page);
}

/** The middle of the first lane of that name; something happens there at every moment. */
async function middleOfLane(name: string | RegExp): Promise<{ x: number; y: number }> {
  const lanes = await lanesBox(page);
  const label = await page
    .locator(".lane-label:not(.group)", { hasText: name })
    .first()
    .boundingBox();
  if (label === null) throw new Error(`${String(name)} has no lane`);
  return { x: lanes.x + lanes.width / 2, y: label.y + label.height * 0.7 };
}

/** A tooltip says what is under the pointer, in the words of the command line. */
test("hovering tells reason, length, certainty and evidence", async () => {
  for (let press = 0; press < 14; press += 1) await page.keyboard.press("+");
  await settled(page);
  const { x, y } = await middleOfLane("worker");
  const tooltip = page.getByRole("tooltip");
  await page.mouse.move(x, y);
  await expect.poll(() => tooltip.innerText()).toMatch(/\d+(\.\d+)? (ns|µs|ms|s)/);
  // A run has a verdict, a wait who ended it: along the lane there is both.
  const said: string[] = [];
  const isSaid = (words: RegExp): boolean => words.test(said.join("\n"));
  for (let step = 0; step < 40 && !(isSaid(VERDICT) && isSaid(/woken by/)); step += 1) {
    await page.mouse.move(x + step * 12, y);
    await settled(page);
    said.push(await tooltip.innerText());
  }
  expect(said.join("\n")).toMatch(VERDICT);
  expect(said.join("\n")).toMatch(/woken by/);
  await picture(page, "3-hovered");
});

test("a click opens the detail of what was clicked", async () => {
  const { x, y } = await middleOfLane("worker");
  await page.mouse.click(x, y);
  await detail().getByRole("heading", { level: 2 }).waitFor();
  expect(await detail().innerText()).toMatch(VERDICT);
});

/** Nobody has to find the zoom at which a click means something. */
test("a click far out chooses the longest piece under the pointer", async () => {
  await page.locator(".lane-scroller").focus();
  await page.keyboard.press("0");
  await settled(page);
  // A thread's lane holds few enough pieces to draw each one even here; a CPU's does not.
  const { x: middle, y } = await middleOfLane("CPU 0");
  const x = middle - 200;
  await page.mouse.move(x, y);
  const tooltip = page.getByRole("tooltip");
  await expect.poll(() => tooltip.innerText()).toMatch(/a click chooses the longest of them/);
  await page.mouse.click(x, y);
  await detail().getByRole("heading", { level: 2 }).waitFor();
  expect(await detail().innerText()).toMatch(VERDICT);
});

/** A measured range says more than its length. */
test("what the thread did in the range is summed up", async () => {
  await choosePiece(2);
  const sum = detail().getByLabel("What the thread did");
  await expect.poll(() => sum.innerText()).toMatch(/Of [\d.]+ (ns|µs|ms|s): \d+\s% \w+/);
});

/** Every verdict shows what it stands on. */
test("a row shows reason, certainty, rule, evidence and price", async () => {
  await choosePiece(2);
  await detail().getByText("Rule and evidence").click();
  const words = await detail().innerText();
  expect(words).toMatch(/the kernel said so|concluded by a rule of swtch/);
  expect(words).toMatch(/cause/);
  expect(words).toMatch(/price/);
  expect(words).toMatch(/Stack of the waker: (not recorded)|Stack of the waker/);
  await picture(page, "4-detail");
});

/** The parts are of one wait: together they are as long as it. */
test("who had the CPU sums to the run-queue wait", async () => {
  const row = await rowWith((one) => (one.wait?.had_cpu.length ?? 0) > 1);
  const parts = row.wait?.had_cpu.map((part) => part.ns) ?? [];
  expect(parts.reduce((sum, ns) => sum + ns, 0)).toBe(row.wait?.runq_ns);
});

interface RawRow {
  readonly previous_row: number | null;
  readonly next_row: number | null;
  readonly wait: null | {
    readonly runq_ns: number | null;
    readonly waker: unknown;
    readonly had_cpu: readonly { readonly ns: number }[];
  };
}

const ask = async <T>(path: string): Promise<T> => {
  const response = await fetch(`${viewer.url}api/${path}`);
  expect(response.status).toBe(200);
  return (await response.json()) as T;
};

/** The first row, from the middle of the trace on, of which this holds. */
async function rowWith(holds: (row: RawRow) => boolean): Promise<RawRow> {
  for (let row = 30_000; row < 31_000; row += 1) {
    const known = await ask<RawRow>(`detail?row=${row}`);
    if (holds(known)) return known;
  }
  throw new Error("there is no such row among a thousand");
}

/** Previous and next are of the same thread, and lead back. */
test("previous and next walk along the thread", async () => {
  await choosePiece(2);
  const place = detail().locator(".moment").first();
  const name = await detail().getByRole("heading", { level: 2 }).innerText();
  const first = await place.innerText();
  await detail()
    .getByRole("button", { name: /^Next row/ })
    .click();
  await expect.poll(() => place.innerText()).not.toBe(first);
  expect(await detail().getByRole("heading", { level: 2 }).innerText()).toBe(name);
  await detail()
    .getByRole("button", { name: /^Previous row/ })
    .click();
  await expect.poll(() => place.innerText()).toBe(first);
});

/** Who woke it, who woke that one: each hop is a link that leads to its own row. */
test("a wake chain can be followed hop by hop", async () => {
  await choosePiece(3);
  await detail().getByRole("button", { name: "Wake chain" }).click();
  const hops = detail().locator(".hops li");
  await hops.first().waitFor();
  expect(await detail().innerText()).toMatch(/It ends there: \S+/);
  await picture(page, "5-chain");
  const count = await hops.count();
  const last = hops.nth(count - 1);
  const name = await last.getByRole("button").innerText();
  await last.getByRole("button").click();
  await expect.poll(() => detail().getByRole("heading", { level: 2 }).innerText()).toBe(name);
  expect(await last.getAttribute("aria-current")).toBe("true");
});

/** The overlay is there with its sums, and can be taken away. */
test("a critical path is listed by thread and explains no more than the range", async () => {
  await choosePiece(2);
  await detail().getByRole("button", { name: "Critical path" }).click();
  await detail().locator(".by-thread li").first().waitFor();
  await picture(page, "6-critical-path");
  const [sum] = await detail().locator(".had-cpu-sum").last().allInnerTexts();
  expect(sum).toMatch(/explained, of/);
  expect(await detail().innerText()).toMatch(/Of [\d.]+ (ns|µs|ms|s): \d+\s% /);
});

/** Each of the lines of a report in which cells are apart by two spaces. */
const cellsOf = (line: string): string[] => line.trim().split(/ {2,}/);

/** The list is the report's; a click leads to the span, and what it rested on is all of it. */
test("the slowest span leads to its critical path, whose parts are as long as the span", async () => {
  await openTab(page, "Spans");
  await settled(page);
  const report = await swtch("report", made, "--by", "span", "--top", "3");
  const lines = report.split("\n");
  const rule = lines.findIndex((line) => line.startsWith("─"));
  const first = page.locator(".panel .sheet tbody tr").first();
  const heads = cellsOf(lines[rule - 1] ?? "");
  const cells = await first.locator("td").allInnerTexts();
  // The page has more rows, and so perhaps a further column in which one of them has something.
  expect(cells.slice(0, heads.length), report).toEqual(cellsOf(lines[rule + 1] ?? ""));
  await first.getByRole("button", { name: "request" }).click();
  await settled(page);
  const tid = cells[heads.indexOf("tid")] ?? "";
  const lane = await middleOfLane(new RegExp(`${tid}$`));
  await page.mouse.move(lane.x, lane.y);
  const hovered = (): Promise<string> => page.getByRole("tooltip").innerText({ timeout: 2000 });
  await expect.poll(hovered).toContain("in the span request, ");
  await picture(page, "7-span-hovered");
  await detail().getByRole("button", { name: "Critical path" }).click();
  await detail().locator(".by-thread li").first().waitFor();
  await picture(page, "7-span");
  const [sum] = await detail().locator(".had-cpu-sum").last().allInnerTexts();
  const [, of, explained] = /explained, of ([\d.]+ \S+)\s+([\d.]+ \S+)/.exec(sum ?? "") ?? [];
  expect(explained, sum).toBe(of);
  const length = cells[heads.indexOf("length")] ?? "";
  expect(Number.parseFloat(of ?? "")).toBeCloseTo(Number.parseFloat(length), 0);
});

test("nothing went wrong on the way", () => {
  expect(complaints).toEqual([]);
});
