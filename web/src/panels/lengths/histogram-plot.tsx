// The histogram as a picture: bars, powers of ten below, percentiles as lines.
import { useMemo, useState } from "preact/hooks";
import type { Distribution } from "../../api/types";
import { counted, lengthOf } from "../../lib/format";
import { histogramOf, type BucketBar } from "./histogram";

/** Each bar reaches at least so far: one outlier among a million is what people look for. */
const LEAST_HEIGHT = 0.012;

const percent = (share: number): string => `${(share * 100).toFixed(3)}%`;

export function HistogramPlot({ distribution }: { readonly distribution: Distribution }) {
  const plot = useMemo(() => histogramOf(distribution), [distribution]);
  const [hovered, setHovered] = useState<BucketBar | null>(null);
  if (plot.bars.length === 0) return <p class="muted">Nothing of this kind in this range.</p>;
  const words = plot.percentiles.map(({ name, ns }) => `${name} ${lengthOf(ns)}`).join(", ");
  return (
    <figure class="histogram" onPointerLeave={() => setHovered(null)}>
      <div class="histogram-area" role="img" aria-label={`Histogram of lengths: ${words}`}>
        {plot.bars.map((bar) => (
          <div
            key={bar.from_ns}
            class="histogram-slot"
            style={{ left: percent(bar.x), width: percent(bar.width) }}
            onPointerEnter={() => setHovered(bar)}
          >
            <div
              class={bar === hovered ? "histogram-bar is-hovered" : "histogram-bar"}
              style={{ height: percent(Math.max(bar.height, LEAST_HEIGHT)) }}
            />
          </div>
        ))}
        {plot.percentiles.map(({ name, x }, place) => (
          <div key={name} class="percentile" style={{ left: percent(x) }}>
            <span style={{ top: `${place * 1.1}em` }}>{name}</span>
          </div>
        ))}
      </div>
      <div class="histogram-axis" aria-hidden="true">
        {plot.ticks.map(({ x, ns }) => (
          <span key={ns} style={{ left: percent(x) }}>
            {shortOf(ns)}
          </span>
        ))}
      </div>
      <figcaption>
        {hovered === null
          ? `most in one bucket: ${counted(plot.most, "time")}`
          : `${lengthOf(hovered.from_ns)} – ${lengthOf(hovered.to_ns)}: ${counted(hovered.count, "time")}`}
      </figcaption>
    </figure>
  );
}

/** A power of ten without the digits that a measured length has: `10 µs`. */
function shortOf(ns: number): string {
  const units = ["ns", "µs", "ms", "s"];
  const power = Math.min(Math.floor(Math.log10(ns) / 3 + 1e-9), units.length - 1);
  return `${Math.round(ns / 1000 ** power)} ${units[power] ?? "s"}`;
}
