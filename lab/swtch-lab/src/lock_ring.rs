//! `lock-ring`: what a switch costs between threads that pass locks round a ring.
//!
//! n threads each hold one of n + k locks. The k **spare locks** are those that nobody holds: a
//! thread moves on by taking the next lock and releasing its own, and waits where the next lock is
//! held. `swtch_bench::cost::lock_ring` draws it.
//!
//! ```text
//! rings of (lock, policy and CPUs, spare locks, threads) ─timed─▶ RingResult ─▶ answers
//!        └ some of them once more, watched ─▶ Proof: the order is the ring's
//! ```
//!
//! All rings of one lock, policy and placement are measured side by side; the price of the lock
//! itself, taken and given back by one thread, is subtracted. The time per hand-over is what a
//! program pays; the time per counted switch is what a switch costs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use swtch_bench::cost::{ArmSpec, LockKind, LockRingSpec, home, may_use_fifo};
use swtch_core::cost::{Estimate, Policy};

use super::context::ExperimentContext;
use super::cpu_choice::CpuChoice;
use super::findings::Findings;
use super::parameters::Parameters;
use super::timed::{self, Timed, scaled};
use swtch_cost::menu::{Arm, ArmGroup, Role, Section};
use swtch_cost::series::{ArmOperation, Blocks};

mod answers;
mod proof;
mod shown;

/// Threads in the largest ring of the article.
const ARTICLE_MAX_THREADS: u32 = 128;

/// The parameters of the experiment, checked.
struct RingParameters {
    threads: Vec<u32>,
    spare: Vec<u32>,
    locks: Vec<LockKind>,
    settings: Vec<(Policy, CpuChoice)>,
    /// Threads of one more ring, with one spare lock; 0 for none.
    largest_ring: u32,
    cpu: u32,
}

/// Fresh process trees of each group.
const TREES: usize = 6;

/// Rounds in each tree.
const ROUNDS: usize = 5;

/// Most threads of a ring: each takes some 20 kB of the kernel's memory.
const MAX_THREADS: u64 = 100_000;

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
    let only_shows_order = parameters.flag("show");
    let parameters = RingParameters::read(parameters)?;
    if only_shows_order {
        return Ok(proof::show(&parameters, context));
    }
    let timed = Timed::side_by_side(parameters.groups(), budget(context), context)?;
    let results = parameters.results(&timed);
    let mut findings = Findings {
        tables: vec![shown::table(&results)],
        pictures: shown::pictures(&results),
        ..timed.findings()
    };
    findings.notes.extend(shown::left_out(&results));
    let rings = proof::rings_to_prove(&parameters);
    let proofs = proof::prove_all(&rings, context, &mut findings.notes);
    findings.sentences.extend(shown::sentences(&results));
    findings.sentences.extend(proof::sentence(&proofs));
    let size = answers::size_matters_little(&parameters, &timed);
    let at_once = match answers::several_run_at_once(&parameters, &timed, &results, context) {
        Ok(answer) => answer,
        Err(why) => {
            findings.notes.push(format!("{why:#}"));
            None
        }
    };
    let many = answers::many_work(&results, &proofs);
    findings.answers = [size, at_once, many].into_iter().flatten().collect();
    findings.was_interrupted |= context.must_stop();
    Ok(findings)
}

fn budget(context: &ExperimentContext) -> Duration {
    Duration::from_secs(if context.is_quick { 20 } else { 70 })
}

impl RingParameters {
    fn read(parameters: &Parameters) -> Result<Self> {
        let numbers = |name: &str, least: u64| -> Result<Vec<u32>> {
            let mut numbers = parameters.counts(name);
            if let Some(wrong) = numbers.iter().find(|n| !(least..=MAX_THREADS).contains(n)) {
                bail!("{name}: {wrong} is not between {least} and {MAX_THREADS}");
            }
            numbers.sort_unstable();
            numbers.dedup();
            let number = |number| u32::try_from(number).context("a number of 32 bits");
            numbers.into_iter().map(number).collect()
        };
        let locks = parameters.words("locks").into_iter().map(|word| {
            LockKind::from_word(word).with_context(|| {
                format!("there is no lock `{word}`; there are: mutex, futex, condvar")
            })
        });
        let mut settings = Vec::new();
        for word in parameters.words("policies") {
            let policy = Policy::from_word(word).with_context(|| {
                format!("there is no policy `{word}`; there are: batch, default, fifo")
            })?;
            if policy == Policy::Fifo && !may_use_fifo()? {
                bail!(
                    "this user may not use SCHED_FIFO: run it as root, or leave fifo out of --policies"
                );
            }
            settings.push((policy, CpuChoice::One));
        }
        settings.push((Policy::Default, CpuChoice::All));
        Ok(Self {
            threads: numbers("threads", 2)?,
            spare: numbers("spare", 1)?,
            locks: locks.collect::<Result<_>>()?,
            settings,
            largest_ring: largest_ring(parameters.count("most"))?,
            cpu: home()?,
        })
    }

    fn ring(
        &self,
        lock: LockKind,
        (policy, cpus): (Policy, CpuChoice),
        size: RingSize,
    ) -> LockRingSpec {
        LockRingSpec {
            lock,
            count: size.threads,
            spare: size.spare,
            policy,
            cpu: (cpus == CpuChoice::One).then_some(self.cpu),
        }
    }

    /// The sizes of the rings in one group.
    fn sizes(&self) -> Vec<RingSize> {
        let mut sizes = Vec::new();
        for spare in self.spare.iter().copied() {
            for threads in self.threads.iter().copied() {
                sizes.push(RingSize { threads, spare });
            }
        }
        sizes
    }

