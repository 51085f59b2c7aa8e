//! The rates that `swtch top` shows, between two readings of what the kernel side counts: by thread, process, cgroup,
//! reason, preemptor and victim, CPU.
//!
//! ```text
//! reading ─▶ LiveCounts: growth of each group ─frame─▶ RateFrame: sums by view ─┬▶ Sheet ─▶ table, json, csv
//!             (rule, task, who took the CPU)           (per second)         └▶ the screen
//! ```
//!
//! Only groups that have changed are looked at: a frame of a machine where little happens is cheap,
//! however many threads it has. Nothing here reads the kernel or a clock.

mod counts;
mod frame;
mod history;
mod sheet;
mod sums;
mod tasks;

#[cfg(test)]
pub mod drawn_live;

pub use counts::LiveCounts;
pub use frame::{LiveRow, LiveView, LiveWait, RateFrame, RowKey};
pub use history::RateHistory;
pub use sheet::{CgroupLimits, FrameNames, LiveColumn, UserLevelRates};
pub use sums::{BeforeRunq, LiveSums, RowSums};
pub use tasks::{LiveTask, LiveTasks};
