// Choosing a part of a chart's width: by dragging, or by the keyboard in steps. Places are shares of
// the width, from 0 to 1; what they mean is the chart's business.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

export type Part = readonly [from: number, to: number];

export interface Brush {
  /** The part that is being chosen. */
  readonly chosen: Part | null;
  readonly handlers: Pick<
    JSX.HTMLAttributes<HTMLDivElement>,
    | "onPointerDown"
    | "onPointerMove"
    | "onPointerUp"
    | "onPointerLeave"
    | "onPointerCancel"
    | "onKeyDown"
    | "onBlur"
  >;
}

interface BrushSettings {
  /** Into how many steps arrows cut the width. */
  readonly steps: number;
  /** The step under the pointer or the keyboard's cursor. */
  readonly onHover: (step: number | null) => void;
  readonly onBrushed: (from: number, to: number) => void;
}

/** A shorter drag is a click: the hand trembles. */
const LEAST_SHARE = 0.004;

const sorted = (a: number, b: number): Part => (a < b ? [a, b] : [b, a]);

function shareAt(event: JSX.TargetedPointerEvent<HTMLDivElement>): number {
  const box = event.currentTarget.getBoundingClientRect();
  return Math.min(Math.max((event.clientX - box.left) / Math.max(box.width, 1), 0), 1);
}

export function useBrush({ steps, onHover, onBrushed }: BrushSettings): Brush {
  const [drag, setDrag] = useState<Part | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const [anchor, setAnchor] = useState<number | null>(null);
  const stepAt = (share: number): number => Math.min(Math.floor(share * steps), steps - 1);

  const end = (): void => {
    setDrag(null);
    setAnchor(null);
  };
  const keyed = anchor === null || cursor === null ? null : steppedPart(anchor, cursor, steps);
  return {
    chosen: drag === null ? keyed : sorted(...drag),
    handlers: {
      onPointerDown: (event) => {
        if (event.button !== 0) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        const share = shareAt(event);
        setAnchor(null);
        setDrag([share, share]);
      },
      onPointerMove: (event) => {
        const share = shareAt(event);
        onHover(stepAt(share));
        if (drag !== null) setDrag([drag[0], share]);
      },
      onPointerUp: () => {
        if (drag === null) return;
        const [from, to] = sorted(...drag);
        if (to - from >= LEAST_SHARE) onBrushed(from, to);
        end();
      },
      onPointerCancel: end,
      onPointerLeave: () => {
        if (drag === null) onHover(cursor);
      },
      onBlur: () => {
        setCursor(null);
        setAnchor(null);
        onHover(null);
      },
      onKeyDown: (event) => {
        const next = stepped(event.key, cursor, steps);
        if (next !== null) {
          setAnchor(event.shiftKey ? (anchor ?? cursor ?? next) : null);
          setCursor(next);
          onHover(next);
        } else if (event.key === "Enter" && keyed !== null) {
          onBrushed(...keyed);
          end();
        } else if (event.key === "Escape" && keyed !== null) {
          end();
        } else {
          return;
        }
        event.preventDefault();
        event.stopPropagation();
      },
    },
  };
}

/** The steps from one to the other, both of them whole. */
function steppedPart(one: number, other: number, steps: number): Part {
  return [Math.min(one, other) / steps, (Math.max(one, other) + 1) / steps];
}

/** Where a key moves the cursor to; `null` for keys that do not. */
function stepped(key: string, cursor: number | null, steps: number): number | null {
  if (steps === 0) return null;
  const last = steps - 1;
  const at = cursor ?? Math.floor(last / 2);
  const jumps: Readonly<Record<string, number>> = {
    ArrowLeft: cursor === null ? at : at - 1,
    ArrowRight: cursor === null ? at : at + 1,
    PageUp: at - Math.ceil(steps / 10),
    PageDown: at + Math.ceil(steps / 10),
    Home: 0,
    End: last,
  };
  const target = jumps[key];
  return target === undefined ? null : Math.min(Math.max(target, 0), last);
}
