// Asks the server. Addresses are relative, because the page lives under the token: who opened the
// page may ask, and the token is never in this code.
import { DecodeError, type Decoder } from "./decode";
import { type LanesAnswer, decodeLanes } from "./lanes";
import * as types from "./types";
import type { TraceRange } from "../lib/units";

/** The server said no, or nothing. */
export class ApiError extends Error {
  constructor(
    message: string,
    /** What to do about it, when the server knows. */
    readonly advice: string | null,
    /** 0: it did not answer at all. */
    readonly status: number,
  ) {
    super(message);
    this.name = "ApiError";
  }

  get unreachable(): boolean {
    return this.status === 0;
  }
}

type Query = Record<string, string | number | null | undefined>;

/** A part of the trace; all of it for `null`, without ends, as on the command line without `--since`. */
export type Span = TraceRange | null;

const span = (range: Span): Query =>
  range === null ? {} : { from: Math.floor(range.from), to: Math.ceil(range.to) };

function address(path: string, query: Query): string {
  const words = Object.entries(query).flatMap(([key, value]) =>
    value === null || value === undefined
      ? []
      : [`${key}=${encodeURIComponent(value).replaceAll("%2C", ",")}`],
  );
  return `api/${path}${words.length > 0 ? "?" : ""}${words.join("&")}`;
}

async function ask(path: string, query: Query, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address(path, query), signal ? { signal } : {});
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("the server does not answer", "run `swtch view` again", 0);
  }
  if (!response.ok) {
    throw await refusalOf(response);
  }
  return response;
}

async function refusalOf(response: Response): Promise<ApiError> {
  try {
    const { error, advice } = types.refusal(await response.json(), "");
    return new ApiError(error, advice, response.status);
  } catch {
    return new ApiError(`the server refused (${response.status})`, null, response.status);
  }
}

async function json<T>(
  decode: Decoder<T>,
  path: string,
  query: Query = {},
  signal?: AbortSignal,
): Promise<T> {
  const response = await ask(path, query, signal);
  const body: unknown = await response.json().catch((error: unknown) => {
    if (error instanceof DOMException) throw error;
    throw new DecodeError(path, "JSON", null);
  });
  return decode(body, "");
}

export const trace = (signal?: AbortSignal): Promise<types.TraceInfo> =>
  json(types.traceInfo, "trace", {}, signal);

export const threads = (): Promise<types.ThreadColumns> => json(types.threadColumns, "threads");

/** `lanes`: `t12`, `u12`, `c0`. */
export async function lanes(
  range: TraceRange,
  px: number,
  names: readonly string[],
  signal?: AbortSignal,
): Promise<{ answer: LanesAnswer; bytes: number }> {
  const response = await ask("lanes", { ...span(range), px, lanes: names.join(",") }, signal);
  const buffer = await response.arrayBuffer();
  return { answer: decodeLanes(buffer), bytes: buffer.byteLength };
}

export const detail = (
  row: number,
  level: types.Level,
  signal?: AbortSignal,
): Promise<types.Detail> =>
  json(types.detail, "detail", { row, level: level === "user" ? level : null }, signal);

export const chain = (row: number, signal?: AbortSignal): Promise<types.Chain> =>
  json(types.chain, "chain", { row }, signal);

export const critical = (
  task: number,
  range: TraceRange,
  signal?: AbortSignal,
): Promise<types.Critical> => json(types.critical, "critical", { task, ...span(range) }, signal);

/** How much of a span a thread ran, waited for a CPU, and was blocked. */
export const states = (task: number, range: Span, signal?: AbortSignal): Promise<types.States> =>
  json(types.states, "states", { task, ...span(range) }, signal);

export const rate = (range: Span, bins: number, signal?: AbortSignal): Promise<types.Rate> =>
  json(types.rate, "rate", { ...span(range), bins }, signal);

export const distribution = (
  range: Span,
  of: "ran" | "off" | "blocked" | "runq",
  reason: string | null,
  signal?: AbortSignal,
): Promise<types.Distribution> =>
  json(types.distribution, "distribution", { ...span(range), of, reason }, signal);

/** What `swtch report --by …` prints for this range. */
export const report = (
  by: string,
  range: Span,
  filter: { pid?: number; comm?: string; reason?: string; top?: number } = {},
  signal?: AbortSignal,
): Promise<types.Report> => json(types.report, "report", { by, ...span(range), ...filter }, signal);

/** One row of each table is enough: the panel shows the findings. */
export const explained = (range: Span, signal?: AbortSignal): Promise<types.Explained> =>
  json(types.explained, "explain", { ...span(range), top: 1 }, signal);

export const bill = (by: string, range: Span, signal?: AbortSignal): Promise<types.Bill> =>
  json(types.bill, "bill", { by, ...span(range) }, signal);

export const flame = (
  range: Span,
  filter: { reason?: string; pid?: number } = {},
  signal?: AbortSignal,
): Promise<types.Flame> => json(types.flame, "flame", { ...span(range), ...filter }, signal);

export const locks = (range: Span, top: number, signal?: AbortSignal): Promise<types.Locks> =>
  json(types.locks, "locks", { ...span(range), top }, signal);

export const search = (words: string, signal?: AbortSignal): Promise<types.Found> =>
  json(types.found, "search", { q: words }, signal);
