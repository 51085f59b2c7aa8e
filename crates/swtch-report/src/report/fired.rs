//! The switch for which a flight recorder made a dump: who waited, for how long, and who had the CPU.
//!
//! Who reads a dump at night wants to know what happened in those milliseconds, and not what is normal there.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{Contention, Holder, Nanos, Switch, Timestamp};
use swtch_store::FiredSwitch;

use super::names::Names;
use super::verdict::{in_words, share};
use super::waker::Waker;

/// A holder with a smaller share of the wait is not named.
const NAMED_PCT: u64 = 5;

/// Looks for the switch in the rows.
#[derive(Debug)]
pub struct FiredWait {
    fired: FiredSwitch,
    contention: Contention,
    /// Its row, once it was met.
    row: Option<Switch>,
    /// The time for which each holder had the CPU in the wait before it.
    holders: BTreeMap<Holder, Nanos>,
}

impl FiredWait {
    /// Needs the columns of the wait, and every row, because others ran meanwhile.
    pub fn new(fired: FiredSwitch, contention: Contention) -> Self {
        Self {
            fired,
            contention,
            row: None,
            holders: BTreeMap::new(),
        }
    }

    /// Takes the next row.
    pub fn add(&mut self, row: &Switch) {
        let holders = &mut self.holders;
        let mut add = |holder, time| *holders.entry(holder).or_default() += time;
        let is_it = row.task.get() == self.fired.task && row.ts.as_ns() == self.fired.ts_ns;
        if !is_it {
            // Of a wait that began on another CPU the last part comes later.
            self.contention
                .push_run(row, &mut |wait| wait.for_each_part(&mut add));
            return;
        }
        self.row = Some(*row);
        self.contention
            .push(row, &mut |wait| wait.for_each_part(&mut add));
    }

    /// Takes what could not be divided before the last row.
    pub fn finish(&mut self) {
        let holders = &mut self.holders;
        let mut add = |holder, time| *holders.entry(holder).or_default() += time;
        self.contention
            .finish(&mut |wait| wait.for_each_part(&mut add));
    }

    /// Says what happened, in a sentence or two; `None` if the row is not in the trace. Moments are counted from
    /// `start`.
    pub fn told(&self, names: &Names, start: Timestamp) -> Option<String> {
        let row = self.row.as_ref()?;
        let index = names.index(row.task);
        let who = format!(
            "{} (thread {}, CPU {})",
            names.process_of(index).label(),
            names.label(index),
            row.cpu
        );
        let moment = |at: Timestamp| at.since(start).unwrap_or(Nanos::ZERO);
        if self.fired.is_open {
            return Some(format!(
                "{who} left at {} ({}) and had not come back.",
                moment(row.ts),
                in_words(row.rule.reason)
            ));
        }
        let ran = row.ran?;
        let began = row.ts.before(ran);
        let mut parts = Vec::new();
        let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        if blocked > runq {
            let why = row.wait.reason.map_or("why is not known", in_words);
            let ender = Waker::of(row, names).map(|waker| waker.label(names));
            let ender =
                ender.map_or_else(String::new, |ender| format!(", until {ender} ended that"));
            parts.push(format!(
                "it was blocked for {blocked} from {} on ({why}{ender})",
                moment(began.before(runq).before(blocked)),
            ));
        }
        if runq > Nanos::ZERO {
            let from = moment(began.before(runq));
            parts.push(format!(
                "from {from} to {} it could run and had no CPU, for {runq}{}",
                moment(began),
                self.had_the_cpu(names, runq)
            ));
        }
        parts.push(format!(
            "then it ran for {ran} ({})",
            in_words(row.rule.reason)
        ));
        Some(format!("{who}: {}.", parts.join("; ")))
    }

    /// `: hog/12 had it for 199 ms (98.5 %)`
    fn had_the_cpu(&self, names: &Names, runq: Nanos) -> String {
        let mut holders: Vec<_> = self.holders.iter().collect();
        holders.sort_by_key(|(_, time)| Reverse(**time));
        let is_named = |time: Nanos| time.as_ns() * 100 >= runq.as_ns() * NAMED_PCT;
        let holders = holders.into_iter().filter(|(_, time)| is_named(**time));
        let named = holders.take(3).map(|(holder, time)| {
            let who = match holder {
                Holder::Task(task) => {
                    let index = names.index(*task);
                    let real_time = if names.thread(index).is_real_time {
                        ", a real-time task,"
                    } else {
                        ""
                    };
                    format!("{}{real_time}", names.label(index))
                }
                Holder::Interrupts => "interrupts".to_owned(),
                Holder::Steal => "other guests of the hypervisor".to_owned(),
                Holder::Throttle => "nobody (its quota was used up)".to_owned(),
                Holder::Idle => "nobody (the CPU was idle still)".to_owned(),
                Holder::Unaccounted => "nobody that the trace tells".to_owned(),
            };
            format!(
                "{who} had it for {time} ({})",
                share(time.as_ns(), runq.as_ns())
            )
        });
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            String::new()
        } else {
            format!(": {}", named.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row};
    use swtch_core::{Coverage, Reason, TaskKey};

    fn run(task: u32, reason: Reason, start: u64, end: u64, next: u32) -> Switch {
        let mut run = row(task, reason);
        run.ts = Timestamp::from_ns(end);
        run.ran = Some(Nanos::from_ns(end - start));
        run.next_task = Some(TaskKey::new(next));
        run
    }

    fn told(rows: &[Switch], fired: FiredSwitch) -> Option<String> {
        let contention = Contention::new(Coverage::EveryTask, 1, &[]);
        let mut wait = FiredWait::new(fired, contention);
        rows.iter().for_each(|row| wait.add(row));
        wait.finish();
        wait.told(&names(), Timestamp::default())
    }

    /// ```text
    /// cpu 0  hog 1000──────9000  worker 9000─9500  server 9500─9600
    ///              └ server wakes at 1500, after 500 ns ┘
    /// ```
    #[test]
    fn who_had_the_cpu_in_the_wait_that_fired_is_named() {
        let server = after(
            run(1, Reason::Sleep, 9500, 9600, 0),
            Reason::Futex,
            500,
            8000,
        );
        let rows = [
            run(3, Reason::Slice, 1000, 9000, 2),
            run(2, Reason::Sleep, 9000, 9500, 1),
            server,
        ];
        let fired = FiredSwitch {
            task: 1,
            ts_ns: 9600,
            is_open: false,
        };
        let expected = "server/10 (thread server/10, CPU 0): from 1.50 µs to 9.50 µs it could run and had no CPU, \
                        for 8.00 µs: hog/30 had it for 7.50 µs (93.8 %), worker/11 had it for 500 ns (6.2 %); then \
                        it ran for 100 ns (slept, or waited for a signal).";
        assert_eq!(told(&rows, fired).as_deref(), Some(expected));
        let gone = FiredSwitch { ts_ns: 7, ..fired };
        assert_eq!(told(&rows, gone), None);
    }

    #[test]
    fn a_wait_that_lasts_is_told_from_where_it_began() {
        let rows = [run(1, Reason::Futex, 100, 200, 0)];
        let fired = FiredSwitch {
            task: 1,
            ts_ns: 200,
            is_open: true,
        };
        let expected = "server/10 (thread server/10, CPU 0) left at 200 ns (waited for another thread (lock)) and had \
                        not come back.";
        assert_eq!(told(&rows, fired).as_deref(), Some(expected));
    }
}
