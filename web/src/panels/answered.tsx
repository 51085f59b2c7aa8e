// The parts of a panel that asks the server: a line with the range that its numbers are about, and the
// answer. An old answer stays until the newer one is there; a refusal says why and what to do about it.
import type { ComponentChildren } from "preact";
import { escaped } from "../lib/escape";
import { lengthOf, momentAt } from "../lib/format";
import { spanOf } from "../lib/units";
import type { RangeInQuestion } from "../state/selection";
import type { Answer, OfRange, Refusal } from "./use-answer";

/** Shows the answer. Where there is none, it shows that the trace is being read, or the refusal. */
export function Answered<T>({
  answer,
  children,
}: {
  readonly answer: Answer<T>;
  readonly children: (value: T) => ComponentChildren;
}) {
  const { value, loading, refusal, retry } = answer;
  return (
    <>
      {refusal !== null && !loading && <Refused refusal={refusal} retry={retry} />}
      {value === null && loading && (
        <p class="muted" aria-busy="true">
          Reading the trace …
        </p>
      )}
      {value !== null && (refusal === null || loading) && (
        <div class={loading ? "answer is-old" : "answer"} aria-busy={loading}>
          {children(value)}
        </div>
      )}
    </>
  );
}

function Refused({ refusal, retry }: { readonly refusal: Refusal; readonly retry: () => void }) {
  return (
    <div class="refused" role="alert">
      <p>{escaped(refusal.message)}</p>
      {refusal.advice !== null && <p class="advice">{inCode(refusal.advice)}</p>}
      <button type="button" class="button" onClick={retry}>
        Ask again
      </button>
    </div>
  );
}

/** Shows words between backticks as code, because the server marks commands in that way. */
export function inCode(text: string): ComponentChildren {
  return (
    escaped(text)
      .split("`")
      // Every second part was between backticks.
      .map((part, place) => (place % 2 === 1 ? <code key={place}>{part}</code> : part))
  );
}

/** Shows which part of the trace the numbers below are about. */
export function RangeLine({
  answer,
  children,
}: {
  readonly answer: Answer<OfRange<unknown>>;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="range-line">
      <span class="range-words">{answer.value !== null && rangeWords(answer.value.about)}</span>
      {children}
      <span class="busy" role="status">
        {answer.loading ? "reading …" : ""}
      </span>
    </div>
  );
}

/** Names a range, for example `visible range: 1.20 s – 1.50 s, 300 ms`. */
export function rangeWords({ range, which }: RangeInQuestion): string {
  const span = spanOf(range);
  if (which === "whole trace") return `whole trace: ${lengthOf(span)}`;
  const moment = (ns: number): string => momentAt(ns, span / 100);
  return `${which}: ${moment(range.from)} – ${moment(range.to)}, ${lengthOf(span)}`;
}
