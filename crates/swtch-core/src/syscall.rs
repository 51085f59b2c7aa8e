//! Tells what a task waits for when it blocks in a system call. Numbers differ by architecture, so rules use [`Waits`],
//! and a [`SyscallTable`] turns a number into it.

use crate::evidence::WaitObject;

/// Architectures whose system call numbers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit x86, `x86_64` in `uname -m`.
    X86_64,
    /// 64-bit ARM, `aarch64` in `uname -m`.
    Aarch64,
}

impl Arch {
    /// The architecture that `uname -m` names; `None` for others.
    pub fn from_machine(machine: &str) -> Option<Self> {
        match machine {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Name of a system call; `None` for a number this table does not know.
    pub fn syscall_name(self, number: u32) -> Option<&'static str> {
        let number = usize::try_from(number).ok()?;
        match self {
            Self::X86_64 => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
            Self::Aarch64 => syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
        }
    }

    /// Returns true if a call with this number hands over data: who blocks in it waits for room, and never for data.
    pub fn hands_over(self, number: u32) -> bool {
        const CALLS: [&str; 9] = [
            "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "sendmmsg",
            "vmsplice",
        ];
        self.syscall_name(number)
            .is_some_and(|name| CALLS.contains(&name))
    }
}

/// The thing for which a task blocks in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// A futex word: the first argument is its address.
    Futex,
    /// Other threads, by System V or POSIX message queue or semaphore, or a file lock.
    Ipc,
    /// Any of several files, such as in `epoll_wait`.
    Poll,
    /// As [`Waits::Poll`]; the argument with this index is the number of files.
    PollCounted(usize),
    /// The passing of time, or a signal.
    Sleep,
    /// The exit of a child process (also `vfork`).
    Child,
    /// A child that shares the address space, when the flags in the first argument say vfork
    /// (for `clone3` the capture puts the flags there).
    CloneMaybeVfork,
    /// The file behind the descriptor in the first argument.
    File,
    /// A socket, whose descriptor is the first argument.
    Socket,
    /// File system metadata or write-back.
    FileSystem,
    /// `fcntl`, which waits only for locks.
    Fcntl,
    /// Memory management: the address space's lock, or reclaim.
    Memory,
    /// A change of the allowed CPUs.
    Affinity,
    /// A change of a scheduling policy or priority, which does not block.
    Policy,
    /// `sched_yield`, which does not block.
    Yield,
    /// The end of the calling task (`exit`).
    Exit,
    /// The call does not say what it waits for, or its number is unknown.
    Untold,
}

impl Waits {
    /// Returns true if the task waits for the file behind the first argument.
    pub const fn is_on_file(self) -> bool {
        matches!(self, Self::File | Self::Socket)
    }

    /// Returns true if the rules read the call's arguments.
    pub(crate) const fn are_told_by_arguments(self) -> bool {
        matches!(
            self,
            Self::PollCounted(_) | Self::Fcntl | Self::CloneMaybeVfork
        )
    }
}

/// System calls by what they wait for. Names are those of the man pages; where architectures
/// differ, both forms are listed.
const WAITS: &[(Waits, &[&str])] = &[
    (
        Waits::Futex,
        &["futex", "futex_wait", "futex_waitv", "futex_requeue"],
    ),
    (
        Waits::Ipc,
        &[
            "semop",
            "semtimedop",
            "msgsnd",
            "msgrcv",
            "mq_timedsend",
            "mq_timedreceive",
            "flock",
        ],
    ),
    (
        Waits::Poll,
        &[
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "io_uring_enter",
            "io_getevents",
        ],
    ),
    (Waits::Poll, &["io_pgetevents"]),
    (Waits::PollCounted(1), &["poll", "ppoll"]),
    (Waits::PollCounted(0), &["select", "pselect6"]),
    (
        Waits::Sleep,
        &[
            "nanosleep",
            "clock_nanosleep",
            "pause",
            "rt_sigsuspend",
            "rt_sigtimedwait",
        ],
    ),
    (Waits::Child, &["wait4", "waitid", "vfork"]),
    (Waits::CloneMaybeVfork, &["clone", "clone3"]),
    (
        Waits::File,
        &[
            "read",
            "write",
            "readv",
            "writev",
            "pread64",
            "pwrite64",
            "preadv",
            "pwritev",
            "preadv2",
            "pwritev2",
            "splice",
            "tee",
            "vmsplice",
            "sendfile",
            "copy_file_range",
        ],
    ),
    (
        Waits::Socket,
        &[
            "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg", "accept",
            "accept4", "connect", "shutdown",
        ],
    ),
    (
        Waits::FileSystem,
        &[
            "open",
            "openat",
            "openat2",
            "creat",
            "close",
            "stat",
            "lstat",
            "fstat",
            "newfstatat",
            "statx",
            "access",
            "faccessat",
            "faccessat2",
            "getdents",
            "getdents64",
            "mkdir",
            "mkdirat",
            "rmdir",
            "rename",
            "renameat",
            "renameat2",
            "link",
            "linkat",
            "symlink",
            "symlinkat",
            "unlink",
            "unlinkat",
            "readlink",
            "readlinkat",
            "truncate",
            "ftruncate",
            "fallocate",
            "chmod",
            "fchmod",
            "fchmodat",
            "chown",
            "fchown",
            "fchownat",
            "utimensat",
            "fsync",
            "fdatasync",
            "sync",
            "syncfs",
            "sync_file_range",
            "msync",
            "readahead",
            "lseek",
            "mount",
            "umount2",
            "statfs",
            "fstatfs",
        ],
    ),
    (Waits::Fcntl, &["fcntl"]),
    (
        Waits::Memory,
        &[
            "mmap",
            "munmap",
            "mremap",
            "mprotect",
            "brk",
            "madvise",
            "mlock",
            "mlock2",
            "mlockall",
            "munlock",
            "munlockall",
            "mbind",
            "move_pages",
            "process_madvise",
        ],
    ),
    (Waits::Affinity, &["sched_setaffinity"]),
    (
        Waits::Policy,
        &[
            "sched_setscheduler",
            "sched_setparam",
            "sched_setattr",
            "setpriority",
        ],
    ),
    (Waits::Yield, &["sched_yield"]),
    (Waits::Exit, &["exit", "exit_group"]),
];

