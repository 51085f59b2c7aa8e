//! Writes one event per line: moments in µs, names and arguments as JSON.
//!
//! A slice is written as two events, its begin and its end, and not as one with a length (`X`).
//! Readers use doubles, in which a moment plus a length may differ from the moment of the next
//! slice: speedscope took slices that touch for nested ones. The same digits are the same double.

use std::io::Write;

use anyhow::Result;
use serde_json::{Map, Value};
use swtch_core::{Nanos, Timestamp};
use swtch_output::text::escaped;

use crate::export::evidence::{EvidenceValue, Facts};

/// A lane of the picture: process and thread.
#[derive(Clone, Copy, Debug)]
pub struct ChromeLane {
    /// Process id of the lane, or a number beyond all ids.
    pub pid: u64,
    /// Thread id of the lane, or a number for the CPU.
    pub tid: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct SliceSpan {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// Events on their way out, one a line.
pub struct Events<'a> {
    out: &'a mut dyn Write,
    start: Timestamp,
    is_first: bool,
}

impl<'a> Events<'a> {
    /// Begins a trace whose first moment is `start`; `about` is written as `otherData`.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn begin(out: &'a mut dyn Write, start: Timestamp, about: &Value) -> Result<Self> {
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
        )?;
        Ok(Self {
            out,
            start,
            is_first: true,
        })
    }

    /// Writes the end of the JSON document.
    pub fn end(self) -> Result<()> {
        Ok(self.out.write_all(b"\n]}\n")?)
    }

    /// Writes a slice. Slices of one lane must come in order of time.
    pub fn slice(
        &mut self,
        lane: ChromeLane,
        span: SliceSpan,
        name: &str,
        cat: &str,
        facts: &Facts,
    ) -> Result<()> {
        let begin = format!("\"ph\":\"B\",\"ts\":{}", self.at(span.from));
        self.write(&begin, lane, name, cat, facts)?;
        let end = format!("\"ph\":\"E\",\"ts\":{}", self.at(span.to));
        self.write(&end, lane, name, cat, &Facts::new())
    }

    /// Writes an event without a length.
    pub fn instant(
        &mut self,
        name: &str,
        at: Timestamp,
        lane: ChromeLane,
        facts: &Facts,
    ) -> Result<()> {
        let head = format!("\"ph\":\"i\",\"s\":\"t\",\"ts\":{}", self.at(at));
        self.write(&head, lane, name, "lost", facts)
    }

    /// Writes an end of an arrow. `bp: e` binds it to the slice around it, not to the next one.
    pub fn flow(&mut self, phase: &str, id: u64, lane: ChromeLane, at: Timestamp) -> Result<()> {
        let at = self.at(at);
        let head = format!("\"ph\":\"{phase}\",\"bp\":\"e\",\"id\":{id},\"ts\":{at}");
        self.write(&head, lane, "wake", "wake", &Facts::new())
    }

    /// A begin (`b`) or end (`e`) of a run of a task of a user-mode scheduler.
    pub fn worker(
        &mut self,
        phase: &str,
        worker: u64,
        lane: ChromeLane,
        at: Timestamp,
        facts: &Facts,
    ) -> Result<()> {
        let at = self.at(at);
        let head = format!("\"ph\":\"{phase}\",\"id2\":{{\"local\":\"{worker:#x}\"}},\"ts\":{at}");
        self.write(
            &head,
            lane,
            &format!("task {worker}"),
            "user-mode task",
            facts,
        )
    }

    /// Names a lane (`thread_name`), or its process (`process_name`).
    pub fn name(&mut self, what: &str, lane: ChromeLane, name: &str) -> Result<()> {
        let facts = vec![("name", EvidenceValue::Word(escaped(name).into_owned()))];
        self.write("\"ph\":\"M\"", lane, what, "__metadata", &facts)
    }

    fn write(
        &mut self,
        head: &str,
        lane: ChromeLane,
        name: &str,
        cat: &str,
        facts: &Facts,
    ) -> Result<()> {
        let comma = if std::mem::take(&mut self.is_first) {
            ""
        } else {
            ","
        };
        let ChromeLane { pid, tid } = lane;
        // Names are escaped already; only quotes and backslashes are left for JSON.
        let name = Value::from(name);
        write!(
            self.out,
            "{comma}\n{{{head},\"pid\":{pid},\"tid\":{tid},\"cat\":\"{cat}\",\"name\":{name}"
        )?;
        if !facts.is_empty() {
            write!(self.out, ",\"args\":{}", arguments(facts))?;
        }
        Ok(self.out.write_all(b"}")?)
    }

    /// µs since the start of the trace; negative for a thread that ran before it.
    fn at(&self, at: Timestamp) -> String {
        match at.since(self.start) {
            Some(since) => microseconds(since),
            None => {
                let before = self.start.since(at).unwrap_or_default();
                format!("-{}", microseconds(before))
            }
        }
    }
}

fn arguments(facts: &Facts) -> Value {
    let values = facts.iter().map(|(name, fact)| {
        let value = match fact {
            EvidenceValue::Word(word) => Value::from(word.as_str()),
            EvidenceValue::Count(count) => Value::from(*count),
            EvidenceValue::Address(address) => Value::from(format!("{address:#x}")),
        };
        ((*name).to_owned(), value)
    });
    Value::Object(values.collect::<Map<_, _>>())
}

/// A length in µs, with three decimals for the nanoseconds.
fn microseconds(length: Nanos) -> String {
    let ns = length.as_ns();
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_nanoseconds_on_both_sides_of_the_start() {
        let mut out = Vec::new();
        let events = Events {
            out: &mut out,
            start: Timestamp::from_ns(5_000),
            is_first: true,
        };
        let at = |ns| events.at(Timestamp::from_ns(ns));
        assert_eq!(
            [at(6_007), at(5_000), at(3_999)],
            ["1.007", "0.000", "-1.001"]
        );
    }
}
