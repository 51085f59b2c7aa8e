// A question to the server whose answer a panel shows: asked again when the question changes, and
// until the new answer is there the old one stays, marked as old. So numbers never flicker while a
// person pans, and a slow server leaves something to read.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, type Span } from "../api/client";
import type { Readable } from "../lib/atom";
import { useAtom } from "../lib/use-atom";
import { firstPicture } from "../state/first-picture";
import { rangeInQuestion, type RangeInQuestion } from "../state/selection";
import { noteAnswer, trace } from "../state/trace";

/** Why there is no answer, in words, and what to do about it. */
export interface Refusal {
  readonly message: string;
  readonly advice: string | null;
}

export interface Answer<T> {
  /** The last answer; of an earlier question while `loading`. */
  readonly value: T | null;
  readonly loading: boolean;
  readonly refusal: Refusal | null;
  /** Asks the same again. */
  readonly retry: () => void;
}

/** While a person pans, the question changes with each frame; only the one they stay at is asked. */
const PATIENCE_MS = 120;

/** An error as a person reads it. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof ApiError) return { message: error.message, advice: error.advice };
  return { message: error instanceof Error ? error.message : String(error), advice: null };
}

/** The answer to the question that `question` names; with `null` nothing is asked, and nothing shown. */
export function useAnswer<T>(
  question: string | null,
  ask: (signal: AbortSignal) => Promise<T>,
): Answer<T> {
  const [value, setValue] = useState<T | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [answered, setAnswered] = useState<string | null>(null);
  const [round, setRound] = useState(0);
  // The latest closure belongs to the latest question; the effect must not depend on its identity.
  const asking = useRef(ask);
  asking.current = ask;

  useEffect(() => {
    if (question === null) {
      setValue(null);
      setRefusal(null);
      setAnswered(null);
      return;
    }
    const abort = new AbortController();
    const finish = (tell: () => void): void => {
      if (abort.signal.aborted) return;
      tell();
      setAnswered(`${round} ${question}`);
    };
    const begin = async (): Promise<void> => {
      await firstPicture;
      if (abort.signal.aborted) return;
      asking.current(abort.signal).then(
        (got) =>
          finish(() => {
            setValue(() => got);
            setRefusal(null);
          }),
        (error: unknown) => {
          noteAnswer(error);
          finish(() => setRefusal(refusalOf(error)));
        },
      );
    };
    const timer = setTimeout(() => void begin(), answered === null ? 0 : PATIENCE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [question, round]);

  const retry = useCallback(() => setRound((count) => count + 1), []);
  const loading = question !== null && answered !== `${round} ${question}`;
  return { value: question === null ? null : value, loading, refusal, retry };
}

/** An answer and the range it is about: what is shown may lag behind what is asked. */
export interface OfRange<T> {
  readonly about: RangeInQuestion;
  readonly value: T;
}

/** The answer about the range in question, or another; asked again when that changes, or the trace has grown. */
export function useRangeAnswer<T>(
  subject: string,
  ask: (span: Span, signal: AbortSignal) => Promise<T>,
  range: Readable<RangeInQuestion> = rangeInQuestion,
): Answer<OfRange<T>> {
  const about = useAtom(range);
  const generation = useAtom(trace)?.generation;
  const { from, to } = about.range;
  const question =
    generation === undefined
      ? null
      : `${subject} ${Math.floor(from)} ${Math.ceil(to)} ${about.which} ${generation}`;
  return useAnswer(question, async (signal) => ({
    about,
    value: await ask(spanOfRange(about), signal),
  }));
}

/** What the server is asked for: without ends for the whole trace, as on the command line. */
export const spanOfRange = ({ range, which }: RangeInQuestion): Span =>
  which === "whole trace" ? null : range;
