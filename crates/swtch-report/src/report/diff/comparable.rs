//! Are the runs of A and of B comparable? Each difference that could explain a change by itself is
//! a line that says why it matters.

use std::collections::BTreeSet;
use std::fmt::Display;

use swtch_core::Nanos;
use swtch_output::text::{counted, grouped};
use swtch_store::{Meta, RecordingState};

use super::judge::Per;
use super::measure::MeasuredRun;

/// Requests in a turn that may differ by more than this factor are told.
const OTHER_MERGED: f64 = 1.1;

/// A larger part of all spans that are not told is told.
const MOST_UNTOLD: f64 = 0.01;

/// Mean lengths that differ by more than this factor are told.
const OTHER_LENGTH: f64 = 1.2;

/// A load by others that differs by more than this factor, and this many switches a second, is
/// told.
const OTHER_LOAD: f64 = 1.5;
const OTHER_LOAD_PER_S: f64 = 100.0;

/// A difference between the two sides, or within one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideDifference {
    /// The thing that differs, in one word.
    pub what: &'static str,
    /// As it is in A.
    pub a: String,
    /// As it is in B.
    pub b: String,
    /// The reason why it matters.
    pub why: String,
}

/// A fact of a trace's metadata that is compared: its name, its value in words, and why it matters.
type Fact = (&'static str, fn(&Meta) -> String, &'static str);

/// Parts of the time for which tasks waited for a CPU, or of CPU time that the hypervisor took, that
/// differ by more than this are told: the first varies by tenths from run to run on a machine with other
/// work, and the second is lost to the program as a whole.
const OTHER_PRESSURE: f64 = 0.2;
const OTHER_STEAL: f64 = 0.02;

/// The format of traces from which on an inlined function is a frame.
const INLINED_SINCE: u32 = 7;

const FACTS: [Fact; 12] = [
    (
        "host",
        |meta| meta.host.hostname.clone(),
        "another machine has other caches, speed and neighbours",
    ),
    (
        "architecture",
        |meta| meta.host.machine.clone(),
        "times of different architectures are not comparable",
    ),
    (
        "CPU model",
        |meta| word(meta.host.cpu_model.as_ref()),
        "times of different processors are not comparable",
    ),
    (
        "kernel",
        |meta| meta.host.kernel_release.clone(),
        "schedulers differ between kernels, so a change may be the kernel's",
    ),
    (
        "preemption",
        |meta| word(meta.host.preemption.as_ref()),
        "the preemption model decides when a task loses the CPU",
    ),
    (
        "CPUs",
        |meta| meta.host.cpus.to_string(),
        "fewer CPUs mean more waiting in run queues",
    ),
    (
        "usable CPUs",
        |meta| word(meta.host.usable_cpus.as_ref()),
        "an affinity or a quota leaves other CPUs to the program",
    ),
    (
        "recorded",
        recorded,
        "what was recorded differs, so the figures may be of different work",
    ),
    (
        "stacks",
        |meta| match meta.stacks {
            Some(stacks) if stacks.by_looks && meta.format_version < INLINED_SINCE => {
                "read while threads wait, inlined functions left out".to_owned()
            }
            Some(stacks) if stacks.by_looks => "read while threads wait".to_owned(),
            Some(stacks) => format!("waits of {} or more", Nanos::from_ns(stacks.min_blocked_ns)),
            None => "none".to_owned(),
        },
        "taking the stacks of all waits costs 1 to 2 µs each; places of waits are compared only if both sides have \
         them, and those with inlined functions have other names",
    ),
    (
        "rules",
        |meta| meta.rules_version.to_string(),
        "other rules may give another reason for the same switch",
    ),
    (
        "missing hooks",
        |meta| match [&meta.hooks.missing[..], &meta.hooks.left_out[..]].concat() {
            none if none.is_empty() => "none".to_owned(),
            some => some.join(", "),
        },
        "reasons that need them are inferred on one side and certain on the other",
    ),
    (
        "source",
        |meta| match &meta.imported {
            Some(imported) => format!("imported ({})", imported.format),
            None => meta.backend.in_words().to_owned(),
        },
        "an import, or a recording by perf events, lacks evidence that one by eBPF has, so its reasons \
         differ",
    ),
];

/// Returns what could explain a change besides what is looked for.
pub fn differences(a: &[MeasuredRun], b: &[MeasuredRun], per: Per) -> Vec<SideDifference> {
    let facts = FACTS.iter().filter_map(|(what, value, why)| {
        let [of_a, of_b] = [a, b].map(|runs| words_of(runs, *value));
        let all: BTreeSet<_> = of_a.iter().chain(&of_b).collect();
        (all.len() > 1).then(|| SideDifference {
            what,
            a: joined(&of_a),
            b: joined(&of_b),
            why: (*why).to_owned(),
        })
    });
    let mut found: Vec<_> = facts.collect();
    found.extend(length(a, b, per));
    found.extend(merged_turns(a, b, per));
    found.extend(load(a, b));
    found.extend(host_share(a, b, &PRESSURE));
    found.extend(host_share(a, b, &STEAL));
    found.extend(losses(a, b));
    found.extend(lost_names(a, b));
    found.extend(untold_spans(a, b, per));
    found.extend(incomplete(a, b));
    found.extend(order(a, b));
    found
}

