//! Go: what its goroutines wait for, and where.
//!
//! ```text
//! allgs ─▶ goroutines ─▶ state, reason ─▶ waitReasonStrings
//!                  └▶ stack: where it goes on
//! ```
//!
//! A goroutine that waits has no thread: the kernel sees idle threads, whatever goroutines wait for. Its stack stays as it
//! is until another makes it runnable.

mod unlisted;

use std::fmt;

pub use unlisted::{reasons_in, version_in};

use crate::ProcessMemory;

/// The most goroutines that are read at once. Of more, those are read that chance takes.
pub const MOST_GOROUTINES: usize = 128;

/// The most that are believed to be there.
const MOST_BELIEVED: u64 = 1 << 24;

/// The longest version, and the longest name of a reason, in bytes.
const LONGEST_NAME: usize = 64;

/// States of a goroutine (`runtime/runtime2.go`); what looks for references in its stack adds a bit.
const RUNNABLE: u32 = 1;
const WAITING: u32 = 4;
const SCANNED: u32 = 0x1000;

/// Reasons for which goroutines of the runtime's own wait, or whose name ends so.
const OF_RUNTIME: [&str; 6] = [
    "GC scavenge wait",
    "GC sweep wait",
    "GC worker (active)",
    "cleanup wait",
    "finalizer wait",
    "trace reader (blocked)",
];
const IDLE: &str = "(idle)";

/// The versions whose layout is known, in words.
pub const SUPPORTED: &str = "Go 1.20 to 1.26";

/// Where the runtime keeps what is read, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoPlaces {
    /// `runtime.allgs`.
    pub goroutines: GoroutineList,
    /// `runtime.waitReasonStrings`.
    pub reasons: u64,
    /// `runtime.buildVersion`.
    pub version: GoVersion,
}

/// Where the list of goroutines is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoroutineList {
    /// There.
    At(u64),
    /// Somewhere from the first of these addresses on, and before the second.
    Within(u64, u64),
}

/// What says with which version a program was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoVersion {
    /// A text there.
    At(u64),
    /// Its file: with this minor version.
    Minor(u32),
}

impl GoPlaces {
    /// These in a process that has moved the file's addresses so far.
    pub const fn moved_by(self, by: u64) -> Self {
        Self {
            goroutines: match self.goroutines {
                GoroutineList::At(at) => GoroutineList::At(at.wrapping_add(by)),
                GoroutineList::Within(start, end) => {
                    GoroutineList::Within(start.wrapping_add(by), end.wrapping_add(by))
                }
            },
            reasons: self.reasons.wrapping_add(by),
            version: match self.version {
                GoVersion::At(at) => GoVersion::At(at.wrapping_add(by)),
                minor @ GoVersion::Minor(_) => minor,
            },
        }
    }
}

/// A runtime whose layout is known.
#[derive(Clone, Copy, Debug)]
pub struct Go {
    goroutines: u64,
    reasons: u64,
    layout: GoLayout,
}

/// Why goroutines of a program are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownGo {
    /// The layout of this minor version is not known; `None` if it does not tell its own.
    Version(Option<u32>),
    /// Its list of symbols was left out, and its goroutines were not found: perhaps there were none yet.
    NoList,
}

/// Where things are in `runtime.g`: on 64 bits the same on each processor. Stack and the registers that it goes on with are
/// where they have been since 1.20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GoLayout {
    frame_pointer: usize,
    state: usize,
    reason: usize,
}

/// The number of a goroutine stands behind its state and a lock.
const NUMBER_AFTER_STATE: usize = 8;

const STACK_START: usize = 0;
const STACK_END: usize = 8;
const STACK_POINTER: usize = 56;
const PC: usize = 64;

/// By minor version, as DWARF of programs says that 1.20.14, 1.21.13, 1.22.12, 1.23.12, 1.24.13, 1.25.5 and 1.26.8 built.
const LAYOUTS: [(std::ops::RangeInclusive<u32>, GoLayout); 3] = [
    (
        20..=22,
        GoLayout {
            frame_pointer: 104,
            state: 144,
            reason: 176,
        },
    ),
    (
        23..=24,
        GoLayout {
            frame_pointer: 104,
            state: 152,
            reason: 184,
        },
    ),
    (
        25..=26,
        GoLayout {
            frame_pointer: 96,
            state: 144,
            reason: 176,
        },
    ),
];

