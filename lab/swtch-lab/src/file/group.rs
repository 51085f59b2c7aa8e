//! Makes groups, steps and rings of the entries of a file.

use std::time::Duration;

use swtch_bench::load::{
    ChainOperation, Class, Cpus, EventKind, Group, LoadRingSpec, RingKind, Step, UsableCpus,
};
use swtch_core::Nanos;
use swtch_core::cost::Members;
use toml::{Spanned, Value};

use super::entries::{
    ClassWord, GroupEntry, RingEntry, SizeEntry, StepEntry, StepTable, TimeEntry,
};
use super::source::{LoadFileError, SourceText, Span};
use crate::calibration::Calibration;

/// The words that name a step, but for the bare word `yield`.
pub const STEPS: [&str; 13] = [
    "spin", "work", "repeat", "lock", "unlock", "wait", "signal", "take", "pass", "sleep", "watch",
    "read", "touch",
];

/// Step of `touch` in bytes when the file gives none: a cache line.
const STRIDE: SizeEntry = SizeEntry(64);

/// The longest slice that is accepted; the kernel takes 100 ms at most (v6.12).
const LONGEST_SLICE: Nanos = Nanos::from_ns(10_000_000_000);

/// What groups are made with.
pub struct GroupMaker<'a> {
    pub source: &'a SourceText,
    pub usable_cpus: UsableCpus,
    pub calibration: &'a Calibration,
}

