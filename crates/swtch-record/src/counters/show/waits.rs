//! Writes what blocked threads were seen waiting for.

use serde::Serialize;
use swtch_core::{Nanos, StackEnd};
use swtch_output::text::{CellAlignment, counted, escaped, grouped};

use super::{columns_text, share_pct};
use crate::counters::waits::{PlaceOfWait, Seen, WaitGroup, WaitsSeen};

/// Groups that the table shows; JSON holds all.
const SHOWN: usize = 10;

/// Objects and places that are named of a group.
const NAMED: usize = 2;

/// One refusal in so many looks is not told.
const FEW_IN: u64 = 20;

/// The object `waits` of the JSON answer. Lengths are estimates.
#[derive(Debug, Serialize)]
pub(super) struct WaitsJson<'a> {
    looks: u64,
    longest_gap_ns: u64,
    looks_refused: u64,
    looks_moved_on: u64,
    blocked_ns: Option<u64>,
    rows: Vec<WaitJson<'a>>,
}

#[derive(Debug, Serialize)]
struct WaitJson<'a> {
    comm: &'a str,
    reason: &'static str,
    syscall: Option<&'static str>,
    looks: u64,
    about_ns: u64,
    on: Vec<ObjectJson<'a>>,
    waited_in: Vec<PlaceJson<'a>>,
}

#[derive(Debug, Serialize)]
struct ObjectJson<'a> {
    object: &'a str,
    looks: u64,
    about_ns: u64,
}

#[derive(Debug, Serialize)]
struct PlaceJson<'a> {
    frames: &'a [String],
    ended: Option<&'static str>,
    looks: u64,
    about_ns: u64,
}

impl<'a> WaitsJson<'a> {
    pub(super) fn new(waits: &'a WaitsSeen) -> Self {
        Self {
            looks: waits.looks,
            longest_gap_ns: waits.longest_gap.as_ns(),
            looks_refused: waits.refused,
            looks_moved_on: waits.moved_on,
            blocked_ns: waits.blocked.map(Nanos::as_ns),
            rows: waits.groups.iter().map(WaitJson::new).collect(),
        }
    }
}

impl<'a> WaitJson<'a> {
    fn new(group: &'a WaitGroup) -> Self {
        let object = |(object, seen): &'a (String, Seen)| ObjectJson {
            object,
            looks: seen.looks,
            about_ns: seen.about.as_ns(),
        };
        let place = |(place, seen): &'a (PlaceOfWait, Seen)| PlaceJson {
            frames: &place.frames,
            ended: place.ended.map(StackEnd::as_str),
            looks: seen.looks,
            about_ns: seen.about.as_ns(),
        };
        Self {
            comm: &group.comm,
            reason: group.reason.as_str(),
            syscall: group.call,
            looks: group.seen.looks,
            about_ns: group.seen.about.as_ns(),
            on: group.on.iter().map(object).collect(),
            waited_in: group.waited_in.iter().map(place).collect(),
        }
    }
}

pub(super) fn waits_text(waits: &WaitsSeen) -> String {
    let mut text = "\nWhat blocked threads waited for\n".to_owned();
    if waits.groups.is_empty() {
        return text + &nothing_seen(waits);
    }
    text += &format!(
        "Looked at {} times, up to {} apart: lengths are estimates, and shorter waits are met by chance.\n",
        grouped(waits.looks),
        waits.longest_gap
    );
    if let Some(blocked) = waits.blocked {
        text += &format!(
            "All were blocked for {blocked}: the time that passed, less that on a CPU and in run queues. Looks\n\
             divide it, each thread's by itself.\n"
        );
    }
    text += &refused_text(waits);
    text.push('\n');
    let all = waits
        .groups
        .iter()
        .map(|group| group.seen.about.as_ns())
        .sum();
    let head = [
        ("thread", CellAlignment::Left),
        ("reason", CellAlignment::Left),
        ("in", CellAlignment::Left),
        ("looks", CellAlignment::Right),
        ("share", CellAlignment::Right),
        ("about", CellAlignment::Right),
    ];
    let shown = &waits.groups[..waits.groups.len().min(SHOWN)];
    let rows: Vec<_> = shown.iter().map(|group| cells(group, all)).collect();
    let table = columns_text(&head, &rows);
    // Two lines of the head, then one for each group, below which its details are put.
    let mut lines = table.lines();
    for line in lines.by_ref().take(2) {
        text += &format!("{line}\n");
    }
    for (line, group) in lines.zip(shown) {
        text += &format!("{line}\n{}", details(group));
    }
    if waits.groups.len() > SHOWN {
        let more = waits.groups.len() - SHOWN;
        text += &format!("… and {more} more: --format json shows all\n");
    }
    text
}

/// Says why there is nothing to show.
fn nothing_seen(waits: &WaitsSeen) -> String {
    match waits.refused {
        0 => format!(
            "None was found blocked in {}.\n",
            counted(waits.looks, "look")
        ),
        _ => refused_text(waits),
    }
}

/// Nothing while refusals are few: each thread is refused a moment before its end.
fn refused_text(waits: &WaitsSeen) -> String {
    let told: u64 = waits.groups.iter().map(|group| group.seen.looks).sum();
    if waits.refused == 0 || waits.refused * FEW_IN < told {
        return String::new();
    }
    format!(
        "In {} looks the kernel did not tell it: it tells of processes that this user may trace, where\n\
         kernel.yama.ptrace_scope is 1 of those alone that swtch starts (swtch explain -- CMD).\n",
        grouped(waits.refused)
    )
}

fn cells(group: &WaitGroup, all_ns: u64) -> Vec<String> {
    vec![
        escaped(&group.comm).into_owned(),
        group.reason.as_str().to_owned(),
        group.call.unwrap_or("-").to_owned(),
        grouped(group.seen.looks),
        share_pct(group.seen.about.as_ns(), all_ns),
        group.seen.about.to_string(),
    ]
}

/// Says what they waited on and from where they called, as far as it is known.
fn details(group: &WaitGroup) -> String {
    let on = group
        .on
        .iter()
        .map(|(object, seen)| (escaped(object).into_owned(), *seen));
    let places = group.waited_in.iter().filter_map(|(place, seen)| {
        let functions = escaped(place.functions.as_deref()?).into_owned();
        let guessed = match place.ended {
            Some(StackEnd::Guessed) => " (callers guessed)",
            _ => "",
        };
        Some((functions + guessed, *seen))
    });
    let mut text = String::new();
    for (title, named) in [
        ("on", named(on, group)),
        ("waited in", named(places, group)),
    ] {
        if !named.is_empty() {
            text += &format!("   {title}: {named}\n");
        }
    }
    text
}

/// The main ones with their shares of the group.
fn named(ones: impl Iterator<Item = (String, Seen)>, group: &WaitGroup) -> String {
    let mut sums: Vec<(String, Nanos)> = Vec::new();
    for (name, seen) in ones {
        match sums.iter_mut().find(|sum| sum.0 == name) {
            Some(sum) => sum.1 += seen.about,
            None => sums.push((name, seen.about)),
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.1));
    let words = sums.iter().take(NAMED).map(|(name, about)| {
        let share = share_pct(about.as_ns(), group.seen.about.as_ns());
        format!("{name} {share}")
    });
    words.collect::<Vec<_>>().join(", ")
}
