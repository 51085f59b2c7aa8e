//! The columns of the table: name with unit, meaning, and source.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use swtch_core::rules::all_rules;
use swtch_core::{
    CgroupId, CpuId, Evidence, Level, Nanos, Switch, TaskKey, Timestamp, UserSide, Wait,
};

use crate::export::evidence::Vocabulary;
use crate::export::rows::ExportRows;
use crate::report::Names;

/// A value; `None` means "not known" or "does not apply".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellValue {
    /// Text, which is not escaped even if it comes from outside.
    Text(Option<String>),
    Count(Option<i64>),
}

#[derive(Debug)]
pub struct ExportColumn {
    /// Name of the column, with its unit if it has one.
    pub name: &'static str,
    /// Its meaning, in one line of text.
    pub help: &'static str,
    /// Computes the value for a row.
    pub value: fn(&Switch, &Known) -> CellValue,
}

/// Words for the numbers in a row.
#[derive(Debug)]
pub struct Known {
    names: Rc<Names>,
    words: Vocabulary,
    cgroups: FxHashMap<CgroupId, String>,
    start: Timestamp,
}

impl Known {
    /// Reads what the trace knows about its numbers.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(rows: &ExportRows<'_>) -> anyhow::Result<Self> {
        Ok(Self {
            names: rows.names(),
            words: Vocabulary::new(rows)?,
            cgroups: rows.cgroups()?,
            start: Timestamp::from_ns(rows.meta().start_ns),
        })
    }

    /// A row without a task, from which columns show their kind of value.
    pub fn example(&self) -> Switch {
        Switch {
            ts: self.start,
            cpu: CpuId::new(0),
            task: TaskKey::IDLE,
            ran: None,
            irq: Nanos::ZERO,
            stolen: Nanos::ZERO,
            rule: all_rules().next().expect("there are rules"),
            evidence: Evidence::RUNNABLE,
            next_task: None,
            user_task: None,
            level: Level::Os,
            user: UserSide::default(),
            cgroup: CgroupId::new(0),
            wait: Wait::default(),
        }
    }

    fn tid(&self, task: Option<TaskKey>) -> CellValue {
        let thread = task.map(|task| self.names.thread(self.names.index(task)));
        count(
            thread
                .and_then(|thread| thread.tid)
                .map(|tid| u64::from(tid.get())),
        )
    }

    fn thread(&self, task: Option<TaskKey>) -> CellValue {
        let thread = task.map(|task| self.names.thread(self.names.index(task)));
        CellValue::Text(thread.map(|thread| thread.comm.clone()))
    }
}

fn word(text: &str) -> CellValue {
    CellValue::Text(Some(text.to_owned()))
}

/// An unsigned number, stored bit by bit as a signed one, as in the trace.
fn count(number: Option<u64>) -> CellValue {
    CellValue::Count(number.map(u64::cast_signed))
}

fn length(length: Option<Nanos>) -> CellValue {
    count(length.map(Nanos::as_ns))
}

macro_rules! columns {
    ($($name:literal $help:literal: $value:expr;)+) => {
        /// All columns, from left to right.
        pub const COLUMNS: &[ExportColumn] =
            &[$(ExportColumn { name: $name, help: $help, value: $value }),+];
    };
}

