//! Words and rules of context switches. Pure: no I/O, no clock, no threads, no `unsafe`.
//!
//! # The story of one switch
//!
//! A task runs on a CPU until the kernel's scheduler replaces it: a **switch-out**. The kernel
//! leaves [`evidence::Evidence`] about it; [`rules::classify`] turns that into one [`Reason`]
//! with a [`Certainty`]; [`timeline::Timeline`] joins it with the wait that came before the run,
//! and the result is one row, [`Switch`].
//!
//! ```text
//! capture ─bytes─▶ decode ─Event─▶ merge ─▶ timeline ─Switch─▶ store ─▶ report
//!                                              │
//!                                           classify (rules)
//! ```
//!
//! - `units`, `ids`, `topology`: the newtypes; which CPUs share a node or a core.
//! - `reason`, `evidence`, `wait`, `stack`, `syscall`, `rules`: the closed list, what the kernel said, and the table from
//!   the one to the other, first match wins.
//! - `event`, `merge`, `timeline`, `switch`: what sources say, in one order, as rows.
//! - `trigger`, `summary`: a condition on a switch; which evidence is enough to count equal switches together.
//! - `contention`: who had the CPU while a task waited; `lost`, `chain`, `together`: where time went, what those did for
//!   whom others waited, who ran at once.
//! - `tally`, `compare`, `stats`: what answers are made of, whether figures of several runs changed, intervals.
//! - `container`: whose a cgroup is, by its path. `process_stat`: the line that `/proc` has on a process.
//! - `user`: switches that a user-mode scheduler makes. `cost`: what a switch costs, and bills.
//!
//! What this crate does *not* do: read a clock, a file or the kernel. Live capture, saved traces
//! and imports meet here, so the rules exist once.
#![forbid(unsafe_code)]

pub mod chain;
pub mod compare;
pub mod container;
pub mod contention;
pub mod cost;
pub mod distribution;
pub mod event;
pub mod evidence;
pub mod ids;
pub mod lost;
pub mod merge;
pub mod places;
pub mod process_stat;
pub mod reason;
pub mod rules;
pub mod spans;
pub mod stack;
pub mod stats;
pub mod summary;
pub mod switch;
pub mod syscall;
pub mod tally;
pub mod timeline;
pub mod together;
pub mod topology;
pub mod trigger;
pub mod turns;
pub mod units;
pub mod user;
pub mod wait;

pub use chain::{Chains, EndedBy, Meanwhile, ServedAs, Spent};
pub use container::{CgroupMaker, CgroupOwner, PodQos, cgroup_words};
pub use contention::{
    Contended, Contention, ContentionSums, Coverage, GroupSplit, HeldWaits, Holder, HolderTotals,
};
pub use distribution::Distribution;
pub use event::{Event, LookEvent, LookedTask, SwitchEvent};
pub use evidence::{Cause, Class, Evidence, EvidenceBits, WaitObject, WakerKind};
pub use ids::{CgroupId, CpuId, Pid, TaskKey, Tid};
pub use lost::{AwaitedThing, Ender, LostTime};
pub use process_stat::ProcessStat;
pub use reason::{Category, Certainty, Reason};
pub use rules::{RULES_VERSION, Rule, classify};
pub use spans::{ProgramSpan, SpanEvent, SpanPiece, ThreadSpans, UntoldSpans};
pub use stack::{Frame, Stack, StackEnd, StackKind, StackNumbers};
pub use summary::{
    CpuCounters, FUTEX_OF_MANY, GroupCounts, GroupTotals, KeptArguments, LengthHistogram,
    SwitchGroup,
};
pub use switch::{Gap, Open, Switch, TaskAtEnd, TaskEvent, TaskEventKind};
pub use syscall::{Arch, SyscallTable, Waits};
pub use tally::{JudgedGroup, Tally};
pub use timeline::Timeline;
pub use together::RunsTogether;
pub use topology::{CpuPlaces, CpuTopology, NumaNode};
pub use trigger::{Trigger, TriggerMistake, TriggerMoment, TriggerThread};
pub use turns::{LongestTurn, MessageEnd, MessageWait, ThreadTurns, TurnKind, TurnSum, TurnSums};
pub use units::{Nanos, Timestamp};
pub use user::{Level, UserDeparture, UserSide, UserSwitchEvent, UserWait, UserWaitType, UserWord};
pub use wait::{Wait, WaitEvidence, Wakeup};
