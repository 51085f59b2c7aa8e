//! Which methods a piece of compiled code is in at an address: compilers put methods into their callers, and write down
//! at each call which ones these are.
//!
//! The lists lie in the code (JDK 11 to 21) or apart from it (JDK 25; `src/hotspot/share/code/nmethod.hpp`). Those of
//! JDK 22 to 24 are not read, and code of theirs has the name of its outermost method alone.

use super::layout::JavaLayout;
use super::numbers::{CodedNumbers, Coding};
use crate::ProcessMemory;

/// The most methods that are at one address.
const MOST_SCOPES: usize = 64;

/// The most entries of the list of addresses.
const MOST_ADDRESSES: u64 = 1 << 20;

/// Where the lists of a piece of compiled code are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    lists: ListsAt,
    entry_size: u64,
    entry_address: u64,
    entry_scope: u64,
    coding: Coding,
}

/// Offsets in a piece of code, by its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListsAt {
    /// Where its code and its scopes begin are addresses, all else is counted from its start.
    Inside {
        code: u64,
        scopes: u64,
        addresses: u64,
        addresses_end: u64,
        methods: u64,
    },
    /// What does not change lies in one place, and what does in another, behind the relocations.
    Apart {
        code: u64,
        fixed: u64,
        fixed_size: u64,
        scopes: u64,
        addresses: u64,
        changing: u64,
        relocations: u64,
    },
}

/// The lists of one piece of code, as addresses.
struct Lists {
    code: u64,
    scopes: u64,
    addresses: u64,
    addresses_end: u64,
    methods: u64,
}

/// A method at an address, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlinedScope {
    /// The address of the method.
    pub method: u64,
    /// The byte code that is being run; zero at the method's lock, before its first.
    pub bytecode: u64,
}

impl Scopes {
    /// Those of a virtual machine; `None` for versions whose lists are not known.
    pub fn of(layout: &JavaLayout, coding: Coding) -> Option<Self> {
        Some(Self {
            lists: ListsAt::of(layout)?,
            entry_size: layout.size("PcDesc")?,
            entry_address: layout.field(&[("PcDesc", "_pc_offset")])?,
            entry_scope: layout.field(&[("PcDesc", "_scope_decode_offset")])?,
            coding,
        })
    }

    /// The methods at an address inside of a call, in the code that begins at `start`, the innermost first; `None` unless
    /// the outermost is `method`, whose code it is.
    pub fn at(
        &self,
        start: u64,
        address: u64,
        method: u64,
        memory: &impl ProcessMemory,
    ) -> Option<Vec<InlinedScope>> {
        let lists = self.lists.read(start, memory)?;
        let mut place = self.scope_at(&lists, address, memory)?;
        let mut found = Vec::new();
        while found.len() < MOST_SCOPES {
            let scope = lists.scopes.wrapping_add(u64::from(place));
            let mut numbers = CodedNumbers::new(scope, self.coding, memory);
            let outer = numbers.next()?;
            let index = u64::from(numbers.next()?).checked_sub(1)?;
            let method = memory.word(lists.methods.wrapping_add(8 * index))?;
            // One more is written down: the method's lock comes before all byte codes.
            let bytecode = u64::from(numbers.next()?).saturating_sub(1);
            found.push(InlinedScope { method, bytecode });
            if outer == 0 {
                break;
            }
            // Each is written after the one that it was put into.
            place = Some(outer).filter(|outer| *outer < place)?;
        }
        (found.last()?.method == method).then_some(found)
    }

    /// Where the innermost scope of an address inside of a call is written down: at the address to which it returns.
    fn scope_at(&self, lists: &Lists, address: u64, memory: &impl ProcessMemory) -> Option<u32> {
        let wanted = i32::try_from((address.checked_add(1)?).checked_sub(lists.code)?).ok()?;
        let bytes = lists.addresses_end.checked_sub(lists.addresses)?;
        let mut low = 0;
        let mut high = bytes.checked_div(self.entry_size)?.min(MOST_ADDRESSES);
        // They are in order.
        while low < high {
            let middle = low.midpoint(high);
            let entry = lists
                .addresses
                .wrapping_add(middle.wrapping_mul(self.entry_size));
            let found = memory.number(entry.wrapping_add(self.entry_address))?;
            match found.cast_signed().cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    return memory.number(entry.wrapping_add(self.entry_scope));
                }
            }
        }
        None
    }
}

impl ListsAt {
    fn of(layout: &JavaLayout) -> Option<Self> {
        let code = |name| layout.field(&[("CodeBlob", name)]);
        let method = |name| layout.field(&[("nmethod", name)]);
        if let Some(scopes) = layout.field(&[("CompiledMethod", "_scopes_data_begin")]) {
            return Some(Self::Inside {
                code: code("_code_begin")?,
                scopes,
                addresses: method("_scopes_pcs_offset")?,
                addresses_end: method("_dependencies_offset")?,
                methods: method("_metadata_offset")?,
            });
        }
        Some(Self::Apart {
            code: code("_code_offset")?,
            fixed: method("_immutable_data")?,
            fixed_size: method("_immutable_data_size")?,
            scopes: method("_scopes_data_offset")?,
            addresses: method("_scopes_pcs_offset")?,
            changing: code("_mutable_data")?,
            relocations: code("_relocation_size")?,
        })
    }

    fn read(&self, start: u64, memory: &impl ProcessMemory) -> Option<Lists> {
        let word = |offset: u64| memory.word(start.wrapping_add(offset));
        let number = |offset: u64| memory.number(start.wrapping_add(offset)).map(u64::from);
        Some(match *self {
            Self::Inside {
                code,
                scopes,
                addresses,
                addresses_end,
                methods,
            } => Lists {
                code: word(code)?,
                scopes: word(scopes)?,
                addresses: start.wrapping_add(number(addresses)?),
                addresses_end: start.wrapping_add(number(addresses_end)?),
                methods: start.wrapping_add(number(methods)?),
            },
            Self::Apart {
                code,
                fixed,
                fixed_size,
                scopes,
                addresses,
                changing,
                relocations,
            } => {
                let fixed = word(fixed)?;
                Lists {
                    code: start.wrapping_add(number(code)?),
                    scopes: fixed.wrapping_add(number(scopes)?),
                    addresses: fixed.wrapping_add(number(addresses)?),
                    addresses_end: fixed.wrapping_add(number(fixed_size)?),
                    methods: word(changing)?.wrapping_add(number(relocations)?),
                }
            }
        })
    }
}
