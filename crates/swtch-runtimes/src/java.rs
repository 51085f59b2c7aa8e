//! `HotSpot`: the methods of compiled and interpreted code, and how large their frames are.
//!
//! ```text
//! gHotSpotVMStructs ─▶ where fields are
//! CodeCache ─▶ heaps ─▶ the code that an address is in ─▶ its name, its frame, its method
//!                                                                              └▶ class, name
//! ```
//!
//! The virtual machine publishes its layout for debuggers (`src/hotspot/share/runtime/vmStructs.cpp`): nothing is asked of
//! it, and nothing of it changes. What does not fit together has no name.

use std::collections::HashMap;

use crate::ProcessMemory;

/// The most entries of a list of fields or types, and the most heaps of code.
const MOST_ENTRIES: u64 = 16_384;
const MOST_HEAPS: u64 = 16;

/// The longest name of a field, class or method, in bytes.
const LONGEST_FIELD: usize = 48;
const LONGEST_NAME: usize = 512;

/// The most steps from a part of a piece of code to its start.
const MOST_STEPS: usize = 4096;

/// Symbols of the library that say where the lists are, and where things are in their entries.
pub const SYMBOLS: [&str; 10] = [
    "gHotSpotVMStructs",
    "gHotSpotVMStructEntryArrayStride",
    "gHotSpotVMStructEntryTypeNameOffset",
    "gHotSpotVMStructEntryFieldNameOffset",
    "gHotSpotVMStructEntryOffsetOffset",
    "gHotSpotVMStructEntryAddressOffset",
    "gHotSpotVMTypes",
    "gHotSpotVMTypeEntryArrayStride",
    "gHotSpotVMTypeEntryTypeNameOffset",
    "gHotSpotVMTypeEntrySizeOffset",
];

/// Where these symbols are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JavaPlaces(pub [u64; SYMBOLS.len()]);

/// A virtual machine whose layout is known. Offsets are from the start of what they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Java {
    /// The address of the list of heaps.
    heaps: u64,
    list_length: u64,
    list_data: u64,
    heap_memory: u64,
    heap_segments: u64,
    heap_segment_bits: u64,
    space_low: u64,
    space_high: u64,
    block_size: u64,
    code_name: u64,
    code_frame_size: u64,
    code_method: u64,
    method_constant: u64,
    constant_pool: u64,
    constant_name: u64,
    pool_holder: u64,
    pool_size: u64,
    class_name: u64,
    symbol_length: u64,
    symbol_bytes: u64,
}

/// How a frame of code that the virtual machine has made leads to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaFrame {
    /// It is so many bytes large, with the return address at its end, and below that the caller's frame pointer.
    Sized(u64),
    /// The interpreter's: the frame pointer leads to it, and the caller's stack pointer lies below.
    Interpreted,
}

/// A piece of code that the virtual machine has made.
struct MadeCode {
    start: u64,
    name: String,
}

impl MadeCode {
    fn is_method(&self) -> bool {
        self.name.ends_with("nmethod")
    }

    fn is_interpreter(&self) -> bool {
        self.name == "Interpreter"
    }
}

/// From the frame pointer of an interpreted frame to its method (`interpreter_frame_method_offset`, x86-64 and arm64).
const METHOD_BELOW: u64 = 24;

