// What most files of tests begin with: a browser, a server of one trace, and a page that is open in it.
// All of it ends with the file, however that ends.
import type { Browser } from "playwright-core";
import { afterAll, beforeAll } from "vitest";
import { browser, open, type Opened } from "./browser";
import { view, type Viewer } from "./program";

export interface Served {
  readonly chromium: Browser;
  readonly viewer: Viewer;
}

export type Visit = Served & Opened;

/** Serves a trace while the tests of the file run, and hands out with what; does nothing for `null`. */
export function serving(
  trace: string | null,
  options: readonly string[],
  begun: (served: Served) => unknown,
): void {
  const ends: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    if (trace === null) return;
    const chromium = await browser();
    ends.push(() => chromium.close());
    const viewer = await view(trace, ...options);
    ends.push(() => viewer.end());
    await begun({ chromium, viewer });
  });
  afterAll(async () => {
    for (const end of ends) await end();
  });
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
