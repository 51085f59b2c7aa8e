// Switches per second over time, by reason, stacked, in line with the lanes above: what is visible there,
// at the same places. A drag over it, or Shift and the arrows, chooses a part of the time; letting go,
// or Enter, zooms there.
import { useMemo, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Rate } from "../../api/types";
import { toMoment, toPx, type TimeScale } from "../../lib/scale";
import { cssPx, rangeOf, type TraceRange } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { hiddenReasons } from "../../state/filter";
import { lanesArea } from "../../state/frame";
import { selectedRange, visibleRange } from "../../state/selection";
import { reasons } from "../../state/trace";
import { isWhole, setView, showWhole, viewRange } from "../../state/view";
import { Answered, RangeLine } from "../answered";
import { useRangeAnswer } from "../use-answer";
import { BinNumbers, binWords } from "./bin-numbers";
import { StackCanvas } from "./stack-canvas";
import { binAt, stackOf } from "./stack";
import { useBrush } from "./use-brush";

/** Bars of the chart: on a usual screen four pixels each, which an eye can still tell apart. */
const BINS = 300;

export function RatePanel() {
  const ask = (range: api.Span, signal: AbortSignal): Promise<Rate> =>
    api.rate(range, BINS, signal);
  const answer = useRangeAnswer("rate", ask, visibleRange);
  const whole = useAtom(isWhole);
  return (
    <section class="panel rate-panel" aria-label="Switches per second by reason">
      <RangeLine answer={answer}>
        <button type="button" class="button" disabled={whole} onClick={showWhole}>
          Whole trace
        </button>
      </RangeLine>
      <Answered answer={answer}>
        {({ value, about }) => <RateChart rate={value} range={about.range} />}
      </Answered>
    </section>
  );
}

/** `range`: what the rate is of; it lags behind the view. */
function RateChart({ rate, range }: { readonly rate: Rate; readonly range: TraceRange }) {
  const known = useAtom(reasons);
  const hidden = useAtom(hiddenReasons);
  const area = useAtom(lanesArea);
  const selected = useAtom(selectedRange);
  const view = useAtom(viewRange);
  const scale: TimeScale = { range: view, width: cssPx(area.width) };
  const stack = useMemo(
    () => stackOf(rate, range, known, (id) => !hidden.has(id)),
    [rate, range, known, hidden],
  );
  const [step, setStep] = useState<number | null>(null);
  const momentAt = (share: number): number => toMoment(scale, cssPx(share * area.width));
  const bin = step === null ? null : binAt(stack, momentAt((step + 0.5) / BINS));
  const brush = useBrush({
    steps: BINS,
    onHover: setStep,
    onBrushed: (from, to) => setView(rangeOf(momentAt(from), momentAt(to))),
  });
  return (
    <>
      <div class="rate-plot">
        <StackCanvas stack={stack} scale={scale} left={area.left} />
        <div
          class="rate-chart"
          role="slider"
          tabIndex={0}
          aria-label="Moment of the chart. Shift and arrows choose a part, Enter zooms there."
          aria-valuemin={0}
          aria-valuemax={BINS - 1}
          aria-valuenow={step ?? 0}
          aria-valuetext={bin === null ? "no bin chosen" : binWords(stack, bin)}
          style={{ left: `${area.left}px`, width: `${area.width}px` }}
          {...brush.handlers}
        >
          {selected !== null && <Veil class="selected-part" part={partOf(scale, selected)} />}
          {brush.chosen !== null && <Veil class="brush" part={brush.chosen} />}
          {step !== null && (
            <div class="hairline" style={{ left: `${((step + 0.5) / BINS) * 100}%` }} />
          )}
        </div>
      </div>
      <BinNumbers stack={stack} bin={bin} selected={selected} />
    </>
  );
}

type Part = readonly [from: number, to: number];

/** Where a range lies, in shares of the width; cut to it. */
function partOf(scale: TimeScale, range: TraceRange): Part {
  const share = (moment: TraceRange["from"]): number =>
    Math.min(Math.max(toPx(scale, moment) / Math.max(scale.width, 1), 0), 1);
  return [share(range.from), share(range.to)];
}

function Veil({ part: [from, to], ...more }: { readonly class: string; readonly part: Part }) {
  if (from === to) return null;
  return <div {...more} style={{ left: `${from * 100}%`, width: `${(to - from) * 100}%` }} />;
}
