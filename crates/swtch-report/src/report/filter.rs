//! Selects the rows that a report counts.
//!
//! A row describes two things: a switch-out with its reason, and the wait before the run, with the
//! reason of the switch-out that began it. A filter by reason may take one and not the other. A row
//! belongs to a span of time if its switch-out does.
//!
//! Tasks that the capture was not asked for are in the trace only because they had the CPU while
//! others waited. No report counts their switches.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use swtch_core::{Nanos, Pid, Reason, Switch, Timestamp};
use swtch_store::Columns;

use super::followed::FollowedRequest;
use super::names::Names;

/// The rows that a person asked to see. The default is everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these processes; all when empty.
    pub pids: Vec<Pid>,
    /// Only threads of which any name matched one of these patterns; all if empty. A pattern with
    /// `*` or `?` must match the whole name, any other pattern a part of it. Case matters.
    pub comms: Vec<String>,
    /// Only these reasons; all when empty.
    pub reasons: Vec<Reason>,
    /// Only switches from this moment on, counted from the start of the trace.
    pub since: Option<Moment>,
    /// Only switches before this moment, counted from the start of the trace.
    pub until: Option<Moment>,
    /// Only waits that took at least so long. Switches count whatever the wait before them took.
    pub min_wait: Option<LeastWait>,
    /// Only the request of which a published id begins with these digits.
    pub only_span: Option<String>,
    /// The asker. Reading ends with [`GivenUp`] when nobody waits for the answer any more.
    pub asker: Asker,
}

/// A flag that tells whether somebody still waits for an answer; by default somebody does. Clones are of one asker.
#[derive(Clone, Debug, Default)]
pub struct Asker(Arc<AtomicBool>);

impl Asker {
    /// Notes that nobody waits any more.
    pub fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if nobody waits any more.
    pub fn is_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The answer was not made, since nobody waits for it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody waits for this answer any more")]
pub struct GivenUp;

impl Filter {
    /// Returns true if the filter takes all of the trace's time.
    pub const fn is_of_all_time(&self) -> bool {
        self.since.is_none() && self.until.is_none()
    }

    /// Refuses a span of time in which no switch of the trace can lie, because a report of zeros
    /// would look like an answer. `length` is the trace's, if it is known.
    ///
    /// # Errors
    ///
    /// If the span is reversed, or begins after the end of the trace.
    pub fn check_span(&self, length: Option<Nanos>) -> Result<(), EmptySpan> {
        let since = self.since.unwrap_or(Moment(Nanos::ZERO));
        if let Some(until) = self.until.filter(|until| *until <= since) {
            return Err(EmptySpan::Reversed { since, until });
        }
        match length.filter(|length| since.0 > *length) {
            Some(length) => Err(EmptySpan::AfterEnd { since, length }),
            None => Ok(()),
        }
    }

    /// The filter in the words of the command line; `None` when it takes everything.
    pub fn to_words(&self) -> Option<String> {
        let mut words = Vec::new();
        words.extend(self.pids.iter().map(|pid| format!("--pid {pid}")));
        words.extend(self.comms.iter().map(|comm| format!("--comm {comm}")));
        words.extend(
            self.reasons
                .iter()
                .map(|reason| format!("--reason {reason}")),
        );
        words.extend(self.since.map(|moment| format!("--since {moment}")));
        words.extend(self.until.map(|moment| format!("--until {moment}")));
        words.extend(
            self.min_wait
                .iter()
                .map(|least| format!("--min-wait {least}")),
        );
        let only_span = self.only_span.iter();
        words.extend(only_span.map(|id| format!("--only-span {id}")));
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// A span of time that holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmptySpan {
    /// The span ends before it begins.
    #[error("nothing lies in the span: --until {until} is not after --since {since}")]
    Reversed {
        /// Begin of the span, since the trace's start.
        since: Moment,
        /// End of the span, since the trace's start.
        until: Moment,
    },
    /// The trace ends before the span begins.
    #[error(
        "nothing lies in the span: the trace is {length} long, and --since {since} is after its end"
    )]
    AfterEnd {
        /// Begin of the span, since the trace's start.
        since: Moment,
        /// The length of the trace.
        length: Nanos,
    },
}

/// Written in seconds, without a unit: `1.5`.
impl fmt::Display for Moment {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0.as_ns() as f64 / 1e9).fmt(f)
    }
}

/// The shortest wait that counts, in the words of the person who gave it: `1ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeastWait {
    length: Nanos,
    words: String,
}

