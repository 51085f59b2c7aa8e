//! The walk over a real stack, that of a thread of this test, beside another unwinder (framehop): wherever both find
//! a caller, it is the same, and this one reaches the function that the thread began with.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a failure is a failed test, and addresses have 64 bits here"
)]

use std::cell::RefCell;
use std::fs;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use swtch_unwind::{
    Chain, ChainEnd, CodeAt, REGISTERS, Registers, StackCode, StackCopy, TableSection,
    UnwindTables, chain,
};

/// Bytes that are copied of the stack: all of these tests use less.
const STACK: usize = 64 << 10;

/// A file of code in this process.
struct LoadedFile {
    range: Range<u64>,
    moved_by: u64,
    sections: Vec<(&'static str, u64, Vec<u8>)>,
}

impl LoadedFile {
    fn section(&self, name: &str) -> Option<TableSection<'_>> {
        let (_, address, bytes) = self.sections.iter().find(|(known, ..)| *known == name)?;
        Some(TableSection {
            address: *address,
            bytes,
        })
    }

    fn addresses(&self, name: &str) -> Option<Range<u64>> {
        let section = self.section(name)?;
        Some(section.address..section.address + section.bytes.len() as u64)
    }

    fn all() -> Vec<Self> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let code = maps.lines().filter(|line| line.contains(" r-xp "));
        code.filter_map(Self::of).collect()
    }

    fn of(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let (start, end) = fields[0].split_once('-')?;
        let (start, end, offset) = (number(start), number(end), number(fields[2]));
        let path = fields.get(5).filter(|path| path.starts_with('/'))?;
        let bytes = fs::read(path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let segment = file.segments().find(|segment| {
            let (from, length) = segment.file_range();
            segment.permissions().executable()
                && from / 4096 * 4096 <= offset
                && offset < from + length
        })?;
        let moved_by = (start - offset + segment.file_range().0).wrapping_sub(segment.address());
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((name, section.address(), section.data().unwrap().to_vec()))
        };
        let names = [".eh_frame", ".eh_frame_hdr", ".text", ".got"];
        Some(Self {
            range: start..end,
            moved_by,
            sections: names.into_iter().filter_map(section).collect(),
        })
    }
}

struct LoadedCode(Vec<LoadedFile>);

impl StackCode for LoadedCode {
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
        let Some(file) = self.0.iter().find(|file| file.range.contains(&address)) else {
            return CodeAt::Nothing;
        };
        let tables = UnwindTables {
            index: file.section(".eh_frame_hdr"),
            frames: file.section(".eh_frame"),
            text: file.section(".text").map(|section| section.address),
            got: file.section(".got").map(|section| section.address),
            ..UnwindTables::default()
        };
        look(&tables, file.moved_by);
        CodeAt::Code
    }
}

/// The registers of this thread, and what of its stack is in use.
struct OwnStack {
    registers: [u64; REGISTERS],
    stack: Vec<u8>,
}

impl OwnStack {
    #[inline(never)]
    fn take() -> Self {
        let mut context = MaybeUninit::<libc::ucontext_t>::zeroed();
        // SAFETY: the call fills the struct in.
        let context = unsafe {
            assert_eq!(libc::getcontext(context.as_mut_ptr()), 0);
            context.assume_init()
        };
        // In DWARF's order.
        let order = [
            libc::REG_RAX,
            libc::REG_RDX,
            libc::REG_RCX,
            libc::REG_RBX,
            libc::REG_RSI,
            libc::REG_RDI,
            libc::REG_RBP,
            libc::REG_RSP,
            libc::REG_R8,
            libc::REG_R9,
            libc::REG_R10,
            libc::REG_R11,
            libc::REG_R12,
            libc::REG_R13,
            libc::REG_R14,
            libc::REG_R15,
            libc::REG_RIP,
        ];
        let register = |one: i32| context.uc_mcontext.gregs[one as usize] as u64;
        let registers = order.map(register);
        let from = registers[7];
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let end = maps.lines().find_map(|line| {
            let (start, rest) = line.split_once('-')?;
            let end = u64::from_str_radix(rest.split(' ').next()?, 16).ok()?;
            let start = u64::from_str_radix(start, 16).ok()?;
            (start..end).contains(&from).then_some(end)
        });
        let length = (end.unwrap() - from).min(STACK as u64) as usize;
        let start = std::ptr::with_exposed_provenance::<u8>(from as usize);
        // SAFETY: the mapping of the stack goes that far, and nobody else writes there.
        let stack = unsafe { std::slice::from_raw_parts(start, length) }.to_vec();
        Self { registers, stack }
    }

    fn chain(&self, bytes: usize) -> Chain {
        let stack = StackCopy {
            start: self.registers[7],
            bytes: &self.stack[..bytes.min(self.stack.len())],
        };
        let registers = Registers::new(self.registers[16], self.registers.map(Some));
        chain(registers, stack, &LoadedCode(LoadedFile::all()), 500)
    }

