// How the page is built: relative addresses, because the server puts it under a random token, and
// no inlined assets, because its content policy is `default-src 'self'`.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npm run dev` beside a running `swtch view`: SWTCH_VIEW=http://127.0.0.1:PORT/TOKEN/
    proxy: process.env["SWTCH_VIEW"]
      ? { "/api": { target: process.env["SWTCH_VIEW"], changeOrigin: true } }
      : {},
  },
});