/// Some goroutines of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SomeGoroutines {
    /// The number that there are, those that have ended and are kept for new ones among them.
    pub all: u64,
    /// The number that were read.
    pub read: u64,
    /// Of these, the ones that wait or could run.
    pub idle: Vec<Goroutine>,
}

/// A goroutine without a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goroutine {
    address: u64,
    /// The number of the reason for which it waits; `None` for one that could run.
    pub reason: Option<u8>,
    /// The instruction that it goes on with.
    pub pc: u64,
    /// Its stack pointer, and where its stack ends.
    pub stack: (u64, u64),
    /// Its frame pointer.
    pub frame_pointer: u64,
}

impl Go {
    /// The runtime with these places.
    ///
    /// # Errors
    /// When its version is not known, or cannot be read.
    pub fn at(places: GoPlaces, memory: &impl ProcessMemory) -> Result<Self, UnknownGo> {
        let minor = match places.version {
            GoVersion::At(at) => text_at(at, memory).and_then(|version| minor_of(&version)),
            GoVersion::Minor(minor) => Some(minor),
        };
        let layout = minor.and_then(|minor| {
            let known = LAYOUTS.iter().find(|(minors, _)| minors.contains(&minor));
            known.map(|(_, layout)| *layout)
        });
        let layout = layout.ok_or(UnknownGo::Version(minor))?;
        let goroutines = match places.goroutines {
            GoroutineList::At(at) => at,
            GoroutineList::Within(start, end) => {
                let number_at = layout.state + NUMBER_AFTER_STATE;
                let found = unlisted::list_of_goroutines((start, end), number_at, memory);
                found.ok_or(UnknownGo::NoList)?
            }
        };
        Ok(Self {
            goroutines,
            reasons: places.reasons,
            layout,
        })
    }

    /// False once the memory is no longer there.
    pub fn is_there(&self, memory: &impl ProcessMemory) -> bool {
        memory.word(self.goroutines).is_some()
    }

    /// Goroutines without a thread: all, or [`MOST_GOROUTINES`] of many, of which `chance` takes one below a number.
    pub fn goroutines(
        &self,
        memory: &impl ProcessMemory,
        mut chance: impl FnMut(u64) -> u64,
    ) -> SomeGoroutines {
        let list = memory.word(self.goroutines);
        let all = memory.word(self.goroutines.wrapping_add(8));
        let (Some(list), Some(all)) = (list, all.filter(|all| *all <= MOST_BELIEVED)) else {
            return SomeGoroutines::default();
        };
        let most = MOST_GOROUTINES as u64;
        let read = all.min(most);
        let places = (0..read).map(|place| match all > most {
            true => chance(all),
            false => place,
        });
        let addresses = places.filter_map(|place| memory.word(list.wrapping_add(8 * place)));
        let idle = addresses.filter_map(|address| self.goroutine(address, memory));
        SomeGoroutines {
            all,
            read,
            idle: idle.collect(),
        }
    }

    /// The goroutine at an address, if it has no thread.
    fn goroutine(&self, address: u64, memory: &impl ProcessMemory) -> Option<Goroutine> {
        let mut bytes = [0; 192];
        memory.read(address, &mut bytes).then_some(())?;
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let state = *bytes.get(self.layout.state..)?.first_chunk()?;
        let reason = match u32::from_ne_bytes(state) & !SCANNED {
            WAITING => Some(*bytes.get(self.layout.reason)?),
            RUNNABLE => None,
            _ => return None,
        };
        let (start, end, pointer) = (word(STACK_START)?, word(STACK_END)?, word(STACK_POINTER)?);
        let found = Goroutine {
            address,
            reason,
            pc: word(PC)?,
            stack: (pointer, end),
            frame_pointer: word(self.layout.frame_pointer)?,
        };
        (start <= pointer && pointer < end).then_some(found)
    }

    /// True if a goroutine is as it was: what was read of its stack since then is its own.
    pub fn is_as_it_was(&self, one: &Goroutine, memory: &impl ProcessMemory) -> bool {
        self.goroutine(one.address, memory).as_ref() == Some(one)
    }

