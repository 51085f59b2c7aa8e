// Keys that are held move the view smoothly: every frame a little, as long as they are down.
import { spanOf, traceNs } from "../lib/units";
import { panBy, viewRange, zoomAround } from "../state/view";

/** Parts of the width, and e-fold zooms, per second. */
const PAN_PER_S = 0.9;
const ZOOM_PER_S = 2.2;
/** Even the shortest press moves this long. */
const LEAST_S = 0.05;

export type Motion = "in" | "out" | "earlier" | "later";

export class HeldKeys {
  private readonly held = new Map<Motion, number>();
  private frame = 0;
  private last = 0;

  /** `fixedPart`: what part of the width stays in place while zooming. */
  constructor(private readonly fixedPart: () => number) {}

  press(motion: Motion): void {
    if (this.held.has(motion)) return;
    this.held.set(motion, performance.now());
    if (this.frame === 0) {
      this.last = performance.now();
      this.step(LEAST_S);
      this.next();
    }
  }

  release(motion: Motion): void {
    this.held.delete(motion);
  }

  releaseAll(): void {
    this.held.clear();
  }

  private next(): void {
    this.frame = requestAnimationFrame((now) => {
      this.frame = 0;
      if (this.held.size === 0) return;
      this.step(Math.min(0.1, Math.max(0, (now - this.last) / 1000)));
      this.last = now;
      this.next();
    });
  }

  private step(seconds: number): void {
    const range = viewRange.get();
    const zoom = (this.held.has("out") ? 1 : 0) - (this.held.has("in") ? 1 : 0);
    const pan = (this.held.has("later") ? 1 : 0) - (this.held.has("earlier") ? 1 : 0);
    if (zoom !== 0) {
      const fixed = traceNs(range.from + spanOf(range) * this.fixedPart());
      zoomAround(fixed, Math.exp(zoom * ZOOM_PER_S * seconds));
    }
    if (pan !== 0) panBy(pan * PAN_PER_S * seconds * spanOf(viewRange.get()));
  }
}
