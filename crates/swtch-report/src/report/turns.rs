//! What is said of the turns of programs ([`swtch_core::turns`]): how many there were, how long they took, and why the
//! slowest were slow.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use swtch_core::{
    Arch, MessageEnd, MessageWait, Nanos, Reason, Switch, TaskKey, ThreadTurns, Timestamp,
    TurnKind, TurnSum, TurnSums, WakerKind,
};
use swtch_output::sheet::percent;
use swtch_output::text::{counted, grouped};

use super::names::Names;
use super::programs::Programs;
use super::screen::{in_hundredths, per_second};
use super::waker::Waker;

/// Of fewer turns nothing is said: the slowest 1 % is one.
const FEWEST_TURNS: u64 = 100;

/// The share of turns that are the slowest.
const SLOWEST_PCT: f64 = 1.0;

/// Where turns are nearly alike, the slowest cannot be told from the others: from this share on they are not.
const MOST_OF_THE_SLOWEST_PCT: f64 = 5.0;

/// From this share on it is said that turns are not known whole.
const BROKEN_PCT: f64 = 1.0;

/// Parts below this share of the time are not told, and this many are.
const LEAST_PCT: f64 = 5.0;
const MOST_PARTS: usize = 4;

/// The turns of each thread, by its index.
#[derive(Debug, Default)]
pub struct TurnsByThread {
    threads: Vec<Option<Box<ThreadTurns>>>,
}

impl TurnsByThread {
    /// Adds a row of the task with this index, on a machine of this architecture.
    pub fn add(&mut self, row: &Switch, task: usize, arch: Option<Arch>, names: &Names) {
        let waits = wait_of(row, arch);
        if task >= self.threads.len() {
            self.threads.resize_with(task + 1, || None);
        }
        let thread = &mut self.threads[task];
        if waits.is_some() || thread.is_some() {
            let is_program = |task: &TaskKey| !names.process_of(names.index(*task)).is_kernel;
            let end = match Waker::of(row, names) {
                Some(Waker::Other(WakerKind::Timer)) | None => MessageEnd::Nothing,
                Some(_) => MessageEnd::Message(row.wait.wakeup.waker.filter(is_program)),
            };
            thread.get_or_insert_default().add(row, end, waits);
        }
    }

    /// The turns of the task with this index that have ended so far, at several descriptors and at one.
    pub fn ended(&self, task: usize) -> [u64; 2] {
        let thread = self.threads.get(task).and_then(Option::as_ref);
        let count = |kind| thread.map_or(0, |thread| thread.of(kind).count());
        [count(TurnKind::AtMany), count(TurnKind::AtOne)]
    }

    /// Which of these are the task's turns, and how many more they may be.
    pub fn kind(&self, task: usize) -> Option<(TurnKind, u64)> {
        let thread = self.threads.get(task)?.as_ref()?;
        let kind = thread.kind()?;
        Some((kind, thread.of(kind).perhaps_more))
    }

    /// The turns of each program that took enough of them, the one with the most first. Threads of Go serve whoever is
    /// there, and their turns are no requests: those processes are left out.
    pub fn by_program(
        &self,
        names: &Names,
        programs: &Programs,
        runs_goroutines: impl Fn(usize) -> bool,
    ) -> Vec<ProgramTurns> {
        let mut by_program: BTreeMap<&str, TurnSums> = BTreeMap::new();
        for (task, thread) in self.threads.iter().enumerate() {
            let process = names.thread(task).process;
            let turns = thread.as_ref().and_then(|thread| thread.turns());
            if let Some(turns) = turns.filter(|_| !runs_goroutines(process)) {
                let label = programs.label(process);
                by_program.entry(label).or_default().merge(turns);
            }
        }
        let told = by_program.into_iter().filter_map(|(label, turns)| {
            let longest = turns.longest?;
            (turns.count() >= FEWEST_TURNS).then(|| ProgramTurns {
                label: label.to_owned(),
                span: None,
                thread: names.label(names.index(longest.task)),
                turns,
            })
        });
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|program| Reverse(program.count()));
        told
    }
}

