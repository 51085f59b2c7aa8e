// How large an element is on the screen, for those who draw into it.
import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The element's size in px of the style sheet; 0 until it is on the page. */
export function useSize<E extends HTMLElement>(): [RefObject<E>, Size] {
  const element = useRef<E>(null);
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const target = element.current;
    if (target === null) return;
    const measure = (): void =>
      setSize((known) => {
        const next = { width: target.clientWidth, height: target.clientHeight };
        return known.width === next.width && known.height === next.height ? known : next;
      });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}

/** A canvas of this size in the device's own pixels; whoever draws does so in those of the style sheet. */
export function sharpened(canvas: HTMLCanvasElement, size: Size): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(size.width * ratio));
  canvas.height = Math.max(1, Math.round(size.height * ratio));
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
