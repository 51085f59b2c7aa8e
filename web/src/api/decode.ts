// What arrives is checked once, here: a decoder takes anything and gives a value of its type, or
// says where it is not one. Beyond this folder nothing is `unknown`.

export type Decoder<T> = (value: unknown, at: string) => T;

export class DecodeError extends Error {
  constructor(at: string, wanted: string, got: unknown) {
    const kind = got === null ? "null" : Array.isArray(got) ? "array" : typeof got;
    super(`the server's answer is not understood: ${at || "it"} should be ${wanted}, not ${kind}`);
    this.name = "DecodeError";
  }
}

export const number: Decoder<number> = (value, at) => {
  if (typeof value !== "number") throw new DecodeError(at, "a number", value);
  return value;
};

export const string: Decoder<string> = (value, at) => {
  if (typeof value !== "string") throw new DecodeError(at, "a text", value);
  return value;
};

export const boolean: Decoder<boolean> = (value, at) => {
  if (typeof value !== "boolean") throw new DecodeError(at, "true or false", value);
  return value;
};

/** null and absence are the same: not known. */
export const optional =
  <T>(inner: Decoder<T>): Decoder<T | null> =>
  (value, at) =>
    value === null || value === undefined ? null : inner(value, at);

export const list =
  <T>(inner: Decoder<T>): Decoder<T[]> =>
  (value, at) => {
    if (!Array.isArray(value)) throw new DecodeError(at, "a list", value);
    return value.map((one: unknown, place) => inner(one, `${at}[${place}]`));
  };

export const pair =
  <A, B>(first: Decoder<A>, second: Decoder<B>): Decoder<readonly [A, B]> =>
  (value, at) => {
    if (!Array.isArray(value)) throw new DecodeError(at, "a pair", value);
    return [first(value[0], `${at}[0]`), second(value[1], `${at}[1]`)];
  };

export type Decoded<D> = D extends Decoder<infer T> ? T : never;

/** Keys that are not named are passed over: a newer server may say more. */
export const record =
  <Shape extends Record<string, Decoder<unknown>>>(
    shape: Shape,
  ): Decoder<{ [Key in keyof Shape]: Decoded<Shape[Key]> }> =>
  (value, at) => {
    const source = asObject(value, at);
    const decoded: Record<string, unknown> = {};
    for (const [key, decode] of Object.entries(shape)) {
      decoded[key] = decode(source[key], at ? `${at}.${key}` : key);
    }
    return decoded as { [Key in keyof Shape]: Decoded<Shape[Key]> };
  };

export const oneOf =
  <const Words extends readonly string[]>(...words: Words): Decoder<Words[number]> =>
  (value, at) => {
    const found = words.find((word) => word === value);
    if (found === undefined) throw new DecodeError(at, words.join(" or "), value);
    return found;
  };

/** The first that fits. */
export const either =
  <A, B>(first: Decoder<A>, second: Decoder<B>): Decoder<A | B> =>
  (value, at) => {
    try {
      return first(value, at);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      return second(value, at);
    }
  };

/** A cell of a table: a word, a number, words, or nothing. */
export type Cell = string | number | boolean | null | string[];
export const cell: Decoder<Cell> = (value, at) => {
  if (value === undefined || value === null) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
    return value;
  }
  if (Array.isArray(value)) return list(string)(value, at);
  throw new DecodeError(at, "a word or a number", value);
};

/** An object whose keys are not known before. */
export const entries =
  <T>(inner: Decoder<T>): Decoder<Record<string, T>> =>
  (value, at) => {
    const source = asObject(value, at);
    const decoded: Record<string, T> = {};
    for (const [key, one] of Object.entries(source)) {
      decoded[key] = inner(one, `${at}.${key}`);
    }
    return decoded;
  };

function asObject(value: unknown, at: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DecodeError(at, "an object", value);
  }
  return value as Record<string, unknown>;
}
