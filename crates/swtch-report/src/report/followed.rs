//! `report --only-span`: one request, followed over the threads that worked on it.
//!
//! The stretches of a request are those of each thread at whose switches it has published the request's id (table `span`).
//! Of the rows count the switches within a stretch, and the waits that began in one:
//!
//! ```text
//!   stretch          ├──────────────────┤
//!   thread     ▏ run ▕ blocked ▏ run ▕ blocked ▏ run ▕
//!   counted          switch    wait     –
//! ```

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use swtch_core::{Switch, Timestamp};
use swtch_store::{Columns, SpanRow, Trace};

use super::filter::CountedParts;
use super::names::Names;

/// The stretches of one request, by the index of the thread; those of a thread follow each other.
#[derive(Debug)]
pub struct FollowedRequest {
    stretches: FxHashMap<usize, Vec<(Timestamp, Timestamp)>>,
}

impl FollowedRequest {
    /// What it asks of a row beside its task.
    pub const COLUMNS: Columns = Columns::TS.and(Columns::RAN).and(Columns::OFF);

    /// The request of which an id begins with these digits, in a trace with these tasks.
    ///
    /// # Errors
    /// When there is none or several, or the spans cannot be read.
    pub fn find(trace: &Trace, names: &Names, id: &str) -> Result<Self> {
        let mut threads: FxHashMap<_, Vec<usize>> = FxHashMap::default();
        for (_, task) in names.keys() {
            let ids = (names.process_of(task).pid, names.thread(task).tid);
            if let (Some(pid), Some(tid)) = ids {
                threads.entry((pid, tid)).or_default().push(task);
            }
        }
        let (mut ids, mut has_ids) = (BTreeSet::new(), false);
        let mut stretches: FxHashMap<usize, Vec<_>> = FxHashMap::default();
        let read = trace.each_span(&mut |row| {
            has_ids |= row.trace_id.is_some();
            let Some(whole) = matched_id(row, id) else {
                return;
            };
            // Of many, two are enough to say so.
            if ids.len() < 2 {
                ids.insert(whole.to_owned());
            }
            // Of threads that have had the same ids, each asks by moment.
            for task in threads.get(&(row.pid, row.tid)).into_iter().flatten() {
                let of_thread = stretches.entry(*task).or_default();
                of_thread.push((row.begin, row.end));
            }
        });
        read.context("reading the spans")?;
        let ids: Vec<_> = ids.into_iter().collect();
        match &ids[..] {
            [_] => {}
            [one, other, ..] => {
                bail!(
                    "several spans have an id that begins with {id}, such as {one} and {other}: give more digits"
                )
            }
            [] if has_ids => bail!(
                "no span of the trace has an id that begins with {id}: swtch report --by span lists the ids of the slowest"
            ),
            [] => bail!(
                "the trace has no spans with ids: swtch record --span otel records those that programs publish"
            ),
        }
        for of_thread in stretches.values_mut() {
            of_thread.sort_unstable();
        }
        Ok(Self { stretches })
    }

    /// Leaves of what counts of a row of the task with this index what belongs to the request.
    pub fn leave(&self, row: &Switch, task: usize, counted: CountedParts) -> CountedParts {
        let left_before = row
            .ran
            .zip(row.wait.off)
            .map(|(ran, off)| row.ts.before(ran).before(off));
        CountedParts {
            switch: counted.switch && self.has(task, row.ts),
            wait: counted.wait && left_before.is_some_and(|left| self.has(task, left)),
        }
    }

    /// Whether a switch-out of the task with this index at this moment belongs to the request.
    pub fn has(&self, task: usize, moment: Timestamp) -> bool {
        let Some(stretches) = self.stretches.get(&task) else {
            return false;
        };
        let later = stretches.partition_point(|(begin, _)| *begin <= moment);
        let last = later.checked_sub(1).map(|last| stretches[last]);
        last.is_some_and(|(_, end)| moment < end)
    }

    /// Whether any of it is of the task with this index.
    pub fn takes_task(&self, task: usize) -> bool {
        self.stretches.contains_key(&task)
    }
}

