//! Damage to bytes and to text that knows nothing of their format.

use fastrand::Rng;

/// Numbers at which the behaviour of code often changes.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    8,
    63,
    127,
    255,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 33,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// A random number, most often one of [`EDGES`].
pub fn number(random: &mut Rng) -> u64 {
    match random.u32(..4) {
        0 => random.u64(..) >> random.u32(..64),
        _ => EDGES[random.usize(..EDGES.len())],
    }
}

/// Numbers as they are written in text.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "65535",
    "65536",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "-0.0",
    "5e-324",
    "0.1",
    "99999999999999999999999999",
];

/// Text that must not reach a terminal, page or table unescaped.
const HOSTILE: [&str; 6] = [
    "\u{1b}[2J",
    "\u{202e}",
    "<img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "\u{0}\u{7f}",
    "\u{fffd}\u{10ffff}",
];

/// The most characters of a text that is put in for another.
const MOST_CHARACTERS: usize = 300_000;

/// Copies and replaced words do not make an input much longer than this, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// Damages bytes at one to six places.
pub fn bytes(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.u32(1..=6) {
        one_of_bytes(random, bytes);
    }
}

/// Damages bytes at one place.
pub fn one_place(random: &mut Rng, bytes: &mut Vec<u8>) {
    one_of_bytes(random, bytes);
}

fn one_of_bytes(random: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        bytes.extend(random_bytes(random, 16));
        return;
    }
    let at = random.usize(..bytes.len());
    match random.u32(..12) {
        0 | 1 => bytes[at] ^= 1 << random.u32(..8),
        2 => bytes[at] = random.u8(..),
        3..=6 => set_word(random, bytes, at),
        7 => {
            let end = some_end(random, at, bytes.len());
            bytes.drain(at..end);
        }
        8 => {
            let new = random_bytes(random, 64);
            bytes.splice(at..at, new);
        }
        9 if bytes.len() < MOST_BYTES => {
            let end = some_end(random, at, bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.usize(..=bytes.len());
            bytes.splice(to..to, copy);
        }
        10 => {
            let end = some_end(random, at, bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.usize(..=bytes.len() - copy.len());
            bytes[to..to + copy.len()].copy_from_slice(&copy);
        }
        _ if random.u32(..4) == 0 => bytes.truncate(at),
        _ => {
            let end = some_end(random, at, bytes.len());
            let fill = [0, 0xff, random.u8(..)][random.usize(..3)];
            bytes[at..end].fill(fill);
        }
    }
}

/// Overwrites a word of 1, 2, 4 or 8 bytes with a number, mostly at a multiple of its length.
fn set_word(random: &mut Rng, bytes: &mut [u8], at: usize) {
    let width = 1 << random.u32(..4);
    let at = match random.u32(..8) {
        0 => at,
        _ => at / width * width,
    };
    let Some(word) = bytes.get_mut(at..at + width) else {
        return;
    };
    let mut old = [0; 8];
    old[..width].copy_from_slice(word);
    let old = u64::from_le_bytes(old);
    let edge = EDGES[random.usize(..EDGES.len())];
    let new = match random.u32(..4) {
        0 => old.wrapping_add(edge),
        1 => old.wrapping_sub(random.u64(1..=16)),
        2 => random.u64(..),
        _ => edge.wrapping_sub(random.u64(..2)),
    };
    word.copy_from_slice(&new.to_le_bytes()[..width]);
}

/// A position behind `at`, most often near it.
fn some_end(random: &mut Rng, at: usize, length: usize) -> usize {
    let most = 1 << random.u32(1..=12);
    (at + random.usize(1..=most)).min(length)
}

fn random_bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    let count = random.usize(1..=most);
    match random.u32(..3) {
        0 => vec![0; count],
        1 => vec![0xff; count],
        _ => (0..count).map(|_| random.u8(..)).collect(),
    }
}

/// Damages a text at one to four places: its words, numbers or lines, sometimes its bytes.
pub fn text(random: &mut Rng, text: &mut Vec<u8>, dictionary: &[&str]) {
    for _ in 0..random.u32(1..=4) {
        match random.u32(..10) {
            0 | 1 => lines(random, text),
            2 => one_of_bytes(random, text),
            3 => nest(random, text),
            _ => word(random, text, dictionary),
        }
    }
}

/// Replaces a number, a quoted text or a word by another one.
fn word(random: &mut Rng, text: &mut Vec<u8>, dictionary: &[&str]) {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    if text.is_empty() {
        return;
    }
    let near = random.usize(..text.len());
    let Some(start) = text[near..].iter().position(is_of_word) else {
        return;
    };
    let start = near + start;
    let start = text[..start]
        .iter()
        .rposition(|byte| !is_of_word(byte))
        .map_or(0, |before| before + 1);
    let length = text[start..].iter().take_while(|byte| is_of_word(byte));
    let end = start + length.count();
    let is_number = text[start].is_ascii_digit();
    let new: Vec<u8> = match random.u32(..8) {
        0 => long_text(random),
        1 => HOSTILE[random.usize(..HOSTILE.len())].into(),
        2..=4 if !is_number && !dictionary.is_empty() => {
            dictionary[random.usize(..dictionary.len())].into()
        }
        5 if !is_number => Vec::new(),
        _ => NUMBERS[random.usize(..NUMBERS.len())].into(),
    };
    if text.len() + new.len() < MOST_BYTES {
        text.splice(start..end, new);
    }
}

fn long_text(random: &mut Rng) -> Vec<u8> {
    let most = 1 << random.u32(4..=18);
    let characters = random.usize(1..=most.min(MOST_CHARACTERS));
    let letter = ["x", " ", "ü", "0", "[", "\u{202e}"][random.usize(..6)];
    letter.repeat(characters).into_bytes()
}

/// Copies, removes or moves lines.
fn lines(random: &mut Rng, text: &mut Vec<u8>) {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let from = random.usize(..lines.len());
    let to = (from + random.usize(1..=8)).min(lines.len());
    let chosen = lines[from..to].to_vec();
    match random.u32(..3) {
        0 => drop(lines.drain(from..to)),
        1 => {
            let size: usize = chosen.iter().map(|line| line.len()).sum();
            let most = (MOST_BYTES / size.max(1)).min(1 << random.u32(..=14));
            let times = random.usize(1..=most.max(1));
            let copies = chosen.iter().cycle().take(chosen.len() * times).copied();
            let copies: Vec<_> = copies.collect();
            lines.splice(to..to, copies);
        }
        _ => {
            lines.drain(from..to);
            let place = random.usize(..=lines.len());
            lines.splice(place..place, chosen);
        }
    }
    *text = lines.concat();
}

/// Opens brackets that are never closed, or closes all of them.
fn nest(random: &mut Rng, text: &mut Vec<u8>) {
    let (open, close) = [("[", "]"), ("{\"a\":", "}"), ("{a=", "}")][random.usize(..3)];
    let most = 1 << random.u32(1..=17);
    let depth = random.usize(1..=most);
    let mut nested = open.repeat(depth);
    if random.bool() {
        nested.push('1');
        nested.push_str(&close.repeat(depth));
    }
    let at = random.usize(..=text.len());
    text.splice(at..at, nested.into_bytes());
}