impl FromStr for LeastWait {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let refusal = || format!("`{words}` is no length: give seconds (1.5) or a unit (250ms)");
        let Moment(length) = words.parse().map_err(|_: String| refusal())?;
        let has_unit = words.ends_with(char::is_alphabetic);
        let words = format!("{words}{}", if has_unit { "" } else { "s" });
        Ok(Self { length, words })
    }
}

impl fmt::Display for LeastWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words.fmt(f)
    }
}

/// A moment as a person gives it: time since the start of the trace, `1.5` (seconds), `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Nanos);

impl FromStr for Moment {
    type Err = String;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie in the range of u64"
    )]
    fn from_str(words: &str) -> Result<Self, String> {
        let refusal = || format!("`{words}` is no moment: give seconds (1.5) or a unit (250ms)");
        let number_end = words
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(words.len());
        let (number, unit) = words.split_at(number_end);
        let unit_ns = match unit.trim_start() {
            "" | "s" => 1e9,
            "ms" => 1e6,
            "us" | "µs" => 1e3,
            "ns" => 1.0,
            "m" | "min" => 60e9,
            _ => return Err(refusal()),
        };
        let ns = number.parse::<f64>().map_err(|_| refusal())? * unit_ns;
        // 2⁵³ ns are 104 days: up to there a double holds every nanosecond.
        if ns > 9e15 {
            return Err(refusal());
        }
        Ok(Self(Nanos::from_ns(ns.round() as u64)))
    }
}

/// The parts of a row that a report counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedParts {
    /// The switch-out and the run that it ended.
    pub switch: bool,
    /// The wait before the run.
    pub wait: bool,
}

/// A filter resolved for the tasks and the time of one trace.
#[derive(Debug)]
pub struct Selection {
    tasks: Vec<bool>,
    in_scope: Vec<bool>,
    reasons: u32,
    from: Timestamp,
    to: Timestamp,
    min_wait: Option<Nanos>,
    request: Option<FollowedRequest>,
}

impl Selection {
    /// Resolves `filter` for a trace with these tasks that began at `start`.
    pub fn new(filter: &Filter, names: &Names, start: Timestamp) -> Self {
        let after = |moment: Moment| {
            let ns = start.as_ns().saturating_add(moment.0.as_ns());
            Timestamp::from_ns(ns)
        };
        let reasons = match filter.reasons.as_slice() {
            [] => u32::MAX,
            some => some.iter().fold(0, |set, reason| set | bit(*reason)),
        };
        Self {
            tasks: (0..names.thread_count())
                .map(|index| takes_task(filter, names, index))
                .collect(),
            in_scope: (0..names.thread_count())
                .map(|index| names.thread(index).in_scope)
                .collect(),
            reasons,
            from: filter.since.map_or(Timestamp::default(), after),
            to: filter.until.map_or(Timestamp::from_ns(u64::MAX), after),
            min_wait: filter.min_wait.as_ref().map(|least| least.length),
            request: None,
        }
    }

    /// Takes only what belongs to this request, if one is given.
    pub fn following(mut self, request: Option<FollowedRequest>) -> Self {
        if let Some(request) = &request {
            let tasks = self.tasks.iter_mut().enumerate();
            tasks.for_each(|(task, is_taken)| *is_taken &= request.takes_task(task));
        }
        self.request = request;
        self
    }

    /// What [`Self::counts`] asks of a row beside its task and what a scan of a span of time reads.
    pub fn columns(&self) -> Columns {
        match self.request {
            Some(_) => FollowedRequest::COLUMNS,
            None if self.min_wait.is_some() => Columns::OFF,
            None => Columns::NONE,
        }
    }

    /// Returns which parts of this row count; `task` is the index of the row's task.
    pub fn counts(&self, row: &Switch, task: usize) -> CountedParts {
        let is_taken = self.tasks[task] && self.from <= row.ts && row.ts < self.to;
        let takes = |reason| is_taken && self.reasons & bit(reason) != 0;
        let is_long = |least| row.wait.off.is_some_and(|off| off >= least);
        let counted = CountedParts {
            switch: takes(row.rule.reason),
            wait: self.min_wait.is_none_or(is_long)
                && takes(row.wait.reason.unwrap_or(Reason::Unknown)),
        };
        match &self.request {
            Some(request) if is_taken => request.leave(row, task, counted),
            _ => counted,
        }
    }

