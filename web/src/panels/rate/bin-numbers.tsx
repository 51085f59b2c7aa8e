// The numbers below the chart of rates: of the bar under the pointer, else of the selected range, else
// of all bars.
import { useMemo } from "preact/hooks";
import { grouped, lengthOf, momentAt } from "../../lib/format";
import { sameRange, spanOf, type TraceRange } from "../../lib/units";
import { useAtom } from "../../lib/use-atom";
import { visibleCounts } from "../../state/counts";
import { themeChanges } from "../../state/theme";
import { reasons } from "../../state/trace";
import { reasonColours } from "../colours";
import { Spot } from "../names";
import { perSecond, rateText, type Band, type Stack } from "./stack";

/** Reasons that are told; the rest is in the pile. */
const MOST = 8;

/** What the numbers are of, and how many switches each reason has. */
interface Numbers {
  readonly when: string;
  readonly span: number;
  /** null while they are on their way. */
  readonly countOf: ((band: Band) => number) | null;
}

const binMoment = ({ range, binNs }: Stack, bin: number): string =>
  momentAt(range.from + bin * binNs, binNs);

export function binWords(stack: Stack, bin: number): string {
  const parts = stack.bands
    .filter((band) => (band.counts[bin] ?? 0) > 0)
    .map((band) => `${grouped(band.counts[bin] ?? 0)} ${band.reason.reason}`);
  return `${binMoment(stack, bin)}: ${parts.join(", ") || "no switches"}`;
}

interface Props {
  readonly stack: Stack;
  readonly bin: number | null;
  readonly selected: TraceRange | null;
}

export function BinNumbers({ stack, bin, selected }: Props) {
  const known = useAtom(reasons);
  const changes = useAtom(themeChanges);
  const colours = useMemo(() => reasonColours(known), [known, changes]);
  const { when, span, countOf } = useNumbers({ stack, bin, selected });
  const counts = stack.bands.map((band) => ({ band, count: countOf?.(band) ?? 0 }));
  const total = counts.reduce((sum, { count }) => sum + count, 0);
  return (
    <p class="bin-numbers">
      <span class="bin-when">{when}</span>
      {countOf === null ? (
        <span class="muted">counting …</span>
      ) : (
        <span>
          <b>{rateText(perSecond(total, span))}</b> switches/s
        </span>
      )}
      {counts
        .filter(({ count }) => count > 0)
        .sort((a, b) => b.count - a.count)
        .slice(0, MOST)
        .map(({ band, count }) => (
          <span key={band.reason.id}>
            <Spot colour={colours.get(band.reason.id)} />
            {band.reason.reason} {grouped(count)}
          </span>
        ))}
    </p>
  );
}

function useNumbers({ stack, bin, selected }: Props): Numbers {
  const visible = useAtom(visibleCounts);
  if (bin !== null) {
    return {
      when: `${binMoment(stack, bin)}, ${lengthOf(stack.binNs)}`,
      span: stack.binNs,
      countOf: ({ counts }) => counts[bin] ?? 0,
    };
  }
  if (selected !== null) {
    const counts = sameRange(visible?.range ?? null, selected) ? visible?.byReason : undefined;
    return {
      when: `selected ${lengthOf(spanOf(selected))}`,
      span: spanOf(selected),
      countOf: counts === undefined ? null : ({ reason }) => counts.get(reason.id) ?? 0,
    };
  }
  return {
    when: "all bars",
    span: spanOf(stack.range),
    countOf: ({ counts }) => counts.reduce((sum, count) => sum + count, 0),
  };
}
