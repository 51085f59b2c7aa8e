// How fast a large trace is looked at: `make bench-view`. Makes a trace up, serves it, opens the page, and
// measures what a person feels: how long until there is a picture, and how many frames a second while
// they zoom and pan; then what server and page hold in memory. Prints one line a figure with its bar.
//
// The frame rate is that of `requestAnimationFrame` while keys are held and the wheel turns: the page draws the lanes
// in that callback, so a late one is a late picture. Browsers in tests draw without a graphics card.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Browser, Page } from "playwright-core";
import { browser, lanesBox, DESK } from "./support/browser";
import { makeTrace, view } from "./support/program";

const { values } = parseArgs({
  options: {
    switches: { type: "string", default: "10000000" },
    threads: { type: "string", default: "200" },
    cpus: { type: "string", default: "16" },
    seconds: { type: "string", default: "60" },
    /** A trace that is there already. */
    trace: { type: "string" },
    json: { type: "string" },
  },
});

/** A measured figure and what it has to reach. */
interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly bar: readonly ["at most" | "at least", number] | null;
}

const MB = 1024 * 1024;

/** Notes when the canvas of the lanes first shows more than its ground; runs in the page. */
function noteFirstPicture(): void {
  const look = (): void => {
    const canvas = document.querySelector("canvas.lanes");
    if (canvas instanceof HTMLCanvasElement && canvas.width > 400) {
      const middle = Math.floor(canvas.width / 2);
      const strip = canvas.getContext("2d")?.getImageData(middle, 0, 8, canvas.height).data;
      const colours = new Set(strip === undefined ? [] : new Uint32Array(strip.buffer));
      if (colours.size > 6) {
        performance.mark("first picture");
        return;
      }
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}

/** Times between frames in ms, while `act` goes on. */
async function framesDuring(page: Page, act: () => Promise<void>): Promise<number[]> {
  await page.evaluate(() => {
    const at: number[] = [];
    Object.assign(window, { frameTimes: at });
    const note = (now: number): void => {
      at.push(now);
      requestAnimationFrame(note);
    };
    requestAnimationFrame(note);
  });
  await act();
  const at = await page.evaluate(() => (window as unknown as { frameTimes: number[] }).frameTimes);
  await page.reload();
  await page.waitForTimeout(1000);
  return at.slice(1).map((time, place) => time - (at[place] ?? time));
}

/** Zooms and pans by wheel and by held keys, at the coarse end and at the fine. */
async function zoomAndPan(page: Page): Promise<void> {
  const box = await lanesBox(page);
  await page.locator(".lane-scroller").focus();
  await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2);
  await page.keyboard.down("Control");
  for (let turn = 0; turn < 60; turn += 1) {
    await page.mouse.wheel(0, turn < 30 ? -100 : 100);
    await page.waitForTimeout(16);
  }
  await page.keyboard.up("Control");
  for (const key of ["w", "d", "a", "w", "d", "s", "a", "s"]) {
    await page.keyboard.down(key);
    await page.waitForTimeout(900);
    await page.keyboard.up(key);
  }
}

const ordered = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);
const quantile = (values: readonly number[], share: number): number =>
  ordered(values)[Math.min(Math.floor(values.length * share), values.length - 1)] ?? NaN;

/** Resident memory of a process in MB, and the most it ever was. */
async function memoryOf(pid: number): Promise<{ now: number; most: number }> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const kilobytes = (key: string): number =>
    Number(new RegExp(`^${key}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? NaN);
  return { now: kilobytes("VmRSS") / 1024, most: kilobytes("VmHWM") / 1024 };
}

/** The page's process: resident memory that is its own, without the browser's shared libraries, in MB. */
async function memoryOfPage(chromium: Browser): Promise<number> {
  const session = await chromium.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const own = processInfo
    .filter(({ type }) => type === "renderer")
    .map(async ({ id }) => {
      const rollup = await readFile(`/proc/${id}/smaps_rollup`, "utf8");
      return Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? NaN) / 1024;
    });
  return Math.max(...(await Promise.all(own)));
}

async function measured(trace: string): Promise<Figure[]> {
  const began = performance.now();
  const server = await view(trace);
  const opened = performance.now() - began;
  const chromium = await browser();
  try {
    const page = await (await chromium.newContext({ viewport: DESK })).newPage();
    await page.addInitScript(noteFirstPicture);
    const firsts: number[] = [];
    for (let visit = 0; visit < 5; visit += 1) {
      await page.goto(server.url);
      await page.waitForTimeout(3000);
      const first = await page.evaluate(
        () => performance.getEntriesByName("first picture")[0]?.startTime ?? NaN,
      );
      firsts.push(first);
    }
    const frames = await framesDuring(page, () => zoomAndPan(page));
    const heap = await page.evaluate(
      () =>
        (performance as unknown as { memory?: { usedJSHeapSize: number } }).memory
          ?.usedJSHeapSize ?? NaN,
    );
    const ofServer = await memoryOf(server.pid);
    return [
      { name: "server reads the trace", value: opened / 1e3, unit: "s", bar: null },
      {
        name: "first picture after navigation, median of 5",
        value: quantile(firsts, 0.5),
        unit: "ms",
        bar: ["at most", 1000],
      },
      {
        name: "frame rate while zooming and panning, median",
        value: 1e3 / quantile(frames, 0.5),
        unit: "frames/s",
        bar: ["at least", 50],
      },
      {
        name: "slowest 5 % of frames take at least",
        value: quantile(frames, 0.95),
        unit: "ms",
        bar: null,
      },
      { name: "slowest frame", value: quantile(frames, 1), unit: "ms", bar: null },
      { name: "server memory, most", value: ofServer.most, unit: "MB", bar: ["at most", 500] },
      {
        name: "page memory (its process)",
        value: await memoryOfPage(chromium),
        unit: "MB",
        bar: ["at most", 300],
      },
      { name: "page memory (JavaScript heap)", value: heap / MB, unit: "MB", bar: null },
    ];
  } finally {
    await chromium.close();
    await server.end();
  }
}

function isMet({ value, bar }: Figure): boolean {
  if (bar === null) return true;
  return bar[0] === "at most" ? value <= bar[1] : value >= bar[1];
}

function lineOf(figure: Figure): string {
  const { name, value, unit, bar } = figure;
  const wanted = bar === null ? "" : `  ${bar[0]} ${bar[1]}: ${isMet(figure) ? "met" : "MISSED"}`;
  return `${name.padEnd(46)} ${value.toFixed(1).padStart(8)} ${unit.padEnd(8)}${wanted}`;
}

const folder = await mkdtemp(join(tmpdir(), "swtch-bench-view-"));
try {
  const { switches, threads, cpus, seconds } = values;
  const size = { switches, threads, cpus, seconds };
  const trace = values.trace ?? (await makeTrace(join(folder, "large.swtch"), size));
  console.log(values.trace ?? `made up: ${JSON.stringify(size)}`);
  const figures = await measured(trace);
  for (const figure of figures) console.log(lineOf(figure));
  if (values.json !== undefined) await writeFile(values.json, JSON.stringify(figures, null, 2));
  if (!figures.every(isMet)) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}