    /// What framehop finds; each address lies inside of its call.
    fn by_the_other(&self) -> Vec<u64> {
        let mut unwinder = UnwinderX86_64::new();
        for file in LoadedFile::all() {
            let data = |name| Some(file.section(name)?.bytes.to_vec());
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: file.addresses(".text"),
                got_svma: file.addresses(".got"),
                eh_frame_svma: file.addresses(".eh_frame"),
                eh_frame: data(".eh_frame"),
                eh_frame_hdr_svma: file.addresses(".eh_frame_hdr"),
                eh_frame_hdr: data(".eh_frame_hdr"),
                ..ExplicitModuleSectionInfo::default()
            };
            let name = format!("{:x}", file.range.start);
            unwinder.add_module(Module::new(name, file.range, file.moved_by, sections));
        }
        let copy = StackCopy {
            start: self.registers[7],
            bytes: &self.stack,
        };
        let mut read = |address| copy.word(address).ok_or(());
        let [pc, sp, bp] = [16, 7, 6].map(|one| self.registers[one]);
        let mut cache: CacheX86_64 = CacheX86_64::new();
        let registers = UnwindRegsX86_64::new(pc, sp, bp);
        let mut frames = unwinder.iter_frames(pc, registers, &mut cache, &mut read);
        let mut addresses = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }
}

thread_local! {
    static TAKEN: RefCell<Option<OwnStack>> = const { RefCell::new(None) };
}

fn take() {
    TAKEN.set(Some(OwnStack::take()));
}

/// Takes the stack of a thread in which `run` calls [`take`].
fn taken(run: impl FnOnce() + Send + 'static) -> OwnStack {
    let thread = std::thread::spawn(|| {
        run();
        TAKEN.take().expect("a stack was taken")
    });
    thread.join().unwrap()
}

/// Takes the stack of a thread where it stands, and again while it runs `run`, which calls [`take`].
fn taken_twice(run: impl FnOnce() + Send + 'static) -> (OwnStack, OwnStack) {
    let thread = std::thread::spawn(|| {
        take();
        let before = TAKEN.take().expect("a stack was taken");
        run();
        (before, TAKEN.take().expect("a stack was taken"))
    });
    thread.join().unwrap()
}

#[inline(never)]
fn deeper(levels: u32) -> u64 {
    match levels {
        0 => take(),
        _ => {
            // What stands in callee-saved registers across the call.
            let before: Vec<u64> = (0..u64::from(levels)).map(black_box).collect();
            return deeper(levels - 1) + before.iter().sum::<u64>();
        }
    }
    black_box(1)
}

fn assert_both_agree(moment: &OwnStack, least: usize) -> Chain {
    let ours = moment.chain(usize::MAX);
    let theirs = moment.by_the_other();
    assert!(ours.addresses.len() >= least, "{ours:x?}");
    let both = ours.addresses.len().min(theirs.len());
    assert!(both > 1, "{theirs:x?}");
    assert_eq!(ours.addresses[..both], theirs[..both]);
    ours
}

#[test]
fn a_thread_is_followed_to_its_begin() {
    let moment = taken(|| {
        black_box(deeper(black_box(20)));
    });
    let chain = assert_both_agree(&moment, 22);
    assert_eq!(chain.end, ChainEnd::Root);
}

/// The C library of the distribution is built without frame pointers.
#[test]
fn a_chain_goes_through_the_c_library() {
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> i32 {
        take();
        0
    }
    let moment = taken(|| {
        let mut numbers = [3_u64, 1, 2];
        // SAFETY: there are three numbers of 8 bytes.
        unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 8, Some(compare)) };
    });
    assert_eq!(assert_both_agree(&moment, 5).end, ChainEnd::Root);
}

/// The tables of the C library say by expressions where the kernel has put the registers of what was interrupted.
#[test]
fn a_handler_of_a_signal_was_called_by_what_it_interrupted() {
    extern "C" fn handle(_: i32) {
        take();
    }
    let (before, within) = taken_twice(|| {
        // SAFETY: the handler allocates memory, and interrupts nothing but `raise`.
        unsafe {
            let handle: extern "C" fn(i32) = handle;
            libc::signal(libc::SIGUSR1, handle as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
    });
    let (before, within) = (before.chain(usize::MAX), within.chain(usize::MAX));
    assert_eq!(within.end, ChainEnd::Root);
    // The other unwinder follows no expression. Beyond the function that calls both are the same callers.
    let callers = &before.addresses[before.addresses.len() - 3..];
    assert!(
        within.addresses.ends_with(callers),
        "{within:x?} {before:x?}"
    );
    assert!(
        within.addresses.len() > before.addresses.len(),
        "{within:x?}"
    );
}

#[test]
fn a_copy_that_is_too_short_is_told() {
    let moment = taken(|| {
        black_box(deeper(black_box(20)));
    });
    let whole = moment.chain(usize::MAX).addresses;
    for bytes in (0..4096).step_by(64) {
        let part = moment.chain(bytes);
        if part.addresses.len() == whole.len() {
            assert!(bytes > 0);
            break;
        }
        assert_eq!(part.end, ChainEnd::Cut, "{bytes}");
        assert!(whole.starts_with(&part.addresses), "{bytes}");
    }
}

#[test]
fn no_more_frames_than_were_asked_for() {
    let moment = taken(|| {
        black_box(deeper(black_box(5)));
    });
    let stack = StackCopy {
        start: moment.registers[7],
        bytes: &moment.stack,
    };
    let registers = Registers::new(moment.registers[16], moment.registers.map(Some));
    let chain = chain(registers, stack, &LoadedCode(LoadedFile::all()), 3);
    assert_eq!((chain.addresses.len(), chain.end), (3, ChainEnd::TooDeep));
}
