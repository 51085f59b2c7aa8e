// The panel at the side: the detail of what is selected.
import { useAtom } from "../lib/use-atom";
import { SidePanel } from "../panels";
import { sideOpen, sideWidth } from "../state/frame";
import { Splitter } from "./splitter";

export function Side() {
  const open = useAtom(sideOpen);
  const width = useAtom(sideWidth);
  if (!open) return null;
  return (
    <>
      <Splitter
        label="Width of the detail"
        direction="upright"
        size={width}
        least={200}
        most={Math.max(200, Math.round(innerWidth * 0.7))}
        onSize={(size) => sideWidth.set(size)}
      />
      <aside
        class="side-panel"
        aria-label="Detail"
        tabIndex={0}
        style={{ width: `min(${width}px, 70vw)` }}
      >
        <button
          type="button"
          class="button quiet icon-button side-close"
          aria-label="Close the detail"
          onClick={() => sideOpen.set(false)}
        >
          ×
        </button>
        <SidePanel />
      </aside>
    </>
  );
}