    /// The name of a reason; `None` if there is no such one, or if goroutines of the runtime's own wait for it until there
    /// is something to do.
    pub fn reason(&self, number: u8, memory: &impl ProcessMemory) -> Option<String> {
        let place = self.reasons.wrapping_add(16 * u64::from(number));
        let name = text_at(place, memory)?;
        let is_of_runtime = OF_RUNTIME.contains(&name.as_str()) || name.ends_with(IDLE);
        (!name.is_empty() && !is_of_runtime).then_some(name)
    }
}

impl fmt::Display for UnknownGo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(Some(minor)) => write!(f, "Go 1.{minor}"),
            Self::Version(None) => write!(f, "a Go that does not tell its version"),
            Self::NoList => write!(f, "a program without a list of symbols (-ldflags=-s)"),
        }
    }
}

/// The minor version of `go1.26.8`, or of `go1.26-9f3b… +builders`.
fn minor_of(version: &str) -> Option<u32> {
    let digits = version.strip_prefix("go1.")?;
    let end = digits.find(|one: char| !one.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// A string of Go: an address and a length.
fn text_at(address: u64, memory: &impl ProcessMemory) -> Option<String> {
    let start = memory.word(address)?;
    let length = memory.word(address.wrapping_add(8))?;
    let bytes = memory.bytes(start, length, LONGEST_NAME)?;
    let text = String::from_utf8(bytes).ok()?;
    text.chars()
        .all(|one| one.is_ascii_graphic() || one == ' ')
        .then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{MadeUp, Wild};

    const VERSION: u64 = 0x3000;
    const PLACES: GoPlaces = GoPlaces {
        goroutines: GoroutineList::At(0x1000),
        reasons: 0x2000,
        version: GoVersion::At(VERSION),
    };
    const NAMES: [&str; 4] = ["", "sync.Mutex.Lock", "GC worker (idle)", "finalizer wait"];

    fn put_text(memory: &mut MadeUp, at: u64, text: &str, bytes_at: u64) {
        memory.put_word(at, bytes_at);
        memory.put_word(at + 8, text.len() as u64);
        memory.put(bytes_at, text.as_bytes());
    }

    /// A process of this version with goroutines in these states, each with the number of its place as its reason.
    fn process(version: &str, layout: GoLayout, states: &[u32]) -> MadeUp {
        let mut memory = MadeUp::up_to(0x10_0000);
        put_text(&mut memory, VERSION, version, 0x4000);
        for (place, name) in (0..).zip(NAMES) {
            put_text(
                &mut memory,
                PLACES.reasons + 16 * place,
                name,
                0x5000 + 0x100 * place,
            );
        }
        for (place, word) in (0..).zip([0x8000, states.len() as u64, states.len() as u64]) {
            memory.put_word(0x1000 + 8 * place, word);
        }
        for (place, state) in (0_u8..).zip(states) {
            let number = u64::from(place);
            let (at, stack) = (0x9000 + 0x400 * number, 0x4_0000 + 0x1000 * number);
            memory.put_word(0x8000 + 8 * number, at);
            memory.put_word(at, stack);
            memory.put_word(at + 8, stack + 0x800);
            memory.put_word(at + 56, stack + 0x700);
            memory.put_word(at + 64, 0x40_0000 + number);
            memory.put_word(at + layout.frame_pointer as u64, stack + 0x780);
            memory.put(at + layout.state as u64, &state.to_ne_bytes());
            memory.put_word(at + layout.state as u64 + 8, number + 1);
            memory.put(at + layout.reason as u64, &[place]);
        }
        memory
    }

    #[test]
    fn goroutines_without_a_thread_are_found_with_what_they_wait_for() {
        for (version, layout) in [
            ("go1.22.1", LAYOUTS[0].1),
            ("go1.24", LAYOUTS[1].1),
            ("go1.26-devel +x", LAYOUTS[2].1),
        ] {
            // One could run, one waits and its stack is looked through, one runs, one is in a system call, one has ended.
            let memory = process(version, layout, &[RUNNABLE, WAITING | SCANNED, 2, 3, 6]);
            let go = Go::at(PLACES, &memory).unwrap();
            let found = go.goroutines(&memory, |_| panic!("they are few"));
            assert_eq!((found.all, found.read), (5, 5));
            let reasons: Vec<_> = found.idle.iter().map(|one| one.reason).collect();
            assert_eq!(reasons, [None, Some(1)], "{version}");
            let waits = found.idle[1];
            assert_eq!((waits.pc, waits.stack), (0x40_0001, (0x4_1700, 0x4_1800)));
            assert_eq!(waits.frame_pointer, 0x4_1780);
            assert!(go.is_as_it_was(&waits, &memory) && go.is_there(&memory));
        }
    }

    #[test]
    fn without_a_list_of_symbols_they_are_the_same() {
        for (minor, layout) in [(22, LAYOUTS[0].1), (24, LAYOUTS[1].1), (26, LAYOUTS[2].1)] {
            let memory = process("", layout, &[WAITING, WAITING, 3]);
            let places = GoPlaces {
                goroutines: GoroutineList::Within(0x800, 0x1800),
                version: GoVersion::Minor(minor),
                ..PLACES
            };
            let go = Go::at(places, &memory).unwrap();
            assert_eq!(go.goroutines(&memory, |_| 0).idle.len(), 2, "1.{minor}");
            let before = GoPlaces {
                goroutines: GoroutineList::Within(0x100, 0x1000),
                ..places
            };
            assert_eq!(Go::at(before, &memory).unwrap_err(), UnknownGo::NoList);
            assert!(Go::at(before.moved_by(0x100), &memory).is_ok());
        }
    }

    #[test]
    fn one_that_ran_on_is_not_as_it_was() {
        let mut memory = process("go1.26.8", LAYOUTS[2].1, &[WAITING]);
        let go = Go::at(PLACES, &memory).unwrap();
        let one = go.goroutines(&memory, |_| 0).idle[0];
        memory.put_word(0x9000 + 56, 0x4_0600);
        assert!(!go.is_as_it_was(&one, &memory));
        // One whose stack pointer is not in its stack is none.
        memory.put_word(0x9000 + 56, 0x5_0000);
        assert_eq!(go.goroutines(&memory, |_| 0).idle, []);
    }

    #[test]
    fn reasons_of_the_runtimes_own_are_left_out() {
        let memory = process("go1.26.8", LAYOUTS[2].1, &[]);
        let go = Go::at(PLACES, &memory).unwrap();
        let names: Vec<_> = (0..5).map(|number| go.reason(number, &memory)).collect();
        assert_eq!(
            names,
            [None, Some("sync.Mutex.Lock".to_owned()), None, None, None]
        );
    }

    #[test]
    fn of_very_many_chance_takes_some() {
        let memory = process("go1.26.8", LAYOUTS[2].1, &[WAITING; 200]);
        let go = Go::at(PLACES, &memory).unwrap();
        let found = go.goroutines(&memory, |all| all - 1);
        assert_eq!((found.all, found.read, found.idle.len()), (200, 128, 128));
    }

    #[test]
    fn a_version_that_is_not_known_is_told() {
        let told = |version| {
            let memory = process(version, LAYOUTS[0].1, &[]);
            Go::at(PLACES, &memory).unwrap_err().to_string()
        };
        assert_eq!(told("go1.19.13"), "Go 1.19");
        assert_eq!(told("go1.27rc1"), "Go 1.27");
        assert_eq!(told("devel"), "a Go that does not tell its version");
        assert_eq!(
            told("go1.\u{1b}[31m"),
            "a Go that does not tell its version"
        );
    }

    #[test]
    fn any_memory_is_read_to_an_end() {
        for seed in 0..2_000 {
            let memory = Wild(seed);
            assert!(Go::at(PLACES, &memory).is_err());
            let layout = LAYOUTS[2].1;
            let go = Go {
                goroutines: 0x1000,
                reasons: 0x2000,
                layout,
            };
            let found = go.goroutines(&memory, |all| seed % all);
            assert!(found.idle.len() <= MOST_GOROUTINES);
            for one in &found.idle {
                assert!(one.stack.0 < one.stack.1);
                let _ = go.is_as_it_was(one, &memory);
            }
            let _ = go.reason(1, &memory);
        }
    }
}