/// The different values of the runs of a side.
fn words_of(runs: &[MeasuredRun], value: fn(&Meta) -> String) -> BTreeSet<String> {
    runs.iter().map(|run| value(&run.meta)).collect()
}

fn joined(words: &BTreeSet<String>) -> String {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    words.join(" and ")
}

fn word<T: Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "not told".to_owned(), T::to_string)
}

fn recorded(meta: &Meta) -> String {
    if meta.command.is_empty() {
        meta.scope.clone()
    } else {
        meta.command.join(" ")
    }
}

fn length(a: &[MeasuredRun], b: &[MeasuredRun], per: Per) -> Option<SideDifference> {
    let [of_a, of_b] = [a, b].map(mean_length);
    let factor = as_number(of_a.max(of_b)) / as_number(of_a.min(of_b));
    (factor > OTHER_LENGTH).then(|| SideDifference {
        what: "length",
        a: of_a.to_string(),
        b: of_b.to_string(),
        why: match per {
            Per::Second => {
                "amounts are per second: if the runs do the same work, the longer ones do less of it \
                 in a second (--per run compares whole runs)"
            }
            Per::Turn => "amounts are per turn, of which longer runs have more",
            Per::Span => "amounts are per span, of which longer runs have more",
            Per::Run => {
                "amounts are of whole runs: if the runs do not do the same work, the longer ones do \
                 more of it (--per second compares rates)"
            }
        }
        .to_owned(),
    })
}

/// How often a turn may have served several requests because client and server share a CPU.
fn merged_turns(a: &[MeasuredRun], b: &[MeasuredRun], per: Per) -> Option<SideDifference> {
    let most = |runs: &[MeasuredRun]| {
        let turns: f64 = runs.iter().map(MeasuredRun::all_units).sum();
        let more: f64 = runs.iter().map(|run| run.more_turns).sum();
        (turns + more) / turns.max(1.0)
    };
    let [of_a, of_b] = [a, b].map(most);
    let is_other = of_a.max(of_b) > OTHER_MERGED * of_a.min(of_b);
    let words = |most: f64| format!("in {:.0} of 100 turns", (most - 1.0) * 100.0);
    (per == Per::Turn && is_other).then(|| SideDifference {
        what: "turns",
        a: words(of_a),
        b: words(of_b),
        why: "so often who had begun a turn took the CPU in it, and perhaps sent more: a turn that serves several has more \
              switches, and that follows from where client and server run"
            .to_owned(),
    })
}

