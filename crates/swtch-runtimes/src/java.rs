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

mod layout;
mod lines;
mod numbers;
mod scopes;
#[cfg(test)]
mod tests;

use layout::{JavaLayout, name_at};
use lines::Lines;
use numbers::Coding;
use scopes::{InlinedScope, Scopes};

use crate::{ProcessMemory, SourcePlace};

/// The most heaps of code.
const MOST_HEAPS: u64 = 16;

/// The longest name of a class, method or file, in bytes.
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
    /// Where a class has its file: itself, or its constants. `None` if that is not known.
    file: Option<FileOf>,
    /// `None` if the lists of this version are not known: code has the name of its outermost method.
    scopes: Option<Scopes>,
    lines: Option<Lines>,
}

/// What says which file a method is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileOf {
    Constants(u64),
    Class(u64),
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

/// From the frame pointer of an interpreted frame to its method (`interpreter_frame_method_offset`, x86-64 and arm64), and
/// to the byte code that it is at (`interpreter_frame_bcp_offset`).
const METHOD_BELOW: u64 = 24;
const BYTECODE_BELOW: u64 = 64;

impl Java {
    /// The virtual machine with these symbols; `None` if its layout is not that of JDK 11 and later.
    pub fn at(places: JavaPlaces, memory: &impl ProcessMemory) -> Option<Self> {
        let layout = JavaLayout::read(places, memory)?;
        let field = |known: &[(&str, &str)]| layout.field(known);
        let version = memory.number(field(&[("Abstract_VM_Version", "_vm_major_version")])?)?;
        let coding = Coding::of_version(version);
        let of_constants = field(&[("ConstantPool", "_source_file_name_index")]);
        let of_class = field(&[("InstanceKlass", "_source_file_name_index")]);
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
            block_size: layout.size("HeapBlock")?,
            code_name: field(&[("CodeBlob", "_name")])?,
            code_frame_size: field(&[("CodeBlob", "_frame_size")])?,
            code_method: field(&[("CompiledMethod", "_method"), ("nmethod", "_method")])?,
            method_constant: field(&[("Method", "_constMethod")])?,
            constant_pool: field(&[("ConstMethod", "_constants")])?,
            constant_name: field(&[("ConstMethod", "_name_index")])?,
            pool_holder: field(&[("ConstantPool", "_pool_holder")])?,
            pool_size: layout.size("ConstantPool")?,
            class_name: field(&[("Klass", "_name")])?,
            symbol_length: field(&[("Symbol", "_length")])?,
            symbol_bytes: field(&[("Symbol", "_body[0]"), ("Symbol", "_body")])?,
            file: of_constants
                .map(FileOf::Constants)
                .or(of_class.map(FileOf::Class)),
            scopes: Scopes::of(&layout, coding),
            lines: Lines::of(&layout, coding),
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

    /// The methods of the code at an address, with their classes (`Ledger.book`), the innermost first: compilers put
    /// methods into others. That of interpreted code is told by its frame, of which `word` reads the stack. Empty if the
    /// code is of none.
    pub fn methods_at(
        &self,
        address: u64,
        frame_pointer: Option<u64>,
        word: impl Fn(u64) -> Option<u64>,
        memory: &impl ProcessMemory,
    ) -> Vec<SourcePlace> {
        let Some(code) = self.code_at(address, memory) else {
            return Vec::new();
        };
        let places = match () {
            () if code.is_method() => self.compiled(&code, address, memory),
            () if code.is_interpreter() => {
                let interpreted =
                    frame_pointer.and_then(|pointer| self.interpreted(pointer, word, memory));
                interpreted.map(|place| vec![place])
            }
            () => None,
        };
        places.unwrap_or_default()
    }

    fn compiled(
        &self,
        code: &MadeCode,
        address: u64,
        memory: &impl ProcessMemory,
    ) -> Option<Vec<SourcePlace>> {
        let method = memory.word(code.start.wrapping_add(self.code_method))?;
        let scopes = self.scopes.as_ref();
        let scopes = scopes.and_then(|scopes| scopes.at(code.start, address, method, memory));
        let Some(scopes) = scopes else {
            return Some(vec![self.place(method, None, memory)?]);
        };
        let places = scopes
            .iter()
            .map(|InlinedScope { method, bytecode }| self.place(*method, Some(*bytecode), memory));
        places.collect()
    }

    fn interpreted(
        &self,
        frame_pointer: u64,
        word: impl Fn(u64) -> Option<u64>,
        memory: &impl ProcessMemory,
    ) -> Option<SourcePlace> {
        let method = word(frame_pointer.checked_sub(METHOD_BELOW)?)?;
        let bytecode = || {
            let address = word(frame_pointer.checked_sub(BYTECODE_BELOW)?)?;
            let fixed = memory.word(method.wrapping_add(self.method_constant))?;
            self.lines?.bytecode_at(fixed, address, memory)
        };
        self.place(method, bytecode(), memory)
    }

    /// The name of a method, with its class, its file, and the line of a byte code.
    fn place(
        &self,
        method: u64,
        bytecode: Option<u64>,
        memory: &impl ProcessMemory,
    ) -> Option<SourcePlace> {
        let at = |address: u64, offset: u64| memory.word(address.wrapping_add(offset));
        let fixed = at(method, self.method_constant)?;
        let constants = at(fixed, self.constant_pool)?;
        let class = at(constants, self.pool_holder)?;
        let name = self.constant(constants, fixed.wrapping_add(self.constant_name), memory)?;
        let class_name = self.symbol(at(class, self.class_name)?, memory)?;
        // What is made while it runs has an address for a name: `Shop$$Lambda+0x00007f…`.
        let class_name = class_name
            .split_once("+0x")
            .map_or(&*class_name, |(name, _)| name);
        let file = self.file.and_then(|file| {
            let index_at = match file {
                FileOf::Constants(offset) => constants.wrapping_add(offset),
                FileOf::Class(offset) => class.wrapping_add(offset),
            };
            self.constant(constants, index_at, memory)
        });
        let line = bytecode
            .zip(self.lines)
            .and_then(|(bytecode, lines)| lines.line(fixed, bytecode, memory));
        Some(SourcePlace {
            function: format!("{}.{name}", class_name.replace('/', ".")),
            file,
            line,
        })
    }

    /// The text among a class's constants whose index is written at an address; `None` also for index zero.
    fn constant(
        &self,
        constants: u64,
        index_at: u64,
        memory: &impl ProcessMemory,
    ) -> Option<String> {
        let index = u64::from(memory.short(index_at)?);
        (index > 0).then_some(())?;
        let place = self.pool_size.wrapping_add(8 * index);
        let text = memory.word(constants.wrapping_add(place))?;
        self.symbol(text, memory)
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
        let length = memory.short(address.wrapping_add(self.symbol_length))?;
        let length = u64::from(length);
        let bytes = memory.bytes(
            address.wrapping_add(self.symbol_bytes),
            length,
            LONGEST_NAME,
        )?;
        let name = String::from_utf8(bytes).ok()?;
        (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
    }
}
