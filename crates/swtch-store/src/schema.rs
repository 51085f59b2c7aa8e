//! The schema: every table and column, its type, its meaning and where its value is in a row.
//! Writer, reader and `docs/SCHEMA.md` follow this file.
//!
//! To add a column: raise [`crate::FORMAT_VERSION`], add one entry *at the end* of a table with
//! that version, and run the tests with `SWTCH_BLESS=1` to renew the page. Never remove one or
//! change its meaning: old traces stay readable because a column that they lack reads as "not
//! known". A column that is renamed is still read by its old name.

use std::borrow::Cow;
use std::fmt;
use std::ops::BitOr;
use std::sync::{Arc, LazyLock};

use arrow_array::types::{Int16Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use swtch_core::evidence::{Cause, Class, EvidenceBits, WaitObject, WakerKind};
use swtch_core::{
    Category, Certainty, CgroupId, CpuId, Frame, Gap, Level, Nanos, Open, Pid, Reason, Stack,
    StackEnd, StackKind, Switch, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp,
};
// Named in the meanings of columns.
#[cfg(doc)]
use swtch_core::{Evidence, Wait};

use crate::column::{self, ColumnType, Mismatch, Presence, TraceColumn};
use crate::rows::{CgroupRow, CommandRow, SpanRow, WaitTypeRow, WaitingWorkersRow};
use crate::verdict;

/// A table: one file of a trace.
#[derive(Debug)]
pub struct Table<R: 'static> {
    /// Name of the table, and stem of its file name.
    pub name: &'static str,
    /// Meaning of a row, in one line.
    pub meaning: &'static str,
    /// The columns, in the order of the schema.
    pub columns: &'static [TraceColumn<R>],
    /// A row in which no value is known.
    pub(crate) blank: fn() -> R,
}

impl<R> Table<R> {
    /// The Arrow schema of the table.
    pub fn arrow(&self) -> SchemaRef {
        let fields: Vec<_> = self.columns.iter().map(TraceColumn::field).collect();
        Arc::new(Schema::new(fields))
    }

    pub(crate) fn encode(&self, schema: &SchemaRef, rows: &[R]) -> RecordBatch {
        let arrays = self.columns.iter().map(|column| (column.encode)(rows));
        let batch = RecordBatch::try_new(Arc::clone(schema), arrays.collect());
        batch.expect("each column encodes to its own type, a value a row")
    }

    /// Sets the fields of `rows` that `batch` has columns for.
    ///
    /// # Errors
    ///
    /// The name of the column and what is wrong with it.
    pub(crate) fn decode(
        &self,
        batch: &RecordBatch,
        rows: &mut [R],
    ) -> Result<(), (&'static str, Mismatch)> {
        // In the order of the schema: `rule` completes what `reason` and `certainty` have set.
        for column in self.columns {
            let array = batch.column_by_name(column.name);
            if let Some(array) = array.or_else(|| batch.column_by_name(old_name(column.name)?)) {
                (column.decode)(array, rows).map_err(|mismatch| (column.name, mismatch))?;
            }
        }
        Ok(())
    }
}

/// `number!(Type name: meaning; from row; into row)`: a number in a column without nulls.
macro_rules! number {
    ($kind:ident $name:ident: $meaning:literal; $get:expr; $set:expr) => {
        entry!($kind $name Always: $meaning;
            |rows| column::numbers::<arrow_type!($kind), _>(rows, $get);
            |array, rows| column::set_numbers::<arrow_type!($kind), _>(array, rows, $set))
    };
}

/// As `number!`, for a column with nulls.
macro_rules! maybe_number {
    ($kind:ident $name:ident: $meaning:literal; $get:expr; $set:expr) => {
        entry!($kind $name Optional: $meaning;
            |rows| column::maybe_numbers::<arrow_type!($kind), _>(rows, $get);
            |array, rows| column::set_maybe_numbers::<arrow_type!($kind), _>(array, rows, $set))
    };
}

/// `word!(List name: meaning; from row; into row)`: a word of a closed list.
macro_rules! word {
    ($list:ident $name:ident: $meaning:literal; $get:expr; $set:expr) => {
        entry!(Word $name Always: $meaning;
            |rows| column::words(rows, shared_list!($list), $get);
            |array, rows| column::set_words(array, rows, $list::from_word, $set))
    };
}

/// As `word!`, for a column with nulls.
macro_rules! maybe_word {
    ($list:ident $name:ident: $meaning:literal; $get:expr; $set:expr) => {
        entry!(Word $name Optional: $meaning;
            |rows| column::maybe_words(rows, shared_list!($list), $get);
            |array, rows| column::set_maybe_words(array, rows, $list::from_word, $set))
    };
}

/// `other!(Type name Presence: meaning; encoder get; decoder set)`: neither number nor word.
macro_rules! other {
    ($kind:ident $name:ident $presence:ident: $meaning:literal;
        $encode:ident $get:expr; $decode:ident $set:expr) => {
        entry!($kind $name $presence: $meaning;
            |rows| column::$encode(rows, $get);
            |array, rows| column::$decode(array, rows, $set))
    };
}

