//! Reads a group, and keeps where each of its entries is in the text.

use std::time::Duration;

use swtch_bench::load::{Class, Cpus, Group, LoadPart, UsableCpus};
use swtch_core::cost::Members;

use super::body::{StepSpan, body, nanos};
use super::entries::{Entries, Item};
use super::source::{LoadFileError, Span};
use crate::calibration::Calibration;
use crate::parameters::ParameterValue;

/// Where the entries of a group are in the text; an entry that is missing has the span of the
/// group.
#[derive(Clone, Debug)]
pub struct GroupSpans {
    group: Span,
    count: Span,
    cpus: Span,
    class: Span,
    slice: Span,
    steps: Vec<StepSpan>,
}

impl GroupSpans {
    /// The span of the entry that a fault is about.
    pub fn of(&self, at: &LoadPart) -> Span {
        match at {
            LoadPart::Group => self.group.clone(),
            LoadPart::Count => self.count.clone(),
            LoadPart::Cpus => self.cpus.clone(),
            LoadPart::Class => self.class.clone(),
            LoadPart::Slice => self.slice.clone(),
            LoadPart::Step(path) => self.of_step(path),
        }
    }

    fn of_step(&self, path: &[usize]) -> Span {
        let (mut steps, mut span) = (&self.steps, &self.group);
        for index in path {
            let Some(step) = steps.get(*index) else { break };
            (steps, span) = (&step.body, &step.span);
        }
        span.clone()
    }
}

/// The words of a group.
#[cfg(test)]
pub const WORDS: [&str; 9] = [
    "name", "members", "count", "cpus", "class", "nice", "priority", "slice", "body",
];

/// The longest slice that is accepted; the kernel takes 100 ms at most (v6.12).
const LONGEST_SLICE: Duration = Duration::from_secs(10);

/// Reads a group.
///
/// # Errors
/// The group is malformed.
pub fn group(
    mut entries: Entries<'_>,
    places: &UsableCpus,
    calibration: &Calibration,
) -> Result<(Group, GroupSpans), LoadFileError> {
    let whole = entries.span();
    let span_of = |item: &Option<Item<'_>>| item.as_ref().map_or(whole.clone(), Item::span);
    let name = entries.need("name")?.name()?;
    let members = match entries.find("members") {
        Some(word) => word.one_of(&[
            ("threads", Members::Threads),
            ("processes", Members::Processes),
        ])?,
        None => Members::Threads,
    };
    let count = entries.find("count");
    let cpus = entries.find("cpus");
    let class_word = entries.find("class");
    let (class, class_span) = class(&mut entries, class_word, &whole)?;
    let slice = entries.find("slice");
    let (body, steps) = body(entries.need("body")?, calibration)?;
    let spans = GroupSpans {
        count: span_of(&count),
        cpus: span_of(&cpus),
        class: class_span,
        slice: span_of(&slice),
        steps,
        group: whole.clone(),
    };
    entries.finish()?;
    let group = Group {
        name,
        members,
        count: count.map_or(Ok(1), |count| count.small_count())?,
        cpus: cpus.map_or(Ok(Cpus::Free), |cpus| to_cpus(cpus, places))?,
        class,
        slice: slice.map(to_slice).transpose()?,
        body,
    };
    Ok((group, spans))
}

fn to_slice(item: Item<'_>) -> Result<swtch_core::Nanos, LoadFileError> {
    let slice = item.time()?;
    if slice.is_zero() || slice > LONGEST_SLICE {
        return Err(item.mistake("a slice is from 100us to 100ms"));
    }
    nanos(item)
}

fn to_cpus(item: Item<'_>, places: &UsableCpus) -> Result<Cpus, LoadFileError> {
    let known = "free, round-robin, first, last, a number, or a list of numbers";
    let number = |value: &ParameterValue| match value {
        ParameterValue::Count(cpu) => u32::try_from(*cpu).ok(),
        _ => None,
    };
    let one = |cpu: Option<&u32>| cpu.map(|cpu| Cpus::Dealt(vec![*cpu]));
    let value = item.value()?;
    let cpus = match &value {
        ParameterValue::Word(word) => match word.as_str() {
            "free" => Some(Cpus::Free),
            "round-robin" => Some(Cpus::Dealt(places.allowed.clone())),
            "first" => one(places.allowed.first()),
            "last" => one(places.allowed.last()),
            _ => None,
        },
        ParameterValue::Count(_) => one(number(&value).as_ref()),
        ParameterValue::List(list) => list
            .iter()
            .map(number)
            .collect::<Option<_>>()
            .map(Cpus::Dealt),
        _ => None,
    };
    cpus.ok_or_else(|| item.mistake(format!("these are no CPUs: give {known}")))
}

/// Scheduling classes, one for each word of a file.
#[derive(Clone, Copy)]
enum ClassWord {
    Other,
    Batch,
    Idle,
    Fifo,
    RoundRobin,
}

const CLASSES: [(&str, ClassWord); 5] = [
    ("other", ClassWord::Other),
    ("batch", ClassWord::Batch),
    ("idle", ClassWord::Idle),
    ("fifo", ClassWord::Fifo),
    ("rr", ClassWord::RoundRobin),
];

/// The class, and the span of the entry that chose it: `nice` or `priority` when one is given.
fn class(
    entries: &mut Entries<'_>,
    word: Option<Item<'_>>,
    whole: &Span,
) -> Result<(Class, Span), LoadFileError> {
    let chosen = word.map_or(Ok(ClassWord::Other), |word| word.one_of(&CLASSES))?;
    let (nice, priority) = (entries.find("nice"), entries.find("priority"));
    let refused = match chosen {
        ClassWord::Other | ClassWord::Batch => {
            priority.map(|item| (item, "priority", "fifo and rr"))
        }
        ClassWord::Fifo | ClassWord::RoundRobin => {
            nice.map(|item| (item, "nice", "other and batch"))
        }
        ClassWord::Idle => nice
            .or(priority)
            .map(|item| (item, "such a number", "other classes")),
    };
    if let Some((item, what, whose)) = refused {
        return Err(item.mistake(format!("{what} is for {whose}")));
    }
    let span = nice
        .or(priority)
        .or(word)
        .map_or(whole.clone(), |item| item.span());
    let nice = nice.map_or(Ok(0), |nice| nice.signed())?;
    let priority = priority.map_or(Ok(1), |priority| priority.small_count())?;
    let class = match chosen {
        ClassWord::Other => Class::Other { nice },
        ClassWord::Batch => Class::Batch { nice },
        ClassWord::Idle => Class::Idle,
        ClassWord::Fifo => Class::Fifo { priority },
        ClassWord::RoundRobin => Class::RoundRobin { priority },
    };
    Ok((class, span))
}
