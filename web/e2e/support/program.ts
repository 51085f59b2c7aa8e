// Runs the program under test: `swtch`, as it was built with the page inside.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Where cargo builds; `scripts/web.sh` says so. */
const target =
  process.env["SWTCH_TARGET_DIR"] ?? fileURLToPath(new URL("../../../target", import.meta.url));

/** Tests use what `cargo test` has built, measurements what people use. */
const profile = process.env["SWTCH_PROFILE"] ?? "debug";

function built(path: string): string {
  const file = `${target}/${profile}/${path}`;
  if (!existsSync(file)) {
    throw new Error(`there is no ${file}: cargo build -p swtch --bins --examples`);
  }
  return file;
}

export const swtchPath = (): string => built("swtch");

/** One of the examples of the crate `swtch`. */
export const examplePath = (name: string): string => built(`examples/${name}`);

const ROOM = 256 * 1024 * 1024;

/** What a command prints on stdout; fails when it does. */
async function output(command: string, args: readonly string[]): Promise<string> {
  const { stdout } = await run(command, args, { maxBuffer: ROOM });
  return stdout;
}

/** What `swtch` prints on stdout. */
export const swtch = (...args: readonly string[]): Promise<string> => output(swtchPath(), args);

/** Makes a trace up at `path`: `switches`, `threads`, `cpus`, `seconds`. */
export async function makeTrace(
  path: string,
  size: Readonly<Record<string, string>>,
): Promise<string> {
  const options = Object.entries(size).flatMap(([word, value]) => [`--${word}`, value]);
  await output(examplePath("make_trace"), [path, ...options]);
  return path;
}

/** A `swtch view` that is running. */
export interface Viewer {
  /** The page's address, with its token. */
  readonly url: string;
  readonly pid: number;
  readonly end: () => Promise<void>;
}

/** Servers that run; none may outlive the tests, however those end. */
const running = new Set<ChildProcess>();
process.on("exit", () => running.forEach((child) => child.kill("SIGTERM")));

/** How long a server may take to read its trace: much longer than it does. */
const PATIENCE_MS = 60_000;

/** Starts `swtch view` of a trace; it is ready when it has printed its address. An object is environment. */
export async function view(
  trace: string,
  ...options: readonly (string | Readonly<Record<string, string>>)[]
): Promise<Viewer> {
  const words = options.filter((option) => typeof option === "string");
  const others = options.filter((option) => typeof option === "object");
  const child = spawn(swtchPath(), ["view", trace, "--no-open", ...words], {
    stdio: ["ignore", "pipe", "pipe"],
    env: Object.assign({}, process.env, ...others),
  });
  running.add(child);
  child.on("exit", () => running.delete(child));
  const url = await firstLine(child).catch(async (error: unknown) => {
    await ended(child);
    throw error;
  });
  return { url, pid: child.pid ?? 0, end: () => ended(child) };
}

function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((found, failed) => {
    let [said, told] = ["", ""];
    const late = setTimeout(
      () => failed(new Error(`swtch view said nothing: ${told}`)),
      PATIENCE_MS,
    );
    child.stderr?.on("data", (bytes: Buffer) => (told += bytes.toString()));
    child.stdout?.on("data", (bytes: Buffer) => {
      said += bytes.toString();
      const end = said.indexOf("\n");
      if (end < 0) return;
      clearTimeout(late);
      found(said.slice(0, end));
    });
    child.on("exit", (code) => {
      clearTimeout(late);
      failed(new Error(`swtch view ended with ${code}: ${told}`));
    });
  });
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((gone) => {
    if (child.exitCode !== null || child.signalCode !== null) return gone();
    child.on("exit", () => gone());
    child.kill("SIGTERM");
  });
}
