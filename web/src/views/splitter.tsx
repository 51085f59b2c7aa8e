// A line between two areas that can be moved, by pointer and by key.
import { useRef } from "preact/hooks";

interface Props {
  readonly label: string;
  readonly direction: "upright" | "level";
  readonly size: number;
  readonly least: number;
  readonly most: number;
  /** The size of the area after the line. */
  readonly onSize: (size: number) => void;
}

const STEP_PX = 24;

export function Splitter({ label, direction, size, least, most, onSize }: Props) {
  const grip = useRef<{ at: number; size: number } | null>(null);
  const bounded = (next: number): number => Math.round(Math.min(Math.max(next, least), most));
  const place = (event: PointerEvent): number =>
    direction === "upright" ? event.clientX : event.clientY;
  const [larger, smaller] =
    direction === "upright" ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
  return (
    <div
      class={`splitter ${direction}`}
      role="separator"
      tabIndex={0}
      aria-label={label}
      aria-orientation={direction === "upright" ? "vertical" : "horizontal"}
      aria-valuenow={Math.round(size)}
      aria-valuemin={least}
      aria-valuemax={most}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        grip.current = { at: place(event), size };
      }}
      onPointerMove={(event) => {
        if (grip.current !== null) {
          onSize(bounded(grip.current.size + grip.current.at - place(event)));
        }
      }}
      onPointerUp={() => (grip.current = null)}
      onPointerCancel={() => (grip.current = null)}
      onKeyDown={(event) => {
        const by = event.key === larger ? STEP_PX : event.key === smaller ? -STEP_PX : 0;
        if (by !== 0) {
          event.preventDefault();
          onSize(bounded(size + by));
        }
      }}
    />
  );
}
