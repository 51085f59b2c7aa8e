//! A virtual machine in made-up memory: three pieces of code, two methods, of which one is put into the other.

use super::*;
use crate::made_up::{MadeUp, Wild};

/// Where the lists of fields and types are, and what says so.
const STRUCTS: u64 = 0x1_0000;
const TYPES: u64 = 0x2_0000;
const TEXTS: u64 = 0x3_0000;

/// The heap of code, of segments of 128 bytes, and the list that says where a piece begins.
const CODE: u64 = 0x10_0000;
const SEGMENTS: u64 = 0x4_0000;

/// The piece of code of `Ledger.book`, into which `Price.total` is put; and the address in it that has both.
const BOOK_CODE: u64 = CODE + 128 * 2 + 16;
const BOTH: u64 = BOOK_CODE + 0x80;

const BOOK: u64 = 0x7_0000;
const TOTAL: u64 = 0x8_0000;

const LIST: u64 = 0x6_0000;
const VERSION: u64 = 0x6_0010;

/// Where the lists of compiled code are that do not lie in it.
const FIXED: u64 = 0x9_0000;
const CHANGING: u64 = 0x9_8000;

const FIELDS: [(&str, &str, u64); 25] = [
    ("GrowableArrayBase", "_len", 0),
    ("GrowableArray<int>", "_data", 8),
    ("CodeHeap", "_memory", 0),
    ("CodeHeap", "_segmap", 0x40),
    ("CodeHeap", "_log2_segment_size", 0x80),
    ("VirtualSpace", "_low", 16),
    ("VirtualSpace", "_high", 24),
    ("Thread", "_osthread", 8),
    ("CodeBlob", "_name", 8),
    ("CodeBlob", "_frame_size", 16),
    ("nmethod", "_method", 24),
    ("Method", "_constMethod", 8),
    ("ConstMethod", "_constants", 8),
    ("ConstMethod", "_name_index", 16),
    ("ConstMethod", "_code_size", 18),
    ("ConstMethod", "_flags", 20),
    ("ConstantPool", "_pool_holder", 24),
    ("ConstantPool", "_source_file_name_index", 32),
    ("Klass", "_name", 16),
    ("Symbol", "_length", 4),
    ("Symbol", "_body[0]", 6),
    ("PcDesc", "_pc_offset", 0),
    ("PcDesc", "_scope_decode_offset", 4),
    ("CodeCache", "_heaps", LIST),
    ("Abstract_VM_Version", "_vm_major_version", VERSION),
];

/// What differs between versions.
const FIELDS_OF_17: [(&str, &str, u64); 5] = [
    ("CodeBlob", "_code_begin", 32),
    ("CompiledMethod", "_scopes_data_begin", 40),
    ("nmethod", "_metadata_offset", 48),
    ("nmethod", "_scopes_pcs_offset", 52),
    ("nmethod", "_dependencies_offset", 56),
];
const FIELDS_OF_25: [(&str, &str, u64); 7] = [
    ("CodeBlob", "_code_offset", 32),
    ("CodeBlob", "_mutable_data", 40),
    ("CodeBlob", "_relocation_size", 48),
    ("nmethod", "_immutable_data", 56),
    ("nmethod", "_immutable_data_size", 64),
    ("nmethod", "_scopes_data_offset", 68),
    ("nmethod", "_scopes_pcs_offset", 72),
];

const SIZES: [(&str, u64); 4] = [
    ("HeapBlock", 16),
    ("ConstantPool", 72),
    ("ConstMethod", 64),
    ("PcDesc", 16),
];

fn places() -> JavaPlaces {
    let mut places = [0; SYMBOLS.len()];
    for (place, at) in places.iter_mut().zip((0x100..).step_by(8)) {
        *place = at;
    }
    JavaPlaces(places)
}

/// Numbers below 190 as this version writes them.
fn written(version: u8, numbers: &[u8]) -> Vec<u8> {
    let least = u8::from(version >= 20);
    numbers.iter().map(|number| number + least).collect()
}

/// A method of ten byte codes of which the first line is 40, and from the fifth on 41.
fn put_method(memory: &mut MadeUp, version: u8, at: u64, class: &str, name: &str) {
    let (constant, pool, class_at) = (at + 0x1000, at + 0x2000, at + 0x3000);
    memory.put_word(at + 8, constant);
    memory.put_word(constant + 8, pool);
    memory.put(constant + 16, &3_u16.to_ne_bytes());
    memory.put(constant + 18, &10_u16.to_ne_bytes());
    memory.put(constant + 20, &[1]);
    let first = written(version, &[0, 2 * 40]);
    let lines = [&[0xff], &*first, &[(4 << 3) | 1, 0]].concat();
    memory.put(constant + 64 + 10, &lines);
    memory.put_word(pool + 24, class_at);
    memory.put(pool + 32, &4_u16.to_ne_bytes());
    for (place, symbol, text) in [
        (class_at + 16, at + 0x4000, class),
        (pool + 72 + 8 * 3, at + 0x4080, name),
        (pool + 72 + 8 * 4, at + 0x4100, "Shop.java"),
    ] {
        memory.put_word(place, symbol);
        let length = u16::try_from(text.len()).unwrap();
        memory.put(symbol + 4, &length.to_ne_bytes());
        memory.put(symbol + 6, text.as_bytes());
    }
}

