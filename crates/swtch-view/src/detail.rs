//! `api/detail`: everything that is known about one row: its wait, its run, and why it ended.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use swtch_core::cost::{Basis, Billing, Case};
use swtch_core::{
    Arch, CpuId, Evidence, Holder, Level, Nanos, StackKind, StackNumbers, Switch, TaskKey,
    Timestamp, WakerKind,
};
use swtch_report::report::{
    CALLER_LACKING, CONTENTION, RowSyscall, contention, object_of, successor,
};
use swtch_store::Columns;

use super::facts::of_thread;
use super::loaded::Loaded;
use super::timeline::{LevelRows, RowPieces};

/// Returns what is known about a row.
///
/// # Errors
/// When the trace cannot be read.
pub fn of_row(
    loaded: &Loaded,
    level: Level,
    row: usize,
    billing: Option<&Billing>,
) -> Result<Value> {
    let timeline = loaded.levels.of(level);
    let track = timeline.track_of(row).context("the row is of no task")?;
    let switch = read(loaded, level, timeline, row)?;
    let has_previous = row > track.first;
    let previous = match has_previous && switch.wait.reason.is_some() {
        true => Some(read(loaded, level, timeline, row - 1)?),
        false => None,
    };
    // In memory, rows of workers have no waits, because lanes are of threads.
    let length = |length: Option<Nanos>| length.map(Nanos::as_ns);
    let pieces = RowPieces::new(
        timeline.rows().ended_ns(row),
        length(switch.ran),
        length(switch.wait.off),
        length(switch.wait.runq),
        switch.wait.reason,
    );
    Ok(json!({
        "row": loaded.id(level, row),
        "level": level.as_str(),
        "thread": of_thread(loaded, switch.task),
        "cpu": switch.cpu.get(),
        "run": of_run(loaded, &switch, &pieces, billing),
        "wait": of_wait(loaded, (row, &switch), previous.as_ref(), &pieces)?,
        "previous_row": has_previous.then(|| loaded.id(level, row - 1)),
        "next_row": (row + 1 < track.rows().end).then(|| loaded.id(level, row + 1)),
    }))
}

/// The row as it is stored in the trace.
fn read(loaded: &Loaded, level: Level, timeline: &LevelRows, row: usize) -> Result<Switch> {
    let task = timeline
        .track_of(row)
        .context("the row is of no task")?
        .task;
    let ts = loaded.moment(timeline.rows().ended_ns(row));
    let mut found = None;
    let span = Some((ts, ts));
    loaded
        .trace
        .scan_levels(Columns::all(), span, &mut |switch| {
            if switch.task == task && switch.level == level {
                found = Some(*switch);
            }
        })?;
    found.context("the row is not in the trace any more")
}

fn of_run(loaded: &Loaded, row: &Switch, pieces: &RowPieces, billing: Option<&Billing>) -> Value {
    let evidence = &row.evidence;
    let thread = |task: Option<TaskKey>| task.map(|task| of_thread(loaded, task));
    json!({
        "from_ns": pieces.run_from_ns,
        "to_ns": pieces.run_to_ns,
        "ns": row.ran.map(Nanos::as_ns),
        "irq_ns": row.irq.as_ns(),
        "stolen_ns": row.stolen.as_ns(),
        "reason": row.rule.reason.as_str(),
        "category": row.rule.reason.category().as_str(),
        "certainty": row.rule.certainty.as_str(),
        "rule": row.rule.name,
        "rule_help": row.rule.help,
        "cause": evidence.cause.as_str(),
        // For a worker, the user-mode scheduler says why it left; evidence of the kernel does not
        // apply.
        "evidence": match row.level {
            Level::Os => words_of(evidence),
            Level::User => Vec::new(),
        },
        "syscall": call_of(loaded, row),
        "wait_on": object_words(loaded, row),
        "next": match row.next_task {
            Some(next) if next.is_idle() => Value::from("idle"),
            next => thread(next).into(),
        },
        "nominator": thread(evidence.nominator),
        "need_resched_delay_ns": evidence.need_resched_delay.map(Nanos::as_ns),
        "user_task": row.user_task,
        "price": billing.and_then(|billing| of_price(loaded, row, billing)),
    })
}

/// The evidence in words: (name, value).
fn words_of(evidence: &Evidence) -> Vec<(&'static str, String)> {
    let mut words = vec![
        (
            "asked for by",
            format!("{}: {}", evidence.cause, evidence.cause.help()),
        ),
        ("state", state_words(evidence.state)),
        (
            "class",
            format!("{}, priority {}", evidence.class, evidence.prio),
        ),
        (
            "successor's class",
            format!("{}, priority {}", evidence.next_class, evidence.next_prio),
        ),
    ];
    for (bit, word, help) in swtch_core::EvidenceBits::TABLE {
        if evidence.bits.0 >> bit & 1 == 1 {
            words.push((word, (*help).to_owned()));
        }
    }
    words
}

