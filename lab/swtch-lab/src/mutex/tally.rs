//! Sums over the plays of one variant: how long threads lived and ran, how often the CPU was taken
//! from them, and how often they waited for the lock.

use std::collections::BTreeMap;

use swtch_bench::load::PlayedMember;
use swtch_core::{Category, Reason};

use super::RateBase;
use super::preemptors::PreemptionsByName;
use crate::evidence::{LoadRuns, MemberRuns, NextTask};
use crate::measured::LabNumber;
use swtch_core::stats::{EventRate, dispersion};

/// Counts and times of some plays, summed.
#[derive(Clone, Debug, Default)]
pub struct PlayTally {
    /// Number of threads of all plays.
    pub threads: u64,
    /// Seconds from begin to end, of all threads together.
    pub life_s: f64,
    /// Seconds of CPU time, of all threads together.
    pub cpu_s: f64,
    /// Preemptions by others than members and the recorder.
    pub preemptions: u64,
    /// Preemptions by the recorder, which would not happen without a recording.
    pub by_recorder: u64,
    /// Preemptions of members by each other.
    pub by_members: u64,
    /// Waits for another thread; without a recording, all voluntary switches.
    pub waits: u64,
    /// Preemptions before the work began, for each thread.
    pub starts: Vec<f64>,
    /// The reasons of these preemptions, counted.
    pub start_reasons: BTreeMap<Reason, u64>,
    /// The tasks that took the CPU, by name.
    pub preemptors: PreemptionsByName,
    /// Preemptions by others, and seconds of life, for each thread.
    pub by_thread: Vec<(f64, f64)>,
    /// How long each play took, in ns.
    pub plays_ns: Vec<f64>,
}

impl PlayTally {
    /// Counts one play. Without evidence, the kernel's counters take its place.
    pub fn of(members: &[PlayedMember], evidence: Option<&LoadRuns>) -> Self {
        let mut tally = Self::default();
        let began = members.iter().map(|member| member.began_ns).min();
        let ended = members.iter().map(|member| member.ended_ns).max();
        let took = began
            .zip(ended)
            .map(|(began, ended)| ended.saturating_sub(began));
        tally.plays_ns.extend(took.map(|took| took as f64));
        for (index, member) in members.iter().enumerate() {
            tally.threads += 1;
            let life_s = member.ended_ns.saturating_sub(member.began_ns) as f64 / 1e9;
            tally.life_s += life_s;
            let before = tally.preemptions;
            tally.cpu_s += member.cpu_time.as_ns() as f64 / 1e9;
            match evidence {
                Some(evidence) => tally.add(&evidence.members[index], life_s),
                None => {
                    tally.preemptions += member.involuntary;
                    tally.waits += member.voluntary;
                }
            }
            let own = tally.preemptions - before;
            tally.by_thread.push((own as f64, life_s));
        }
        tally
    }

    fn add(&mut self, member: &MemberRuns, life_s: f64) {
        for run in member.preemptions() {
            match run.next_task {
                NextTask::Member(_) => self.by_members += 1,
                NextTask::Recorder => self.by_recorder += 1,
                _ => self.preemptions += 1,
            }
        }
        let waits = member.switch_outs();
        let waits = waits.filter(|run| run.reason.category() == Category::Synchronization);
        self.waits += waits.count() as u64;
        let starts: Vec<Reason> = member
            .switch_outs_before()
            .map(|run| run.reason)
            .filter(|reason| reason.category() == Category::Preemption)
            .collect();
        self.starts.push(starts.len() as f64);
        for reason in starts {
            *self.start_reasons.entry(reason).or_default() += 1;
        }
        self.preemptors.add(member, life_s);
    }

    /// Both together: counts and times are added.
    pub fn plus(mut self, other: Self) -> Self {
        self.threads += other.threads;
        self.life_s += other.life_s;
        self.cpu_s += other.cpu_s;
        self.preemptions += other.preemptions;
        self.by_members += other.by_members;
        self.by_recorder += other.by_recorder;
        self.waits += other.waits;
        self.starts.extend(other.starts);
        for (reason, count) in other.start_reasons {
            *self.start_reasons.entry(reason).or_default() += count;
        }
        self.preemptors = self.preemptors.plus(other.preemptors);
        self.plays_ns.extend(other.plays_ns);
        self.by_thread.extend(other.by_thread);
        self
    }

    /// Preemptions by others, per second of the chosen time.
    pub fn preemptions(&self, per: RateBase) -> EventRate {
        EventRate {
            count: self.preemptions,
            seconds: match per {
                RateBase::LifeSecond => self.life_s,
                RateBase::CpuSecond => self.cpu_s,
            },
            dispersion: dispersion(&self.by_thread),
        }
    }

    /// Waits for the lock, per second of life.
    pub const fn waits(&self) -> EventRate {
        EventRate {
            count: self.waits,
            seconds: self.life_s,
            dispersion: 0.0,
        }
    }

    /// Preemptions by others, over threads instead of seconds.
    pub fn preemptions_per_thread(&self) -> EventRate {
        EventRate {
            count: self.preemptions,
            seconds: self.threads as f64,
            dispersion: dispersion(&self.by_thread),
        }
    }

    /// Mean CPU time of a thread, in seconds.
    pub fn cpu_per_thread(&self) -> f64 {
        self.cpu_s / self.threads.max(1) as f64
    }

    /// Median length of a play, in ns.
    pub fn took(&self) -> Option<LabNumber> {
        LabNumber::of(&self.plays_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Run;

    fn run(to_ns: u64, reason: Reason, next_task: NextTask) -> Run {
        Run {
            from_ns: to_ns - 5,
            to_ns,
            reason,
            next_task,
            in_call: false,
            runnable: None,
        }
    }

    #[test]
    fn switches_are_told_apart_by_when_and_by_whom() {
        let other = || NextTask::Other("kworker".to_owned());
        let member = MemberRuns {
            began_ns: 100,
            ended_ns: 200,
            runs: vec![
                run(50, Reason::Migrate, other()),
                run(60, Reason::Futex, NextTask::Idle),
                run(110, Reason::Wakeup, other()),
                run(120, Reason::Slice, NextTask::Member(1)),
                run(130, Reason::Futex, NextTask::Idle),
                run(140, Reason::Wakeup, NextTask::Recorder),
                run(210, Reason::Class, other()),
            ],
        };
        let mut tally = PlayTally::default();
        tally.add(&member, 1.0);
        let by = (tally.preemptions, tally.by_members, tally.by_recorder);
        assert_eq!((by, tally.waits), ((1, 1, 1), 1));
        assert_eq!(tally.starts, [1.0]);
        assert_eq!(tally.start_reasons, BTreeMap::from([(Reason::Migrate, 1)]));
    }
}
