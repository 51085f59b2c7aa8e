// What the page shows is what the command line prints, cell by cell, for the whole trace and for a part.
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { open, openTab, settled } from "./support/browser";
import { swtch, view, type Viewer } from "./support/program";
import { browsing } from "./support/visit";

const { made, crowded, day, sampler, hostile, prices } = inject("traces");

/** Real ones where this user may record; made-up ones are there for everybody. */
const traces: readonly (readonly [name: string, path: string | null])[] = [
  ["made", made],
  ["crowded", crowded],
  ["day", day],
  ["sampler", sampler],
  ["hostile", hostile],
];

let chromium: Browser;
browsing((started) => (chromium = started));

/** A printed table: by head, the cells of each row. The head and the rows are cut where two spaces are. */
type Table = readonly Readonly<Record<string, string>>[];

/** The first table of a report; below it stand other tables and notes. */
function printed(report: string): Table {
  const lines = report.split("\n");
  const rule = lines.findIndex((line) => line.startsWith("─"));
  const cut = (line: string): string[] => line.trim().split(/ {2,}/);
  const heads = cut(lines[rule - 1] ?? "");
  const rows: Record<string, string>[] = [];
  for (const line of lines.slice(rule + 1)) {
    if (line === "" || /^\([\d,]+ more|^note:/.test(line)) break;
    if (line.startsWith("─")) continue;
    const cells = cut(line);
    // A line of sums has gaps where nothing can be summed: its cells cannot be told apart by spaces.
    if (cells.length === heads.length) {
      rows.push(Object.fromEntries(heads.map((head, place) => [head, cells[place] ?? ""])));
    }
  }
  return rows;
}

/** The table of the open panel, in the same form. */
async function shown(page: Page): Promise<Table> {
  return page
    .locator(".panel .sheet")
    .first()
    .evaluate((table) => {
      const texts = (cells: Iterable<Element>): string[] =>
        [...cells].map((cell) => (cell.textContent ?? "").replace(/[▲▼]/g, "").trim());
      const heads = texts(table.querySelectorAll("thead th"));
      return [...table.querySelectorAll("tbody tr")].map((row) => {
        const cells = texts(row.querySelectorAll("td"));
        return Object.fromEntries(heads.map((head, place) => [head, cells[place] ?? ""]));
      });
    });
}

const PANELS = [
  { tab: "Reasons", choice: null, options: ["--by", "reason"] },
  { tab: "Threads", choice: "thread", options: ["--by", "thread"] },
  { tab: "Threads", choice: "process", options: ["--by", "process"] },
  { tab: "Threads", choice: "syscall", options: ["--by", "syscall"] },
  { tab: "Who took my CPU", choice: null, options: ["--by", "preemptor"] },
  { tab: "Bill", choice: "reason", options: ["--bill", "--prices", prices] },
] as const;

/** So many rows are compared; all of 20,000 would be the same test again. */
const ROWS = 12;

/**
 * Shares reach the page with four digits, and the command line rounds the share itself to one: they may
 * differ by one in the last. All else is equal, letter by letter.
 */
function withoutRounding(table: Table, other: Table): Table {
  return table.map((row, place) =>
    Object.fromEntries(
      Object.entries(row).map(([head, cell]) => {
        const there = other[place]?.[head] ?? "";
        const isNear = head.endsWith("%") && Math.abs(Number(cell) - Number(there)) < 0.11;
        return [head, isNear ? there : cell];
      }),
    ),
  );
}

/** Holds each panel against the report; gives the number of cells that were equal. */
async function compared(page: Page, trace: string, range: readonly string[]): Promise<number> {
  let equal = 0;
  for (const { tab, choice, options } of PANELS) {
    const reported = swtch("report", trace, ...options, ...range, "--top", String(ROWS));
    await openTab(page, tab);
    if (choice !== null) {
      await page
        .locator(".panel .choice")
        .getByRole("button", { name: choice, exact: true })
        .click();
      await settled(page);
    }
    const report = await reported;
    const [there, here] = [printed(report), (await shown(page)).slice(0, ROWS)];
    expect(there.length, report).toBeGreaterThan(0);
    const first = withoutRounding(here.slice(0, there.length), there);
    expect(first, `${tab} ${choice ?? ""}`).toEqual(there);
    equal += there.reduce((sum, row) => sum + Object.keys(row).length, 0);
  }
  return equal;
}

describe.each(traces)("%s", (_name, path) => {
  let viewer: Viewer;
  let page: Page;

  beforeAll(async () => {
    if (path === null) return;
    viewer = await view(path, "--prices", prices);
    const permissions = ["clipboard-read", "clipboard-write"];
    ({ page } = await open(chromium, viewer.url, { permissions }));
  });

  afterAll(async () => {
    await viewer?.end();
  });

  test.skipIf(path === null)("the panels of the whole trace are the reports", async () => {
    expect(await compared(page, path ?? "", [])).toBeGreaterThan(30);
  });

  /** A range has ends between nanoseconds on the screen; both sides are asked for the same whole ones. */
  test.skipIf(path === null)("the panels of a part are the reports of that part", async () => {
    await page.locator(".lane-scroller").focus();
    for (let press = 0; press < 2; press += 1) await page.keyboard.press("+");
    const asked = page.waitForRequest((request) => request.url().includes("/api/report?by=cgroup"));
    await openTab(page, "Threads");
    await page.locator(".panel .choice").getByRole("button", { name: "cgroup" }).click();
    const ends = new URL((await asked).url()).searchParams;
    const range = ["--since", `${ends.get("from")}ns`, "--until", `${ends.get("to")}ns`];
    await settled(page);
    expect(await page.locator(".range-words").innerText()).toMatch(/^visible range/i);
    expect(await compared(page, path ?? "", range)).toBeGreaterThan(30);
  });

  /** What is pasted into a spreadsheet is what a script reads. */
  test.skipIf(path === null)(
    "a copied table is the command line's csv, byte for byte",
    async () => {
      await page.locator(".lane-scroller").focus();
      await page.keyboard.press("0");
      await openTab(page, "Reasons");
      await page.getByRole("button", { name: "Copy as CSV" }).click();
      await page.getByRole("button", { name: "Copied" }).waitFor();
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      expect(copied).toBe(await swtch("report", path ?? "", "--by", "reason", "--format", "csv"));
    },
  );

  /** The histogram is of the same lengths as the table of reasons: as many, as long, with the same percentiles. */
  test.skipIf(path === null)("distributions are those of the report", async () => {
    const json = await swtch("report", path ?? "", "--by", "reason", "--format", "json");
    const { total, rows } = JSON.parse(json) as { total: LengthRow; rows: readonly LengthRow[] };
    for (const [of, word] of [
      ["ran", "run"],
      ["off", "off"],
      ["runq", "runq"],
    ] as const) {
      expect((await distribution(of)).sum_ns, of).toBe(total[`${of}_ns`]);
      for (const row of rows) {
        const { p50_ns, p90_ns, p99_ns, max_ns } = await distribution(of, String(row["reason"]));
        const there = ["p50", "p90", "p99", "max"].map((end) => row[`${word}_${end}_ns`]);
        expect([p50_ns, p90_ns, p99_ns, max_ns], `${of} ${row["reason"]}`).toEqual(there);
      }
    }
  });

  type LengthRow = Readonly<Record<string, string | number | null>>;

  const distribution = async (of: string, reason?: string): Promise<LengthRow> => {
    const only = reason === undefined ? "" : `&reason=${reason}`;
    const response = await fetch(`${viewer.url}api/distribution?of=${of}${only}`);
    return (await response.json()) as LengthRow;
  };

  /** Switches over time add up to the switches of the trace. */
  test.skipIf(path === null)("the rate's bars sum to the switches", async () => {
    const json = await swtch("report", path ?? "", "--by", "reason", "--format", "json");
    const { total } = JSON.parse(json) as { total: { switches: number } };
    const response = await fetch(`${viewer.url}api/rate?bins=300`);
    const rate = (await response.json()) as { reasons: readonly { counts: readonly number[] }[] };
    const sum = rate.reasons.flatMap(({ counts }) => counts).reduce((all, count) => all + count, 0);
    expect(sum).toBe(total.switches);
  });
});