impl Java {
    /// The virtual machine with these symbols; `None` if its layout is not that of JDK 11 and later.
    pub fn at(places: JavaPlaces, memory: &impl ProcessMemory) -> Option<Self> {
        let [structs, rest @ ..] = places.0;
        let [
            stride,
            of_type,
            of_field,
            of_offset,
            of_address,
            types,
            type_stride,
            type_name,
            type_size,
        ] = rest;
        let word = |at: u64| memory.word(at);
        let (start, stride) = (word(structs)?, word(stride)?);
        let (of_type, of_field) = (word(of_type)?, word(of_field)?);
        let (of_offset, of_address) = (word(of_offset)?, word(of_address)?);
        let mut fields = HashMap::new();
        for at in (0..MOST_ENTRIES).map(|place| start.wrapping_add(place.wrapping_mul(stride))) {
            let name = word(at.wrapping_add(of_type))?;
            if name == 0 {
                break;
            }
            let (kind, field) = (
                name_at(name, memory),
                name_at(word(at.wrapping_add(of_field))?, memory),
            );
            let is_known = kind.as_deref().is_some_and(|kind| KINDS.contains(&kind));
            if let (true, Some(kind), Some(field)) = (is_known, kind, field) {
                let offset = word(at.wrapping_add(of_offset))?;
                let address = word(at.wrapping_add(of_address))?;
                // A field of no object has an address instead.
                fields.insert((kind, field), if address == 0 { offset } else { address });
            }
        }
        let (start, stride) = (word(types)?, word(type_stride)?);
        let (of_name, of_size) = (word(type_name)?, word(type_size)?);
        let mut sizes = HashMap::new();
        for at in (0..MOST_ENTRIES).map(|place| start.wrapping_add(place.wrapping_mul(stride))) {
            let name = word(at.wrapping_add(of_name))?;
            if name == 0 {
                break;
            }
            let name = name_at(name, memory).unwrap_or_default();
            if ["HeapBlock", "ConstantPool"].contains(&name.as_str()) {
                sizes.insert(name, word(at.wrapping_add(of_size))?);
            }
        }
        let field = |known: &[(&str, &str)]| {
            let mut known = known.iter();
            known.find_map(|(kind, field)| {
                fields
                    .get(&((*kind).to_owned(), (*field).to_owned()))
                    .copied()
            })
        };
        Some(Self {
            heaps: field(&[("CodeCache", "_heaps")])?,
            list_length: field(&[
                ("GrowableArrayBase", "_len"),
                ("GenericGrowableArray", "_len"),
            ])?,
            list_data: field(&[
                ("GrowableArray<int>", "_data"),
                ("GenericGrowableArray", "_data"),
            ])?,
            heap_memory: field(&[("CodeHeap", "_memory")])?,
            heap_segments: field(&[("CodeHeap", "_segmap")])?,
            heap_segment_bits: field(&[("CodeHeap", "_log2_segment_size")])?,
            space_low: field(&[("VirtualSpace", "_low")])?,
            space_high: field(&[("VirtualSpace", "_high")])?,
            block_size: *sizes.get("HeapBlock")?,
            code_name: field(&[("CodeBlob", "_name")])?,
            code_frame_size: field(&[("CodeBlob", "_frame_size")])?,
            code_method: field(&[("CompiledMethod", "_method"), ("nmethod", "_method")])?,
            method_constant: field(&[("Method", "_constMethod")])?,
            constant_pool: field(&[("ConstMethod", "_constants")])?,
            constant_name: field(&[("ConstMethod", "_name_index")])?,
            pool_holder: field(&[("ConstantPool", "_pool_holder")])?,
            pool_size: *sizes.get("ConstantPool")?,
            class_name: field(&[("Klass", "_name")])?,
            symbol_length: field(&[("Symbol", "_length")])?,
            symbol_bytes: field(&[("Symbol", "_body[0]"), ("Symbol", "_body")])?,
        })
    }

    /// How the frame of the code at an address leads to its caller; `None` if that is not told here.
    pub fn frame_at(&self, address: u64, memory: &impl ProcessMemory) -> Option<JavaFrame> {
        let code = self.code_at(address, memory)?;
        if code.is_interpreter() {
            return Some(JavaFrame::Interpreted);
        }
        let words = memory.number(code.start.wrapping_add(self.code_frame_size))?;
        (1..1 << 20)
            .contains(&words)
            .then(|| JavaFrame::Sized(8 * u64::from(words)))
    }

    /// The method of the code at an address, with its class: `Ledger.book`. An interpreted one is told by its frame, of
    /// which `word` reads the stack.
    pub fn method_at(
        &self,
        address: u64,
        frame_pointer: Option<u64>,
        word: impl Fn(u64) -> Option<u64>,
        memory: &impl ProcessMemory,
    ) -> Option<String> {
        let code = self.code_at(address, memory)?;
        let method = match () {
            () if code.is_method() => memory.word(code.start.wrapping_add(self.code_method))?,
            () if code.is_interpreter() => word(frame_pointer?.checked_sub(METHOD_BELOW)?)?,
            () => return None,
        };
        let at = |address: u64, offset: u64| memory.word(address.wrapping_add(offset));
        let constant = at(method, self.method_constant)?;
        let pool = at(constant, self.constant_pool)?;
        let mut index = [0; 2];
        let index_at = constant.wrapping_add(self.constant_name);
        memory.read(index_at, &mut index).then_some(())?;
        let index = u64::from(u16::from_ne_bytes(index));
        let name = at(pool, self.pool_size.wrapping_add(8 * index))?;
        let class = at(at(pool, self.pool_holder)?, self.class_name)?;
        let (class, name) = (self.symbol(class, memory)?, self.symbol(name, memory)?);
        // What is made while it runs has an address for a name: `Shop$$Lambda+0x00007f…`.
        let class = class.split_once("+0x").map_or(&*class, |(name, _)| name);
        Some(format!("{}.{name}", class.replace('/', ".")))
    }

