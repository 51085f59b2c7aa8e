// Tests in a real browser, two files at a time: each has a browser and servers of its own, and waits for what
// the page says, never for a time.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    dir: "e2e",
    globalSetup: "e2e/support/traces.ts",
    maxWorkers: 2,
    minWorkers: 1,
    // On a busy machine a browser takes seconds to start.
    testTimeout: 120_000,
    expect: { poll: { timeout: 30_000 } },
    hookTimeout: 120_000,
  },
});
