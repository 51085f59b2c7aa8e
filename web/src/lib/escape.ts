// What others named is made harmless, as the command line does (`crates/swtch-output/src/text.rs`):
// characters that move, turn the direction of reading or cannot be seen are shown by their number.
// That no markup comes to life is not done here but by never using `innerHTML`.

const HOSTILE =
  /[\p{Cc}\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200d\u2060-\u2065\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}\u2028\u2029]|\p{Cs}/gu;

/** The text with every hostile character shown by its number: `\x1b`, `\u{202e}`. */
export function escaped(text: string): string {
  return text.replace(HOSTILE, (c) => {
    const number = c.codePointAt(0) ?? 0;
    const digits = number.toString(16);
    return number < 0x100 ? `\\x${digits.padStart(2, "0")}` : `\\u{${digits}}`;
  });
}