    /// Returns true if a wait for this reason of this task, still open at the end, counts; `lasted` is its length, if
    /// that is known.
    pub fn counts_open(
        &self,
        reason: Reason,
        task: usize,
        since: Timestamp,
        lasted: Option<Nanos>,
    ) -> bool {
        let is_long = |least| lasted.is_none_or(|lasted| lasted >= least);
        let is_followed = |request: &FollowedRequest| request.has(task, since);
        self.tasks[task]
            && self.reasons & bit(reason) != 0
            && since < self.to
            && self.min_wait.is_none_or(is_long)
            && self.request.as_ref().is_none_or(is_followed)
    }

    /// Returns true if switches of this task may count.
    pub fn takes_task(&self, task: usize) -> bool {
        self.tasks[task]
    }

    /// Returns true if the task is in the scope of the capture.
    pub fn is_in_scope(&self, task: usize) -> bool {
        self.in_scope[task]
    }

    /// Returns true if the filter takes only a part of the trace's time.
    pub fn is_of_a_span(&self) -> bool {
        self.from > Timestamp::default() || self.to < Timestamp::from_ns(u64::MAX)
    }

    /// Rows before this moment do not count.
    pub const fn from(&self) -> Timestamp {
        self.from
    }

    /// Rows from this moment on do not count.
    pub const fn to(&self) -> Timestamp {
        self.to
    }
}

const fn bit(reason: Reason) -> u32 {
    1 << reason.index()
}

/// Returns true if a filter takes the thread with this index: by process and name, and only if the thread is in the
/// scope of the capture.
pub fn takes_task(filter: &Filter, names: &Names, index: usize) -> bool {
    let thread = names.thread(index);
    let pid = names.process_of(index).pid;
    let takes_pid = filter.pids.is_empty() || pid.is_some_and(|pid| filter.pids.contains(&pid));
    let takes_comm = |pattern: &String| thread.comms().any(|comm| matches(pattern, comm));
    let takes_comm = filter.comms.is_empty() || filter.comms.iter().any(takes_comm);
    thread.in_scope && takes_pid && takes_comm
}

