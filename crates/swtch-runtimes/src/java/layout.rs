//! Where the virtual machine has its fields: two lists that it publishes for debuggers.

use std::collections::HashMap;

use super::JavaPlaces;
use crate::ProcessMemory;

/// The most entries of a list of fields or types.
const MOST_ENTRIES: u64 = 16_384;

/// The longest name of a field or type, in bytes.
const LONGEST_NAME: usize = 48;

/// Types of which fields are needed.
const KINDS: [&str; 16] = [
    "CodeCache",
    "GrowableArrayBase",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "CodeHeap",
    "VirtualSpace",
    "CodeBlob",
    "CompiledMethod",
    "nmethod",
    "PcDesc",
    "Method",
    "ConstMethod",
    "ConstantPool",
    "InstanceKlass",
    "Klass",
    "Symbol",
];

/// Numbers of no object that are needed.
const NUMBERS: [(&str, &str); 1] = [("Abstract_VM_Version", "_vm_major_version")];

/// Types of which the size is needed.
const SIZED: [&str; 4] = ["HeapBlock", "ConstantPool", "ConstMethod", "PcDesc"];

/// The fields of a virtual machine: each one's offset, or the address of one of no object.
pub struct JavaLayout {
    fields: HashMap<(String, String), u64>,
    sizes: HashMap<String, u64>,
}

impl JavaLayout {
    /// What the lists with these symbols say; `None` if they are not read to their end.
    pub fn read(places: JavaPlaces, memory: &impl ProcessMemory) -> Option<Self> {
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
        let (of_field, of_offset) = (word(of_field)?, word(of_offset)?);
        let of_address = word(of_address)?;
        let mut fields = HashMap::new();
        let list = [structs, stride, of_type];
        entries(list, memory, |at, kind| {
            let is_number = NUMBERS.iter().any(|(number, _)| *number == kind);
            if !is_number && !KINDS.contains(&&*kind) {
                return Some(());
            }
            if let Some(field) = name_at(word(at.wrapping_add(of_field))?, memory) {
                let offset = word(at.wrapping_add(of_offset))?;
                let address = word(at.wrapping_add(of_address))?;
                fields.insert((kind, field), if address == 0 { offset } else { address });
            }
            Some(())
        })?;
        let of_size = word(type_size)?;
        let mut sizes = HashMap::new();
        entries([types, type_stride, type_name], memory, |at, kind| {
            if SIZED.contains(&&*kind) {
                sizes.insert(kind, word(at.wrapping_add(of_size))?);
            }
            Some(())
        })?;
        Some(Self { fields, sizes })
    }

    /// The first of these fields that there is: they have moved from version to version.
    pub fn field(&self, known: &[(&str, &str)]) -> Option<u64> {
        let mut known = known.iter();
        known.find_map(|(kind, field)| {
            let known = self.fields.get(&((*kind).to_owned(), (*field).to_owned()));
            known.copied()
        })
    }

    /// How large an object of this type is, in bytes.
    pub fn size(&self, kind: &str) -> Option<u64> {
        self.sizes.get(kind).copied()
    }
}

/// Hands out each entry of a list with its name; the symbols are of its start, the size of an entry, and where the name
/// is in it. The last entry has no name.
fn entries(
    [start, stride, of_name]: [u64; 3],
    memory: &impl ProcessMemory,
    mut entry: impl FnMut(u64, String) -> Option<()>,
) -> Option<()> {
    let start = memory.word(start)?;
    let (stride, of_name) = (memory.word(stride)?, memory.word(of_name)?);
    for at in (0..MOST_ENTRIES).map(|place| start.wrapping_add(place.wrapping_mul(stride))) {
        let name = memory.word(at.wrapping_add(of_name))?;
        if name == 0 {
            break;
        }
        if let Some(name) = name_at(name, memory) {
            entry(at, name)?;
        }
    }
    Some(())
}

/// A name that ends with a zero.
pub fn name_at(address: u64, memory: &impl ProcessMemory) -> Option<String> {
    let mut bytes = [0; LONGEST_NAME];
    memory.read(address, &mut bytes).then_some(())?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}
