// Asks for the lanes that are on the screen and cannot be drawn well yet. At most one request is under
// way; when it has come, what is wanted then is asked for. A server that does not answer is asked again
// only when the page knows that it is back.
import * as api from "../api/client";
import type { TimeScale } from "../lib/scale";
import type { TraceRange } from "../lib/units";
import { connection, noteAnswer } from "../state/trace";
import { type Answers, wantedFor } from "./answers";

/** Lanes that one request may name: an address has its limits, and an answer should come soon. */
const MOST_LANES = 150;
/** After a refusal, not at once again. */
const PAUSE_MS = 3_000;

export class Requests {
  /** Whether lanes are on their way. */
  underWay = false;
  private pausedUntil = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly answers: Answers,
    /** Something came, or may be asked for again: draw, and ask again if needed. */
    private readonly arrived: () => void,
  ) {}

  /** `names`: lanes in order of importance. */
  ask(names: readonly string[], scale: TimeScale, whole: TraceRange): void {
    if (this.underWay || connection.get().kind === "gone" || performance.now() < this.pausedUntil) {
      return;
    }
    const missing = names.filter((name) => !this.answers.suffices(name, scale, whole));
    if (missing.length > 0) {
      this.underWay = true;
      void this.fetch(missing.slice(0, MOST_LANES), scale, whole);
    }
  }

  private async fetch(
    names: readonly string[],
    scale: TimeScale,
    whole: TraceRange,
  ): Promise<void> {
    const { range, px } = wantedFor(scale, whole);
    try {
      const { answer, bytes } = await api.lanes(range, px, names);
      this.answers.take(names, answer, bytes);
    } catch (error) {
      noteAnswer(error);
      this.pausedUntil = performance.now() + PAUSE_MS;
      clearTimeout(this.timer);
      this.timer = setTimeout(this.arrived, PAUSE_MS + 50);
    } finally {
      this.underWay = false;
      this.arrived();
    }
  }

  end(): void {
    clearTimeout(this.timer);
    this.pausedUntil = Infinity;
  }
}