/// Returns true if a name matches: all of it when the pattern has `*` or `?`, else any part of it.
pub fn matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return name.contains(pattern);
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Place of the last `*` in the pattern, and of the first character of the name that it does not
    // cover.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star_p, star_n)) = star else {
                    return false;
                };
                star = Some((star_p, star_n + 1));
                p = star_p + 1;
                n = star_n + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{names, row, seen};
    use swtch_core::{TaskEvent, Wait};

    #[test]
    fn moments_are_seconds_unless_a_unit_stands_there() {
        let ns = |words: &str| words.parse::<Moment>().map(|moment| moment.0.as_ns());
        assert_eq!(ns("1.5"), Ok(1_500_000_000));
        assert_eq!(ns("250ms"), Ok(250_000_000));
        assert_eq!(ns("2 us"), Ok(2_000));
        assert_eq!(ns("7µs"), Ok(7_000));
        assert_eq!(ns("2m"), Ok(120_000_000_000));
        for refused in ["", "s", "-1", "1h30", "1.2.3", "1e99", "99999999999"] {
            assert!(ns(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_pattern_is_a_part_or_a_glob_of_the_whole_name() {
        for (pattern, name, expected) in [
            ("work", "kworker/0:1", true),
            ("Work", "kworker/0:1", false),
            ("kworker*", "kworker/0:1", true),
            ("worker*", "kworker/0:1", false),
            ("*:?", "kworker/0:1", true),
            ("k*r*1", "kworker/0:1", true),
            ("k?", "kworker/0:1", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// The wait belongs to the reason before the run, the switch to the one after it.
    #[test]
    fn a_reason_may_take_the_wait_and_not_the_switch() {
        let names = names();
        let filter = Filter {
            reasons: vec![Reason::Pipe],
            ..Filter::default()
        };
        let selection = Selection::new(&filter, &names, Timestamp::default());
        let mut row = row(1, Reason::Futex);
        row.wait = Wait {
            reason: Some(Reason::Pipe),
            ..row.wait
        };
        let counted = selection.counts(&row, names.index(row.task));
        assert_eq!(
            counted,
            CountedParts {
                switch: false,
                wait: true
            }
        );
    }

    #[test]
    fn tasks_out_of_scope_never_count() {
        let other = TaskEvent {
            in_scope: false,
            ..seen(1, 10, 10, "other")
        };
        let names = Names::new(&[other]);
        let selection = Selection::new(&Filter::default(), &names, Timestamp::default());
        let row = row(1, Reason::Futex);
        let counted = selection.counts(&row, names.index(row.task));
        assert_eq!(
            counted,
            CountedParts {
                switch: false,
                wait: false
            }
        );
    }

    /// A report of zeros for a span that cannot hold anything would be taken for an answer.
    #[test]
    fn a_span_that_holds_nothing_is_refused() {
        let two_seconds = Some(Nanos::from_ns(2_000_000_000));
        let said = |since: Option<&str>, until: Option<&str>, length| {
            let moment = |words: &str| words.parse::<Moment>().unwrap();
            let filter = Filter {
                since: since.map(moment),
                until: until.map(moment),
                ..Filter::default()
            };
            filter.check_span(length).map_err(|error| error.to_string())
        };
        for (since, until) in [
            (None, None),
            (Some("1"), Some("5")),
            (Some("2"), None),
            (None, Some("1ns")),
            (Some("1"), Some("9")),
        ] {
            assert_eq!(said(since, until, two_seconds), Ok(()));
        }
        let reversed = said(Some("5"), Some("1"), two_seconds).unwrap_err();
        assert!(
            reversed.ends_with("--until 1 is not after --since 5"),
            "{reversed}"
        );
        assert!(said(Some("1"), Some("1000ms"), two_seconds).is_err());
        assert!(said(None, Some("0"), two_seconds).is_err());
        let after = said(Some("2.5"), None, two_seconds).unwrap_err();
        assert!(after.contains("2.00 s long, and --since 2.5"), "{after}");
        assert_eq!(said(Some("2.5"), None, None), Ok(()));
    }

    #[test]
    fn since_is_in_the_span_and_until_is_not() {
        let names = names();
        let filter = Filter {
            since: Some(Moment(Nanos::from_ns(10))),
            until: Some(Moment(Nanos::from_ns(20))),
            ..Filter::default()
        };
        let selection = Selection::new(&filter, &names, Timestamp::from_ns(100));
        let mut row = row(1, Reason::Futex);
        for (ns, expected) in [(109, false), (110, true), (119, true), (120, false)] {
            row.ts = Timestamp::from_ns(ns);
            let counted = selection.counts(&row, names.index(row.task));
            assert_eq!(counted.switch, expected, "{ns}");
        }
    }

    /// The switch itself counts: it was made, however long the wait before it took.
    #[test]
    fn shorter_waits_do_not_count() {
        let names = names();
        let filter = Filter {
            min_wait: Some("1ms".parse().unwrap()),
            ..Filter::default()
        };
        assert_eq!(filter.to_words().unwrap(), "--min-wait 1ms");
        let selection = Selection::new(&filter, &names, Timestamp::default());
        let mut row = row(1, Reason::Futex);
        for (off, expected) in [
            (Some(999_999), false),
            (Some(1_000_000), true),
            (None, false),
        ] {
            row.wait.off = off.map(Nanos::from_ns);
            let counted = selection.counts(&row, names.index(row.task));
            assert_eq!((counted.switch, counted.wait), (true, expected), "{off:?}");
        }
        let (since, task) = (Timestamp::default(), names.index(row.task));
        for (lasted, expected) in [
            (Some(999_999), false),
            (Some(1_000_000), true),
            (None, true),
        ] {
            let lasted = lasted.map(Nanos::from_ns);
            let counts = selection.counts_open(Reason::Futex, task, since, lasted);
            assert_eq!(counts, expected, "open for {lasted:?}");
        }
    }

    #[test]
    fn a_length_is_told_as_it_was_typed() {
        let told = |words: &str| words.parse::<LeastWait>().map(|least| least.to_string());
        for (typed, expected) in [("1ms", "1ms"), ("1500us", "1500us"), ("2", "2s")] {
            assert_eq!(told(typed).unwrap(), expected);
        }
        assert!(told("1h").unwrap_err().contains("no length"));
    }

    #[test]
    fn any_name_a_thread_had_is_matched() {
        let names = Names::new(&[seen(1, 10, 10, "bash"), seen(1, 10, 10, "server")]);
        let filter = Filter {
            comms: vec!["bash".into()],
            ..Filter::default()
        };
        let selection = Selection::new(&filter, &names, Timestamp::default());
        let row = row(1, Reason::Futex);
        assert!(selection.counts(&row, names.index(row.task)).switch);
        assert!(!selection.counts(&row, Names::nameless()).switch);
    }
}