columns! {
    "ts_ns" "the moment of the switch, on the trace clock (`CLOCK_MONOTONIC`)":
        |row, _| count(Some(row.ts.as_ns()));
    "since_start_ns" "the same, since the start of the trace":
        |row, known| length(row.ts.since(known.start));
    "level" "who switched: `os` the kernel, `user` a user-mode scheduler; never count both together":
        |row, _| word(row.level.as_str());
    "cpu" "the CPU": |row, _| count(Some(u64::from(row.cpu.get())));
    "pid" "process id": |row, known| {
        let pid = known.names.process_of(known.names.index(row.task)).pid;
        count(pid.map(|pid| u64::from(pid.get())))
    };
    "process" "name of the process": |row, known| {
        word(&known.names.process_of(known.names.index(row.task)).comm)
    };
    "tid" "thread id": |row, known| known.tid(Some(row.task));
    "thread" "name of the thread": |row, known| known.thread(Some(row.task));
    "ran_ns" "length of the run that ended": |row, _| length(row.ran);
    "category" "kind of reason": |row, _| word(row.rule.reason.category().as_str());
    "reason" "why it left": |row, _| word(row.rule.reason.as_str());
    "certainty" "how sure that is": |row, _| word(row.rule.certainty.as_str());
    "rule" "the rule that decided": |row, _| word(row.rule.name);
    "cause" "who asked for the reschedule": |row, _| word(row.evidence.cause.as_str());
    "state" "the state it left in, the kernel's raw bits; 0 is still runnable":
        |row, _| count(Some(u64::from(row.evidence.state)));
    "syscall" "the system call it is in": |row, known| {
        CellValue::Text(row.evidence.syscall.map(|number| known.words.syscall(number)))
    };
    "wait_object" "what the call's file descriptor is":
        |row, _| word(row.evidence.wait_object.as_str());
    "wait_key" "what it waits on: futex word address, or inode number":
        |row, _| count(row.evidence.wait_key);
    "class" "scheduling class": |row, _| word(row.evidence.class.as_str());
    "prio" "kernel priority": |row, _| CellValue::Count(Some(i64::from(row.evidence.prio)));
    "next_tid" "who came: thread id": |row, known| known.tid(row.next_task);
    "next_thread" "who came: name": |row, known| known.thread(row.next_task);
    "nominator_tid" "whose wakeup or move asked for the reschedule: thread id":
        |row, known| known.tid(row.evidence.nominator);
    "nominator" "the same: name": |row, known| known.thread(row.evidence.nominator);
    "need_resched_delay_ns" "from the first request to reschedule until the switch":
        |row, _| length(row.evidence.need_resched_delay);
    "cgroup" "path of the task's cgroup; empty when it was gone before it could be looked up":
        |row, known| CellValue::Text(known.cgroups.get(&row.cgroup).cloned());
    "irq_ns" "time that interrupts took out of the run": |row, _| length(Some(row.irq));
    "stolen_ns" "time of the run that the hypervisor gave to others":
        |row, _| length(Some(row.stolen));
    "off_reason" "why it had left before this run": |row, _| {
        CellValue::Text(row.wait.reason.map(|reason| reason.as_str().to_owned()))
    };
    "off_ns" "off-CPU time before this run": |row, _| length(row.wait.off);
    "blocked_ns" "of that, until it was woken": |row, _| length(row.wait.blocked());
    "runq_ns" "of that, runnable": |row, _| length(row.wait.runq);
    "waker_tid" "who woke it: thread id": |row, known| known.tid(row.wait.wakeup.waker);
    "waker" "who woke it: name": |row, known| known.thread(row.wait.wakeup.waker);
    "waker_kind" "what woke it": |row, _| {
        CellValue::Text(row.wait.wakeup.kind.map(|kind| kind.as_str().to_owned()))
    };
    "wake_cpu" "the CPU whose run queue it was put on":
        |row, _| count(row.wait.wakeup.cpu.map(|cpu| u64::from(cpu.get())));
    "user_task" "the worker of a user-mode scheduler on this thread": |row, _| count(row.user_task);
    "wait_type" "level user: what it waits for now": |row, known| {
        CellValue::Text(row.user.wait_type.map(|number| known.words.wait_type(number)))
    };
    "off_wait_type" "level user: what it had waited for before this run": |row, known| {
        CellValue::Text(row.user.off_wait_type.map(|number| known.words.wait_type(number)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// People write queries from the page `docs/EXPORTS.md`.
    #[test]
    fn the_page_shows_every_column() {
        let page = include_str!("../../../../../docs/EXPORTS.md");
        let line = |column: &ExportColumn| format!("| `{}` | {} |", column.name, column.help);
        let missing: Vec<_> = COLUMNS
            .iter()
            .map(line)
            .filter(|line| !page.contains(line))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/EXPORTS.md lacks\n{}",
            missing.join("\n")
        );
    }
}