/// A piece of code that begins with this segment.
fn put_code(memory: &mut MadeUp, segment: u64, segments: u64, name: u64, frame_words: u32) {
    let start = CODE + 128 * segment + 16;
    memory.put_word(start + 8, name);
    memory.put(start + 16, &frame_words.to_ne_bytes());
    for place in 0..segments {
        memory.put(
            SEGMENTS + segment + place,
            &[u8::try_from(place.min(2)).unwrap()],
        );
    }
}

/// The lists of `Ledger.book`'s code: at two addresses itself alone, and between them with the other in it.
fn put_scopes(memory: &mut MadeUp, version: u8) {
    let (code, scopes, addresses, methods) = match version {
        17 => {
            let (scopes, addresses, methods) = (0x100, 0x140, 0x180);
            memory.put_word(BOOK_CODE + 32, BOOK_CODE + 0x60);
            memory.put_word(BOOK_CODE + 40, BOOK_CODE + scopes);
            for (at, offset) in [(48, methods), (52, addresses), (56, addresses + 3 * 16)] {
                let offset = u32::try_from(offset).unwrap();
                memory.put(BOOK_CODE + at, &offset.to_ne_bytes());
            }
            let lists = [scopes, addresses, methods].map(|offset| BOOK_CODE + offset);
            (BOOK_CODE + 0x60, lists[0], lists[1], lists[2])
        }
        _ => {
            memory.put_word(BOOK_CODE + 40, CHANGING);
            memory.put_word(BOOK_CODE + 56, FIXED);
            for (at, number) in [
                (32, 0x60_u32),
                (48, 8),
                (64, 0x40 + 3 * 16),
                (68, 0x10),
                (72, 0x40),
            ] {
                memory.put(BOOK_CODE + at, &number.to_ne_bytes());
            }
            (BOOK_CODE + 0x60, FIXED + 0x10, FIXED + 0x40, CHANGING + 8)
        }
    };
    memory.put_word(methods, BOOK);
    memory.put_word(methods + 8, TOTAL);
    // The caller's place, the method, one more than the byte code, and three numbers that are not read.
    let book = written(version, &[0, 1, 5 + 1, 0, 0, 0]);
    let total = written(version, &[1, 2, 0, 0, 0, 0]);
    memory.put(scopes + 1, &book);
    memory.put(scopes + 7, &total);
    let both = i32::try_from(BOTH - code).unwrap();
    for (place, (at, scope)) in (0..).zip([(-1, 0), (both, 7), (both + 8, 1)]) {
        memory.put(addresses + 16 * place, &i32::to_ne_bytes(at));
        memory.put(addresses + 16 * place + 4, &u32::to_ne_bytes(scope));
    }
}

fn process(version: u8) -> MadeUp {
    let mut memory = MadeUp::up_to(0x20_0000);
    let words = [STRUCTS, 32, 0, 8, 16, 24, TYPES, 16, 0, 8];
    for (at, word) in places().0.into_iter().zip(words) {
        memory.put_word(at, word);
    }
    let mut texts = TEXTS;
    let mut text = |memory: &mut MadeUp, text: &str| {
        let at = texts;
        memory.put(at, text.as_bytes());
        texts += 64;
        at
    };
    let of_version: &[_] = match version {
        17 => &FIELDS_OF_17,
        _ => &FIELDS_OF_25,
    };
    for (place, (kind, field, offset)) in (0..).zip(FIELDS.iter().chain(of_version)) {
        let at = STRUCTS + 32 * place;
        let (kind_at, field_at) = (text(&mut memory, kind), text(&mut memory, field));
        memory.put_word(at, kind_at);
        memory.put_word(at + 8, field_at);
        let is_address = [LIST, VERSION].contains(offset);
        memory.put_word(at + if is_address { 24 } else { 16 }, *offset);
    }
    for (place, (kind, size)) in (0..).zip(SIZES) {
        let kind_at = text(&mut memory, kind);
        memory.put_word(TYPES + 16 * place, kind_at);
        memory.put_word(TYPES + 16 * place + 8, size);
    }
    let (list, heap) = (0x6_0100, 0x6_0400);
    memory.put_word(LIST, list);
    memory.put(VERSION, &u32::from(version).to_ne_bytes());
    memory.put(list, &1_u32.to_ne_bytes());
    memory.put_word(list + 8, 0x6_0200);
    memory.put_word(0x6_0200, heap);
    memory.put_word(heap + 16, CODE);
    memory.put_word(heap + 24, CODE + 0x8000);
    memory.put_word(heap + 0x40 + 16, SEGMENTS);
    memory.put(heap + 0x80, &7_u32.to_ne_bytes());
    for segment in 0..256 {
        memory.put(SEGMENTS + segment, &[0xff]);
    }
    let [nmethod, interpreter, stub] =
        ["nmethod", "Interpreter", "RuntimeStub"].map(|name| text(&mut memory, name));
    put_method(&mut memory, version, BOOK, "shop/Ledger", "book");
    put_method(&mut memory, version, TOTAL, "shop/Price", "total");
    put_code(&mut memory, 2, 5, nmethod, 6);
    memory.put_word(BOOK_CODE + 24, BOOK);
    put_code(&mut memory, 8, 40, interpreter, 0);
    put_code(&mut memory, 60, 1, stub, 10);
    put_scopes(&mut memory, version);
    memory
}

