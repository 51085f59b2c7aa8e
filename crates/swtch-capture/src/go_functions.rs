//! Names of the functions of a program of Go, also of one whose symbols were left out (`-ldflags=-s`): the table by which
//! its runtime names them itself.
//!
//! The file may say anything: what does not fit has no name. Lines are not told: the table has them only together with
//! functions that were inlined, whose names lie where the file does not say.

use std::ops::Range;

use object::read::ReadRef;
use object::{Object, ObjectSection as _};

/// The table of Go 1.20 and later (`internal/abi/symtab.go`, 1.26). Position-independent programs have it among what is
/// relocated.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
const MAGIC: u32 = 0xffff_fff1;

/// What the runtime says of the program, from 1.26 on (`runtime.moduledata`), and where in that the address of its code is.
const MODULE: &str = ".go.module";
const TEXT_IN_MODULE: usize = 176;

/// How the function is called with which a program begins that no other linker has linked.
const FIRST: &str = "_rt0_";

/// The most that is read of a table: that of a large program takes 40 MB.
const MOST_BYTES: u64 = 64 << 20;

/// The most functions that are asked for by their names.
const MOST_NAMED: usize = 16;

/// The longest name.
const LONGEST: usize = 4096;

/// The functions of a file. Addresses are as the file states them.
#[derive(Debug)]
pub struct GoFunctions {
    table: Box<[u8]>,
    /// Where the code begins.
    text: u64,
    count: usize,
    /// Where parts of the table begin (`runtime.pcHeader`): names, files of each unit of compilation, names of files, what
    /// changes from instruction to instruction, and the list of functions.
    names: usize,
    units: usize,
    files: usize,
    steps: usize,
    list: usize,
}

/// A function of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFunction {
    /// Its name, with its package.
    pub name: String,
    /// Its first instruction.
    pub start: u64,
    /// The file of its source.
    pub file: Option<String>,
}

impl GoFunctions {
    /// True for a program of Go.
    pub fn are_in<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> bool {
        section_of(object).is_some()
    }

    /// Those of a file; `None` if it has no such table, or does not say where its code begins.
    pub fn of<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> Option<Self> {
        let section = section_of(object)?;
        (section.size() <= MOST_BYTES && object.is_64() && object.is_little_endian())
            .then_some(())?;
        let mut functions = Self::of_table(section.data().ok()?.into())?;
        if functions.text == 0 {
            let module = object.section_by_name(MODULE);
            let said = module.and_then(|module| word(module.data().ok()?, TEXT_IN_MODULE));
            if let Some(text) = said.filter(|text| *text != 0) {
                functions.text = text;
                return Some(functions);
            }
            // Else it begins with the section, if the program begins where it has to then.
            functions.text = object.section_by_name(".text")?.address();
            let first = functions.at(object.entry())?;
            (first.start == object.entry() && first.name.starts_with(FIRST)).then_some(())?;
        }
        Some(functions)
    }

    fn of_table(table: Box<[u8]>) -> Option<Self> {
        let part = |number: usize| usize::try_from(word(&table, 8 * number)?).ok();
        let is_known = half(&table, 0)? == MAGIC && table.get(7) == Some(&8);
        is_known.then_some(())?;
        Some(Self {
            count: part(1)?,
            text: word(&table, 24)?,
            names: part(4)?,
            units: part(5)?,
            files: part(6)?,
            steps: part(7)?,
            list: part(8)?,
            table,
        })
    }

