//! The list of all arms, and which are compared with each other.

/// The program that runs an arm, with the arm's name as argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmProgram {
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

impl ArmProgram {
    /// All programs, in the order in which they are built.
    pub const ALL: [Self; 5] = [Self::Ours, Self::Rust, Self::Glommio, Self::Boost, Self::Go];
}

/// A group of arms that do the same, so that their ratio is meaningful. The others are divided by
/// the first arm of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationGroup {
    /// One of two tasks yields to the other.
    Yield,
    /// One of a thousand tasks, which no longer fit into the first-level cache, yields to the next.
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

impl OperationGroup {
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

    /// Says what one operation of this group is.
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
pub struct BenchArm {
    /// Unique name; the argument that its program takes.
    pub name: &'static str,
    /// The group in which it is compared.
    pub group: OperationGroup,
    /// The program that runs it.
    pub program: ArmProgram,
}

/// All arms. Two are the same, to show the noise: `swtch-yield` and `swtch-yield-again`. `sentinel`
/// is arithmetic without memory: it shows changes of the machine's speed.
pub const ALL: &[BenchArm] = &[
    arm("swtch-yield", OperationGroup::Yield, ArmProgram::Ours),
    arm("swtch-yield-again", OperationGroup::Yield, ArmProgram::Ours),
    arm(
        "swtch-yield-in-situ",
        OperationGroup::Yield,
        ArmProgram::Ours,
    ),
    arm(
        "swtch-yield-beside-a-sleeper",
        OperationGroup::Yield,
        ArmProgram::Ours,
    ),
    arm(
        "swtch-yield-no-accounting",
        OperationGroup::Yield,
        ArmProgram::Ours,
    ),
    arm(
        "swtch-yield-no-accounting-in-situ",
        OperationGroup::Yield,
        ArmProgram::Ours,
    ),
    arm("swtch-yield-alone", OperationGroup::Yield, ArmProgram::Ours),
    arm(
        "swtch-check-quantum",
        OperationGroup::Yield,
        ArmProgram::Ours,
    ),
    arm("bare-corosensei", OperationGroup::Yield, ArmProgram::Rust),
    arm(
        "bare-corosensei-in-situ",
        OperationGroup::Yield,
        ArmProgram::Rust,
    ),
    arm("corosensei-ring", OperationGroup::Yield, ArmProgram::Rust),
    arm(
        "corosensei-ring-in-situ",
        OperationGroup::Yield,
        ArmProgram::Rust,
    ),
    arm("may", OperationGroup::Yield, ArmProgram::Rust),
    arm("may-in-situ", OperationGroup::Yield, ArmProgram::Rust),
    arm("boost-fiber", OperationGroup::Yield, ArmProgram::Boost),
    arm(
        "boost-fiber-in-situ",
        OperationGroup::Yield,
        ArmProgram::Boost,
    ),
    arm("glommio", OperationGroup::Yield, ArmProgram::Glommio),
    arm("tokio-current", OperationGroup::Yield, ArmProgram::Rust),
    arm("tokio-multi1", OperationGroup::Yield, ArmProgram::Rust),
    arm("go-gosched", OperationGroup::Yield, ArmProgram::Go),
    arm("sched_yield-alone", OperationGroup::Yield, ArmProgram::Rust),
    arm("sched_yield-pair", OperationGroup::Yield, ArmProgram::Rust),
    arm(
        "swtch-yield-1000",
        OperationGroup::Yield1000,
        ArmProgram::Ours,
    ),
    arm("may-1000", OperationGroup::Yield1000, ArmProgram::Rust),
    arm(
        "boost-fiber-1000",
        OperationGroup::Yield1000,
        ArmProgram::Boost,
    ),
    arm(
        "tokio-current-1000",
        OperationGroup::Yield1000,
        ArmProgram::Rust,
    ),
    arm("go-1000", OperationGroup::Yield1000, ArmProgram::Go),
    arm(
        "swtch-thread-mode",
        OperationGroup::HandOff,
        ArmProgram::Ours,
    ),
    arm("futex-pair", OperationGroup::HandOff, ArmProgram::Rust),
    arm("go-channel", OperationGroup::HandOff, ArmProgram::Go),
    arm("swtch-spawn", OperationGroup::Spawn, ArmProgram::Ours),
    arm("may-spawn", OperationGroup::Spawn, ArmProgram::Rust),
    arm(
        "boost-fiber-spawn",
        OperationGroup::Spawn,
        ArmProgram::Boost,
    ),
    arm("tokio-spawn", OperationGroup::Spawn, ArmProgram::Rust),
    arm("go-spawn", OperationGroup::Spawn, ArmProgram::Go),
    arm("thread-spawn", OperationGroup::Spawn, ArmProgram::Rust),
    arm("swtch-spawn-64", OperationGroup::Spawn64, ArmProgram::Ours),
    arm("may-spawn-64", OperationGroup::Spawn64, ArmProgram::Rust),
    arm(
        "boost-fiber-spawn-64",
        OperationGroup::Spawn64,
        ArmProgram::Boost,
    ),
    arm("tokio-spawn-64", OperationGroup::Spawn64, ArmProgram::Rust),
    arm("go-spawn-64", OperationGroup::Spawn64, ArmProgram::Go),
    arm("swtch-mutex", OperationGroup::Mutex, ArmProgram::Ours),
    arm("std-mutex", OperationGroup::Mutex, ArmProgram::Rust),
    arm("may-mutex", OperationGroup::Mutex, ArmProgram::Rust),
    arm(
        "boost-fiber-mutex",
        OperationGroup::Mutex,
        ArmProgram::Boost,
    ),
    arm("tokio-mutex", OperationGroup::Mutex, ArmProgram::Rust),
    arm("go-mutex", OperationGroup::Mutex, ArmProgram::Go),
    arm(SENTINEL, OperationGroup::Primitive, ArmProgram::Rust),
    #[cfg(target_arch = "x86_64")]
    arm("rdtsc", OperationGroup::Primitive, ArmProgram::Rust),
    arm("clock-gettime", OperationGroup::Primitive, ArmProgram::Rust),
    arm("store", OperationGroup::Primitive, ArmProgram::Rust),
    arm("load-store", OperationGroup::Primitive, ArmProgram::Rust),
    arm("fetch-add", OperationGroup::Primitive, ArmProgram::Rust),
    arm(
        "compare-exchange",
        OperationGroup::Primitive,
        ArmProgram::Rust,
    ),
    arm("store-fence", OperationGroup::Primitive, ArmProgram::Rust),
    arm("event-64", OperationGroup::Primitive, ArmProgram::Rust),
];

/// The arm whose work is always the same.
pub const SENTINEL: &str = "sentinel";

const fn arm(name: &'static str, group: OperationGroup, program: ArmProgram) -> BenchArm {
    BenchArm {
        name,
        group,
        program,
    }
}
