//! Resource limits of this process (`setrlimit(2)`, `ulimit` in a shell): how it lives within them, and
//! names the one that is in its way.
//!
//! ```text
//! start ─▶ soft limits on open files and on the stack are raised to the hard ones
//!            │  a file too large:  the signal ends nothing, so the write fails and is told
//!            │  no memory left, CPU time nearly used up:  the limit is named, and the process ends with 2
//!            └▶ fork ─▶ the command gets the limits that were inherited ─▶ exec
//! ```
//!
//! The limits on memory, on the size of files and on CPU time are left as they are: whoever set them
//! wants this process to keep within them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::process_cpu_ns;
use crate::error::Error;
use crate::signals::{catch, not_ignored};

/// The C library's type for a kind of limit.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// A limit that can be in the way, by its letter in `ulimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceLimit {
    /// `-n`: open files and other descriptors.
    OpenFiles,
    /// `-s`: the stack of the first thread.
    Stack,
    /// `-d`: memory that can be written.
    Data,
    /// `-v`: all memory that is mapped.
    AddressSpace,
    /// `-f`: the size of a file that is written.
    FileSize,
    /// `-t`: CPU time.
    CpuTime,
    /// `-u`: processes and threads of the user.
    Processes,
}

impl ResourceLimit {
    /// Returns what it limits, and how a shell calls it.
    const fn words(self) -> &'static str {
        match self {
            Self::OpenFiles => "open files (ulimit -n)",
            Self::Stack => "the stack (ulimit -s)",
            Self::Data => "memory (ulimit -d)",
            Self::AddressSpace => "mapped memory (ulimit -v)",
            Self::FileSize => "the size of a file (ulimit -f)",
            Self::CpuTime => "CPU time (ulimit -t)",
            Self::Processes => "processes and threads of a user (ulimit -u)",
        }
    }

    const fn resource(self) -> Resource {
        match self {
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::Stack => libc::RLIMIT_STACK,
            Self::Data => libc::RLIMIT_DATA,
            Self::AddressSpace => libc::RLIMIT_AS,
            Self::FileSize => libc::RLIMIT_FSIZE,
            Self::CpuTime => libc::RLIMIT_CPU,
            Self::Processes => libc::RLIMIT_NPROC,
        }
    }

    /// The soft and the hard limit.
    fn both(self) -> libc::rlimit {
        let mut both = MaybeUninit::<libc::rlimit>::zeroed();
        // SAFETY: the call fills the struct; if it fails, the struct stays zero, which is one.
        unsafe {
            libc::getrlimit(self.resource(), both.as_mut_ptr());
            both.assume_init()
        }
    }

    /// The limit in force, in its unit; `None` if there is none.
    pub fn in_force(self) -> Option<u64> {
        let soft = self.both().rlim_cur;
        (soft != libc::RLIM_INFINITY).then_some(soft)
    }

    /// An amount in the unit that a person knows it by.
    const fn amount(self, amount: u64) -> LimitAmount {
        match self {
            Self::OpenFiles | Self::Processes => LimitAmount(amount, ""),
            Self::CpuTime => LimitAmount(amount, " s"),
            Self::Stack | Self::Data | Self::AddressSpace | Self::FileSize => {
                LimitAmount(amount.div_ceil(1024), " KB")
            }
        }
    }
}

/// `the limit on open files (ulimit -n) is 24`
impl fmt::Display for ResourceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limit on {} is ", self.words())?;
        match self.in_force() {
            Some(limit) => self.amount(limit).fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// A number and its unit.
struct LimitAmount(u64, &'static str);

impl fmt::Display for LimitAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, self.1)
    }
}

/// A limit that is too low for what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct TooLow {
    limit: ResourceLimit,
    needed: u64,
}

impl fmt::Display for TooLow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = self.limit.amount(self.needed);
        write!(f, "{}, and {needed} are needed", self.limit)
    }
}

/// Stack that the first thread needs, in bytes: two to three times what was seen in a program that is
/// not optimised.
const STACK: u64 = 512 << 10;

/// Limits that are raised for this process. Commands that are recorded get the ones that it inherited
/// ([`hand_limits_down`]).
const RAISED: [ResourceLimit; 2] = [ResourceLimit::OpenFiles, ResourceLimit::Stack];

/// The limits of [`RAISED`] as this process inherited them.
static INHERITED: OnceLock<[libc::rlimit; 2]> = OnceLock::new();

/// Prepares this process for its limits, before anything else runs in it.
///
/// # Errors
/// [`Error::Limit`] when the stack would not do, before any of it is needed.
pub fn live_within_limits() -> Result<(), Error> {
    extern "C" fn go_on(_: i32) {}
    INHERITED.get_or_init(|| RAISED.map(ResourceLimit::both));
    RAISED.into_iter().for_each(raise);
    // Its default action would end this process before the failed write could be told.
    catch(&not_ignored(&[libc::SIGXFSZ]), go_on);
    end_before_cpu_time_is_up();
    require(ResourceLimit::Stack, STACK)
}

