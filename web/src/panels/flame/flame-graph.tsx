// The flame graph on the screen: a click or Enter zooms into a frame, arrows walk, Escape goes back.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { escaped } from "../../lib/escape";
import { counted, lengthOf } from "../../lib/format";
import { useAtom } from "../../lib/use-atom";
import { themeChanges } from "../../state/theme";
import { sharpened, useSize } from "../use-size";
import { drawFlame, ROW_HEIGHT, viewOf } from "./draw";
import { boxAt, boxesOf, found, heightOf, neighbour, pathOf, sameBox } from "./layout";
import type { Box, FlameNode } from "./layout";

interface Props {
  readonly root: FlameNode;
  /** Frames with these words in their name stand out. */
  readonly words: string;
}

export function FlameGraph({ root, words }: Props) {
  const all = useMemo(() => boxesOf(root), [root]);
  const [zoomedInto, setZoomed] = useState<Box | null>(null);
  const [walkedTo, setWalked] = useState<Box | null>(null);
  const [pointed, setPointed] = useState<Box | null>(null);
  // Another range has another tree: the zoom stays where its frames are still found.
  const zoomed = useMemo(() => sameBox(all, zoomedInto), [all, zoomedInto]);
  const cursor = useMemo(
    () => (walkedTo === null ? null : sameBox(all, walkedTo)),
    [all, walkedTo],
  );
  const hits = useMemo(() => found(all, words), [all, words]);
  const [frame, size] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const changes = useAtom(themeChanges);
  const rows = zoomed.depth + heightOf(zoomed);
  const height = rows * ROW_HEIGHT;

  useEffect(() => {
    const context =
      canvas.current === null ? null : sharpened(canvas.current, { width: size.width, height });
    if (context !== null && size.width > 0) {
      drawFlame(context, size.width, {
        zoomed,
        pointed,
        cursor,
        found: hits.boxes,
        searched: words.trim() !== "",
      });
    }
  }, [zoomed, pointed, cursor, hits, words, size, height, changes]);

  const boxUnder = (event: JSX.TargetedPointerEvent<HTMLDivElement>): Box | null => {
    const place = event.currentTarget.getBoundingClientRect();
    const depth = Math.floor((event.clientY - place.top) / ROW_HEIGHT);
    const { start, width } = viewOf(zoomed);
    const share = (event.clientX - place.left) / Math.max(place.width, 1);
    // Rows above the zoomed frame are its callers, drawn over the whole width.
    if (depth < zoomed.depth) return pathOf(zoomed)[depth] ?? null;
    return boxAt(all, start + share * width, depth);
  };
  const zoomTo = (box: Box): void => {
    setZoomed(box);
    setWalked(box);
  };
  const keyed = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>): void => {
    const at = cursor ?? zoomed;
    if (event.key.startsWith("Arrow"))
      setWalked(walkedTo === null ? zoomed : neighbour(at, event.key));
    else if (event.key === "Enter") zoomTo(at);
    else if ((event.key === "Escape" || event.key === "Backspace") && zoomed.parent !== null) {
      zoomTo(zoomed.parent);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const told = pointed ?? cursor ?? zoomed;
  return (
    <div class="flame">
      <p class="flame-told" role="status">
        <FrameWords box={told} all={all} />
        {words.trim() !== "" && (
          <span class="flame-found">
            found in {lengthOf(hits.ns)}, {shareWords(hits.ns, all.node.ns)}
          </span>
        )}
        {zoomed.parent !== null && (
          <button type="button" class="button" onClick={() => zoomTo(all)}>
            Show all
          </button>
        )}
      </p>
      <div
        class="flame-graph"
        ref={frame}
        role="application"
        tabIndex={0}
        aria-label="Flame graph. Arrows walk through the frames, Enter zooms in, Escape goes back."
        style={{ height: `${height}px` }}
        onKeyDown={keyed}
        onPointerMove={(event) => setPointed(boxUnder(event))}
        onPointerLeave={() => setPointed(null)}
        onPointerUp={(event) => {
          const box = boxUnder(event);
          if (box !== null) zoomTo(box);
        }}
      >
        <canvas ref={canvas} aria-hidden="true" />
      </div>
    </div>
  );
}

const shareWords = (part: number, whole: number): string =>
  `${((part * 100) / Math.max(whole, 1)).toFixed(1)} %`;

function FrameWords({ box, all }: { readonly box: Box; readonly all: Box }) {
  const { name, module, kind, ns, waits } = box.node;
  const origin = module === null ? "" : ` [${escaped(module)}]`;
  return (
    <span>
      <b>{escaped(name)}</b>
      {origin}
      {kind === "kernel" && " in the kernel"}: blocked {lengthOf(ns)}, {shareWords(ns, all.node.ns)}
      ; seen in {counted(waits, "wait")}
    </span>
  );
}