macro_rules! entry {
    ($kind:ident $name:ident $presence:ident: $meaning:literal; $encode:expr; $decode:expr) => {
        TraceColumn {
            name: stringify!($name),
            kind: ColumnType::$kind,
            presence: Presence::$presence,
            since: 1,
            meaning: $meaning,
            encode: $encode,
            decode: $decode,
        }
    };
}

/// The former name of a column. `offset` is a keyword of SQL and would need quotes.
fn old_name(name: &str) -> Option<&'static str> {
    (name == "symbol_offset").then_some("offset")
}

/// `since(version, entry)`: a column that a later version added.
const fn since<R>(version: u32, column: TraceColumn<R>) -> TraceColumn<R> {
    TraceColumn {
        since: version,
        ..column
    }
}

macro_rules! arrow_type {
    (Int64) => {
        Int64Type
    };
    (Int16) => {
        Int16Type
    };
    (UInt64) => {
        UInt64Type
    };
    (UInt32) => {
        UInt32Type
    };
    (UInt16) => {
        UInt16Type
    };
}

/// One array per list and column, so that a stream contains it once.
macro_rules! shared_list {
    ($list:ident) => {{
        static LIST: LazyLock<ArrayRef> =
            LazyLock::new(|| column::word_list($list::ALL.iter().map(|word| word.as_str())));
        &LIST
    }};
}

/// One row per switch-out: the run that ends, why, and the wait that came before that run.
pub static SWITCH: Table<Switch> = Table {
    name: "switch",
    meaning: "one row per context switch, in order of time: the run that ends, why it ended, and \
              the wait that came before that run (`off_*`, `runq_ns`, `wak*`). Rows of level user are \
              switches that a user-mode scheduler made on its thread `task`: ask for one `level`",
    columns: SWITCH_COLUMNS,
    blank: || Switch::blank(verdict::unread()),
};