/// The state as letters of the kernel (`fs/proc/array.c`, v6.18), with its raw bits.
fn state_words(state: u32) -> String {
    let letters = [
        (0x1, "S"),
        (0x2, "D"),
        (0x4, "T"),
        (0x8, "t"),
        (0x10, "X"),
        (0x20, "Z"),
        (0x40, "P"),
    ];
    let letter = letters
        .iter()
        .find(|(bit, _)| state & bit != 0)
        .map(|one| one.1);
    match (state, letter) {
        (0, _) => "R (runnable)".to_owned(),
        (_, Some(letter)) => format!("{letter} ({state:#x})"),
        (_, None) => format!("{state:#x}"),
    }
}

fn call_of(loaded: &Loaded, row: &Switch) -> Option<String> {
    row.evidence.syscall?;
    let arch = Arch::from_machine(&loaded.trace.meta().host.machine);
    Some(RowSyscall::of(row).name(arch))
}

/// Says what a row began to wait for: `futex 0x7f…`, `fifo 0x1234` (an inode number).
fn object_words(loaded: &Loaded, row: &Switch) -> Option<String> {
    let process = loaded.names.thread(loaded.names.index(row.task)).process;
    let object = object_of(row, process)?;
    Some(format!("{} {:#x}", object.kind.as_str(), object.key))
}

fn of_price(loaded: &Loaded, row: &Switch, billing: &Billing) -> Option<Value> {
    let case = Case {
        reason: row.rule.reason,
        successor: successor(row.next_task, loaded.names.index(row.task), &loaded.names),
    };
    let tariff = billing.tariff(case).ok()?;
    Some(json!({
        "ns": tariff.direct.point_ns,
        "low_ns": tariff.direct.low_ns,
        "high_ns": tariff.direct.high_ns,
        "kind": tariff.source,
        "measured": tariff.basis == Basis::Measured,
    }))
}

fn of_wait(
    loaded: &Loaded,
    (number, row): (usize, &Switch),
    previous: Option<&Switch>,
    pieces: &RowPieces,
) -> Result<Value> {
    let wait = &row.wait;
    if wait.length().is_none() {
        return Ok(Value::Null);
    }
    let wakeup = &wait.wakeup;
    let woken_ns = wakeup
        .kind
        .filter(|kind| *kind != WakerKind::None)
        .and(pieces.queued_from_ns);
    let waker = wakeup
        .waker
        .filter(|_| wakeup.kind.is_some_and(WakerKind::is_task));
    let waker_row = waker
        .zip(woken_ns)
        .and_then(|(waker, at)| loaded.levels.os.row_at(waker, at));
    let holder = StackNumbers {
        kernel: None,
        user: wait.holder_stack,
    };
    Ok(json!({
        "from_ns": pieces.left_ns.or(pieces.queued_from_ns),
        "woken_ns": woken_ns,
        "to_ns": pieces.run_from_ns,
        "reason": wait.reason.map(swtch_core::Reason::as_str),
        "category": wait.reason.map(|reason| reason.category().as_str()),
        "blocked_ns": wait.blocked().map(Nanos::as_ns),
        "runq_ns": wait.runq.map(Nanos::as_ns),
        "syscall": previous.and_then(|previous| call_of(loaded, previous)),
        "wait_on": previous.and_then(|previous| object_words(loaded, previous)),
        "waker": waker.map(|waker| json!({
            "thread": of_thread(loaded, waker),
            "row": waker_row.map(|row| loaded.id(Level::Os, row)),
        })),
        "waker_kind": wakeup.kind.map(WakerKind::as_str),
        "wake_cpu": wakeup.cpu.map(swtch_core::CpuId::get),
        "stack": stack_of(loaded, wait.stacks)?,
        "waker_stack": stack_of(loaded, wakeup.waker_stacks)?,
        "holder_stack": stack_of(loaded, holder)?,
        // A worker waits for its turn, not for a CPU.
        "had_cpu": match row.level {
            Level::Os => had_cpu(loaded, number, row)?,
            Level::User => Vec::new(),
        },
    }))
}

/// The frames of a stack, the innermost first: the kernel's, then the program's.
fn stack_of(loaded: &Loaded, stacks: StackNumbers) -> Result<Option<Value>> {
    if stacks == StackNumbers::default() {
        return Ok(None);
    }
    let symbols = loaded.symbols()?;
    let frames = stacks.iter().flat_map(|(kind, stack)| {
        let frames = symbols.frames(kind, Some(stack));
        let lacks = kind == StackKind::User && symbols.may_lack_a_caller(&frames);
        let note = lacks.then_some(CALLER_LACKING);
        let frames = frames.into_iter().enumerate();
        frames.map(move |(place, frame)| {
            let note = note.filter(|_| place == 0);
            json!({"symbol": frame, "kind": kind.as_str(), "note": note})
        })
    });
    Ok(Some(frames.collect()))
}

