//! The reasons why a task leaves its CPU: a closed list. Every switch-out has exactly one reason.

use std::fmt;

/// Defines an enum of words that appear in columns, help and docs: variant, word, one line of help.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$attribute:meta])* $variant:ident = $word:literal: $help:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[allow(clippy::doc_markdown, reason = "help lines are shown to people, not rendered")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $(#[doc = $help] $(#[$attribute])* $variant),+ }

        impl $name {
            /// All variants, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word used in columns, help and docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Returns what the word means, in one line.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),+ }
            }

            /// The variant with this word; `None` if there is none.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }

            /// Index of this variant in [`Self::ALL`], from 0.
            pub const fn index(self) -> usize {
                self as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The reason why a task left its CPU.
    Reason {
        Slice = "slice": "it used up its quantum (time slice) and the CPU was taken away",
        Wakeup = "wakeup": "a task of the same class woke up and was preferred",
        Class = "class": "a task of a higher class (stop, deadline, real time) took the CPU",
        Throttle = "throttle": "the CPU time that it may use was used up: its cgroup's CPU quota, its own SCHED_DEADLINE budget, or that of real-time tasks (the rule says which)",
        Migrate = "migrate": "the kernel moved it to another CPU (affinity change, balancing)",
        Other = "other": "the kernel asked for a reschedule for a reason known but rare (the rule says which)",
        Yield = "yield": "it called sched_yield",
        Futex = "futex": "it waited for another thread: futex (mutex, condition variable, join)",
        Ipc = "ipc": "it waited for another thread: System V or POSIX IPC, eventfd, file lock",
        Io = "io": "it waited for block I/O, a file or a device",
        Pipe = "pipe": "it waited for a pipe or FIFO",
        Net = "net": "it waited for a socket",
        Poll = "poll": "it waited for any of several: epoll, poll, select, io_uring",
        Sleep = "sleep": "it waited for time to pass or for a signal: nanosleep, pause, timerfd",
        Fault = "fault": "it waited for memory: page fault, reclaim, userfaultfd",
        Child = "child": "it waited for a child process: wait4, vfork",
        Stop = "stop": "it was stopped: job control, ptrace, freezer",
        Exit = "exit": "the task ended",
        Unknown = "unknown": "no evidence; shown and counted, never guessed away",
        Preemptive = "preemptive": "level user: it left its user-mode scheduler to run code that may block",
        Policy = "policy": "its own system call changed a scheduling policy or priority, and another task was preferred then",
        Blocked = "blocked": "it blocked, and what recorded it does not tell on what (imported, or recorded without root)",
        Preempted = "preempted": "it left while it could run on, preempted or by sched_yield, and what recorded it does not tell which (imported, or recorded without root)",
        Lock = "lock": "it waited for a lock of the kernel: of a file, of an address space, or another one",
    }
}

words! {
    /// The kind of a reason: the colour on a time line, the first line of a bill.
    Category {
        Preemption = "preemption": "the CPU was taken away",
        Yield = "yield": "it offered the CPU",
        Synchronization = "synchronization": "it waited for another thread",
        Io = "io": "it waited for data",
        Sleep = "sleep": "it waited for time",
        Memory = "memory": "it waited for memory",
        Wait = "wait": "it waited for a child, was stopped, or waited for something that is not told",
        Exit = "exit": "it ended",
        Unknown = "unknown": "no evidence",
    }
}

words! {
    /// The certainty of a reason.
    Certainty {
        Certain = "certain": "the kernel said so",
        Inferred = "inferred": "a rule of ours concluded it; the rule is named",
    }
}

impl Reason {
    /// The category of this reason: one category per reason.
    pub const fn category(self) -> Category {
        match self {
            Self::Slice
            | Self::Wakeup
            | Self::Class
            | Self::Throttle
            | Self::Migrate
            | Self::Other
            | Self::Policy
            | Self::Preempted => Category::Preemption,
            Self::Yield | Self::Preemptive => Category::Yield,
            Self::Futex | Self::Ipc | Self::Lock => Category::Synchronization,
            Self::Io | Self::Pipe | Self::Net | Self::Poll => Category::Io,
            Self::Sleep => Category::Sleep,
            Self::Fault => Category::Memory,
            Self::Child | Self::Stop | Self::Blocked => Category::Wait,
            Self::Exit => Category::Exit,
            Self::Unknown => Category::Unknown,
        }
    }
}