const SWITCH_COLUMNS: &[TraceColumn<Switch>] = &[
    number!(Int64 ts_ns: "the moment of the switch, on the trace clock (CLOCK_MONOTONIC)";
        |row| moment(row.ts); |row, ns| row.ts = to_moment(ns)),
    number!(UInt16 cpu: "the CPU it happened on";
        |row| row.cpu.get(); |row, cpu| row.cpu = CpuId::new(cpu)),
    number!(UInt32 task: "who left (`task.task`)";
        |row| row.task.get(); |row, key| row.task = TaskKey::new(key)),
    maybe_number!(Int64 ran_ns: "length of the run; null when the capture began inside it";
        |row| row.ran.map(length); |row, ns| row.ran = ns.map(to_length)),
    word!(Category category: "kind of reason";
        |row| row.rule.reason.category().index(); |_, _: Category| ()),
    word!(Reason reason: "why it left";
        |row| row.rule.reason.index();
        |row, reason| row.rule = verdict::nameless(reason, Certainty::Inferred)),
    word!(Certainty certainty: "how sure the reason is";
        |row| row.rule.certainty.index();
        |row, certainty| row.rule = verdict::nameless(row.rule.reason, certainty)),
    entry!(Word rule Always: "the rule that decided";
        verdict::rule_names;
        verdict::set_rules),
    word!(Cause cause: "who asked for the reschedule";
        |row| row.evidence.cause.index(); |row, cause| row.evidence.cause = cause),
    number!(UInt32 evidence_bits: "yes-or-no evidence, see the table of bits";
        |row| row.evidence.bits.0; |row, bits| row.evidence.bits = EvidenceBits(bits)),
    number!(UInt32 state: "the state it left in, raw (`prev_state`); 0 is still runnable";
        |row| row.evidence.state; |row, state| row.evidence.state = state),
    maybe_number!(UInt32 syscall: "number of the system call it is in; null in user mode, in a \
        fault, or for a kernel thread";
        |row| row.evidence.syscall; |row, number| row.evidence.syscall = number),
    maybe_number!(Int64 arg0: "first argument of the call; null unless it blocked";
        |row| argument(row, 0); |row, value| set_argument(row, 0, value)),
    maybe_number!(Int64 arg1: "second argument of the call; null unless it blocked";
        |row| argument(row, 1); |row, value| set_argument(row, 1, value)),
    maybe_number!(Int64 arg2: "third argument of the call; null unless it blocked";
        |row| argument(row, 2); |row, value| set_argument(row, 2, value)),
    word!(WaitObject wait_object: "what the call's file descriptor is";
        |row| row.evidence.wait_object.index();
        |row, object| row.evidence.wait_object = object),
    maybe_number!(Int64 wait_key: "what it waits on: futex word address, or inode number of the \
        file";
        |row| row.evidence.wait_key.map(u64::cast_signed);
        |row, key| row.evidence.wait_key = key.map(i64::cast_unsigned)),
    word!(Class class: "scheduling class of the task that left";
        |row| row.evidence.class.index(); |row, class| row.evidence.class = class),
    number!(Int16 prio: "its kernel priority: < 0 deadline, 0–99 real time, 100–139 fair";
        |row| row.evidence.prio; |row, prio| row.evidence.prio = prio),
    word!(Class next_class: "scheduling class of the task that came";
        |row| row.evidence.next_class.index(); |row, class| row.evidence.next_class = class),
    number!(Int16 next_prio: "kernel priority of the task that came";
        |row| row.evidence.next_prio; |row, prio| row.evidence.next_prio = prio),
    maybe_number!(UInt32 next_task: "who came (`task.task`); 0 is idle; null if not named";
        |row| row.next_task.map(TaskKey::get);
        |row, key| row.next_task = key.map(TaskKey::new)),
    maybe_number!(UInt32 nominator: "the task whose wakeup or move asked for the reschedule";
        |row| row.evidence.nominator.map(TaskKey::get);
        |row, key| row.evidence.nominator = key.map(TaskKey::new)),
    maybe_number!(Int64 need_resched_delay_ns: "from the first request to reschedule until the \
        switch, from the start of the wakeup that asked where it began in the run; null without a \
        request";
        |row| row.evidence.need_resched_delay.map(length);
        |row, ns| row.evidence.need_resched_delay = ns.map(to_length)),
    number!(Int64 cgroup: "cgroup of the task (`cgroup.cgroup`)";
        |row| row.cgroup.get().cast_signed();
        |row, id| row.cgroup = CgroupId::new(id.cast_unsigned())),
    maybe_number!(Int64 user_task: "the worker of a user-mode scheduler that ran on this thread";
        |row| row.user_task.map(u64::cast_signed);
        |row, id| row.user_task = id.map(i64::cast_unsigned)),
    number!(Int64 irq_ns: "time that interrupts took out of the run";
        |row| length(row.irq); |row, ns| row.irq = to_length(ns)),
    number!(Int64 stolen_ns: "time of the run that the hypervisor gave to others, where the \
        kernel accounts it";
        |row| length(row.stolen); |row, ns| row.stolen = to_length(ns)),
    maybe_word!(Reason off_reason: "why it had left before this run; null when that switch was \
        not recorded";
        |row| row.wait.reason.map(Reason::index); |row, reason| row.wait.reason = reason),
    maybe_number!(Int64 off_ns: "off-CPU time before this run: blocked time plus run-queue time";
        |row| row.wait.off.map(length); |row, ns| row.wait.off = ns.map(to_length)),
    maybe_number!(Int64 runq_ns: "run-queue time before this run: runnable, but not running";
        |row| row.wait.runq.map(length); |row, ns| row.wait.runq = ns.map(to_length)),
    maybe_number!(UInt32 waker: "the task that made it runnable, or that was interrupted by what \
        did; 0 is idle";
        |row| row.wait.wakeup.waker.map(TaskKey::get);
        |row, key| row.wait.wakeup.waker = key.map(TaskKey::new)),
    maybe_word!(WakerKind waker_kind: "what made it runnable";
        |row| row.wait.wakeup.kind.map(WakerKind::index);
        |row, kind| row.wait.wakeup.kind = kind),
    maybe_number!(UInt16 wake_cpu: "the CPU whose run queue it was put on when woken";
        |row| row.wait.wakeup.cpu.map(CpuId::get);
        |row, cpu| row.wait.wakeup.cpu = cpu.map(CpuId::new)),
    maybe_number!(Int64 moved_ns: "time on the run queue of the CPU where it ran, when it was \
        moved there while it waited for a CPU";
        |row| row.wait.moved.map(length); |row, ns| row.wait.moved = ns.map(to_length)),
    maybe_number!(UInt32 off_kernel_stack: "kernel stack of the place that waited (`stack.stack`)";
        |row| row.wait.stacks.kernel; |row, stack| row.wait.stacks.kernel = stack),
    maybe_number!(UInt32 off_user_stack: "user stack of the place that waited (`stack.stack`)";
        |row| row.wait.stacks.user; |row, stack| row.wait.stacks.user = stack),
    since(
        2,
        word!(Level level: "who switched; counts of different levels are never one count";
            |row| row.level.index(); |row, level| row.level = level),
    ),
    since(
        2,
        maybe_number!(UInt32 user_run: "which run of `user_task` ended (level user) or was going on \
            (level os), modulo 2^24; with `user_task` null: a scheduler's thread that ran no worker; \
            null: no user-mode scheduler's thread";
            |row| row.user.run; |row, run| row.user.run = run),
    ),
    since(
        2,
        maybe_number!(Int64 next_user_task: "level user: the task that came; the same as \
            `user_task` where it ran on because nobody else was runnable; null for nobody";
            |row| row.user.next_task.map(u64::cast_signed);
            |row, task| row.user.next_task = task.map(i64::cast_unsigned)),
    ),
    since(
        2,
        maybe_number!(Int64 user_waker: "level user: the task that ended the wait before this run; \
            null for a timer, I/O, or no task";
            |row| row.user.waker.map(u64::cast_signed);
            |row, task| row.user.waker = task.map(i64::cast_unsigned)),
    ),
    since(
        2,
        maybe_number!(UInt16 wait_type: "level user: what it waits for now (`wait_type.wait_type`)";
            |row| row.user.wait_type; |row, number| row.user.wait_type = number),
    ),
    since(
        2,
        maybe_number!(UInt16 off_wait_type: "level user: what it had waited for before this run \
            (`wait_type.wait_type`)";
            |row| row.user.off_wait_type; |row, number| row.user.off_wait_type = number),
    ),
    since(
        3,
        maybe_number!(UInt32 waker_kernel_stack: "kernel stack of the waker when it ended the wait \
            (`stack.stack`)";
            |row| row.wait.wakeup.waker_stacks.kernel;
            |row, stack| row.wait.wakeup.waker_stacks.kernel = stack),
    ),
    since(
        3,
        maybe_number!(UInt32 waker_user_stack: "user stack of the waker when it ended the wait \
            (`stack.stack`)";
            |row| row.wait.wakeup.waker_stacks.user; |row, stack| row.wait.wakeup.waker_stacks.user = stack),
    ),
    since(
        6,
        maybe_number!(Int64 off_seen_ns: "where stacks are read at looks: the off-CPU time that \
            `off_user_stack` stands for, that of the wait or, if longer, that between two looks";
            |row| row.wait.seen_for.map(length); |row, ns| row.wait.seen_for = ns.map(to_length)),
    ),
    since(
        8,
        maybe_number!(UInt32 off_holder_stack: "user stack of who held the lock that the task waited \
            for, when a look met it (`stack.stack`): of Python's global interpreter lock";
            |row| row.wait.holder_stack; |row, stack| row.wait.holder_stack = stack),
    ),
];

