//! What a person should know first, in plain words: the causes that stand out, where they come
//! from, who took the CPU, and what could be changed.
//!
//! Each rule looks at counts and says nothing unless they stand out: 10 % of the switches, or 1 %
//! of the time in which tasks ran or wanted to run. Advice follows from a number that stands
//! beside it, never from the name of a reason alone. No rule knows what the program is *for*: a
//! switch that stands out may be the right one.
//!
//! - [`preempted`]: tasks that lost their CPU, or gave it away, and could have run on.
//! - [`blocked`]: tasks that blocked, and for what.
//! - [`queued`]: run-queue time in which no task had the CPU.

mod blocked;
mod preempted;
mod queued;

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Arch, CgroupId, Distribution, Nanos, Reason, Rule, Switch};

use super::group::{Groups, Key};
use super::names::Names;
use super::preemptor::Preemptors;
use super::reason::ByReason;
use super::sheet::percent;
use super::tally::Tally;
use super::wait::{Object, Objects};
use super::waker::Wakers;
use super::worth::Saving;
use crate::text::grouped;

/// A reason stands out by number from this share of the switches on.
const OFTEN_PCT: f64 = 10.0;

/// Fewer switches than this are not "often", whatever their share.
const FEWEST_SWITCHES: u64 = 100;

/// A cause stands out by time from this share of run time and run-queue time on.
const COSTLY_PCT: f64 = 1.0;

/// Less time than this is not costly, whatever its share.
const LEAST_TIME: Nanos = Nanos::from_ns(1_000_000);

/// Shares from which one of several is "the" one.
const MOST_PCT: f64 = 50.0;

/// Unknown reasons are said from this share on.
const UNKNOWN_PCT: f64 = 1.0;

/// How many threads, calls or pairs a finding names.
pub const NAMED: usize = 3;

/// Where even the first has a smaller share, names would mislead: the many are counted.
const SPREAD_PCT: f64 = 5.0;

/// What the reports of one trace found, from which the verdict is drawn.
#[derive(Debug)]
pub struct Picture<'a> {
    /// By reason.
    pub reasons: &'a ByReason,
    /// By thread.
    pub threads: &'a Groups,
    /// By system call.
    pub calls: &'a Groups,
    /// Who had the CPU.
    pub preemptors: &'a Preemptors,
    /// Who woke whom.
    pub wakers: &'a Wakers,
    /// What was waited for.
    pub objects: &'a Objects,
    /// Which rules decided, and which cgroups were throttled.
    pub details: &'a Details,
    /// Who the tasks are.
    pub names: &'a Names,
    /// Of system call numbers.
    pub arch: Option<Arch>,
    /// Paths of cgroups.
    pub cgroups: &'a FxHashMap<CgroupId, String>,
    /// CPUs of the machine.
    pub cpus: u32,
}

/// Counts that only the verdict needs.
#[derive(Debug, Default)]
pub struct Details {
    rules: FxHashMap<&'static str, (&'static Rule, u64)>,
    throttled: FxHashMap<CgroupId, Nanos>,
}

impl Details {
    /// Adds a switch-out that counts.
    pub fn add_switch(&mut self, row: &Switch) {
        self.rules.entry(row.rule.name).or_insert((row.rule, 0)).1 += 1;
    }

    /// Adds a wait that counts.
    pub fn add_wait(&mut self, row: &Switch) {
        if row.wait.reason == Some(Reason::Throttle) {
            let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
            *self.throttled.entry(row.cgroup).or_default() += runq;
        }
    }

    /// Rules that decided for a reason, most often first.
    fn rules_of(&self, reason: Reason) -> Vec<(&'static Rule, u64)> {
        let rules = self.rules.values().copied();
        let mut rules: Vec<_> = rules.filter(|rule| rule.0.reason == reason).collect();
        rules.sort_by_key(|(rule, count)| (Reverse(*count), rule.name));
        rules
    }

    fn count_of(&self, rule: &str) -> u64 {
        self.rules.get(rule).map_or(0, |rule| rule.1)
    }
}

/// Which switches a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All for this reason.
    Reason(Reason),
    /// Those into waits for this object.
    Object(Object),
    /// None: time that passed without a switch.
    Time,
}

/// One thing that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A name that stays: `wakeup_preemption`.
    pub name: &'static str,
    /// The switches that it is about.
    pub subject: Subject,
    /// Switches that it made.
    pub switches: u64,
    /// Time in which tasks did not run because of it.
    pub time: Nanos,
    /// What was seen, with its numbers.
    pub seen: String,
    /// Where it comes from, and who took the CPU.
    pub places: Vec<String>,
    /// What a person could change; `None` where the numbers suggest nothing.
    pub advice: Option<String>,
}

impl Finding {
    /// The finding as a JSON object, with what removing it would save.
    pub fn to_json(&self, all: u64, saving: Option<&Saving>) -> Value {
        json!({
            "name": self.name,
            "switches": self.switches,
            "share_pct": percent(self.switches, all),
            "time_ns": self.time.as_ns(),
            "seen": self.seen,
            "places": self.places,
            "advice": self.advice,
            "worth": saving.map(Saving::to_json),
        })
    }
}

