// The time line in the page: tools, minimap and ruler above, names beside, lanes below them. The canvas lies
// under a scroller that holds the names and is as high as all lanes together, so that scrolling, its bar
// and its keys are the browser's own.
import { useEffect, useRef } from "preact/hooks";
import { useAtom } from "../lib/use-atom";
import { lanes } from "../state/lanes";
import { wantedLane } from "../state/navigate";
import { threads, trace, wholeRange } from "../state/trace";
import { viewRange } from "../state/view";
import { attachKeys } from "../timeline/keyboard";
import { watchMinimap } from "../timeline/minimap";
import { watchSpans } from "../timeline/spans";
import { LanePointer } from "../timeline/pointer";
import { isOfCpus } from "../timeline/lanes";
import { attachMinimap, attachRuler } from "../timeline/strips";
import { type Elements, Timeline } from "../timeline/timeline";
import { Announcer } from "./announcer";
import { LaneLabels } from "./lane-labels";
import { TimelineTools } from "./timeline-tools";
import { Tooltip } from "./tooltip";

export function TimelineArea() {
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const ruler = useRef<HTMLCanvasElement>(null);
  const minimap = useRef<HTMLCanvasElement>(null);

  useEffect(() => {
    const elements = allThere({
      scroller: scroller.current,
      canvas: canvas.current,
      ruler: ruler.current,
      minimap: minimap.current,
    });
    if (elements === null) return undefined;
    const timeline = new Timeline(elements);
    const pointer = new LanePointer(timeline, elements.scroller, elements.canvas);
    const cleanups = [
      () => timeline.end(),
      () => pointer.end(),
      attachRuler(timeline, elements.ruler),
      attachMinimap(timeline, elements.minimap),
      attachKeys(timeline, elements.scroller),
      watchMinimap(),
      watchSpans(),
      scrollToWanted(timeline),
    ];
    return () => cleanups.forEach((cleanUp) => cleanUp());
  }, []);

  return (
    <section class="timeline" aria-label="Time line">
      <TimelineTools />
      <div class="timeline-head">
        <div class="minimap">
          <canvas ref={minimap} aria-hidden="true" />
          <MinimapWindow />
        </div>
        <canvas class="ruler" ref={ruler} aria-hidden="true" />
      </div>
      <div class="timeline-body">
        <canvas class="lanes" ref={canvas} aria-hidden="true" />
        <div
          class="lane-scroller"
          ref={scroller}
          tabIndex={0}
          role="application"
          aria-label="Lanes of CPUs and threads"
          aria-describedby="lanes-help"
          data-lanes
        >
          <LaneLabels scroller={scroller} />
        </div>
        <NoLanes />
      </div>
      <p class="hidden-but-read" id="lanes-help">
        Up and down go from lane to lane, left and right from piece to piece, Enter opens the
        detail, w and s zoom, a and d move, question mark shows all keys.
      </p>
      <Announcer />
      <Tooltip />
    </section>
  );
}

/** The elements; null if one of them is not on the page. */
function allThere(found: { [Name in keyof Elements]: Elements[Name] | null }): Elements | null {
  const { scroller, canvas, ruler, minimap } = found;
  if (scroller === null || canvas === null || ruler === null || minimap === null) return null;
  return { scroller, canvas, ruler, minimap };
}

/**
 * Scrolls to the lane that a panel wants seen, as soon as there is such a lane. Returns a function that
 * ends this.
 */
function scrollToWanted(timeline: Timeline): () => void {
  const scrollIfPossible = (): void => {
    const wish = wantedLane.get();
    if (wish === null) return;
    const all = lanes.get();
    const row = all.rows[all.placeOf.get(wish.lane) ?? -1];
    if (row !== undefined) {
      wantedLane.set(null);
      // After the names have their new height, or there is nothing to scroll yet.
      requestAnimationFrame(() => timeline.scrollTo(row));
    }
  };
  const cleanups = [wantedLane.watch(scrollIfPossible), lanes.watch(scrollIfPossible)];
  return () => cleanups.forEach((cleanUp) => cleanUp());
}

/** The part of the minimap that the view shows, with what lies before and after it in shade. */
function MinimapWindow() {
  const view = useAtom(viewRange);
  const whole = useAtom(wholeRange);
  const part = (moment: number): number => Math.min(Math.max(moment / whole.to, 0), 1) * 100;
  const left = part(view.from);
  const right = part(view.to);
  return (
    <>
      <div class="minimap-shade" style={{ left: "0", width: `${left}%` }} />
      <div class="minimap-shade" style={{ left: `${right}%`, right: "0" }} />
      <div class="minimap-window" style={{ left: `${left}%`, width: `${right - left}%` }} />
    </>
  );
}

/** Why there is no lane of a thread; nothing where there is one. */
function NoLanes() {
  const { rows } = useAtom(lanes);
  const known = useAtom(trace);
  const threadCount = useAtom(threads)?.task.length ?? 0;
  if (!rows.every(isOfCpus)) return null;
  const words =
    threadCount > 0
      ? "No thread matches what is looked for."
      : known?.state === "recording"
        ? "No switch has been recorded yet."
        : "There is no switch in this trace.";
  return <p class="no-lanes">{words}</p>;
}