/// Identity of tasks, and how it changed.
pub static TASK: Table<TaskEvent> = Table {
    name: "task",
    meaning: "one row per change of a task's identity: seen first, forked, executed, renamed, \
              ended",
    columns: TASK_COLUMNS,
    blank: blank_task,
};

const TASK_COLUMNS: &[TraceColumn<TaskEvent>] = &[
    number!(Int64 ts_ns: "when";
        |row| moment(row.ts); |row, ns| row.ts = to_moment(ns)),
    word!(TaskEventKind kind: "what happened";
        |row| row.kind.index(); |row, kind| row.kind = kind),
    number!(UInt32 task: "the task: unique within the trace, unlike its thread id";
        |row| row.task.get(); |row, key| row.task = TaskKey::new(key)),
    number!(UInt32 tid: "thread id (the kernel's pid)";
        |row| row.tid.get(); |row, tid| row.tid = Tid::new(tid)),
    number!(UInt32 pid: "process id (the kernel's tgid)";
        |row| row.pid.get(); |row, pid| row.pid = Pid::new(pid)),
    number!(UInt32 parent_pid: "process id of the parent";
        |row| row.parent_pid.get(); |row, pid| row.parent_pid = Pid::new(pid)),
    number!(Int64 started_ns: "when it was started, since boot with suspend (CLOCK_BOOTTIME)";
        |row| row.started_ns.cast_signed(); |row, ns| row.started_ns = ns.cast_unsigned()),
    other!(Utf8 comm Always: "name; bytes that are no UTF-8 are shown as U+FFFD";
        texts |row| String::from_utf8_lossy(&row.comm);
        set_names |row: &mut TaskEvent, text| row.comm = text.unwrap_or_default().into()),
    other!(Binary comm_bytes Optional: "the name as it was, when it was no UTF-8; else null";
        maybe_bytes raw_comm;
        set_name_bytes |row: &mut TaskEvent, bytes| set_raw_comm(row, bytes)),
    number!(Int64 cgroup: "its cgroup (`cgroup.cgroup`)";
        |row| row.cgroup.get().cast_signed();
        |row, id| row.cgroup = CgroupId::new(id.cast_unsigned())),
    word!(Class class: "scheduling class";
        |row| row.class.index(); |row, class| row.class = class),
    number!(Int16 prio: "kernel priority";
        |row| row.prio; |row, prio| row.prio = prio),
    other!(Boolean is_kthread Always: "whether it is a kernel thread";
        flags |row: &TaskEvent| row.is_kthread;
        set_flags |row: &mut TaskEvent, yes| row.is_kthread = yes),
    other!(Boolean in_scope Always: "whether its switches are recorded (others are only named)";
        flags |row: &TaskEvent| row.in_scope;
        set_flags |row: &mut TaskEvent, yes| row.in_scope = yes),
    number!(Int64 voluntary_switches: "the kernel's count for the task at this moment (`nvcsw`)";
        |row| row.voluntary_switches.cast_signed();
        |row, count| row.voluntary_switches = count.cast_unsigned()),
    number!(Int64 involuntary_switches: "the kernel's count for the task at this moment \
        (`nivcsw`)";
        |row| row.involuntary_switches.cast_signed();
        |row, count| row.involuntary_switches = count.cast_unsigned()),
];

/// Stretches of time in which records were lost.
pub static GAP: Table<Gap> = Table {
    name: "gap",
    meaning: "records that were produced and could not be kept",
    columns: GAP_COLUMNS,
    blank: blank_gap,
};

const GAP_COLUMNS: &[TraceColumn<Gap>] = &[
    number!(UInt16 cpu: "the CPU whose ring was full";
        |row| row.cpu.get(); |row, cpu| row.cpu = CpuId::new(cpu)),
    number!(Int64 start_ns: "time of the first record that was lost";
        |row| moment(row.start); |row, ns| row.start = to_moment(ns)),
    number!(Int64 end_ns: "time of the last record that was lost";
        |row| moment(row.end); |row, ns| row.end = to_moment(ns)),
    number!(Int64 lost: "how many records; in a recording by perf events, at most so many switch-outs";
        |row| row.lost.cast_signed(); |row, lost| row.lost = lost.cast_unsigned()),
    since(
        2,
        word!(Level level: "whose switches they were";
            |row| row.level.index(); |row, level| row.level = level),
    ),
];