/// Raises a soft limit as far as is needed, and to the hard one at most. Where that is refused, the limit
/// stays as it is.
fn raise(limit: ResourceLimit) {
    let mut both = limit.both();
    let needed = match limit {
        // Not further: a program that inherits an unlimited stack has another layout of its memory.
        ResourceLimit::Stack => STACK.max(both.rlim_cur),
        _ => both.rlim_max,
    };
    both.rlim_cur = both.rlim_max.min(needed);
    // SAFETY: the call only reads the struct.
    unsafe { libc::setrlimit(limit.resource(), &raw const both) };
}

/// Checks that a limit leaves room for so much.
///
/// # Errors
/// [`Error::Limit`] when it does not.
pub fn require(limit: ResourceLimit, needed: u64) -> Result<(), Error> {
    match limit.in_force() {
        Some(most) if most < needed => Err(Error::Limit(TooLow { limit, needed })),
        _ => Ok(()),
    }
}

/// Makes a command start with the limits that this process was started with. Where it replaces this process,
/// the timer goes with it.
pub fn hand_limits_down(command: &mut Command) {
    let Some(inherited) = INHERITED.get() else {
        return;
    };
    let hand_down = move || -> io::Result<()> {
        for (limit, inherited) in RAISED.into_iter().zip(inherited) {
            // SAFETY: the call only reads the struct, which is never dropped.
            if unsafe { libc::setrlimit(limit.resource(), inherited) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: a timer is a struct of numbers, of which 0 switches it off; the call only reads it.
        unsafe {
            let off = MaybeUninit::<libc::itimerval>::zeroed();
            libc::setitimer(libc::ITIMER_PROF, off.as_ptr(), ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only setrlimit(2) and setitimer(2) are called, which are plain
    // system calls.
    unsafe { command.pre_exec(hand_down) };
}

/// The limit that an error of the system is about, in words, by what the error says; `None` if it is about
/// none. Errors of libbpf tell their number in their text only.
pub fn limit_behind(error: &str) -> Option<String> {
    let number = error.rsplit_once("(os error ")?.1;
    let number: i32 = number.split_once(')')?.0.parse().ok()?;
    let limits: &[ResourceLimit] = match number {
        libc::EMFILE => &[ResourceLimit::OpenFiles],
        libc::EFBIG => &[ResourceLimit::FileSize],
        libc::ENOMEM => &MEMORY,
        // A thread that cannot be started: its stack takes memory, too.
        libc::EAGAIN => &[MEMORY[0], MEMORY[1], ResourceLimit::Processes],
        _ => &[],
    };
    let set = limits.iter().filter(|limit| limit.in_force().is_some());
    let words: Vec<_> = set.map(ToString::to_string).collect();
    (!words.is_empty()).then(|| words.join(", and "))
}

/// Limits that can leave no memory.
const MEMORY: [ResourceLimit; 2] = [ResourceLimit::Data, ResourceLimit::AddressSpace];

/// CPU time that is left when [`end_for`] is called: less than the kernel's tick would be too late.
const CPU_TIME_LEFT: Duration = Duration::from_millis(100);

/// Has this process end with words just before the kernel would end it without any. What it has written
/// until then is as after a kill.
fn end_before_cpu_time_is_up() {
    extern "C" fn end(_: i32) {
        end_for(&[ResourceLimit::CpuTime]);
    }
    let Some(seconds) = ResourceLimit::CpuTime.in_force() else {
        return;
    };
    let used = Duration::from_nanos(process_cpu_ns());
    let left = Duration::from_secs(seconds).saturating_sub(used + CPU_TIME_LEFT);
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            // A time of 0 would switch the timer off.
            tv_usec: left.subsec_micros().max(1).into(),
        },
    };
    catch(&not_ignored(&[libc::SIGPROF]), end);
    // SAFETY: the call only reads the timer.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
}

/// Fails once half of the CPU time is used that this process may use: what a recording has gathered takes CPU time,
/// too, until it is a finished trace.
///
/// # Errors
/// [`Error::CpuTime`] if it is.
pub fn require_cpu_time() -> Result<(), Error> {
    match ResourceLimit::CpuTime.in_force() {
        Some(seconds) if process_cpu_ns() / 500_000_000 >= seconds => Err(Error::CpuTime),
        _ => Ok(()),
    }
}

/// Names the limits that are set of these, and ends the process with 2. It may be called from a signal
/// handler, and where there is no memory.
fn end_for(limits: &[ResourceLimit]) -> ! {
    let mut text = [0; 256];
    let mut room = &mut text[..];
    // What finds no room is left out.
    let _ = write!(room, "error: there is no more of what this program needs");
    for limit in limits.iter().filter(|limit| limit.in_force().is_some()) {
        let _ = write!(room, "; {limit}");
    }
    let _ = writeln!(room);
    let left = room.len();
    let said = text.len() - left;
    // SAFETY: writes bytes of a local array, and ends the process.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), said);
        libc::_exit(2)
    }
}

/// The system's allocator. Where a limit leaves no memory, it names the limit and ends the process with 2:
/// the standard library would abort it.
#[derive(Debug)]
pub struct LimitNamingAllocator;

impl LimitNamingAllocator {
    fn checked(memory: *mut u8) -> *mut u8 {
        if memory.is_null() && MEMORY.iter().any(|limit| limit.in_force().is_some()) {
            end_for(&MEMORY);
        }
        memory
    }
}

// SAFETY: each call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for LimitNamingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the promises of this call.
        Self::checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Self::checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        Self::checked(unsafe { System.realloc(memory, layout, size) })
    }
}
