//! The list of all arms, and which are compared with each other.

/// The program that runs an arm, with the arm's name as argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// This benchmark itself: `--arm NAME`.
    Ours,
    /// `benches/peers`, in Rust, without glommio.
    Rust,
    /// `benches/peers`, in Rust, with glommio, which does not build everywhere.
    Glommio,
    /// The peer in C++: `benches/peers/boost_fiber.cpp`.
    Boost,
    /// The peer in Go: `benches/peers/gosched.go`.
    Go,
}

impl Program {
    /// All programs, in the order in which they are built.
    pub const ALL: [Self; 5] = [Self::Ours, Self::Rust, Self::Glommio, Self::Boost, Self::Go];
}

/// A group of arms that do the same, so that their ratio is meaningful. The others are divided by
/// the first arm of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// One of two tasks yields to the other.
    Yield,
    /// The same with a thousand tasks, which no longer fit into the first-level cache.
    Yield1000,
    /// A thread hands the turn to another thread on the same CPU.
    HandOff,
    /// A task is started, ends, and is waited for; then the next.
    Spawn,
    /// 64 tasks are started, end, and are waited for, the last one first.
    Spawn64,
    /// A lock without contention is taken and released.
    Mutex,
    /// A part of the accounting, such as a clock reading.
    Primitive,
}

impl Group {
    /// All groups, in the order of the report.
    pub const ALL: [Self; 7] = [
        Self::Yield,
        Self::Yield1000,
        Self::HandOff,
        Self::Spawn,
        Self::Spawn64,
        Self::Mutex,
        Self::Primitive,
    ];

    /// The name in options, table and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yield => "yield",
            Self::Yield1000 => "yield-1000",
            Self::HandOff => "hand-off",
            Self::Spawn => "spawn",
            Self::Spawn64 => "spawn-64",
            Self::Mutex => "mutex",
            Self::Primitive => "primitive",
        }
    }

    /// What one operation of this group is.
    pub const fn operation(self) -> &'static str {
        match self {
            Self::Yield => "a task gives way to another",
            Self::Yield1000 => "a task gives way to another, of a thousand",
            Self::HandOff => "a thread hands its turn to another",
            Self::Spawn => "a task is started, ends and is waited for",
            Self::Spawn64 => "a task is started, ends and is waited for, 64 at a time",
            Self::Mutex => "a lock is taken and given back",
            Self::Primitive => "what accounting is made of, once",
        }
    }
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Unique name; the argument that its program takes.
    pub name: &'static str,
    /// The group in which it is compared.
    pub group: Group,
    /// The program that runs it.
    pub program: Program,
}

/// All arms. Two are the same, to show the noise: `swtch-yield` and `swtch-yield-again`. `sentinel`
/// is arithmetic without memory: it shows changes of the machine's speed.
pub const ALL: &[Arm] = &[
    arm("swtch-yield", Group::Yield, Program::Ours),
    arm("swtch-yield-again", Group::Yield, Program::Ours),
    arm("swtch-yield-in-situ", Group::Yield, Program::Ours),
    arm("swtch-yield-beside-a-sleeper", Group::Yield, Program::Ours),
    arm("swtch-yield-no-accounting", Group::Yield, Program::Ours),
    arm(
        "swtch-yield-no-accounting-in-situ",
        Group::Yield,
        Program::Ours,
    ),
    arm("swtch-yield-alone", Group::Yield, Program::Ours),
    arm("swtch-check-quantum", Group::Yield, Program::Ours),
    arm("bare-corosensei", Group::Yield, Program::Rust),
    arm("bare-corosensei-in-situ", Group::Yield, Program::Rust),
    arm("corosensei-ring", Group::Yield, Program::Rust),
    arm("corosensei-ring-in-situ", Group::Yield, Program::Rust),
    arm("may", Group::Yield, Program::Rust),
    arm("may-in-situ", Group::Yield, Program::Rust),
    arm("boost-fiber", Group::Yield, Program::Boost),
    arm("boost-fiber-in-situ", Group::Yield, Program::Boost),
    arm("glommio", Group::Yield, Program::Glommio),
    arm("tokio-current", Group::Yield, Program::Rust),
    arm("tokio-multi1", Group::Yield, Program::Rust),
    arm("go-gosched", Group::Yield, Program::Go),
    arm("sched_yield-alone", Group::Yield, Program::Rust),
    arm("sched_yield-pair", Group::Yield, Program::Rust),
    arm("swtch-yield-1000", Group::Yield1000, Program::Ours),
    arm("may-1000", Group::Yield1000, Program::Rust),
    arm("boost-fiber-1000", Group::Yield1000, Program::Boost),
    arm("tokio-current-1000", Group::Yield1000, Program::Rust),
    arm("go-1000", Group::Yield1000, Program::Go),
    arm("swtch-thread-mode", Group::HandOff, Program::Ours),
    arm("futex-pair", Group::HandOff, Program::Rust),
    arm("go-channel", Group::HandOff, Program::Go),
    arm("swtch-spawn", Group::Spawn, Program::Ours),
    arm("may-spawn", Group::Spawn, Program::Rust),
    arm("boost-fiber-spawn", Group::Spawn, Program::Boost),
    arm("tokio-spawn", Group::Spawn, Program::Rust),
    arm("go-spawn", Group::Spawn, Program::Go),
    arm("thread-spawn", Group::Spawn, Program::Rust),
    arm("swtch-spawn-64", Group::Spawn64, Program::Ours),
    arm("may-spawn-64", Group::Spawn64, Program::Rust),
    arm("boost-fiber-spawn-64", Group::Spawn64, Program::Boost),
    arm("tokio-spawn-64", Group::Spawn64, Program::Rust),
    arm("go-spawn-64", Group::Spawn64, Program::Go),
    arm("swtch-mutex", Group::Mutex, Program::Ours),
    arm("std-mutex", Group::Mutex, Program::Rust),
    arm("may-mutex", Group::Mutex, Program::Rust),
    arm("boost-fiber-mutex", Group::Mutex, Program::Boost),
    arm("tokio-mutex", Group::Mutex, Program::Rust),
    arm("go-mutex", Group::Mutex, Program::Go),
    arm(SENTINEL, Group::Primitive, Program::Rust),
    #[cfg(target_arch = "x86_64")]
    arm("rdtsc", Group::Primitive, Program::Rust),
    arm("clock-gettime", Group::Primitive, Program::Rust),
    arm("store", Group::Primitive, Program::Rust),
    arm("load-store", Group::Primitive, Program::Rust),
    arm("fetch-add", Group::Primitive, Program::Rust),
    arm("compare-exchange", Group::Primitive, Program::Rust),
    arm("store-fence", Group::Primitive, Program::Rust),
    arm("event-64", Group::Primitive, Program::Rust),
];

/// The arm whose work is always the same.
pub const SENTINEL: &str = "sentinel";

const fn arm(name: &'static str, group: Group, program: Program) -> Arm {
    Arm {
        name,
        group,
        program,
    }
}
