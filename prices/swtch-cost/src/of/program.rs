//! The threads of the measured program, and their CPU time, as `/proc` tells them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Result, ensure};
use swtch_bench::cost::injection::ProgramThreads;
use swtch_capture::{Children, RecordingScope, threads_in};
use swtch_core::{Nanos, Pid, ProcessStat};

/// `/proc/PID/stat` counts in hundredths of a second whatever the tick (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;

/// A program that is read again and again, with the processes below it.
pub(super) struct ReadProgram {
    scope: RecordingScope,
    /// CPU time of each process when it was read last, in ticks.
    last: BTreeMap<Pid, u64>,
    /// Of all since the first reading.
    used: u64,
}

impl ReadProgram {
    /// The program with this process at its top.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let mut program = Self {
            scope: RecordingScope::Processes {
                pids: vec![pid],
                children: Children::Recorded,
            },
            last: BTreeMap::new(),
            used: 0,
        };
        let threads = program.read().threads;
        ensure!(!threads.is_empty(), "there is no process {pid}");
        Ok(program)
    }

    /// Reads it. What a process has used since its last reading is lost when it ends.
    pub(super) fn read(&mut self) -> ProgramThreads {
        let threads: Vec<_> = threads_in(&self.scope).into_iter().collect();
        let mut processes: Vec<Pid> = threads.iter().map(|(pid, _)| *pid).collect();
        processes.dedup();
        let is_first = self.last.is_empty();
        let now = processes.into_iter().filter_map(|pid| {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, ProcessStat::parse(&stat)?.cpu_ticks()?))
        });
        let now: BTreeMap<Pid, u64> = now.collect();
        for (pid, ticks) in &now {
            let before = self.last.get(pid).copied().unwrap_or(0);
            if !is_first {
                self.used += ticks.saturating_sub(before);
            }
        }
        self.last = now;
        ProgramThreads {
            threads,
            cpu_time: Nanos::from_ns(self.used * TICK_NS),
        }
    }
}