/// Where a thread waits for a message from now on. A call for one descriptor tells nothing of it, if it names a list.
fn wait_of(row: &Switch, arch: Option<Arch>) -> Option<MessageWait> {
    let (call, args) = (row.evidence.syscall, row.evidence.args);
    let is_for_room = || call.is_some_and(|call| arch.is_some_and(|arch| arch.hands_over(call)));
    let name = call.and_then(|call| arch?.syscall_name(call));
    match (row.rule.reason, name) {
        (Reason::Poll, Some("epoll_wait" | "epoll_pwait" | "epoll_pwait2")) => {
            Some(MessageWait::AtMany(Some(args[0])))
        }
        (Reason::Poll, Some("poll" | "ppoll")) if args[1] == 1 => Some(MessageWait::AtOne(None)),
        (Reason::Poll, _) => Some(MessageWait::AtMany(None)),
        (Reason::Net | Reason::Pipe, _) if !is_for_room() => {
            Some(MessageWait::AtOne(row.evidence.wait_key))
        }
        _ => None,
    }
}

/// What is known of spans, and not of inferred turns.
#[derive(Clone, Debug)]
struct SpanFacts {
    /// What they are called.
    kind: String,
    /// How many more were within others of the kind.
    nested: u64,
    /// What kept many of the slowest waiting, as a sentence.
    cause: Option<String>,
}

/// The turns of one program.
#[derive(Clone, Debug)]
pub struct ProgramTurns {
    label: String,
    /// What is known of spans besides; `None` for turns, which are inferred.
    span: Option<SpanFacts>,
    /// The thread that took the longest.
    thread: String,
    turns: TurnSums,
}

impl ProgramTurns {
    /// Spans of this kind; `cause` says what kept so many of the slowest waiting.
    pub fn of_spans(
        (kind, label): (&str, &str),
        (spans, nested): (TurnSums, u64),
        names: &Names,
        cause: impl Fn(u64) -> Option<String>,
    ) -> Self {
        let longest = spans.longest;
        let (all, slowest) = spans.slowest(SLOWEST_PCT);
        let are_apart =
            percent(slowest.turns, all.turns).is_some_and(|share| share < MOST_OF_THE_SLOWEST_PCT);
        let thread = longest.map(|longest| names.label(names.index(longest.task)));
        Self {
            label: label.to_owned(),
            span: Some(SpanFacts {
                kind: kind.to_owned(),
                nested,
                cause: are_apart.then(|| cause(slowest.turns)).flatten(),
            }),
            thread: thread.unwrap_or_default(),
            turns: spans,
        }
    }

    /// True for spans, which were recorded on request.
    pub const fn are_spans(&self) -> bool {
        self.span.is_some()
    }

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.turns.count()
    }

    /// Says how many turns there were in a recording of this length, and what the slowest waited for.
    pub fn words(&self, wall: Nanos, start: Timestamp) -> String {
        let (all, slowest) = self.turns.slowest(SLOWEST_PCT);
        let length = |percent| self.turns.percentile(percent).unwrap_or(Nanos::ZERO);
        let per_second = grouped(per_second(all.turns, wall).unwrap_or(0));
        let longest = self.turns.longest.map_or_else(String::new, |longest| {
            let at = longest.began.since(start).unwrap_or(Nanos::ZERO);
            format!(", {} (longest: {} at {at})", longest.length, self.thread)
        });
        let TurnSums {
            perhaps_more,
            broken,
            ..
        } = self.turns;
        let is_much =
            |count: u64, least: f64| percent(count, all.turns).is_some_and(|share| share >= least);
        let (from, one, caveat) = match &self.span {
            None => (
                format!("From a message to the next wait for one, {}", self.label),
                "turn",
                Some("what comes meanwhile is served in the same turn".to_owned()),
            ),
            Some(SpanFacts { kind, nested, .. }) => (
                format!("{kind} (in {})", self.label),
                "span",
                (*nested > 0).then(|| format!("{} more are within these", grouped(*nested))),
            ),
        };
        if all.turns == 0 {
            return format!(
                "{from}: {}, of which none is known whole: its thread did not leave the CPU near it.",
                counted(self.turns.broken, one)
            );
        }
        let mut caveats: Vec<_> = caveat.into_iter().collect();
        if is_much(perhaps_more, LEAST_PCT) {
            caveats.push(format!(
                "{} times who had begun one took the CPU in it: perhaps it had its answer, and sent more",
                grouped(perhaps_more)
            ));
        }
        if is_much(broken, BROKEN_PCT) {
            caveats.push(format!("{} more are not known whole", grouped(broken)));
        }
        let parts = match is_much(slowest.turns, MOST_OF_THE_SLOWEST_PCT) {
            true => format!("All of them: {}.", parts_in_words(&all)),
            false => format!(
                "The slowest {}: {}; the others: {}.",
                share_words(slowest.turns, all.turns),
                parts_in_words(&slowest),
                parts_in_words(&without(&all, &slowest)),
            ),
        };
        let caveats = match caveats.is_empty() {
            true => String::new(),
            false => format!(" ({})", caveats.join("; ")),
        };
        let cause = self.span.as_ref().and_then(|span| span.cause.as_ref());
        let cause = cause.map_or_else(String::new, |cause| format!(" {cause}"));
        format!(
            "{from} took {} (median), {} (99 %){longest}: {}, {per_second} a second, of {} switches each{caveats}. \
             {parts}{cause}",
            length(50.0),
            length(99.0),
            counted(all.turns, one),
            in_hundredths(all.switches, all.turns),
        )
    }

    /// The same for programs.
    pub fn to_json(&self, start: Timestamp) -> Value {
        let (all, slowest) = self.turns.slowest(SLOWEST_PCT);
        let longest = self.turns.longest;
        json!({
            "program": self.label,
            "from": if self.span.is_some() { "places" } else { "inferred" },
            "span": self.span.as_ref().map(|span| &span.kind),
            "cause_of_slowest": self.span.as_ref().and_then(|span| span.cause.as_ref()),
            "all": sum_json(&all),
            "slowest": sum_json(&slowest),
            "p50_ns": self.turns.percentile(50.0).map(Nanos::as_ns),
            "p99_ns": self.turns.percentile(99.0).map(Nanos::as_ns),
            "longest_ns": longest.map(|longest| longest.length.as_ns()),
            "longest_at_ns": longest.and_then(|longest| longest.began.since(start)).map(Nanos::as_ns),
            "longest_thread": self.thread,
            "perhaps_more": self.turns.perhaps_more,
            "broken": self.turns.broken,
            "without_message": self.turns.without_message,
        })
    }
}