/// Waits and runs that were open when the capture ended.
pub static OPEN: Table<Open> = Table {
    name: "open",
    meaning: "waits and runs that no row of `switch` tells: those that were open when the capture ended, and the waits before such runs",
    columns: OPEN_COLUMNS,
    blank: blank_open,
};

const OPEN_COLUMNS: &[TraceColumn<Open>] = &[
    number!(UInt32 task: "the task (`task.task`)";
        |row| row.task.get(); |row, key| row.task = TaskKey::new(key)),
    maybe_word!(Reason reason: "why it had left; null for a run";
        |row| row.reason.map(Reason::index); |row, reason| row.reason = reason),
    number!(Int64 since_ns: "since when, on the trace clock";
        |row| moment(row.since); |row, ns| row.since = to_moment(ns)),
    number!(Int64 lasted_ns: "for how long: until the end of the capture, or until the task's run began that was open then";
        |row| length(row.lasted); |row, ns| row.lasted = to_length(ns)),
    since(
        5,
        maybe_number!(Int64 runq_ns: "how long of that, at its end, it could run and had no CPU; null for a run, and when it is not known";
            |row| row.runq.map(length); |row, ns| row.runq = ns.map(to_length)),
    ),
    since(
        5,
        maybe_number!(UInt16 cpu: "the CPU on which it ran, or for which it waited; null when it is not known";
            |row| row.cpu.map(CpuId::get); |row, cpu| row.cpu = cpu.map(CpuId::new)),
    ),
];

/// Paths of the cgroups that tasks were in.
pub static CGROUP: Table<CgroupRow> = Table {
    name: "cgroup",
    meaning: "where each cgroup is in the hierarchy",
    columns: CGROUP_COLUMNS,
    blank: CgroupRow::default,
};

const CGROUP_COLUMNS: &[TraceColumn<CgroupRow>] = &[
    number!(Int64 cgroup: "the cgroup: inode number of its directory";
        |row| row.cgroup.get().cast_signed();
        |row, id| row.cgroup = CgroupId::new(id.cast_unsigned())),
    other!(Utf8 path Always: "its path, from the root of its hierarchy";
        texts |row| Cow::Borrowed(&row.path);
        set_texts |row: &mut CgroupRow, text| row.path = text.unwrap_or_default().into()),
];

/// Command lines of processes, as they were read.
pub static COMMAND: Table<CommandRow> = Table {
    name: "command",
    meaning: "command lines of processes, a row each time that one was read and had changed (since format 4)",
    columns: COMMAND_COLUMNS,
    blank: CommandRow::default,
};

const COMMAND_COLUMNS: &[TraceColumn<CommandRow>] = &[
    since(
        4,
        number!(Int64 ts_ns: "when it was read, on the trace clock";
            |row| moment(row.ts); |row, ns| row.ts = to_moment(ns)),
    ),
    since(
        4,
        number!(UInt32 pid: "the process (`task.pid`): the one that had this id at that moment";
            |row| row.pid.get(); |row, pid| row.pid = Pid::new(pid)),
    ),
    since(
        4,
        other!(Utf8 command Always: "its command line (`/proc/PID/cmdline`), words with a space between \
            them; cut after 1,024 bytes";
            texts |row| Cow::Borrowed(&row.command);
            set_texts |row: &mut CommandRow, text| row.command = text.unwrap_or_default().into()),
    ),
];

/// Names of wait types of user-mode schedulers.
pub static WAIT_TYPE: Table<WaitTypeRow> = Table {
    name: "wait_type",
    meaning: "what tasks of user-mode schedulers wait for, in the schedulers' words (since format 2)",
    columns: WAIT_TYPE_COLUMNS,
    blank: WaitTypeRow::default,
};

const WAIT_TYPE_COLUMNS: &[TraceColumn<WaitTypeRow>] = &[
    since(
        2,
        number!(UInt16 wait_type: "the number of the wait type in this trace";
            |row| row.wait_type; |row, number| row.wait_type = number),
    ),
    since(
        2,
        other!(Utf8 name Always: "its name";
            texts |row| Cow::Borrowed(&row.name);
            set_names |row: &mut WaitTypeRow, text| row.name = text.unwrap_or_default().into()),
    ),
];

/// Spans of threads.
pub static SPAN: Table<SpanRow> = Table {
    name: "span",
    meaning: "spans of threads between two places of their program (`--span`): those that have ended (since format 9)",
    columns: SPAN_COLUMNS,
    blank: SpanRow::default,
};

