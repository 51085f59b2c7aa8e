//! Memories of processes that say that they run Python, Go or Java, as the reader of stacks meets them.
//!
//! ```text
//! 0        the state of Python, with the table that it publishes
//! VERSION  the version of Go; its list of goroutines and its reasons are where chance puts them
//! STRUCTS  fields and types of Java, with their names at TEXTS
//! ```
//!
//! All else is pointers into the image, small numbers and texts: walks go far, and in circles.

use fastrand::Rng;
use swtch_runtimes::ProcessMemory;
use swtch_runtimes::go::{Go, GoPlaces, GoVersion, GoroutineList};
use swtch_runtimes::java::{Java, JavaPlaces, SYMBOLS};
use swtch_runtimes::python::Python;

use super::{FuzzSubject, mutate};

/// The bytes of an image, which lies in memory again and again up to [`END`].
const IMAGE: usize = 16 << 10;
const END: u64 = 1 << 20;

const VERSION: usize = 0x400;
const STRUCTS: usize = 0x1000;
const TEXTS: usize = 0x2000;
const SYMBOL_WORDS: usize = 0x500;

/// Texts that something is taken for something by.
const WORDS: [&str; 7] = [
    "code\0",
    "nmethod\0",
    "Interpreter\0",
    "sync.Mutex.Lock",
    "go1.26.8",
    "shop/Ledger",
    "/app/worker.py",
];

/// Fields that are looked for.
const FIELDS: [(&str, &str); 19] = [
    ("CodeCache", "_heaps"),
    ("GrowableArrayBase", "_len"),
    ("GrowableArray<int>", "_data"),
    ("CodeHeap", "_memory"),
    ("CodeHeap", "_segmap"),
    ("CodeHeap", "_log2_segment_size"),
    ("VirtualSpace", "_low"),
    ("VirtualSpace", "_high"),
    ("CodeBlob", "_name"),
    ("CodeBlob", "_frame_size"),
    ("nmethod", "_method"),
    ("Method", "_constMethod"),
    ("ConstMethod", "_constants"),
    ("ConstMethod", "_name_index"),
    ("ConstantPool", "_pool_holder"),
    ("Klass", "_name"),
    ("Symbol", "_length"),
    ("Symbol", "_body[0]"),
    ("Thread", "_osthread"),
];

/// Images of memory.
#[derive(Debug)]
pub struct Memories;

/// An image, again and again.
struct Image<'a>(&'a [u8]);

impl ProcessMemory for Image<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        if address >= END || self.0.is_empty() {
            return false;
        }
        let start = usize::try_from(address).unwrap_or_default() % self.0.len();
        for (byte, there) in bytes
            .iter_mut()
            .zip(self.0[start..].iter().chain(self.0.iter().cycle()))
        {
            *byte = *there;
        }
        true
    }
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_word(image: &mut [u8], at: usize, word: u64) {
    put(image, at, &word.to_ne_bytes());
}

/// A pointer into the image, a small number, nothing, or what a mutator takes for a number that matters.
fn word(random: &mut Rng) -> u64 {
    match random.u32(..8) {
        0..4 => random.u64(..END / 8) * 8,
        4..6 => random.u64(..64),
        6 => 0,
        _ => mutate::number(random),
    }
}

