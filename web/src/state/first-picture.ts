// The lanes come first: what else is asked when the page opens waits until they can be seen, because
// answers take turns on the server's processors.

/** Without lanes (an empty trace, a refusal) the rest need not wait for ever. */
const AT_MOST_MS = 1_500;

let tell: () => void = () => undefined;

/** Fulfilled when lanes have been drawn for the first time, or do not come. */
export const firstPicture = new Promise<void>((fulfil) => {
  tell = fulfil;
  setTimeout(fulfil, AT_MOST_MS);
});

/** Lanes can be seen. Also marked for who measures the page. */
export function noteFirstPicture(): void {
  performance.mark("swtch: first picture");
  tell();
}