/// The time in which the rows lie that may tell who had the CPU: from the last run before the wait,
/// on any CPU whose queue the task may have been in, to the run that was going on there when the
/// wait ended. A task that ran for long has its row far away.
fn around_wait(loaded: &Loaded, number: usize, wanted: &Switch) -> (Timestamp, Timestamp) {
    let os = &loaded.levels.os;
    let rows = os.rows();
    let pieces = rows.pieces(number);
    let ended_ns = pieces.run_to_ns;
    let queued_ns = pieces.queued_from_ns.unwrap_or(ended_ns);
    let has_previous = os
        .track_of(number)
        .is_some_and(|track| number > track.first);
    let previous = has_previous.then(|| rows.row(number - 1));
    let mut around = (queued_ns, ended_ns);
    // A task that was not woken is in the queue of the CPU that it left.
    if let Some(previous) = previous.filter(|previous| previous.ended_ns <= queued_ns) {
        around.0 = previous.ended_ns;
    }
    let passed = [
        Some(wanted.cpu),
        wanted.wait.wakeup.cpu,
        previous.map(|previous| CpuId::new(previous.cpu)),
    ];
    for lane in os
        .cpus()
        .iter()
        .filter(|lane| passed.contains(&Some(lane.cpu)))
    {
        if let Some((since, until)) = lane.span_around(os, queued_ns, ended_ns) {
            around = (around.0.min(since), around.1.max(until));
        }
    }
    (loaded.moment(around.0), loaded.moment(around.1))
}

/// Returns which tasks had the CPU while the row's task was in the run queue; the parts sum to the wait.
fn had_cpu(loaded: &Loaded, number: usize, wanted: &Switch) -> Result<Vec<Value>> {
    if wanted.ran.is_none() || wanted.wait.runq.is_none() {
        return Ok(Vec::new());
    }
    let (since, until) = around_wait(loaded, number, wanted);
    let gaps = loaded.trace.gaps()?;
    let mut contention = contention(loaded.coverage(), loaded.trace.meta(), &gaps);
    let mut sums: Vec<(Holder, u64)> = Vec::new();
    let mut sink = |wait: swtch_core::Contended<'_>| {
        wait.for_each_part(
            |holder, time| match sums.iter_mut().find(|sum| sum.0 == holder) {
                Some(sum) => sum.1 += time.as_ns(),
                None => sums.push((holder, time.as_ns())),
            },
        );
    };
    loaded
        .trace
        .scan(CONTENTION, Some((since, until)), &mut |row| {
            if row.ts == wanted.ts && row.task == wanted.task {
                contention.push(row, &mut sink);
            } else {
                contention.push_run(row, &mut sink);
            }
        })?;
    contention.finish(&mut sink);
    sums.retain(|sum| sum.1 > 0);
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.1));
    Ok(sums
        .iter()
        .map(|(holder, ns)| of_holder(loaded, *holder, *ns))
        .collect())
}

fn of_holder(loaded: &Loaded, holder: Holder, ns: u64) -> Value {
    let what = match holder {
        Holder::Task(task) => {
            return json!({"what": "task", "thread": of_thread(loaded, task), "ns": ns});
        }
        Holder::Interrupts => "interrupts",
        Holder::Steal => "stolen",
        Holder::Throttle => "throttled",
        Holder::Idle => "idle",
        Holder::Unaccounted => "not known",
    };
    json!({"what": what, "thread": null, "ns": ns})
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::Reason;
    use swtch_fixtures::{after, meta, row, seen};
    use swtch_store::Writer;

    /// A switch of one thread, and a hundred switches of its workers.
    fn of_workers() -> (Loaded, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let meta = meta();
        let mut writer = Writer::create(&path, &meta).unwrap();
        writer.push_task(&seen(1, 10, 10, "server")).unwrap();
        for number in 1..=100_u64 {
            let mut row = after(row(1, Reason::Yield), Reason::Yield, 0, 700);
            row.ts = Timestamp::from_ns(meta.start_ns + number * 1_000_000);
            row.level = Level::User;
            row.user_task = Some(number % 2);
            writer.push_switch(&row).unwrap();
        }
        let mut os = row(1, Reason::Futex);
        os.ts = Timestamp::from_ns(meta.start_ns + 101_000_000);
        writer.push_switch(&os).unwrap();
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        (Loaded::read(&path, 1).unwrap(), dir)
    }

    /// Rows of the two levels are numbered apart: the last of a hundred worker rows has no kernel
    /// row of its number.
    #[test]
    fn every_row_of_a_worker_has_its_detail() {
        let (loaded, _dir) = of_workers();
        for number in 0..100 {
            let detail = of_row(&loaded, Level::User, number, None).unwrap();
            assert_eq!(detail["run"]["user_task"], (number + 1) % 2, "{detail}");
            assert_eq!(detail["wait"]["runq_ns"], 700);
            assert_eq!(detail["wait"]["had_cpu"], json!([]));
        }
    }
}