/// Switches that others made on the machine meanwhile, where they were filtered away.
fn load(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<SideDifference> {
    let of_others = |runs: &[MeasuredRun]| {
        let switches: u64 = runs.iter().map(|run| run.meta.counts.filtered).sum();
        let time: Nanos = runs.iter().map(|run| run.length).sum();
        switches as f64 * 1e9 / as_number(time)
    };
    let [of_a, of_b] = [a, b].map(of_others);
    let is_other = of_a.max(of_b) > OTHER_LOAD * of_a.min(of_b);
    let words = |rate: f64| format!("{rate:.0} switches/s");
    (is_other && (of_a - of_b).abs() > OTHER_LOAD_PER_S).then(|| SideDifference {
        what: "load by others",
        a: words(of_a),
        b: words(of_b),
        why: "others took the CPUs and caches more often on one side".to_owned(),
    })
}

/// A part of the time of recordings that tells how loaded the host was.
struct HostShare {
    what: &'static str,
    /// Its part of a recording; `None` if the trace does not tell it.
    of: fn(&Meta) -> Option<f64>,
    /// Means of both sides that differ by more than this are told.
    most_apart: f64,
    words: &'static str,
    why: &'static str,
}

const PRESSURE: HostShare = HostShare {
    what: "CPU pressure",
    of: |meta| part(meta.load.cpu_pressure_ns()?, recorded_ns(meta)),
    most_apart: OTHER_PRESSURE,
    words: "of the time",
    why: "some task of the machine (of the program itself, or another) waited for a CPU for a larger part \
          of the time on one side",
};

const STEAL: HostShare = HostShare {
    what: "stolen time",
    of: |meta| {
        part(
            meta.load.steal_ns()?,
            recorded_ns(meta) * u64::from(meta.host.cpus),
        )
    },
    most_apart: OTHER_STEAL,
    words: "of CPU time",
    why: "the hypervisor gave CPUs to others: runs and waits of that side are longer by it",
};

fn recorded_ns(meta: &Meta) -> u64 {
    meta.end_ns.saturating_sub(meta.start_ns)
}

/// `None` of nothing.
fn part(ns: u64, whole_ns: u64) -> Option<f64> {
    (whole_ns > 0).then(|| ns as f64 / whole_ns as f64)
}

/// A difference of how loaded the host was. It is not told if a trace of a side does not tell it.
fn host_share(a: &[MeasuredRun], b: &[MeasuredRun], share: &HostShare) -> Option<SideDifference> {
    let mean = |runs: &[MeasuredRun]| {
        let parts: Option<Vec<f64>> = runs.iter().map(|run| (share.of)(&run.meta)).collect();
        let parts = parts.filter(|parts| !parts.is_empty())?;
        Some(parts.iter().sum::<f64>() / parts.len() as f64)
    };
    let (of_a, of_b) = (mean(a)?, mean(b)?);
    let words = |mean: f64| format!("{:.0} % {}", 100.0 * mean, share.words);
    ((of_a - of_b).abs() > share.most_apart).then(|| SideDifference {
        what: share.what,
        a: words(of_a),
        b: words(of_b),
        why: share.why.to_owned(),
    })
}

fn losses(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<SideDifference> {
    lost(
        (a, b),
        "lost records",
        |run| run.lost,
        "what was lost is in no figure, so those of that side are too low",
    )
}

fn lost_names(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<SideDifference> {
    lost(
        (a, b),
        "lost names",
        |run| run.meta.counts.lost_names,
        "threads without a name, or with an old one, are in the figures of no program or of another one",
    )
}

fn lost(
    (a, b): (&[MeasuredRun], &[MeasuredRun]),
    what: &'static str,
    number: fn(&MeasuredRun) -> u64,
    why: &str,
) -> Option<SideDifference> {
    let [of_a, of_b] = [a, b].map(|runs| runs.iter().map(number).sum::<u64>());
    (of_a + of_b > 0).then(|| SideDifference {
        what,
        a: grouped(of_a),
        b: grouped(of_b),
        why: why.to_owned(),
    })
}

/// Spans that are not in the traces, where amounts are divided by spans.
fn untold_spans(a: &[MeasuredRun], b: &[MeasuredRun], per: Per) -> Option<SideDifference> {
    let untold = |runs: &[MeasuredRun]| -> u64 {
        let untold = runs.iter().filter_map(|run| run.meta.spans);
        untold
            .flat_map(|untold| untold.reasons().map(|(count, _)| count).collect::<Vec<_>>())
            .sum()
    };
    let share = |runs: &[MeasuredRun]| {
        let told: f64 = runs.iter().map(MeasuredRun::all_units).sum();
        untold(runs) as f64 / (told + untold(runs) as f64).max(1.0)
    };
    let is_much = share(a).max(share(b)) > MOST_UNTOLD;
    (per == Per::Span && is_much).then(|| SideDifference {
        what: "spans that are not told",
        a: grouped(untold(a)),
        b: grouped(untold(b)),
        why: "amounts are divided by the spans that are told, so those of that side are too high (--per second \
              compares rates)"
            .to_owned(),
    })
}

fn incomplete(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<SideDifference> {
    let is_cut = |run: &&MeasuredRun| run.meta.state != RecordingState::Finished;
    let cut = |runs: &[MeasuredRun]| runs.iter().filter(is_cut).count() as u64;
    let [of_a, of_b] = [a, b].map(cut);
    (of_a + of_b > 0).then(|| SideDifference {
        what: "unfinished",
        a: counted(of_a, "run"),
        b: counted(of_b, "run"),
        why: "a recording that goes on or was cut short holds a part of its run".to_owned(),
    })
}

/// Returns a difference if all runs of one side came before all of the other. Of a single pair it is always so, and
/// said with the weakness of a single pair.
fn order(a: &[MeasuredRun], b: &[MeasuredRun]) -> Option<SideDifference> {
    let begins = |runs: &[MeasuredRun]| -> Vec<u64> {
        let begins = runs.iter().map(|run| run.meta.clock.realtime_ns);
        begins.filter(|ns| *ns > 0).collect()
    };
    let [of_a, of_b] = [begins(a), begins(b)];
    if of_a.len() + of_b.len() < 3 || of_a.len() < a.len() || of_b.len() < b.len() {
        return None;
    }
    let (first_a, last_a) = (of_a.iter().min()?, of_a.iter().max()?);
    let (first_b, last_b) = (of_b.iter().min()?, of_b.iter().max()?);
    let words = match (last_a < first_b, last_b < first_a) {
        (true, _) => ["all runs came first", "all runs came afterwards"],
        (_, true) => ["all runs came afterwards", "all runs came first"],
        _ => return None,
    };
    Some(SideDifference {
        what: "order",
        a: words[0].to_owned(),
        b: words[1].to_owned(),
        why: "what drifts with time (other load, temperature, a busy hypervisor) looks like a change: \
              record in turns, A B A B"
            .to_owned(),
    })
}

/// The mean length of runs.
pub fn mean_length(runs: &[MeasuredRun]) -> Nanos {
    let all: f64 = runs.iter().map(|run| as_number(run.length)).sum();
    Nanos::from_rounded(all / runs.len().max(1) as f64)
}

fn as_number(length: Nanos) -> f64 {
    length.as_ns() as f64
}
