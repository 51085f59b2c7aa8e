//! The results of one play of jobs: turnaround, throughput, fairness, switches, overhead.

use swtch_bench::load::LoadResults;
use swtch_core::stats::quantile;

/// Times and switches of the jobs of one play.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobsResult {
    /// From the start of all to the end of each, in ns.
    pub turnarounds: Vec<f64>,
    /// CPU time of each, in ns.
    pub cpu_ns: Vec<f64>,
    /// Switches of all of them, as the kernel counted them.
    pub switches: f64,
    /// CPUs that they could use at once: not more than there are jobs.
    pub used_cpus: f64,
}

impl JobsResult {
    /// The results of a play on this many CPUs.
    pub fn of(played: &LoadResults, cpus: usize) -> Self {
        let members = &played.members;
        let turnaround = |member: &swtch_bench::load::PlayedMember| {
            member.ended_ns.saturating_sub(played.started_ns) as f64
        };
        let switches = members
            .iter()
            .map(|member| member.voluntary + member.involuntary);
        Self {
            turnarounds: members.iter().map(turnaround).collect(),
            cpu_ns: members
                .iter()
                .map(|member| member.cpu_time.as_ns() as f64)
                .collect(),
            switches: switches.sum::<u64>() as f64,
            used_cpus: members.len().min(cpus) as f64,
        }
    }

    /// Mean turnaround of all jobs, in ns.
    pub fn mean(&self) -> f64 {
        self.turnarounds.iter().sum::<f64>() / self.jobs()
    }

    /// The turnaround that 95 of 100 jobs do not exceed, in ns.
    pub fn p95(&self) -> f64 {
        quantile(&self.turnarounds, 0.95).unwrap_or(0.0)
    }

    /// From the start to the end of the last job, in ns.
    pub fn makespan(&self) -> f64 {
        self.turnarounds.iter().copied().fold(0.0, f64::max)
    }

    /// Jobs per second, until the last one is done.
    pub fn throughput(&self) -> f64 {
        self.jobs() / self.makespan() * 1e9
    }

    /// Jain's index of the speeds of the jobs (CPU time over turnaround): 1 when all are alike, 1/n
    /// when one has everything (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984).
    pub fn fairness(&self) -> f64 {
        let speeds = self.cpu_ns.iter().zip(&self.turnarounds);
        let speeds: Vec<f64> = speeds.map(|(cpu, turnaround)| cpu / turnaround).collect();
        let sum: f64 = speeds.iter().sum();
        let squares: f64 = speeds.iter().map(|speed| speed * speed).sum();
        sum * sum / (self.jobs() * squares)
    }

    /// The share of CPU time that no job got before the last one was done, from 0 to 1: switches,
    /// interrupts, other tasks, and CPUs that had nothing left to do.
    pub fn overhead(&self) -> f64 {
        1.0 - self.cpu() / (self.makespan() * self.used_cpus)
    }

    /// CPU time of all, in ns.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns.iter().sum()
    }

    fn jobs(&self) -> f64 {
        self.turnarounds.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two jobs of 100 ns on one CPU, one after the other, 10 ns lost between them.
    fn in_turn() -> JobsResult {
        JobsResult {
            turnarounds: vec![100.0, 210.0],
            cpu_ns: vec![100.0, 100.0],
            switches: 1.0,
            used_cpus: 1.0,
        }
    }

    #[test]
    fn turnaround_and_throughput_are_those_of_the_textbook() {
        let jobs = in_turn();
        assert_eq!((jobs.mean(), jobs.makespan()), (155.0, 210.0));
        assert!((jobs.throughput() - 2.0 / 210e-9).abs() < 1.0);
        assert!((jobs.overhead() - 10.0 / 210.0).abs() < 1e-12);
    }

    #[test]
    fn jobs_that_get_on_alike_are_fair() {
        let alike = JobsResult {
            turnarounds: vec![200.0, 200.0],
            ..in_turn()
        };
        assert!((alike.fairness() - 1.0).abs() < 1e-12);
        let one_has_all = JobsResult {
            cpu_ns: vec![200.0, 0.0],
            ..alike
        };
        assert!((one_has_all.fairness() - 0.5).abs() < 1e-12);
    }
}