/// A table of what each system call of one architecture waits for, by number.
#[derive(Clone, Debug)]
pub struct SyscallTable {
    arch: Arch,
    waits: Vec<Waits>,
}

impl SyscallTable {
    /// Numbers end far below this on every architecture (`include/uapi/asm-generic/unistd.h`).
    const NUMBERS: u32 = 1024;

    /// The table of one architecture.
    pub fn of(arch: Arch) -> Self {
        let waits_by_name = |name: &str| {
            WAITS
                .iter()
                .find(|(_, names)| names.contains(&name))
                .map_or(Waits::Untold, |row| row.0)
        };
        let waits = (0..Self::NUMBERS)
            .map(|number| {
                arch.syscall_name(number)
                    .map_or(Waits::Untold, waits_by_name)
            })
            .collect();
        Self { arch, waits }
    }

    /// Returns what a task blocked in this call waits for. Unknown numbers give [`Waits::Untold`].
    pub fn waits(&self, number: u32) -> Waits {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        self.waits.get(index).copied().unwrap_or(Waits::Untold)
    }

    /// Numbers of the calls whose first argument is a file descriptor that the call may wait on.
    /// The capture looks at the file only for these.
    pub fn numbers_on_files(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.waits)
            .filter(|(_, waits)| waits.is_on_file())
            .map(|(number, _)| number)
    }

    /// Numbers of the calls whose arguments the rules read. A summary keeps what they read only for
    /// these.
    pub fn numbers_with_arguments(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.waits)
            .filter(|(_, waits)| waits.are_told_by_arguments())
            .map(|(number, _)| number)
    }

    /// Numbers of the calls that wait on the futex word whose address is their first argument.
    pub fn numbers_on_futexes(&self) -> impl Iterator<Item = u32> {
        ["futex", "futex_wait"]
            .into_iter()
            .filter_map(|name| self.number_named(name))
    }

    /// Number of the call with this name, for the capture.
    pub fn number_named(&self, name: &str) -> Option<u32> {
        (0..Self::NUMBERS).find(|number| self.arch.syscall_name(*number) == Some(name))
    }
}

/// Returns true if this is a file on disk or a block device, whose reads and writes wait for block I/O.
pub(crate) const fn is_plain_file(object: WaitObject) -> bool {
    matches!(object, WaitObject::Regular | WaitObject::Block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelt name would silently become [`Waits::Untold`].
    #[test]
    fn every_name_is_a_system_call_of_x86_64() {
        let known: Vec<_> = (0..SyscallTable::NUMBERS)
            .filter_map(|n| Arch::X86_64.syscall_name(n))
            .collect();
        let misspelt: Vec<_> = WAITS
            .iter()
            .flat_map(|row| row.1)
            .filter(|name| !known.contains(name))
            .collect();
        assert!(misspelt.is_empty(), "{misspelt:?}");
    }

    #[test]
    fn numbers_differ_by_architecture_and_meaning_does_not() {
        let (x86, arm) = (
            SyscallTable::of(Arch::X86_64),
            SyscallTable::of(Arch::Aarch64),
        );
        assert_eq!(x86.waits(202), Waits::Futex);
        assert_eq!(arm.waits(98), Waits::Futex);
        assert_eq!(x86.number_named("sched_yield"), Some(24));
        assert_eq!(arm.number_named("sched_yield"), Some(124));
    }

    #[test]
    fn a_number_out_of_the_table_tells_nothing() {
        assert_eq!(
            SyscallTable::of(Arch::X86_64).waits(u32::MAX),
            Waits::Untold
        );
    }
}
