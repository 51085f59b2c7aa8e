// An item of the legend: a switch, and a menu under it that says more.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface Props {
  /** The switch itself. */
  readonly toggle: ComponentChildren;
  /** What the menu is about; null for an item without one. */
  readonly menu: string | null;
  readonly open: boolean;
  readonly onOpen: (open: boolean) => void;
  /** What stands in the menu. */
  readonly children: ComponentChildren;
}

export function LegendItem({ toggle, menu, open, onOpen, children }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!open) return undefined;
    // The legend scrolls, so its menus lie outside of it, by place.
    const under = box.current?.getBoundingClientRect();
    if (list.current !== null && under !== undefined) {
      const room = innerWidth - list.current.offsetWidth - 8;
      list.current.style.left = `${Math.max(8, Math.min(under.left, room))}px`;
      list.current.style.top = `${under.bottom + 2}px`;
    }
    const outside = (event: Event): void => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) onOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
    };
  }, [open]);

  return (
    <div
      class="legend-item"
      ref={box}
      onKeyDown={(event) => {
        if (event.key === "Escape" && open) {
          event.stopPropagation();
          onOpen(false);
          box.current?.querySelector<HTMLElement>(".legend-more")?.focus();
        }
      }}
    >
      {toggle}
      {menu !== null && (
        <button
          type="button"
          class="legend-more"
          aria-label={menu}
          aria-expanded={open}
          onClick={() => onOpen(!open)}
        >
          ▾
        </button>
      )}
      {open && menu !== null && (
        <div class="legend-menu" ref={list} role="group" aria-label={menu}>
          {children}
        </div>
      )}
    </div>
  );
}