/// What is said of an address: functions with their lines, and how its frame leads on. An interpreted frame, whose
/// pointer is 0x9000, is at the eighth byte code of `Price.total`.
fn told(java: &Java, address: u64, memory: &MadeUp) -> (Vec<String>, Option<JavaFrame>) {
    let word = |at: u64| match 0x9000 - at {
        METHOD_BELOW => Some(TOTAL),
        BYTECODE_BELOW => Some(TOTAL + 0x1000 + 64 + 7),
        _ => None,
    };
    let methods = java.methods_at(address, Some(0x9000), word, memory);
    let methods = methods.into_iter().map(|place| {
        let file = place.file.unwrap();
        let line = place
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        format!("{} ({file}{line})", place.function)
    });
    (methods.collect(), java.frame_at(address, memory))
}

#[test]
fn code_is_named_by_its_methods_and_its_frame_is_known() {
    for version in [17, 25] {
        let memory = process(version);
        let java = Java::at(places(), &memory).unwrap();
        let at = |segment: u64| CODE + 128 * segment + 100;
        let compiled = Some(JavaFrame::Sized(48));
        let both = [
            "shop.Price.total (Shop.java:40)",
            "shop.Ledger.book (Shop.java:41)",
        ];
        assert_eq!(
            told(&java, BOTH - 1, &memory),
            (both.map(str::to_owned).to_vec(), compiled)
        );
        let alone = "shop.Ledger.book (Shop.java:41)".to_owned();
        assert_eq!(told(&java, BOTH + 7, &memory), (vec![alone], compiled));
        // An address of no call, in another part of the same piece.
        let no_call = "shop.Ledger.book (Shop.java)".to_owned();
        assert_eq!(told(&java, at(6), &memory), (vec![no_call], compiled));
        let interpreted = "shop.Price.total (Shop.java:41)".to_owned();
        assert_eq!(
            told(&java, at(47), &memory),
            (vec![interpreted], Some(JavaFrame::Interpreted))
        );
        assert_eq!(
            told(&java, at(60), &memory),
            (vec![], Some(JavaFrame::Sized(80)))
        );
        // Nothing, and beyond the heap.
        assert_eq!(told(&java, at(61), &memory), (vec![], None));
        assert_eq!(told(&java, at(256), &memory), (vec![], None));
        assert!(java.methods_at(at(47), None, |_| None, &memory).is_empty());
    }
}

#[test]
fn scopes_that_do_not_end_at_the_method_of_their_code_are_not_believed() {
    let mut memory = process(25);
    let java = Java::at(places(), &memory).unwrap();
    memory.put_word(BOOK_CODE + 24, TOTAL);
    let outermost = "shop.Price.total (Shop.java)".to_owned();
    assert_eq!(told(&java, BOTH - 1, &memory).0, [outermost]);
}

#[test]
fn a_layout_that_lacks_a_field_is_not_known() {
    for (place, (kind, field, _)) in (0..).zip(FIELDS) {
        let mut memory = process(25);
        memory.put(TEXTS + 64 * (2 * place + 1), b"x");
        let is_needed = !matches!(
            (kind, field),
            ("Thread" | "PcDesc", _) | (_, "_code_size" | "_flags" | "_source_file_name_index")
        );
        let java = Java::at(places(), &memory);
        assert_eq!(java.is_none(), is_needed, "{kind} {field}");
    }
}

#[test]
fn any_memory_is_read_to_an_end() {
    for version in [17, 25] {
        let java = Java::at(places(), &process(version)).unwrap();
        for seed in 0..2_000 {
            let memory = Wild(seed);
            let _ = java.frame_at(seed << 20, &memory);
            let _ = java.methods_at(seed << 20, Some(seed << 8), Some, &memory);
            let _ = java.compiled(&made_code(seed), seed << 12, &memory);
            if seed < 50 {
                let _ = Java::at(places(), &memory);
            }
        }
    }
}

/// A piece of code at a place that follows from a number.
fn made_code(seed: u64) -> MadeCode {
    MadeCode {
        start: seed << 10,
        name: "nmethod".to_owned(),
    }
}
