// Who may ask: only a page that knows the token, under the name and from the origin of this server.
import { request as ask } from "node:http";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { view, type Viewer } from "./support/program";

let viewer: Viewer;

beforeAll(async () => {
  viewer = await view(inject("traces").made);
});

afterAll(async () => {
  await viewer?.end();
});

/** The status of an answer. `fetch` cannot say another `Host`, so this is a plain request. */
function statusOf(
  path: string,
  headers: Record<string, string> = {},
  method = "GET",
): Promise<number> {
  const { hostname, port } = new URL(viewer.url);
  return new Promise((answered, failed) => {
    const asked = ask({ hostname, port, path, headers, method }, (answer) => {
      answer.resume();
      answered(answer.statusCode ?? 0);
    });
    asked.on("error", failed);
    asked.end();
  });
}

const inside = (path: string): string => `${new URL(viewer.url).pathname}${path}`;

test("who knows the token is let in", async () => {
  expect(await statusOf(inside(""))).toBe(200);
  expect(await statusOf(inside("api/trace"))).toBe(200);
});

/** Another program on this machine can reach the port; it must learn nothing. */
test("without the token, or with another, nothing is answered", async () => {
  expect(await statusOf("/")).toBe(403);
  expect(await statusOf("/api/trace")).toBe(403);
  expect(await statusOf(`/${"0".repeat(32)}/api/trace`)).toBe(403);
});

/** DNS rebinding: a foreign name that resolves to loopback brings its own `Host`. */
test("a foreign host is refused", async () => {
  expect(await statusOf(inside("api/trace"), { host: "attacker.example" })).toBe(403);
});

/** Another page in the same browser brings its `Origin`. */
test("a foreign origin is refused", async () => {
  const origin = "https://attacker.example";
  expect(await statusOf(inside("api/trace"), { origin })).toBe(403);
  expect(await statusOf(inside("api/trace"), { origin: "null" })).toBe(403);
});

test("paths do not leave the page's folder", async () => {
  for (const path of ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "assets/../../Cargo.toml"]) {
    expect([403, 404], path).toContain(await statusOf(inside(path)));
  }
});

test("the server only reads", async () => {
  expect([403, 404, 405]).toContain(await statusOf(inside("api/trace"), {}, "POST"));
});