/// What stands out, the weightiest first.
pub fn findings(picture: &Picture<'_>) -> Vec<Finding> {
    let rules = [
        Picture::throttle,
        Picture::slice,
        Picture::wakeup,
        Picture::class,
        Picture::migrate,
        Picture::yields,
        Picture::futex,
        Picture::pipe,
        Picture::net,
        Picture::ipc,
        Picture::poll,
        Picture::sleep,
        Picture::io,
        Picture::fault,
        Picture::interrupts,
        Picture::steal,
        Picture::idle,
        Picture::unknown,
    ];
    let total = picture.reasons.total();
    let mut findings: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule(picture, &total))
        .collect();
    // Shares of switches and of time, added: a cause may weigh by either.
    let weight = |finding: &Finding| {
        let demand = total.ran + total.runq + finding.time;
        let switches = parts_per_million(finding.switches, total.switches);
        switches + parts_per_million(finding.time.as_ns(), demand.as_ns())
    };
    findings.sort_by_key(|finding| Reverse(weight(finding)));
    findings
}

/// The words when no rule speaks.
pub fn nothing_stands_out() -> String {
    format!(
        "Nothing stands out: no cause that could be changed makes {OFTEN_PCT} % of the switches \
         or costs {COSTLY_PCT} % of the time in which tasks ran or wanted to run."
    )
}

impl Picture<'_> {
    fn unknown(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Unknown).tally;
        percent(tally.switches, total.switches).filter(|share| *share >= UNKNOWN_PCT)?;
        let rules = self.details.rules_of(Reason::Unknown);
        let words = rules.iter().take(NAMED);
        let words =
            words.map(|(rule, count)| format!("{} {}: {}", grouped(*count), rule.name, rule.help));
        let mut places: Vec<String> = words.collect();
        places.extend(self.places(Reason::Unknown));
        let blocked =
            self.details.count_of("kernel_thread") + self.details.count_of("call_without_rule");
        let advice = percent(blocked, tally.switches).filter(|share| *share >= MOST_PCT);
        let advice =
            advice.map(|_| "record with --stacks: the stacks show where they wait".to_owned());
        Some(Finding {
            name: "unknown",
            subject: Subject::Reason(Reason::Unknown),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!("The reason is not known: {}.", self.switches(tally, total)),
            places,
            advice,
        })
    }

    /// `1,234 switches (12.3 %)`
    fn switches(&self, tally: &Tally, total: &Tally) -> String {
        let plural = if tally.switches == 1 { "" } else { "es" };
        let count = grouped(tally.switches);
        format!(
            "{count} switch{plural} ({})",
            share(tally.switches, total.switches)
        )
    }

    /// Threads and system calls in which tasks leave for a reason.
    fn places(&self, reason: Reason) -> Vec<String> {
        let threads = main_groups(self.threads, reason, |key| match key {
            Key::Thread(index) => self.names.label(index),
            _ => String::new(),
        });
        let calls = main_groups(self.calls, reason, |key| match key {
            Key::Syscall(call) => call.name(self.arch),
            _ => String::new(),
        });
        let threads = threads.map(|words| format!("threads: {words}"));
        let calls = calls.map(|words| format!("in: {words}"));
        threads.into_iter().chain(calls).collect()
    }
}

/// The groups with the most switches for a reason: `worker/12 34.5 %`.
fn main_groups(groups: &Groups, reason: Reason, label: impl Fn(Key) -> String) -> Option<String> {
    let count = |tally: &Tally| tally.reasons[reason.index()];
    let mut ranked = groups.ranked();
    let all: u64 = ranked.iter().map(|(_, tally)| count(tally)).sum();
    ranked.retain(|(_, tally)| count(tally) > 0);
    ranked.sort_by_key(|(key, tally)| (Reverse(count(tally)), *key));
    let named = ranked.iter().map(|(key, tally)| {
        let words = format!("{} {}", label(*key), share(count(tally), all));
        (words, count(tally))
    });
    main_of(named, all)
}

/// The first of many, which come in order of their counts, in words. Where the counts are spread
/// thin, how many there are.
fn main_of(ranked: impl Iterator<Item = (String, u64)>, all: u64) -> Option<String> {
    let mut ranked = ranked.peekable();
    let first = percent(ranked.peek()?.1, all)?;
    if first < SPREAD_PCT {
        let many = u64::try_from(ranked.count()).unwrap_or(u64::MAX);
        return Some(format!(
            "{}, none with more than {first:.1} %",
            grouped(many)
        ));
    }
    let words: Vec<_> = ranked.take(NAMED).map(|one| one.0).collect();
    Some(words.join(", "))
}

fn stands_out(switches: u64, time: Nanos, total: &Tally) -> bool {
    is_often(switches, total) || is_costly(time, total)
}

fn is_often(switches: u64, total: &Tally) -> bool {
    let share = percent(switches, total.switches);
    switches >= FEWEST_SWITCHES && share.is_some_and(|share| share >= OFTEN_PCT)
}

fn is_costly(time: Nanos, total: &Tally) -> bool {
    let share = percent(time.as_ns(), (total.ran + total.runq).as_ns());
    time >= LEAST_TIME && share.is_some_and(|share| share >= COSTLY_PCT)
}

pub fn share(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"))
}

fn typical(lengths: &Distribution) -> String {
    let median = lengths.percentile(50.0);
    median.map_or_else(|| "unknown length".to_owned(), |median| median.to_string())
}

fn parts_per_million(part: u64, whole: u64) -> u128 {
    u128::from(part) * 1_000_000 / u128::from(whole.max(1))
}
