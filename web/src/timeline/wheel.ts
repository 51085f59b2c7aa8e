// What a turn of the wheel does. Over the lanes it scrolls them, as everywhere; with Ctrl (which is what a
// trackpad's pinch arrives as) it zooms at the pointer, with Shift or sideways it pans: the same as in
// Perfetto. Over the ruler and the minimap, and where all lanes fit, there is nothing to scroll and it
// zooms.

export type Turn =
  | { readonly kind: "zoom"; readonly factor: number }
  | { readonly kind: "pan"; readonly px: number }
  | { readonly kind: "scroll" };

const LINE_PX = 20;
const PAGE_PX = 400;
/** Turns below this are a trackpad's: many and small. */
const FINE_PX = 30;

export function turnOf(
  event: Pick<WheelEvent, "deltaX" | "deltaY" | "deltaMode" | "ctrlKey" | "metaKey" | "shiftKey">,
  canScroll: boolean,
): Turn {
  const unit = event.deltaMode === 1 ? LINE_PX : event.deltaMode === 2 ? PAGE_PX : 1;
  const across = event.deltaX * unit;
  const down = event.deltaY * unit;
  if (event.ctrlKey || event.metaKey) return { kind: "zoom", factor: factorOf(down) };
  if (event.shiftKey) return { kind: "pan", px: across !== 0 ? across : down };
  if (Math.abs(across) > Math.abs(down)) return { kind: "pan", px: across };
  return canScroll ? { kind: "scroll" } : { kind: "zoom", factor: factorOf(down) };
}

function factorOf(px: number): number {
  const speed = Math.abs(px) < FINE_PX ? 0.01 : 0.003;
  return Math.exp(Math.min(Math.max(px, -160), 160) * speed);
}