    /// The piece of code that an address is in.
    fn code_at(&self, address: u64, memory: &impl ProcessMemory) -> Option<MadeCode> {
        let list = memory.word(self.heaps)?;
        let heaps = memory.number(list.wrapping_add(self.list_length))?;
        let data = memory.word(list.wrapping_add(self.list_data))?;
        let heaps = (0..u64::from(heaps).min(MOST_HEAPS)).map(|place| data.wrapping_add(8 * place));
        let mut heaps = heaps.filter_map(|at| memory.word(at));
        heaps.find_map(|heap| self.code_in(heap, address, memory))
    }

    fn code_in(&self, heap: u64, address: u64, memory: &impl ProcessMemory) -> Option<MadeCode> {
        let space = heap.wrapping_add(self.heap_memory);
        let low = memory.word(space.wrapping_add(self.space_low))?;
        let high = memory.word(space.wrapping_add(self.space_high))?;
        (low..high).contains(&address).then_some(())?;
        let bits = memory.number(heap.wrapping_add(self.heap_segment_bits))?;
        let segments = heap.wrapping_add(self.heap_segments);
        let segments = memory.word(segments.wrapping_add(self.space_low))?;
        let mut segment = (address - low).checked_shr(bits)?;
        // Each says how far back the start is, or a part of that way.
        let mut steps = 0;
        loop {
            let mut back = [0];
            memory
                .read(segments.wrapping_add(segment), &mut back)
                .then_some(())?;
            match back[0] {
                0 => break,
                // Nothing is there.
                0xff => return None,
                back => segment = segment.checked_sub(u64::from(back))?,
            }
            steps += 1;
            (steps < MOST_STEPS).then_some(())?;
        }
        let start = low
            .wrapping_add(segment.checked_shl(bits)?)
            .wrapping_add(self.block_size);
        let name = memory.word(start.wrapping_add(self.code_name))?;
        let name = name_at(name, memory)?;
        Some(MadeCode { start, name })
    }