const SPAN_COLUMNS: &[TraceColumn<SpanRow>] = &[
    since(
        9,
        number!(Int64 begin_ns: "when it began, on the trace clock";
            |row| moment(row.begin); |row, ns| row.begin = to_moment(ns)),
    ),
    since(
        9,
        number!(Int64 end_ns: "when it ended, on the trace clock";
            |row| moment(row.end); |row, ns| row.end = to_moment(ns)),
    ),
    since(
        9,
        number!(UInt32 pid: "the process (`task.pid`)";
            |row| row.pid.get(); |row, pid| row.pid = Pid::new(pid)),
    ),
    since(
        9,
        number!(UInt32 tid: "the thread (`task.tid`)";
            |row| row.tid.get(); |row, tid| row.tid = Tid::new(tid)),
    ),
    since(
        9,
        other!(Utf8 name Always: "its kind: the function, the two places, or what of a known server it is";
            texts |row| Cow::Borrowed(&row.name);
            set_names |row: &mut SpanRow, text| row.name = text.unwrap_or_default().into()),
    ),
    since(
        10,
        other!(Utf8 trace_id Optional: "the trace that it is a part of, as W3C's Trace Context writes it, where the \
            program has published that (`--span otel`): the row is then a stretch of the thread's time, from the first \
            switch-out with these ids to the first without";
            maybe_texts |row| row.trace_id.as_deref();
            set_texts |row: &mut SpanRow, text| row.trace_id = text.map(Into::into)),
    ),
    since(
        10,
        other!(Utf8 span_id Optional: "what of that trace was active, in the same way";
            maybe_texts |row| row.span_id.as_deref();
            set_texts |row: &mut SpanRow, text| row.span_id = text.map(Into::into)),
    ),
];

/// Workers of runtimes' schedulers, at each look.
pub static WORKER: Table<WaitingWorkersRow> = Table {
    name: "worker",
    meaning: "goroutines of Go that waited or could run, by place: a row for each place and look (since format 8)",
    columns: WORKER_COLUMNS,
    blank: WaitingWorkersRow::default,
};

const WORKER_COLUMNS: &[TraceColumn<WaitingWorkersRow>] = &[
    since(
        8,
        number!(Int64 ts_ns: "when it was looked at, on the trace clock";
            |row| moment(row.ts); |row, ns| row.ts = to_moment(ns)),
    ),
    since(
        8,
        number!(UInt32 pid: "the process (`task.pid`)";
            |row| row.pid.get(); |row, pid| row.pid = Pid::new(pid)),
    ),
    since(
        8,
        other!(Utf8 reason Optional: "what they waited for, in the words of Go; null: they could run";
            maybe_texts |row| row.reason.as_deref();
            set_texts |row: &mut WaitingWorkersRow, text| row.reason = text.map(Into::into)),
    ),
    since(
        8,
        maybe_number!(UInt32 stack: "their user stack (`stack.stack`)";
            |row| row.stack; |row, stack| row.stack = stack),
    ),
    since(
        8,
        number!(Int64 thousandths: "how many they were, in thousandths: of more than 128 chance takes some";
            |row| row.thousandths.cast_signed();
            |row, count| row.thousandths = count.cast_unsigned()),
    ),
    since(
        8,
        number!(Int64 between_ns: "the time that the look stands for: since the one before";
            |row| length(row.between); |row, ns| row.between = to_length(ns)),
    ),
];

/// Distinct stacks, as lists of frames.
pub static STACK: Table<Stack> = Table {
    name: "stack",
    meaning: "one row per distinct stack",
    columns: STACK_COLUMNS,
    blank: Stack::default,
};

const STACK_COLUMNS: &[TraceColumn<Stack>] = &[
    number!(UInt32 stack: "the stack's number";
        |row| row.id; |row, number| row.id = number),
    word!(StackKind kind: "which part of a stack";
        |row| row.kind.index(); |row, kind| row.kind = kind),
    maybe_number!(UInt32 pid: "the process whose addresses these are, the first that it was met in; null for the kernel";
        |row| row.pid.map(Pid::get); |row, pid| row.pid = pid.map(Pid::new)),
    other!(UInt32List frames Always: "its frames (`frame.frame`), innermost first";
        number_lists |row: &Stack| &row.frames;
        set_number_lists |row: &mut Stack, frames| row.frames = frames),
    since(
        7,
        maybe_word!(StackEnd ended: "where the frames end, outwards; null for the kernel";
            |row| row.end.map(StackEnd::index);
            |row, end| row.end = end),
    ),
];

/// Distinct frames, with symbols where known.
pub static FRAME: Table<Frame> = Table {
    name: "frame",
    meaning: "one row per distinct frame of a stack; what could not be told is null",
    columns: FRAME_COLUMNS,
    blank: Frame::default,
};

