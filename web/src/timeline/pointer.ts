// Pointer, wheel and touch over the lanes.
//
//   drag, one finger          moves the view, and scrolls the lanes
//   Shift + drag              selects a range
//   two fingers               zoom where they are
//   click                     chooses; a double click fits
import { type TimeScale, nsPerPx, toMoment } from "../lib/scale";
import { cssPx, rangeOf } from "../lib/units";
import { clickedSpot, focusSpot, hover } from "../state/pointer";
import { selectedRange } from "../state/selection";
import { fitView, panBy, zoomAround } from "../state/view";
import { choose } from "./choose";
import { sameSpot } from "./spot";
import type { Timeline } from "./timeline";
import { turnOf } from "./wheel";

/** A press that moves less is a click. */
const CLICK_PX = 4;
/** Clicks closer than this are two of one. */
const TWO_CLICKS_MS = 350;

type Gesture =
  | { readonly kind: "pan"; lastX: number; lastY: number }
  | { readonly kind: "select"; readonly anchor: number }
  | { readonly kind: "pinch"; lastDistance: number; lastX: number };

export class LanePointer {
  private readonly pointers = new Map<number, PointerEvent>();
  private gesture: Gesture | null = null;
  private pressed: { readonly x: number; readonly y: number } | null = null;
  private readonly ends: (() => void)[] = [];
  private clickedAt = -Infinity;

  constructor(
    private readonly timeline: Timeline,
    private readonly scroller: HTMLElement,
    private readonly canvas: HTMLElement,
  ) {
    const listen = <Name extends keyof HTMLElementEventMap>(
      name: Name,
      told: (event: HTMLElementEventMap[Name]) => void,
    ): void => {
      scroller.addEventListener(name, told, { passive: false });
      this.ends.push(() => scroller.removeEventListener(name, told));
    };
    listen("wheel", (event) => this.wheel(event));
    listen("pointerdown", (event) => this.down(event));
    listen("pointermove", (event) => this.move(event));
    listen("pointerup", (event) => this.up(event, true));
    listen("pointercancel", (event) => this.up(event, false));
    listen("pointerleave", () => hover.set(null));
    listen("dblclick", (event) => this.fit(event));
    listen("scroll", () => hover.set(null));
  }

  end(): void {
    for (const end of this.ends) end();
  }

  private get scale(): TimeScale {
    return this.timeline.scale;
  }

  private placeOf(event: MouseEvent): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private wheel(event: WheelEvent): void {
    const canScroll = this.scroller.scrollHeight > this.scroller.clientHeight + 1;
    const turn = turnOf(event, canScroll);
    if (turn.kind === "scroll") return;
    event.preventDefault();
    if (turn.kind === "pan") panBy(turn.px * nsPerPx(this.scale));
    else zoomAround(toMoment(this.scale, cssPx(this.placeOf(event).x)), turn.factor);
  }

  private down(event: PointerEvent): void {
    const place = this.placeOf(event);
    // The names beside the lanes, and the scroll bar, are not ours.
    if (event.button !== 0 || place.x < 0 || place.x > this.scale.width) return;
    this.scroller.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event);
    hover.set(null);
    if (this.pointers.size === 2) {
      this.gesture = { kind: "pinch", ...this.pinch() };
      this.pressed = null;
    } else if (event.shiftKey) {
      this.pressed = place;
      this.gesture = { kind: "select", anchor: toMoment(this.scale, cssPx(place.x)) };
    } else {
      this.pressed = place;
      this.gesture = { kind: "pan", lastX: event.clientX, lastY: event.clientY };
    }
  }

  private move(event: PointerEvent): void {
    if (!this.pointers.has(event.pointerId)) {
      this.tell(event);
      return;
    }
    this.pointers.set(event.pointerId, event);
    const place = this.placeOf(event);
    const { pressed, gesture } = this;
    if (pressed !== null) {
      if (Math.hypot(place.x - pressed.x, place.y - pressed.y) < CLICK_PX) return;
      this.pressed = null;
    }
    if (gesture?.kind === "pan") {
      panBy((gesture.lastX - event.clientX) * nsPerPx(this.scale));
      this.scroller.scrollTop += gesture.lastY - event.clientY;
      gesture.lastX = event.clientX;
      gesture.lastY = event.clientY;
      this.scroller.classList.add("dragged");
    } else if (gesture?.kind === "select") {
      selectedRange.set(rangeOf(gesture.anchor, toMoment(this.scale, cssPx(place.x))));
    } else if (gesture?.kind === "pinch") {
      this.movePinch(gesture);
    }
  }

  private up(event: PointerEvent, isDone: boolean): void {
    const wasPressed = this.pressed;
    this.pointers.delete(event.pointerId);
    this.pressed = null;
    this.gesture = null;
    this.scroller.classList.remove("dragged");
    // After a pinch one finger stays: it goes on moving the view.
    const [left] = this.pointers.values();
    if (left !== undefined) {
      this.gesture = { kind: "pan", lastX: left.clientX, lastY: left.clientY };
    }
    if (wasPressed !== null && isDone) {
      const spot = this.timeline.spotAt(wasPressed.x, wasPressed.y);
      focusSpot.set(null);
      // The second click of two means what the first did, though the detail has moved the lanes since.
      if (spot === null || event.timeStamp - this.clickedAt < TWO_CLICKS_MS) return;
      this.clickedAt = event.timeStamp;
      clickedSpot.set(spot);
      choose(spot);
    }
  }

  private pinch(): { lastDistance: number; lastX: number } {
    const [a, b] = [...this.pointers.values()];
    if (a === undefined || b === undefined) return { lastDistance: 1, lastX: 0 };
    return {
      lastDistance: Math.max(16, Math.abs(a.clientX - b.clientX)),
      lastX: (a.clientX + b.clientX) / 2 - this.canvas.getBoundingClientRect().left,
    };
  }

  private movePinch(gesture: Extract<Gesture, { kind: "pinch" }>): void {
    const now = this.pinch();
    panBy((gesture.lastX - now.lastX) * nsPerPx(this.scale));
    const fixed = toMoment(this.scale, cssPx(now.lastX));
    zoomAround(fixed, gesture.lastDistance / now.lastDistance);
    gesture.lastDistance = now.lastDistance;
    gesture.lastX = now.lastX;
  }

  private tell(event: PointerEvent): void {
    const place = this.placeOf(event);
    if (event.pointerType === "touch" || place.x < 0 || place.x > this.scale.width) {
      hover.set(null);
      return;
    }
    const spot = this.timeline.spotAt(place.x, place.y);
    const known = hover.get();
    const same = spot !== null && sameSpot(known?.spot ?? null, spot);
    const shown = same && known !== null ? known.spot : spot;
    hover.set(shown === null ? null : { spot: shown, x: event.clientX, y: event.clientY });
  }

  private fit(event: MouseEvent): void {
    if (this.placeOf(event).x < 0) return;
    const spot = clickedSpot.get();
    if (spot?.kind === "piece") fitView(rangeOf(spot.piece.start, spot.piece.end));
    else if (spot?.kind === "shares") fitView(spot.range, 0.05);
  }
}
