// Switches per second over time, by reason, stacked. A drag over it, or Shift and the arrows, chooses a
// part of the time; letting go, or Enter, zooms there.
import { useMemo, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { Rate } from "../../api/types";
import { grouped, lengthOf, momentAt } from "../../lib/format";
import { rangeOf, spanOf, type TraceRange } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { hiddenReasons } from "../../state/filter";
import { themeChanges } from "../../state/theme";
import { reasons } from "../../state/trace";
import { isWhole, setView, showWhole } from "../../state/view";
import { Answered, RangeLine } from "../answered";
import { reasonColours } from "../colours";
import { Spot } from "../names";
import { useRangeAnswer } from "../use-answer";
import { StackCanvas } from "./stack-canvas";
import { perSecond, rateText, stackOf, type Stack } from "./stack";
import { useBrush } from "./use-brush";

/** Bars of the chart: on a usual screen four pixels each, which an eye can still tell apart. */
const BINS = 300;

export function RatePanel() {
  const answer = useRangeAnswer("rate", (range, signal) => api.rate(range, BINS, signal));
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

function RateChart({ rate, range }: { readonly rate: Rate; readonly range: TraceRange }) {
  const known = useAtom(reasons);
  const hidden = useAtom(hiddenReasons);
  const stack = useMemo(() => stackOf(rate, known, (id) => !hidden.has(id)), [rate, known, hidden]);
  const [bin, setBin] = useState<number | null>(null);
  const momentOf = (share: number): number => range.from + share * spanOf(range);
  const brush = useBrush({
    steps: stack.bins,
    onHover: setBin,
    onBrushed: (from, to) => setView(rangeOf(momentOf(from), momentOf(to))),
  });
  return (
    <>
      <div
        class="rate-chart"
        role="slider"
        tabIndex={0}
        aria-label="Moment of the chart. Shift and arrows choose a part, Enter zooms there."
        aria-valuemin={0}
        aria-valuemax={Math.max(stack.bins - 1, 0)}
        aria-valuenow={bin ?? 0}
        aria-valuetext={bin === null ? "no bin chosen" : binWords(stack, range, bin)}
        {...brush.handlers}
      >
        <StackCanvas stack={stack} range={range} />
        {brush.chosen !== null && (
          <div
            class="brush"
            style={{
              left: `${brush.chosen[0] * 100}%`,
              width: `${(brush.chosen[1] - brush.chosen[0]) * 100}%`,
            }}
          />
        )}
        {bin !== null && stack.bins > 0 && (
          <div class="hairline" style={{ left: `${((bin + 0.5) / stack.bins) * 100}%` }} />
        )}
      </div>
      <BinNumbers stack={stack} range={range} bin={bin} />
    </>
  );
}

function binWords(stack: Stack, range: TraceRange, bin: number): string {
  const parts = stack.bands
    .filter((band) => (band.counts[bin] ?? 0) > 0)
    .map((band) => `${grouped(band.counts[bin] ?? 0)} ${band.reason.reason}`);
  return `${momentAt(range.from + bin * stack.binNs, stack.binNs)}: ${parts.join(", ") || "no switches"}`;
}

/** The numbers of the bin under the pointer; of everything when there is none. */
function BinNumbers({
  stack,
  range,
  bin,
}: {
  readonly stack: Stack;
  readonly range: TraceRange;
  readonly bin: number | null;
}) {
  const known = useAtom(reasons);
  const changes = useAtom(themeChanges);
  const colours = useMemo(() => reasonColours(known), [known, changes]);
  const countOf = (counts: readonly number[]): number =>
    bin === null ? counts.reduce((sum, count) => sum + count, 0) : (counts[bin] ?? 0);
  const total = stack.bands.reduce((sum, band) => sum + countOf(band.counts), 0);
  const span = bin === null ? spanOf(range) : stack.binNs;
  const when =
    bin === null
      ? "all bars"
      : `${momentAt(range.from + bin * stack.binNs, stack.binNs)}, ${lengthOf(stack.binNs)}`;
  return (
    <p class="bin-numbers">
      <span class="bin-when">{when}</span>
      <span>
        <b>{rateText(perSecond(total, span))}</b> switches/s
      </span>
      {stack.bands
        .map((band) => ({ band, count: countOf(band.counts) }))
        .filter(({ count }) => count > 0)
        .sort((a, b) => b.count - a.count)
        .slice(0, 8)
        .map(({ band, count }) => (
          <span key={band.reason.id}>
            <Spot colour={colours.get(band.reason.id)} />
            {band.reason.reason} {grouped(count)}
          </span>
        ))}
    </p>
  );
}
