// What most files of tests begin with: a browser, a server of one trace, and a page that is open in it.
// All of it ends with the file, however that ends.
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { browser, open, type Opened } from "./browser";
import { view, type Viewer } from "./program";

export interface Served {
  readonly chromium: Browser;
  readonly viewer: Viewer;
}

export type Visit = Served & Opened;

/** Keeps a browser while the tests of the file run, and hands it out. */
export function browsing(begun: (chromium: Browser) => unknown): void {
  let chromium: Browser | undefined;
  beforeAll(async () => {
    chromium = await browser();
    await begun(chromium);
  });
  afterAll(() => chromium?.close());
}

/** Serves a trace while the tests of the file run, and hands out with what; does nothing for `null`. */
export function serving(
  trace: string | null,
  options: readonly string[],
  begun: (served: Served) => unknown,
): void {
  if (trace === null) return;
  let viewer: Viewer | undefined;
  browsing(async (chromium) => {
    viewer = await view(trace, ...options);
    await begun({ chromium, viewer });
  });
  afterAll(() => viewer?.end());
}

/** As `serving`, with one page that all tests of the file use. */
export function visiting(
  trace: string | null,
  options: readonly string[],
  begun: (visit: Visit) => unknown,
): void {
  serving(trace, options, async (served) => {
    const opened = await open(served.chromium, served.viewer.url);
    begun({ ...served, ...opened });
  });
}

/** A page of a trace for one test; it and its server end with the test, however that ends. */
export async function visit(
  chromium: Browser,
  trace: string,
  ...options: readonly (string | Readonly<Record<string, string>>)[]
): Promise<Opened & { readonly viewer: Viewer }> {
  const viewer = await view(trace, ...options);
  onTestFinished(() => viewer.end());
  const opened = await open(chromium, viewer.url);
  onTestFinished(() => opened.close());
  return { ...opened, viewer };
}
