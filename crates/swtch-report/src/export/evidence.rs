//! The facts that are known about a wait, as pairs of a name and a value. Every format that has arguments shows them.
//! The names are those of a trace's columns; no price is among them.

use rustc_hash::FxHashMap;
use swtch_core::{Arch, Cause, Switch, TaskKey};
use swtch_output::text::escaped;

use super::rows::ExportRows;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceValue {
    /// Text; names from outside are escaped.
    Word(String),
    /// A number; a length when the name ends in its unit.
    Count(u64),
    /// An address or inode number.
    Address(u64),
}

/// Pairs of name and value.
pub type Facts = Vec<(&'static str, EvidenceValue)>;

/// Gives the name of a task.
pub type Label<'a> = &'a dyn Fn(TaskKey) -> String;

/// Names for the numbers of system calls and wait types in a trace.
#[derive(Debug)]
pub struct Vocabulary {
    arch: Option<Arch>,
    wait_types: FxHashMap<u16, String>,
}

impl Vocabulary {
    /// The words of a trace.
    ///
    /// # Errors
    /// When the names of wait types cannot be read.
    pub fn new(rows: &ExportRows<'_>) -> anyhow::Result<Self> {
        let wait_types = rows.wait_types()?.into_iter();
        let named = wait_types.map(|row| (row.wait_type, escaped(&row.name).into_owned()));
        Ok(Self {
            arch: rows.arch(),
            wait_types: named.collect(),
        })
    }

    /// A system call by name; by number when it is not known.
    pub fn syscall(&self, number: u32) -> String {
        let name = self.arch.and_then(|arch| arch.syscall_name(number));
        name.map_or_else(|| number.to_string(), str::to_owned)
    }

    /// A wait type of a user-mode scheduler by name.
    pub fn wait_type(&self, number: u16) -> String {
        let name = self.wait_types.get(&number);
        name.map_or_else(|| number.to_string(), Clone::clone)
    }
}

/// Adds why a thread left, and which task came.
pub fn of_departure(row: &Switch, words: &Vocabulary, label: Label<'_>, facts: &mut Facts) {
    let evidence = &row.evidence;
    let word = |text: &str| EvidenceValue::Word(text.to_owned());
    facts.push(("certainty", word(row.rule.certainty.as_str())));
    facts.push(("rule", word(row.rule.name)));
    if !matches!(evidence.cause, Cause::None | Cause::NoHook) {
        facts.push(("cause", word(evidence.cause.as_str())));
    }
    if let Some(number) = evidence.syscall {
        facts.push(("syscall", EvidenceValue::Word(words.syscall(number))));
    }
    if let Some(key) = evidence.wait_key {
        facts.push(("wait_key", EvidenceValue::Address(key)));
    }
    if let Some(nominator) = evidence.nominator {
        facts.push(("nominator", EvidenceValue::Word(label(nominator))));
    }
    if let Some(delay) = evidence.need_resched_delay {
        facts.push(("need_resched_delay_ns", EvidenceValue::Count(delay.as_ns())));
    }
    facts.push(("left_cpu", EvidenceValue::Count(u64::from(row.cpu.get()))));
    if let Some(next) = row.next_task {
        facts.push(("next", EvidenceValue::Word(label(next))));
    }
    if let Some(worker) = row.user_task {
        facts.push(("user_task", EvidenceValue::Count(worker)));
    }
}

/// Adds how long the wait before a run was, and what ended it.
pub fn of_wait(row: &Switch, label: Label<'_>, facts: &mut Facts) {
    let wait = &row.wait;
    if let Some(blocked) = wait.blocked() {
        facts.push(("blocked_ns", EvidenceValue::Count(blocked.as_ns())));
    }
    if let Some(runq) = wait.runq {
        facts.push(("runq_ns", EvidenceValue::Count(runq.as_ns())));
    }
    if let Some(waker) = wait.wakeup.waker {
        facts.push(("waker", EvidenceValue::Word(label(waker))));
    }
    if let Some(kind) = wait.wakeup.kind {
        facts.push(("waker_kind", EvidenceValue::Word(kind.as_str().to_owned())));
    }
    if let Some(cpu) = wait.wakeup.cpu {
        facts.push(("wake_cpu", EvidenceValue::Count(u64::from(cpu.get()))));
    }
}

/// Adds what a worker of a user-mode scheduler waits for now, and what it had waited for before.
pub fn of_worker(row: &Switch, words: &Vocabulary, facts: &mut Facts) {
    let named = |number| EvidenceValue::Word(words.wait_type(number));
    facts.extend(
        row.user
            .wait_type
            .map(|number| ("wait_type", named(number))),
    );
    let before = row.user.off_wait_type;
    facts.extend(before.map(|number| ("off_wait_type", named(number))));
    let wait = &row.wait;
    facts.extend(
        wait.off
            .map(|off| ("off_ns", EvidenceValue::Count(off.as_ns()))),
    );
    facts.extend(
        wait.runq
            .map(|runq| ("runq_ns", EvidenceValue::Count(runq.as_ns()))),
    );
    let waker = row.user.waker;
    facts.extend(waker.map(|waker| ("user_waker", EvidenceValue::Count(waker))));
}