    fn symbol(&self, address: u64, memory: &impl ProcessMemory) -> Option<String> {
        let mut length = [0; 2];
        memory
            .read(address.wrapping_add(self.symbol_length), &mut length)
            .then_some(())?;
        let length = u64::from(u16::from_ne_bytes(length));
        let bytes = memory.bytes(
            address.wrapping_add(self.symbol_bytes),
            length,
            LONGEST_NAME,
        )?;
        let name = String::from_utf8(bytes).ok()?;
        (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
    }
}

/// Types of which fields are needed.
const KINDS: [&str; 14] = [
    "CodeCache",
    "GrowableArrayBase",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "CodeHeap",
    "VirtualSpace",
    "CodeBlob",
    "CompiledMethod",
    "nmethod",
    "Method",
    "ConstMethod",
    "ConstantPool",
    "Klass",
    "Symbol",
];

/// A name that ends with a zero.
fn name_at(address: u64, memory: &impl ProcessMemory) -> Option<String> {
    let mut bytes = [0; LONGEST_FIELD];
    memory.read(address, &mut bytes).then_some(())?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{MadeUp, Wild};

    /// Where the lists are, and what says so.
    const STRUCTS: u64 = 0x1_0000;
    const TYPES: u64 = 0x2_0000;
    const TEXTS: u64 = 0x3_0000;

    /// The heap of code, of segments of 128 bytes, and the list that says where a piece begins.
    const CODE: u64 = 0x10_0000;
    const SEGMENTS: u64 = 0x4_0000;

    const FIELDS: [(&str, &str, u64); 19] = [
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
        ("ConstantPool", "_pool_holder", 24),
        ("Klass", "_name", 16),
        ("Symbol", "_length", 4),
        ("Symbol", "_body[0]", 6),
        ("CodeCache", "_heaps", 0),
    ];

    fn places() -> JavaPlaces {
        let mut places = [0; SYMBOLS.len()];
        for (place, at) in places.iter_mut().zip((0x100..).step_by(8)) {
            *place = at;
        }
        JavaPlaces(places)
    }

    /// Methods are at 0x5000 and 0x5100: `shop/Ledger.book`, and `java/lang/Thread.run`.
    fn put_method(memory: &mut MadeUp, at: u64, class: &str, name: &str) {
        let (constant, pool, class_at) = (at + 0x1000, at + 0x2000, at + 0x3000);
        memory.put_word(at + 8, constant);
        memory.put_word(constant + 8, pool);
        memory.put(constant + 16, &3_u16.to_ne_bytes());
        memory.put_word(pool + 24, class_at);
        for (place, symbol, text) in [
            (class_at + 16, at + 0x4000, class),
            (pool + 72 + 8 * 3, at + 0x4080, name),
        ] {
            memory.put_word(place, symbol);
            memory.put(
                symbol + 4,
                &u16::try_from(text.len()).unwrap_or(0).to_ne_bytes(),
            );
            memory.put(symbol + 6, text.as_bytes());
        }
    }

    /// A piece of code that begins with this segment.
    fn put_code(
        memory: &mut MadeUp,
        segment: u64,
        segments: u64,
        name: u64,
        frame_words: u32,
        method: u64,
    ) {
        let start = CODE + 128 * segment + 16;
        memory.put_word(start + 8, name);
        memory.put(start + 16, &frame_words.to_ne_bytes());
        memory.put_word(start + 24, method);
        for place in 0..segments {
            memory.put(
                SEGMENTS + segment + place,
                &[u8::try_from(place.min(2)).unwrap_or(0)],
            );
        }
    }

    fn process() -> MadeUp {
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
        for (place, (kind, field, offset)) in (0..).zip(FIELDS) {
            let at = STRUCTS + 32 * place;
            let (kind_at, field_at) = (text(&mut memory, kind), text(&mut memory, field));
            memory.put_word(at, kind_at);
            memory.put_word(at + 8, field_at);
            memory.put_word(at + 16, offset);
            memory.put_word(at + 24, if field == "_heaps" { 0x6_0000 } else { 0 });
        }
        for (place, (kind, size)) in (0..).zip([("HeapBlock", 16), ("ConstantPool", 72)]) {
            let kind_at = text(&mut memory, kind);
            memory.put_word(TYPES + 16 * place, kind_at);
            memory.put_word(TYPES + 16 * place + 8, size);
        }
        let (list, heap) = (0x6_0100, 0x6_0400);
        memory.put_word(0x6_0000, list);
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
        put_method(&mut memory, 0x7_0000, "shop/Ledger", "book");
        put_method(&mut memory, 0x8_0000, "java/lang/Thread", "run");
        put_code(&mut memory, 2, 5, nmethod, 6, 0x7_0000);
        put_code(&mut memory, 8, 40, interpreter, 0, 0);
        put_code(&mut memory, 60, 1, stub, 10, 0);
        memory
    }

    #[test]
    fn code_is_named_by_its_method_and_its_frame_is_known() {
        let memory = process();
        let java = Java::at(places(), &memory).unwrap();
        let word = |at: u64| (at == 0x9000 - METHOD_BELOW).then_some(0x8_0000);
        let at = |segment: u64| CODE + 128 * segment + 100;
        let told = |segment| {
            let method = java.method_at(at(segment), Some(0x9000), word, &memory);
            (method, java.frame_at(at(segment), &memory))
        };
        let book = Some("shop.Ledger.book".to_owned());
        assert_eq!(told(2), (book.clone(), Some(JavaFrame::Sized(48))));
        // Another part of the same piece.
        assert_eq!(told(6), (book, Some(JavaFrame::Sized(48))));
        let run = Some("java.lang.Thread.run".to_owned());
        assert_eq!(told(47), (run, Some(JavaFrame::Interpreted)));
        assert_eq!(told(60), (None, Some(JavaFrame::Sized(80))));
        // Nothing, and beyond the heap.
        assert_eq!(told(61), (None, None));
        assert_eq!(told(256), (None, None));
        assert_eq!(java.method_at(at(47), None, word, &memory), None);
    }

    #[test]
    fn a_layout_that_lacks_a_field_is_not_known() {
        let mut memory = process();
        memory.put(TEXTS + 64 * 2 * 10, b"method");
        assert_eq!(Java::at(places(), &memory), None);
    }

    #[test]
    fn any_memory_is_read_to_an_end() {
        let java = Java::at(places(), &process()).unwrap();
        for seed in 0..2_000 {
            let memory = Wild(seed);
            let _ = java.frame_at(seed << 20, &memory);
            let _ = java.method_at(seed << 20, Some(seed << 8), Some, &memory);
            if seed < 50 {
                let _ = Java::at(places(), &memory);
            }
        }
    }
}