fn sum_json(sum: &TurnSum) -> Value {
    let blocked = sum.blocked.iter();
    let blocked: BTreeMap<_, _> = blocked
        .map(|(reason, time)| (reason.to_string(), time.as_ns()))
        .collect();
    json!({
        "turns": sum.turns,
        "switches": sum.switches,
        "length_ns": sum.length().as_ns(),
        "ran_ns": sum.ran.as_ns(),
        "no_cpu_ns": sum.no_cpu.as_ns(),
        "blocked_ns_by_reason": blocked,
    })
}

/// All without the slowest.
fn without(all: &TurnSum, slowest: &TurnSum) -> TurnSum {
    let of = |reason: Reason| {
        let mut known = slowest.blocked.iter();
        let known = known.find(|(known, _)| *known == reason);
        known.map_or(Nanos::ZERO, |(_, time)| *time)
    };
    let blocked = all.blocked.iter();
    TurnSum {
        turns: all.turns.saturating_sub(slowest.turns),
        switches: all.switches.saturating_sub(slowest.switches),
        ran: all.ran.saturating_sub(slowest.ran),
        no_cpu: all.no_cpu.saturating_sub(slowest.no_cpu),
        blocked: blocked
            .map(|(reason, time)| (*reason, time.saturating_sub(of(*reason))))
            .collect(),
    }
}

/// `without a CPU 62.0 %, on a CPU 20.0 %, blocked (io) 18.0 %`
fn parts_in_words(sum: &TurnSum) -> String {
    let whole = sum.length();
    let mut parts = vec![
        ("on a CPU".to_owned(), sum.ran),
        ("without a CPU".to_owned(), sum.no_cpu),
    ];
    parts.extend(
        sum.blocked
            .iter()
            .map(|(reason, time)| (format!("blocked ({reason})"), *time)),
    );
    parts.sort_by_key(|(_, time)| Reverse(*time));
    let is_large =
        |time: Nanos| percent(time.as_ns(), whole.as_ns()).is_some_and(|part| part >= LEAST_PCT);
    let told = parts.into_iter().filter(|(_, time)| is_large(*time));
    let told = told
        .take(MOST_PARTS)
        .map(|(words, time)| format!("{words} {}", share_words(time.as_ns(), whole.as_ns())));
    told.collect::<Vec<_>>().join(", ")
}

fn share_words(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "0 %".to_owned(), |share| format!("{share:.1} %"))
}