impl GroupMaker<'_> {
    /// Makes a group.
    ///
    /// # Errors
    /// Its entries do not fit each other, or this machine.
    pub fn group(&self, entry: &GroupEntry) -> Result<Group, LoadFileError> {
        if let Some(slice) = &entry.slice
            && !(1..=LONGEST_SLICE.as_ns()).contains(&slice.get_ref().0.as_ns())
        {
            return Err(self
                .source
                .mistake(&slice.span(), "a slice is from 100us to 100ms"));
        }
        let cpus = entry.cpus.as_ref().map(|cpus| self.cpus(cpus));
        Ok(Group {
            name: entry.name.0.clone(),
            members: entry.members.unwrap_or(Members::Threads),
            count: entry.count.as_ref().map_or(1, |count| *count.get_ref()),
            cpus: cpus.transpose()?.unwrap_or(Cpus::Free),
            class: self.class(entry)?,
            slice: entry.slice.as_ref().map(|slice| slice.get_ref().0),
            body: self.body(&entry.body)?,
        })
    }

    fn cpus(&self, entry: &Spanned<Value>) -> Result<Cpus, LoadFileError> {
        let number = |value: &Value| u32::try_from(value.as_integer()?).ok();
        let one = |cpu: Option<u32>| cpu.map(|cpu| Cpus::Dealt(vec![cpu]));
        let allowed = &self.usable_cpus.allowed;
        let cpus = match entry.get_ref() {
            Value::String(word) => match word.as_str() {
                "free" => Some(Cpus::Free),
                "round-robin" => Some(Cpus::Dealt(allowed.clone())),
                "first" => one(allowed.first().copied()),
                "last" => one(allowed.last().copied()),
                _ => None,
            },
            Value::Array(list) => {
                let numbers: Option<_> = list.iter().map(number).collect();
                numbers.map(Cpus::Dealt)
            }
            value => one(number(value)),
        };
        let known = "free, round-robin, first, last, a number, or a list of numbers";
        let why = || format!("these are no CPUs: give {known}");
        cpus.ok_or_else(|| self.source.mistake(&entry.span(), why()))
    }

    fn class(&self, entry: &GroupEntry) -> Result<Class, LoadFileError> {
        let word = entry
            .class
            .as_ref()
            .map_or(ClassWord::Other, |word| *word.get_ref());
        let nice = entry.nice.as_ref().map(Spanned::span);
        let priority = entry.priority.as_ref().map(Spanned::span);
        let refused = match word {
            ClassWord::Other | ClassWord::Batch => {
                priority.zip(Some("priority is for fifo and rr"))
            }
            ClassWord::Fifo | ClassWord::RoundRobin => {
                nice.zip(Some("nice is for other and batch"))
            }
            ClassWord::Idle => nice
                .or(priority)
                .zip(Some("such a number is for other classes")),
        };
        if let Some((span, why)) = refused {
            return Err(self.source.mistake(&span, why));
        }
        let nice = entry.nice.as_ref().map_or(0, |nice| *nice.get_ref());
        let priority = entry
            .priority
            .as_ref()
            .map_or(1, |priority| *priority.get_ref());
        Ok(match word {
            ClassWord::Other => Class::Other { nice },
            ClassWord::Batch => Class::Batch { nice },
            ClassWord::Idle => Class::Idle,
            ClassWord::Fifo => Class::Fifo { priority },
            ClassWord::RoundRobin => Class::RoundRobin { priority },
        })
    }

    fn body(&self, steps: &[Spanned<StepEntry>]) -> Result<Vec<Step>, LoadFileError> {
        let step = |step: &Spanned<StepEntry>| match step.get_ref() {
            StepEntry::Yield => Ok(Step::Yield),
            StepEntry::Table(table) => self.step(table, &step.span()),
        };
        steps.iter().map(step).collect()
    }

    fn step(&self, table: &StepTable, span: &Span) -> Result<Step, LoadFileError> {
        let missing = |word| self.source.mistake(span, format!("`{word}` is missing"));
        let kernel = table.kernel.unwrap_or(ChainOperation::Add);
        let mut steps = Vec::new();
        steps.extend(
            table
                .spin
                .map(|iterations| Step::Spin { kernel, iterations }),
        );
        if let Some(work) = &table.work {
            steps.push(self.work(work, kernel)?);
        }
        if let Some(times) = table.repeat {
            let body = table.body.as_ref().ok_or_else(|| missing("body"))?;
            let body = self.body(body)?;
            steps.push(Step::Repeat { times, body });
        }
        steps.extend(table.lock.clone().map(Step::Lock));
        steps.extend(table.unlock.clone().map(Step::Unlock));
        steps.extend(table.wait.clone().map(Step::Wait));
        steps.extend(table.signal.clone().map(Step::Signal));
        steps.extend(table.take.clone().map(Step::Take));
        steps.extend(table.pass.clone().map(Step::Pass));
        steps.extend(table.sleep.map(|time| Step::Sleep(time.0)));
        steps.extend(table.watch.map(|time| Step::Watch(time.0)));
        if let Some(path) = &table.read {
            let bytes = table.bytes.ok_or_else(|| missing("bytes"))?.0;
            let path = path.into();
            steps.push(Step::Read { path, bytes });
        }
        steps.extend(table.touch.map(|bytes| Step::Touch {
            bytes: bytes.0,
            stride: table.stride.unwrap_or(STRIDE).0,
        }));
        let [step] = steps.as_slice() else {
            let why = format!("a step is \"yield\", or has one of: {}", STEPS.join(", "));
            return Err(self.source.mistake(span, why));
        };
        match table.astray(step) {
            Some(word) => {
                let why = format!("`{word}` does not belong to this step");
                Err(self.source.mistake(span, why))
            }
            None => Ok(step.clone()),
        }
    }

    fn work(
        &self,
        work: &Spanned<TimeEntry>,
        kernel: ChainOperation,
    ) -> Result<Step, LoadFileError> {
        if !kernel.is_supported() {
            let why = format!("this CPU cannot run the kernel {}", kernel.as_str());
            return Err(self.source.mistake(&work.span(), why));
        }
        let time = Duration::from_nanos(work.get_ref().0.as_ns());
        let iterations = self.calibration.iterations(kernel, time);
        Ok(Step::Spin { kernel, iterations })
    }

    /// Makes a ring.
    ///
    /// # Errors
    /// It is of tokens and of locks.
    pub fn ring(&self, entry: &RingEntry) -> Result<LoadRingSpec, LoadFileError> {
        let refuse = |span, why| Err(self.source.mistake(&span, why));
        let by = entry.by.as_ref();
        let (tokens, spare) = (entry.tokens.as_ref(), entry.spare.as_ref());
        let (kind, count) = match (entry.locks, by, tokens, spare) {
            (Some(_), Some(by), ..) => {
                return refuse(
                    by.span(),
                    "a ring is of tokens (by) or of locks, not of both",
                );
            }
            (Some(_), None, Some(tokens), _) => {
                return refuse(
                    tokens.span(),
                    "in a ring of locks, spare ones are the tokens",
                );
            }
            (None, _, _, Some(spare)) => {
                return refuse(spare.span(), "spare is for rings of locks");
            }
            (Some(locks), None, None, spare) => (RingKind::Locks(locks), spare),
            (None, by, tokens, None) => {
                let kind = by.map_or(EventKind::Pipe, |by| *by.get_ref());
                (RingKind::Tokens(kind), tokens)
            }
        };
        let tokens = count.map_or(1, |count| *count.get_ref());
        Ok(LoadRingSpec { kind, tokens })
    }
}

impl StepTable {
    /// A word that stands beside a step to which it does not belong.
    const fn astray(&self, step: &Step) -> Option<&'static str> {
        if self.kernel.is_some() && !matches!(step, Step::Spin { .. }) {
            return Some("kernel");
        }
        if self.body.is_some() && !matches!(step, Step::Repeat { .. }) {
            return Some("body");
        }
        if self.bytes.is_some() && !matches!(step, Step::Read { .. }) {
            return Some("bytes");
        }
        if self.stride.is_some() && !matches!(step, Step::Touch { .. }) {
            return Some("stride");
        }
        None
    }
}