const FRAME_COLUMNS: &[TraceColumn<Frame>] = &[
    number!(UInt32 frame: "the frame's number";
        |row| row.id; |row, number| row.id = number),
    number!(UInt64 address: "address in the address space that it was seen in; that of a caller is inside \
                             of its call, one byte before the address that it returns to";
        |row| row.address; |row, address| row.address = address),
    other!(Utf8 symbol Optional: "function";
        maybe_texts |row| row.symbol.as_deref();
        set_texts |row: &mut Frame, text| row.symbol = text.map(Into::into)),
    other!(Utf8 module Optional: "executable or library, by its path in the mount namespace of the process \
                                    (` (deleted)` behind it: replaced while it ran); or `[kernel]`";
        maybe_texts |row| row.module.as_deref();
        set_texts |row: &mut Frame, text| row.module = text.map(Into::into)),
    maybe_number!(Int64 symbol_offset: "distance from the start of the function, in bytes (`offset` before \
        format 4)";
        |row| row.offset.map(u64::cast_signed);
        |row, offset| row.offset = offset.map(i64::cast_unsigned)),
    other!(Utf8 file Optional: "source file, as the compiler was told it (its name alone before format 7)";
        maybe_texts |row| row.file.as_deref();
        set_texts |row: &mut Frame, text| row.file = text.map(Into::into)),
    maybe_number!(UInt32 line: "line in it";
        |row| row.line; |row, line| row.line = line),
    since(
        7,
        maybe_number!(UInt64 file_address: "address in `module`, as its symbols state addresses";
            |row| row.file_address; |row, address| row.file_address = address),
    ),
    since(
        7,
        other!(Utf8 build_id Optional: "build id of `module`, in hexadecimal digits";
            maybe_texts |row| row.build_id.as_deref();
            set_texts |row: &mut Frame, text| row.build_id = text.map(Into::into)),
    ),
];

fn moment(ts: Timestamp) -> i64 {
    ts.as_ns().cast_signed()
}

fn to_moment(ns: i64) -> Timestamp {
    Timestamp::from_ns(ns.cast_unsigned())
}

fn length(span: Nanos) -> i64 {
    span.as_ns().cast_signed()
}

fn to_length(ns: i64) -> Nanos {
    Nanos::from_ns(ns.cast_unsigned())
}

/// An argument of the system call; `None` if the task did not block, since its registers are then
/// unrelated.
fn argument(row: &Switch, index: usize) -> Option<i64> {
    (row.evidence.state != 0).then(|| row.evidence.args[index].cast_signed())
}

fn set_argument(row: &mut Switch, index: usize, value: Option<i64>) {
    row.evidence.args[index] = value.map_or(0, i64::cast_unsigned);
}

fn raw_comm(row: &TaskEvent) -> Option<&[u8]> {
    std::str::from_utf8(&row.comm).is_err().then_some(&row.comm)
}

fn set_raw_comm(row: &mut TaskEvent, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        row.comm = bytes.to_vec();
    }
}

fn blank_task() -> TaskEvent {
    TaskEvent {
        ts: Timestamp::default(),
        kind: TaskEventKind::Seen,
        task: TaskKey::IDLE,
        tid: Tid::default(),
        pid: Pid::default(),
        parent_pid: Pid::default(),
        started_ns: 0,
        comm: Vec::new(),
        cgroup: CgroupId::default(),
        class: Class::Fair,
        prio: 120,
        is_kthread: false,
        in_scope: true,
        voluntary_switches: 0,
        involuntary_switches: 0,
    }
}

fn blank_gap() -> Gap {
    Gap {
        cpu: CpuId::default(),
        start: Timestamp::default(),
        end: Timestamp::default(),
        lost: 0,
        level: Level::Os,
    }
}

fn blank_open() -> Open {
    Open {
        task: TaskKey::IDLE,
        reason: None,
        since: Timestamp::default(),
        lasted: Nanos::ZERO,
        runq: None,
        cpu: None,
    }
}

/// A set of columns of `switch`, which a scan decodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Columns(u64);