    /// The function that has the instruction at an address.
    pub fn at(&self, address: u64) -> Option<GoFunction> {
        let at = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let (mut from, mut to) = (0, self.count);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.start_of(middle)? <= at {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        let number = from.checked_sub(1)?;
        // Behind the last begins nothing.
        (at < self.start_of(number + 1)?).then_some(())?;
        self.function(number)
    }

    /// Where the functions with these names are, at most sixteen. There may be several of one, for each way of
    /// passing arguments.
    pub fn named(&self, names: &[&str]) -> Vec<Range<u64>> {
        let range_of = |number: usize| {
            let bytes = self.table.get(self.name_at(self.place_of(number)?)?..)?;
            let is_called = |name: &&str| {
                bytes.starts_with(name.as_bytes()) && bytes.get(name.len()) == Some(&0)
            };
            names.iter().any(is_called).then_some(())?;
            let (start, end) = (self.start_of(number)?, self.start_of(number + 1)?);
            Some(self.address_of(start)?..self.address_of(end)?)
        };
        // No more fit into the table, whatever it says.
        let all = 0..self.count.min(self.table.len() / 8);
        all.filter_map(range_of).take(MOST_NAMED).collect()
    }

    fn address_of(&self, start: u32) -> Option<u64> {
        self.text.checked_add(u64::from(start))
    }

    fn function(&self, number: usize) -> Option<GoFunction> {
        let place = self.place_of(number)?;
        Some(GoFunction {
            name: self.name_of(place)?.to_owned(),
            start: self.address_of(self.start_of(number)?)?,
            file: self.file_of(place).map(str::to_owned),
        })
    }

    /// Where a function begins in the code, by its number; that after the last is where the last ends.
    fn start_of(&self, number: usize) -> Option<u32> {
        half(&self.table, self.in_list(number)?)
    }

    /// Where in the table a function is told (`runtime._func`).
    fn place_of(&self, number: usize) -> Option<usize> {
        let place = half(&self.table, self.in_list(number)?.checked_add(4)?)?;
        self.list.checked_add(usize::try_from(place).ok()?)
    }

    fn in_list(&self, number: usize) -> Option<usize> {
        self.list.checked_add(number.checked_mul(8)?)
    }

    fn name_of(&self, place: usize) -> Option<&str> {
        text(&self.table, self.name_at(place)?)
    }

    /// Where in the table the name of a function begins.
    fn name_at(&self, place: usize) -> Option<usize> {
        let name = usize::try_from(half(&self.table, place.checked_add(4)?)?).ok()?;
        self.names.checked_add(name)
    }

    /// The file of its first instruction, which is its own.
    fn file_of(&self, place: usize) -> Option<&str> {
        let field = |at: usize| {
            let field = half(&self.table, place.checked_add(at)?)?;
            (field != u32::MAX).then(|| usize::try_from(field).ok())?
        };
        let (steps, unit) = (field(20)?, field(32)?);
        let first = unsigned(self.table.get(self.steps.checked_add(steps)?..)?)?;
        // It counts from -1, and the sign is the last bit.
        let file = usize::try_from(first >> 1).ok()?.checked_sub(1)?;
        (first & 1 == 0).then_some(())?;
        let number = unit.checked_add(file)?.checked_mul(4)?;
        let name = half(&self.table, self.units.checked_add(number)?)?;
        (name != u32::MAX).then_some(())?;
        text(
            &self.table,
            self.files.checked_add(usize::try_from(name).ok()?)?,
        )
    }
}

/// The section with the table, if there is one.
fn section_of<'data, 'file, R: ReadRef<'data>>(
    object: &'file object::File<'data, R>,
) -> Option<object::Section<'data, 'file, R>> {
    let mut sections = SECTIONS.iter();
    sections.find_map(|name| object.section_by_name(name))
}

