// Tests in a real browser. One file after the other: they share two CPUs with a browser and a server, and
// what is measured or waited for must not depend on a neighbour.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    dir: "e2e",
    globalSetup: "e2e/support/traces.ts",
    fileParallelism: false,
    // On a busy machine a browser takes seconds to start.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
