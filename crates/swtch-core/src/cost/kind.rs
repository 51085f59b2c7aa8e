//! The kind of switch that a price is for: what is switched, how, where, and under which policy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A closed list of words: the same in code, on the command line, in files and in tables.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// All variants, in the order of tables.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in files, tables and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The variant with this word; `None` if there is none.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// With what the turn is handed on.
    Primitive {
        /// A byte in a pipe.
        Pipe = "pipe",
        /// A byte in a pair of Unix stream sockets.
        SocketPair = "socketpair",
        /// A byte over TCP on the loopback device, without delay (`TCP_NODELAY`).
        Tcp = "tcp",
        /// A count in an eventfd.
        Eventfd = "eventfd",
        /// A byte in a pipe that is waited for in epoll.
        Epoll = "epoll",
        /// A futex word, private to the process.
        FutexPrivate = "futex-private",
        /// A futex word in shared memory.
        FutexShared = "futex-shared",
        /// Locks in a ring, one more than members.
        MutexRing = "mutex-ring",
        /// A flag behind a mutex and a condition variable; signalled after unlocking.
        Condvar = "condvar",
        /// A POSIX semaphore.
        PosixSemaphore = "posix-semaphore",
        /// A System V semaphore.
        SysvSemaphore = "sysv-semaphore",
        /// A message of one byte in a POSIX message queue.
        MessageQueue = "message-queue",
        /// A signal to one thread, taken by `sigtimedwait`.
        Signal = "signal",
        /// `sched_yield`.
        Yield = "yield",
    }
}

words! {
    /// The members that take turns.
    Members {
        /// Threads of one process.
        Threads = "threads",
        /// Processes, each with an address space of its own.
        Processes = "processes",
    }
}

words! {
    /// The place where the two members of a pair run.
    Place {
        /// On one CPU: a hand-over is a switch.
        SameCpu = "same-cpu",
        /// On two hardware threads of one core.
        SmtSibling = "smt-sibling",
        /// On two cores that share their last-level cache.
        SameCache = "same-cache",
        /// On two cores of one node without a cache in common.
        OtherCache = "other-cache",
        /// On two NUMA nodes.
        OtherNode = "other-node",
        /// Wherever the kernel puts them.
        Free = "free",
    }
}

impl Place {
    /// Returns true if a hand-over here is a remote wake-up (interrupt to another CPU, exit from idle) rather than a
    /// switch between two tasks of one CPU.
    pub const fn is_remote(self) -> bool {
        !matches!(self, Self::SameCpu)
    }
}

words! {
    /// The policy by which the scheduler treats the members.
    Policy {
        /// `SCHED_OTHER`, what applications see: who is woken may preempt its waker.
        Default = "default",
        /// `SCHED_BATCH`: who is woken waits until its waker blocks, so a hop is one switch.
        Batch = "batch",
        /// `SCHED_FIFO`, lowest priority.
        Fifo = "fifo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_leads_back_to_its_primitive() {
        for primitive in Primitive::ALL {
            assert_eq!(Primitive::from_word(primitive.as_str()), Some(*primitive));
        }
        assert_eq!(Primitive::from_word("telepathy"), None);
    }
}