/// The id of the span that begins with these digits: its trace's, or else its own.
pub fn matched_id<'s>(row: &'s SpanRow, id: &str) -> Option<&'s str> {
    let ids = [row.trace_id.as_deref(), row.span_id.as_deref()];
    ids.into_iter()
        .flatten()
        .find(|whole| whole.starts_with(id))
}

#[cfg(test)]
mod tests {
    use swtch_core::{Nanos, Pid, Reason, Tid};
    use swtch_store::Writer;

    use super::*;
    use crate::report::drawn::{after, meta, names, row};

    const COUNTED: CountedParts = CountedParts {
        switch: true,
        wait: true,
    };

    fn at(us: u64) -> Timestamp {
        Timestamp::from_ns(us * 1_000)
    }

    /// A trace whose threads 10 and 11 published these ids, each of its trace and of its part, from and to these µs.
    fn published(spans: &[(u32, &str, &str, u64, u64)]) -> (Trace, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let mut writer = Writer::create(&path, &meta()).unwrap();
        for (tid, trace, span, begin, end) in spans {
            let span = SpanRow {
                begin: at(*begin),
                end: at(*end),
                pid: Pid::new(10),
                tid: Tid::new(*tid),
                name: "otel trace".to_owned(),
                trace_id: Some((*trace).to_owned()),
                span_id: Some((*span).to_owned()),
            };
            writer.push_span(&span).unwrap();
        }
        writer.flush().unwrap();
        (Trace::open(&path).unwrap(), dir)
    }

    #[test]
    fn switches_within_count_and_the_waits_that_they_begin() {
        let spans = [
            (11, "abcd01", "99", 500, 600),
            (10, "abcd01", "77", 100, 200),
            (10, "ffff02", "88", 200, 300),
            (10, "abcd01", "77", 300, 400),
        ];
        let (trace, _dir) = published(&spans);
        let request = FollowedRequest::find(&trace, &names(), "abcd").unwrap();
        let of = |task, ts: u64, off: u64| {
            let mut row = after(row(task, Reason::Pipe), Reason::Pipe, off * 1_000, 0);
            (row.ts, row.ran) = (at(ts), Some(Nanos::from_ns(10_000)));
            let left = request.leave(&row, names().index(row.task), COUNTED);
            (left.switch, left.wait)
        };
        // The wait before the request is not its own; the last one of a stretch is.
        assert_eq!(of(1, 110, 50), (true, false));
        assert_eq!(of(1, 190, 70), (true, true));
        assert_eq!(of(1, 250, 50), (false, true));
        assert_eq!(of(1, 299, 9), (false, false));
        assert_eq!(of(1, 300, 9), (true, false));
        assert_eq!(of(2, 510, 300), (true, false));
        assert_eq!(of(3, 510, 1), (false, false));
        assert!(request.takes_task(names().index(swtch_core::TaskKey::new(2))));
        let mut first = row(1, Reason::Pipe);
        first.ts = at(150);
        let left = request.leave(&first, names().index(first.task), COUNTED);
        assert_eq!(
            (left.switch, left.wait),
            (true, false),
            "its wait is not known"
        );
    }

    #[test]
    fn digits_that_fit_no_request_or_several_are_refused() {
        let said = |spans: &[_], id: &str| {
            let (trace, _dir) = published(spans);
            let request = FollowedRequest::find(&trace, &names(), id);
            request
                .map(|request| request.stretches.len())
                .map_err(|error| error.to_string())
        };
        let spans = [
            (10, "abcd01", "77", 100, 200),
            (11, "abcd01", "79", 100, 200),
            (10, "abce02", "88", 200, 300),
        ];
        assert_eq!(said(&spans, "abcd"), Ok(2));
        assert_eq!(said(&spans, "77"), Ok(1), "a part of a request");
        let several = said(&spans, "abc").unwrap_err();
        assert!(several.contains("such as abcd01 and abce02"), "{several}");
        let none = said(&spans, "beef").unwrap_err();
        assert!(none.contains("begins with beef"), "{none}");
        let without = said(&[], "beef").unwrap_err();
        assert!(without.contains("no spans with ids"), "{without}");
    }
}
