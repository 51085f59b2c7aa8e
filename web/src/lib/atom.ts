// State is a few named atoms: a value that can be read, set and watched. What follows from others
// is derived: computed when it is read, and only when one of them has changed.
//
// There is no graph and no batching: a derived atom remembers the values it was computed from, and
// watchers are told in the order in which they came. Whoever draws waits for the next frame anyway.

export interface Readable<T> {
  get(): T;
  /** Calls `told` after each change; the answer ends that. */
  watch(told: () => void): () => void;
}

export interface Atom<T> extends Readable<T> {
  set(value: T): void;
  update(change: (value: T) => T): void;
}

export function atom<T>(first: T): Atom<T> {
  let value = first;
  const watchers = new Set<() => void>();
  const set = (next: T): void => {
    if (Object.is(next, value)) {
      return;
    }
    value = next;
    for (const told of [...watchers]) {
      told();
    }
  };
  return {
    get: () => value,
    set,
    update: (change) => set(change(value)),
    watch: (told) => {
      watchers.add(told);
      return () => watchers.delete(told);
    },
  };
}

type Values<Sources extends readonly Readable<unknown>[]> = {
  [Place in keyof Sources]: Sources[Place] extends Readable<infer T> ? T : never;
};

/** What follows from `sources`, computed again only when one of their values is another. */
export function derived<const Sources extends readonly Readable<unknown>[], T>(
  sources: Sources,
  compute: (...values: Values<Sources>) => T,
): Readable<T> {
  let of: readonly unknown[] | null = null;
  let value: T;
  return {
    get: () => {
      const now = sources.map((source) => source.get());
      const known = of;
      if (known === null || now.some((one, place) => !Object.is(one, known[place]))) {
        value = compute(...(now as Values<Sources>));
        of = now;
      }
      return value;
    },
    watch: (told) => {
      const ends = sources.map((source) => source.watch(told));
      return () => ends.forEach((end) => end());
    },
  };
}