    fn groups(&self) -> Vec<ArmGroup> {
        let mut groups = Vec::new();
        for lock in &self.locks {
            for setting in &self.settings {
                let name = group_name(*lock, *setting);
                groups.push(self.group(&name, *lock, *setting, &self.sizes()));
            }
        }
        let is_new = self.largest_ring > 0 && !self.threads.contains(&self.largest_ring);
        if let (true, Some(lock)) = (is_new, self.locks.first()) {
            groups.push(self.group(
                LARGEST_RING_GROUP,
                *lock,
                self.settings[0],
                &[self.largest_ring_size()],
            ));
        }
        groups
    }

    const fn largest_ring_size(&self) -> RingSize {
        RingSize {
            threads: self.largest_ring,
            spare: 1,
        }
    }

    /// The first ring's hot baseline serves all rings of the group: they have the same locks.
    fn group(
        &self,
        name: &str,
        lock: LockKind,
        setting: (Policy, CpuChoice),
        sizes: &[RingSize],
    ) -> ArmGroup {
        let mut group = ArmGroup::new(name, Section::Switch);
        (group.trees, group.rounds) = (TREES, ROUNDS);
        for size in sizes {
            let role = match group.arms.len() {
                0 => Role::Price,
                _ => Role::Part,
            };
            group.add(Arm {
                spec: ArmSpec::LockRing(self.ring(lock, setting, *size)),
                kind: format!("{name}: {} threads", size.threads),
                role,
            });
        }
        // Unpinned, two rings that do the same may be placed differently for as long as they live.
        if setting.1 == CpuChoice::One {
            timed::add_twin(&mut group);
        }
        group
    }

    /// The results of all rings that were timed, the largest ring last.
    fn results(&self, timed: &Timed) -> Vec<RingResult> {
        let mut results = Vec::new();
        for lock in &self.locks {
            for setting in &self.settings {
                let name = group_name(*lock, *setting);
                if let Some(measured) = timed.group(&name) {
                    let blocks = Blocks::of(measured);
                    let sizes = self.sizes().into_iter().enumerate();
                    results
                        .extend(sizes.map(|(arm, size)| {
                            RingResult::of(&blocks, arm, *lock, *setting, size)
                        }));
                }
            }
        }
        if let (Some(measured), Some(lock)) = (timed.group(LARGEST_RING_GROUP), self.locks.first())
        {
            let blocks = Blocks::of(measured);
            results.push(RingResult::of(
                &blocks,
                0,
                *lock,
                self.settings[0],
                self.largest_ring_size(),
            ));
        }
        results
    }
}

/// Reads the parameter `most`: 0, or the threads of a ring.
fn largest_ring(threads: u64) -> Result<u32> {
    ensure!(
        threads == 0 || (2..=MAX_THREADS).contains(&threads),
        "most: {threads} is not between 2 and {MAX_THREADS}, nor 0 for none"
    );
    Ok(u32::try_from(threads)?)
}

/// Name of the group of the largest ring.
const LARGEST_RING_GROUP: &str = "most threads";

fn group_name(lock: LockKind, (policy, cpus): (Policy, CpuChoice)) -> String {
    format!("{lock}, {policy}, {}", cpus.as_str())
}

/// The size of a ring: threads and spare locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingSize {
    threads: u32,
    spare: u32,
}

/// The results for one ring.
#[derive(Clone, Debug)]
struct RingResult {
    lock: LockKind,
    policy: Policy,
    cpus: CpuChoice,
    size: RingSize,
    /// Time per hand-over, in ns.
    hand_over: Option<Estimate>,
    /// The same net of the lock itself.
    net: Option<Estimate>,
    /// Switches per hand-over, voluntary and involuntary.
    switches: (f64, f64),
    /// Blocks that were left out, since others had the CPU.
    left_out: usize,
}

impl RingResult {
    fn of(
        blocks: &Blocks<'_>,
        arm: usize,
        lock: LockKind,
        (policy, cpus): (Policy, CpuChoice),
        size: RingSize,
    ) -> Self {
        Self {
            lock,
            policy,
            cpus,
            size,
            hand_over: blocks.estimate(ArmOperation::of(arm)),
            net: blocks.difference(ArmOperation::baseline(0), ArmOperation::of(arm)),
            switches: blocks.switches(ArmOperation::of(arm)),
            left_out: blocks.dropped_of(ArmOperation::of(arm)),
        }
    }

    /// Switches per hand-over that follow from how the ring is built; `None` where a woken thread
    /// may preempt, or run on another CPU.
    fn expected(&self) -> Option<f64> {
        let is_exact = self.policy != Policy::Default && self.cpus == CpuChoice::One;
        is_exact.then(|| 1.0 / f64::from(self.size.spare))
    }

    fn counted(&self) -> f64 {
        self.switches.0 + self.switches.1
    }

    /// Time per counted switch, in ns.
    fn per_switch(&self) -> Option<Estimate> {
        let net = self.net.as_ref().filter(|_| self.counted() > 0.0)?;
        Some(scaled(net, 1.0 / self.counted()))
    }

    fn is_of(&self, lock: LockKind, setting: (Policy, CpuChoice)) -> bool {
        self.lock == lock && (self.policy, self.cpus) == setting
    }

    fn setting(&self) -> (Policy, CpuChoice) {
        (self.policy, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `--threads` is: a ring that is cut to the limit is not the one that was asked for.
    #[test]
    fn a_largest_ring_beyond_the_limit_is_refused() {
        assert_eq!(largest_ring(0).unwrap(), 0);
        assert_eq!(largest_ring(100_000).unwrap(), 100_000);
        let refused = largest_ring(100_001).unwrap_err().to_string();
        let why = "most: 100001 is not between 2 and 100000, nor 0 for none";
        assert_eq!(refused, why);
        assert!(largest_ring(1).is_err());
    }
}
