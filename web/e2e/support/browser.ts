// Opens pages in Chromium, and says what went wrong in them.
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, type BrowserContextOptions, type Page, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Quiet: no network of its own, no first visit's questions; and it may run as root in a container. */
const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export async function browser(): Promise<Browser> {
  const named = process.env["SWTCH_CHROMIUM"];
  const executablePath = named ?? PLACES.find((place) => existsSync(place));
  if (executablePath === undefined) {
    throw new Error(
      `there is no Chromium (looked for ${PLACES.join(", ")}; SWTCH_CHROMIUM names another)`,
    );
  }
  return chromium.launch({ executablePath, args: ARGUMENTS });
}

/** A page and what it complained of. */
export interface Opened {
  readonly page: Page;
  /** Errors of scripts, refused contents, requests that failed. */
  readonly complaints: readonly string[];
  readonly close: () => Promise<void>;
}

/** Much longer than a page takes to open. */
const OPENS_WITHIN_MS = 45_000;

export const DESK = { width: 1440, height: 900 };

/** Opens the viewer and waits for the first picture of its lanes. */
export async function open(
  from: Browser,
  url: string,
  options: BrowserContextOptions = {},
  prepare: (page: Page) => Promise<void> = () => Promise.resolve(),
): Promise<Opened> {
  const context = await from.newContext({ viewport: DESK, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  await prepare(page);
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("dialog", (dialog) => {
    complaints.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(url);
  const rate = page.getByRole("tab", { name: "Rate", exact: true });
  await rate.waitFor({ timeout: OPENS_WITHIN_MS }).catch(async () => {
    const said = await page.locator("body").innerText();
    throw new Error(`the page did not open: ${[said, ...complaints].join("\n")}`);
  });
  return { page, complaints, close: () => context.close() };
}

/** Waits until nothing on the page waits for an answer any more: no panel, lane, legend or tooltip. */
export async function settled(page: Page): Promise<void> {
  const isLate = await page.evaluate(async (patience) => {
    const isBusy = (): boolean =>
      document.querySelector('[aria-busy="true"]') !== null ||
      [...document.querySelectorAll(".busy")].some((busy) => busy.textContent !== "");
    const late = performance.now() + patience;
    // What was done is shown by the next frame, and what that asks for by those after it.
    for (let quiet = 0; quiet < 4; quiet = isBusy() ? 0 : quiet + 1) {
      if (performance.now() > late) return true;
      await new Promise(requestAnimationFrame);
    }
    return false;
  }, OPENS_WITHIN_MS);
  if (isLate) throw new Error("something on the page is still waiting for its answer");
}

/** Opens a tab at the bottom and waits for its answer. */
export async function openTab(page: Page, name: string): Promise<void> {
  await page.getByRole("tab", { name, exact: true }).click();
  await settled(page);
}

const ARTEFACTS = fileURLToPath(new URL("../artefacts", import.meta.url));

/** Keeps a picture, for people to look at. */
export async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `${name}.png`) });
}

/** Where the lanes are drawn, in px of the style sheet: beside the names. */
export async function lanesBox(
  page: Page,
): Promise<{ x: number; y: number; width: number; height: number }> {
  const box = await page.locator("canvas.lanes").boundingBox();
  if (box === null) throw new Error("the lanes are not on the page");
  return box;
}

/** How many colours a canvas shows: an empty one has one or two. */
export const coloursOf = (page: Page, selector: string): Promise<number> =>
  page.locator(selector).evaluate((element) => {
    if (!(element instanceof HTMLCanvasElement) || element.width === 0) return 0;
    const pixels = element.getContext("2d")?.getImageData(0, 0, element.width, element.height);
    return new Set(pixels === undefined ? [] : new Uint32Array(pixels.data.buffer)).size;
  });