macro_rules! columns {
    ($($constant:ident = $($name:literal)+: $doc:literal;)+) => {
        impl Columns {
            $(#[doc = $doc] pub const $constant: Self = Self(0)$(.and(Self::named($name)))+;)+
        }
    };
}

columns! {
    TS = "ts_ns": "[`Switch::ts`].";
    CPU = "cpu": "[`Switch::cpu`].";
    TASK = "task": "[`Switch::task`].";
    RAN = "ran_ns": "[`Switch::ran`].";
    IRQ = "irq_ns": "[`Switch::irq`].";
    STOLEN = "stolen_ns": "[`Switch::stolen`].";
    REASON = "reason": "The reason in [`Switch::rule`]; its name and certainty are not read.";
    RULE = "reason" "certainty" "rule": "[`Switch::rule`], whole.";
    EVIDENCE = "cause" "evidence_bits" "state" "syscall" "arg0" "arg1" "arg2" "wait_object"
        "wait_key" "class" "prio" "next_class" "next_prio" "nominator" "need_resched_delay_ns":
        "[`Switch::evidence`], whole.";
    CAUSE = "cause": "[`Evidence::cause`].";
    BITS = "evidence_bits": "[`Evidence::bits`].";
    STATE = "state": "[`Evidence::state`].";
    SYSCALL = "syscall": "[`Evidence::syscall`].";
    ARGS = "arg0" "arg1" "arg2": "[`Evidence::args`].";
    WAIT_OBJECT = "wait_object": "[`Evidence::wait_object`].";
    WAIT_KEY = "wait_key": "[`Evidence::wait_key`].";
    CLASS = "class" "prio": "[`Evidence::class`] and [`Evidence::prio`].";
    NEXT_CLASS = "next_class" "next_prio": "[`Evidence::next_class`] and [`Evidence::next_prio`].";
    NOMINATOR = "nominator": "[`Evidence::nominator`].";
    NEED_RESCHED_DELAY = "need_resched_delay_ns": "[`Evidence::need_resched_delay`].";
    NEXT_TASK = "next_task": "[`Switch::next_task`].";
    USER_TASK = "user_task": "[`Switch::user_task`].";
    LEVEL = "level": "[`Switch::level`].";
    USER = "user_run" "next_user_task" "user_waker" "wait_type" "off_wait_type":
        "[`Switch::user`], whole.";
    CGROUP = "cgroup": "[`Switch::cgroup`].";
    OFF_REASON = "off_reason": "[`Wait::reason`].";
    OFF = "off_ns": "[`Wait::off`].";
    RUNQ = "runq_ns": "[`Wait::runq`].";
    WAKER = "waker" "waker_kind": "[`swtch_core::Wakeup::waker`] and [`swtch_core::Wakeup::kind`].";
    WAKE_CPU = "wake_cpu": "[`swtch_core::Wakeup::cpu`].";
    MOVED = "moved_ns": "[`Wait::moved`].";
    STACKS = "off_kernel_stack" "off_user_stack" "off_seen_ns" "off_holder_stack":
        "[`Wait::stacks`], [`Wait::seen_for`] and [`Wait::holder_stack`].";
    WAKER_STACKS = "waker_kernel_stack" "waker_user_stack":
        "[`swtch_core::Wakeup::waker_stacks`].";
}

impl Columns {
    /// The empty set: rows are only counted.
    pub const NONE: Self = Self(0);

    /// The set of every column of `switch`.
    pub const fn all() -> Self {
        Self(u64::MAX >> (u64::BITS as usize - SWITCH_COLUMNS.len()))
    }

    /// The union of both sets of columns.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all columns of `other` are in the set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names of the columns, in the order of the schema.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let chosen = move |index: usize| self.0 >> index & 1 == 1;
        let columns = SWITCH_COLUMNS.iter().enumerate();
        columns
            .filter(move |(index, _)| chosen(*index))
            .map(|(_, column)| column.name)
    }

    /// The column with this name; a misspelt name does not compile.
    const fn named(name: &str) -> Self {
        let mut index = 0;
        while index < SWITCH_COLUMNS.len() {
            if is_same(SWITCH_COLUMNS[index].name, name) {
                return Self(1 << index);
            }
            index += 1;
        }
        panic!("no column of `switch` has this name")
    }
}

/// `==` for strings in a constant expression.
const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut index = 0;
    while index < left.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    true
}

impl BitOr for Columns {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_a_bit_of_its_own() {
        assert_eq!(Columns::all().names().count(), SWITCH_COLUMNS.len());
        let some = Columns::RAN | Columns::WAKER;
        assert_eq!(
            some.names().collect::<Vec<_>>(),
            ["ran_ns", "waker", "waker_kind"]
        );
    }

    /// The column `rule` completes the verdict of the two before it.
    #[test]
    fn the_rule_comes_after_reason_and_certainty() {
        let place = |name| SWITCH_COLUMNS.iter().position(|column| column.name == name);
        assert!(place("reason") < place("certainty"));
        assert!(place("certainty") < place("rule"));
    }

    fn batch_of(rows: &[Switch]) -> RecordBatch {
        SWITCH.encode(&SWITCH.arrow(), rows)
    }

    /// Columns are only ever added at the end, so an older trace has the first ones.
    #[test]
    fn what_an_older_trace_lacks_is_not_known() {
        let mut written = Switch::blank(verdict::unread());
        written.ran = Some(Nanos::from_ns(7));
        written.wait.off = Some(Nanos::from_ns(9));
        let older = batch_of(&[written]).project(&[0, 1, 2, 3]);
        let mut read = vec![Switch::blank(verdict::unread())];
        let decoded = SWITCH.decode(&older.expect("it has four columns"), &mut read);
        assert!(decoded.is_ok());
        assert_eq!((read[0].ran, read[0].wait.off), (written.ran, None));
    }

    #[test]
    fn a_column_of_an_older_trace_is_found_under_its_old_name() {
        let offsets: ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![12]));
        let older = RecordBatch::try_from_iter([("offset", offsets)]).expect("one column");
        let mut read = vec![Frame::default()];
        assert!(FRAME.decode(&older, &mut read).is_ok());
        assert_eq!(read[0].offset, Some(12));
    }

    /// A word of a newer version must neither panic nor become another word.
    #[test]
    fn a_newer_word_is_an_error_where_a_row_uses_it() {
        let words = column::word_list(["teleport", "futex"].into_iter());
        let reasons = |key| column::dictionary(arrow_array::UInt8Array::from(vec![key]), &words);
        let decode = |key| {
            let batch = RecordBatch::try_from_iter([("reason", reasons(key))]);
            let mut read = vec![Switch::blank(verdict::unread())];
            let decoded = SWITCH.decode(&batch.expect("one column"), &mut read);
            decoded.map(|()| read[0].rule.reason)
        };
        assert_eq!(decode(1).ok(), Some(Reason::Futex));
        let newer = decode(0).expect_err("nobody knows this word yet");
        assert!(matches!(newer, ("reason", Mismatch::Word(word)) if word == "teleport"));
    }
}
