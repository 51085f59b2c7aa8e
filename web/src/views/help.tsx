// Keys, and how to read the lanes.
import { useEffect, useRef } from "preact/hooks";
import { useAtom } from "../lib/use-atom";
import { helpOpen } from "../state/frame";
import { LaneKey } from "./lane-key";

const KEYS: readonly (readonly [string, string])[] = [
  ["w s  or  + −", "zoom in, out"],
  ["a d", "earlier, later"],
  ["f", "fit the selection"],
  ["0  or  Home", "the whole trace"],
  ["← →", "piece by piece along a lane (without a piece: earlier, later)"],
  ["↑ ↓", "lane by lane"],
  ["Enter", "the detail of the piece"],
  ["Shift + ← →", "select a range"],
  ["Escape", "clear the selection"],
  ["/", "search"],
  ["?", "this page"],
];

const POINTER: readonly (readonly [string, string])[] = [
  ["wheel", "scroll lanes; on the ruler: zoom"],
  ["Ctrl + wheel, pinch", "zoom at the pointer"],
  ["Shift + wheel", "earlier, later"],
  ["drag", "move the view"],
  ["Shift + drag, drag on the ruler", "select a range and measure it"],
  ["double click", "fit the piece"],
  ["Shift + click in the legend", "only this category"],
];

export function Help() {
  const open = useAtom(helpOpen);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  return (
    <dialog
      class="dialog"
      ref={dialog}
      aria-labelledby="help-title"
      onClose={() => helpOpen.set(false)}
      onClick={({ target, currentTarget }) => {
        if (target === currentTarget) currentTarget.close();
      }}
    >
      {/* At the top: what has the focus when a dialog opens is scrolled to. */}
      <form method="dialog" class="dialog-close">
        <button class="button quiet icon-button" aria-label="Close">
          ×
        </button>
      </form>
      <h2 id="help-title">How to read and move</h2>
      <p>
        Every lane is the life of a thread, or of a CPU. Where many pieces fit into a pixel, each
        has the height of its share. A thin row over a lane says which worker a user-mode scheduler
        runs on that thread. Hover for details, also over empty space.
      </p>
      <LaneKey />
      <div class="help-columns">
        <section>
          <h3>Keys, after a click or Tab into the lanes</h3>
          <Keys rows={KEYS} />
        </section>
        <section>
          <h3>Pointer</h3>
          <Keys rows={POINTER} />
        </section>
      </div>
    </dialog>
  );
}

function Keys({ rows }: { readonly rows: readonly (readonly [string, string])[] }) {
  return (
    <dl class="keys">
      {rows.map(([keys, meaning]) => (
        <>
          <dt>
            <kbd>{keys}</kbd>
          </dt>
          <dd>{meaning}</dd>
        </>
      ))}
    </dl>
  );
}
