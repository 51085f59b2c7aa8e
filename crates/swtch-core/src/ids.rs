//! Identifiers of what the kernel numbers. Thread ids are reused and every idle task is tid 0, so
//! rows of a trace identify tasks by [`TaskKey`].

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// The id with this number.
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The number that the kernel or the trace uses.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A process: the kernel's `tgid`, what `ps` calls PID.
    Pid(u32)
);
id!(
    /// A thread: the kernel's `pid`, what `gettid` returns.
    Tid(u32)
);
id!(
    /// A logical CPU.
    CpuId(u16)
);
id!(
    /// A cgroup: the inode number of its directory.
    CgroupId(u64)
);
id!(
    /// A task, unique within one trace, numbered from 1 in the order in which it was first seen.
    TaskKey(u32)
);

impl TaskKey {
    /// The idle task of any CPU. Switches from idle are counted separately.
    pub const IDLE: Self = Self(0);

    /// The wire's number for a task that could not be named (its record storage was refused).
    pub const WIRE_UNKNOWN: u32 = u32::MAX;

    /// The key, or `None` when the wire says that the task could not be named.
    pub const fn from_wire(number: u32) -> Option<Self> {
        if number == Self::WIRE_UNKNOWN {
            None
        } else {
            Some(Self(number))
        }
    }

    /// Returns true if this is the idle task.
    pub const fn is_idle(self) -> bool {
        self.0 == 0
    }
}