/// A number of variable length, at its beginning the last seven bits of it.
fn unsigned(bytes: &[u8]) -> Option<u32> {
    let mut number = 0;
    for (place, byte) in (0..5).zip(bytes) {
        number |= u32::from(byte & 0x7f).checked_shl(7 * place)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Text up to a zero.
fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let bytes = bytes.get(at..)?;
    let length = bytes.iter().take(LONGEST).position(|byte| *byte == 0)?;
    str::from_utf8(&bytes[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0x40_1000;

    /// A table with these functions: where they begin in the code, their names, and their files' numbers in the unit.
    fn table(functions: &[(u32, &str, u8)], end: u32, files: &[&str]) -> Vec<u8> {
        let mut parts: [Vec<u8>; 5] = Default::default();
        let number = |place: usize| u32::try_from(place).unwrap();
        let [names, units, paths, steps, list] = &mut parts;
        steps.push(0);
        for path in files {
            units.extend(number(paths.len()).to_le_bytes());
            paths.extend([path.as_bytes(), &[0]].concat());
        }
        let told = 8 * (functions.len() + 1);
        let mut bodies = Vec::new();
        for (start, name, file) in functions {
            list.extend(start.to_le_bytes());
            list.extend(number(told + bodies.len()).to_le_bytes());
            let (name_at, steps_at) = (number(names.len()), number(steps.len()));
            let fields = [*start, name_at, 0, 0, 0, steps_at, 0, 0, 0];
            bodies.extend(fields.map(u32::to_le_bytes).concat());
            names.extend([name.as_bytes(), &[0]].concat());
            // The next number is larger by that, for the whole function.
            steps.extend([2 * (file + 1), 1, 0]);
        }
        list.extend(end.to_le_bytes());
        list.extend([0; 4]);
        list.extend(bodies);
        let mut table = MAGIC.to_le_bytes().to_vec();
        table.extend([0, 0, 1, 8]);
        let counts = [functions.len(), files.len()];
        table.extend(counts.map(|count| (count as u64).to_le_bytes()).concat());
        table.extend(TEXT.to_le_bytes());
        let mut at = 72;
        for part in &parts {
            table.extend((at as u64).to_le_bytes());
            at += part.len();
        }
        table.extend(parts.concat());
        table
    }

    fn of(table: &[u8]) -> Option<GoFunctions> {
        GoFunctions::of_table(table.into())
    }

    const FUNCTIONS: [(u32, &str, u8); 4] = [
        (0, "runtime.goexit", 1),
        (0x20, "main.(*Shop).charge", 0),
        (0x80, "main.main", 0),
        (0xa0, "runtime.goexit", 1),
    ];
    const FILES: [&str; 2] = ["/app/main.go", "/usr/local/go/src/runtime/asm_amd64.s"];

    #[test]
    fn an_address_has_the_function_around_it() {
        let functions = of(&table(&FUNCTIONS, 0xb0, &FILES)).unwrap();
        let at = |offset: u64| functions.at(TEXT + offset);
        let charge = GoFunction {
            name: "main.(*Shop).charge".to_owned(),
            start: TEXT + 0x20,
            file: Some("/app/main.go".to_owned()),
        };
        assert_eq!((at(0x20), at(0x7f)), (Some(charge.clone()), Some(charge)));
        assert_eq!(at(0x80).unwrap().name, "main.main");
        assert_eq!(at(0xaf).unwrap().file.as_deref(), Some(FILES[1]));
        assert_eq!((at(0xb0), functions.at(TEXT - 1)), (None, None));
        let exits = [TEXT..TEXT + 0x20, TEXT + 0xa0..TEXT + 0xb0];
        assert_eq!(functions.named(&["runtime.goexit"]), exits);
    }

    #[test]
    fn a_table_that_is_cut_or_changed_ends_no_program() {
        let table = table(&FUNCTIONS, 0xb0, &FILES);
        let look = |table: &[u8]| {
            if let Some(functions) = of(table) {
                let _ = functions.named(&["main.main"]);
                for offset in 0..0xc0 {
                    let _ = functions.at(TEXT + offset);
                }
            }
        };
        (0..table.len()).for_each(|length| look(&table[..length]));
        for at in 0..table.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut changed = table.clone();
                changed[at] = value;
                look(&changed);
            }
        }
        let mut other = table;
        other[0] = 0xf0;
        assert!(of(&other).is_none(), "that of Go 1.18");
    }
}
