// Atoms in components: the component is drawn again when the atom changes.
import { useEffect, useState } from "preact/hooks";
import type { Readable } from "./atom";

export function useAtom<T>(source: Readable<T>): T {
  const [, redraw] = useState(0);
  const value = source.get();
  useEffect(() => {
    // Between the first drawing and this watch it may have changed already.
    if (!Object.is(source.get(), value)) {
      redraw((count) => count + 1);
    }
    return source.watch(() => redraw((count) => count + 1));
  }, [source]);
  return value;
}