impl FuzzSubject for Memories {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let mut image = vec![0; IMAGE];
        for at in (0..IMAGE).step_by(8) {
            put_word(&mut image, at, word(random));
        }
        for _ in 0..200 {
            let text = WORDS[random.usize(..WORDS.len())].as_bytes();
            put(&mut image, 8 * random.usize(..IMAGE / 8 - 4), text);
        }
        if random.bool() {
            put(&mut image, 0, b"xdebugpy");
            put_word(&mut image, 8, random.u64(0x030d..0x0311) << 16 | 0xf0);
            put_word(&mut image, 16, 0);
            // Offsets are small.
            for place in 3..64 {
                put_word(&mut image, 8 * place, random.u64(..256));
            }
        }
        put_word(&mut image, VERSION, VERSION as u64 + 64);
        put_word(&mut image, VERSION + 8, 6);
        let version = format!("go1.{}", random.u32(19..28));
        put(&mut image, VERSION + 64, version.as_bytes());
        let mut text = TEXTS;
        for (place, (kind, field)) in FIELDS.into_iter().enumerate() {
            let entry = STRUCTS + 32 * place;
            for (at, name) in [(entry, kind), (entry + 8, field)] {
                put(&mut image, text, name.as_bytes());
                put(&mut image, text + name.len(), &[0]);
                put_word(&mut image, at, text as u64);
                text += 32;
            }
            put_word(&mut image, entry + 16, random.u64(..128));
            let address = if field == "_heaps" {
                random.u64(..END)
            } else {
                0
            };
            put_word(&mut image, entry + 24, address);
        }
        let types = STRUCTS + 32 * FIELDS.len();
        put_word(&mut image, types, 0);
        for (place, name) in ["HeapBlock", "ConstantPool"].into_iter().enumerate() {
            put(&mut image, text, name.as_bytes());
            put(&mut image, text + name.len(), &[0]);
            put_word(&mut image, types + 8 + 16 * place, text as u64);
            put_word(&mut image, types + 16 + 16 * place, random.u64(..128));
            text += 32;
        }
        put_word(&mut image, types + 40, 0);
        let words = [STRUCTS, 32, 0, 8, 16, 24, types + 8, 16, 0, 8];
        for (place, word) in words.into_iter().enumerate() {
            put_word(&mut image, SYMBOL_WORDS + 8 * place, word as u64);
        }
        if random.u32(..4) == 0 {
            mutate::bytes(random, &mut image);
        }
        image
    }

    fn run(&mut self, input: &[u8]) {
        let memory = Image(input);
        let mut choice = Rng::with_seed(u64::from(crc32fast::hash(input)));
        python(&memory, &mut choice);
        go(&memory, &mut choice);
        java(&memory, &mut choice);
    }
}

fn python(memory: &Image<'_>, choice: &mut Rng) {
    let version = [Some(0x030b_07f0), Some(0x030c_01f0), None][choice.usize(..3)];
    let Ok(python) = Python::at(0, version, memory) else {
        return;
    };
    let threads = python.threads(memory);
    for (name, state) in threads.iter().take(64) {
        let _ = Python::state_at(*name, &threads);
        let _ = python.is_thread(*state, *name, memory);
        for frame in python.frames(*state, memory).iter().take(16) {
            let _ = python.identity_of(frame.code, memory);
            let _ = python.place_of(frame, memory);
        }
        let word = choice.u64(..END);
        let _ = Python::parked_in(word, memory);
        let lock = python.lock_at(word, *state, memory).unwrap_or(word);
        let _ = python.holding_of(lock, memory);
        let _ = python.functions_of_holder(lock, memory);
    }
}

fn go(memory: &Image<'_>, choice: &mut Rng) {
    let places = GoPlaces {
        goroutines: match choice.bool() {
            true => GoroutineList::At(choice.u64(..END)),
            false => GoroutineList::Within(choice.u64(..END), END),
        },
        reasons: choice.u64(..END),
        version: GoVersion::At(VERSION as u64),
    };
    let Ok(go) = Go::at(places, memory) else {
        return;
    };
    let found = go.goroutines(memory, |all| choice.u64(..all));
    for one in &found.idle {
        let _ = one.reason.and_then(|number| go.reason(number, memory));
        let _ = memory.bytes(one.stack.0, one.stack.1 - one.stack.0, 16 << 10);
        let _ = go.is_as_it_was(one, memory);
    }
    let _ = go.is_there(memory);
}

fn java(memory: &Image<'_>, choice: &mut Rng) {
    let mut places = [0; SYMBOLS.len()];
    for (place, at) in places.iter_mut().zip((SYMBOL_WORDS as u64..).step_by(8)) {
        *place = at;
    }
    let Some(java) = Java::at(JavaPlaces(places), memory) else {
        return;
    };
    for _ in 0..64 {
        let (address, pointer) = (choice.u64(..END), choice.u64(..END));
        let _ = java.frame_at(address, memory);
        let _ = java.methods_at(address, Some(pointer), |at| memory.word(at), memory);
    }
}
