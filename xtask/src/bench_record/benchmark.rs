//! The benchmarks that are run under each tool.

use std::fmt;
use std::path::Path;

/// A program that does little but switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Two processes pass a token through a pipe on one CPU: 400,000 switches and no idle time, so
    /// that every nanosecond added to a switch shows.
    Pipe,
    /// 400 processes send messages through sockets on all CPUs.
    Messaging,
    /// As many switches a second as the machine makes, on two CPUs, for 5 seconds.
    Storm,
}

impl Benchmark {
    /// All benchmarks, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Pipe, Self::Messaging, Self::Storm];

    /// The command that runs it, with a tenth of the work when `quick`.
    pub fn command(self, quick: bool, perf: &Path, swtch: Option<&Path>) -> Vec<String> {
        let loops = match (self, quick) {
            (Self::Pipe, false) => "200000",
            (Self::Pipe, true) => "20000",
            (Self::Messaging, false) => "200",
            (Self::Messaging, true) => "20",
            (Self::Storm, _) => "",
        };
        let perf = perf.to_string_lossy();
        let line = match self {
            Self::Pipe => format!("taskset -c 1 {perf} bench sched pipe -l {loops}"),
            Self::Messaging => format!("{perf} bench sched messaging -g 10 -l {loops}"),
            Self::Storm => {
                let swtch = swtch
                    .expect("storm has only arms of swtch")
                    .to_string_lossy();
                return [&swtch, "workload", "storm"].map(str::to_owned).to_vec();
            }
        };
        line.split(' ').map(str::to_owned).collect()
    }
}

impl fmt::Display for Benchmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pipe => "pipe",
            Self::Messaging => "messaging",
            Self::Storm => "storm",
        })
    }
}
