//! `lock-ring`: what a switch costs between threads that pass locks round a ring.
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

use anyhow::{Context as _, Result, bail};
use swtch_bench::cost::{ArmSpec, LockKind, LockRingSpec, home, may_use_fifo};
use swtch_core::cost::{Estimate, Policy};

use super::cpu_choice::CpuChoice;
use super::findings::Findings;
use super::parameters::Parameters;
use super::room::ExperimentContext;
use super::timed::{self, Timed, times};
use crate::cost::menu::{Arm, ArmGroup, Role, Section};
use crate::cost::series::{ArmOperation, Blocks};

mod answers;
mod proof;
mod shown;

/// Threads in the largest ring of the article.
const ARTICLE_MOST: u32 = 128;

/// The parameters of the experiment, checked.
struct RingParameters {
    threads: Vec<u32>,
    spare: Vec<u32>,
    locks: Vec<LockKind>,
    settings: Vec<(Policy, CpuChoice)>,
    most: u32,
    cpu: u32,
}

/// Fresh process trees of each group, and rounds in each.
const TREES: usize = 6;
const ROUNDS: usize = 5;

/// Most threads of a ring: each takes some 20 kB of the kernel's memory.
const MOST_THREADS: u64 = 100_000;

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, room: &mut ExperimentContext) -> Result<Findings> {
    let asked = RingParameters::read(parameters)?;
    if parameters.flag("show") {
        return Ok(proof::show(&asked, room));
    }
    let (groups, budget) = (asked.groups(), budget(room));
    let timed = Timed::side_by_side(groups, budget, room)?;
    let rows = asked.rows(&timed);
    let mut findings = Findings {
        tables: vec![shown::table(&rows)],
        pictures: shown::pictures(&rows),
        ..timed.findings()
    };
    findings.notes.extend(shown::left_out(&rows));
    let rings = proof::rings_to_prove(&asked);
    let proofs = proof::prove_all(&rings, room, &mut findings.notes);
    findings.sentences.extend(shown::sentences(&rows));
    findings.sentences.extend(proof::sentence(&proofs));
    let size = answers::size_matters_little(&asked, &timed);
    let at_once = match answers::several_run_at_once(&asked, &timed, &rows, room) {
        Ok(answer) => answer,
        Err(why) => {
            findings.notes.push(format!("{why:#}"));
            None
        }
    };
    let many = answers::many_work(&rows, &proofs);
    findings.answers = [size, at_once, many].into_iter().flatten().collect();
    findings.was_interrupted |= room.must_stop();
    Ok(findings)
}

fn budget(room: &ExperimentContext) -> Duration {
    Duration::from_secs(if room.is_quick { 20 } else { 70 })
}

impl RingParameters {
    fn read(parameters: &Parameters) -> Result<Self> {
        let numbers = |name: &str, least: u64| -> Result<Vec<u32>> {
            let mut numbers = parameters.counts(name);
            if let Some(wrong) = numbers.iter().find(|n| !(least..=MOST_THREADS).contains(n)) {
                bail!("{name}: {wrong} is not between {least} and {MOST_THREADS}");
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
            most: u32::try_from(parameters.count("most").min(MOST_THREADS))?,
            cpu: home()?,
        })
    }

    fn ring(
        &self,
        lock: LockKind,
        (policy, place): (Policy, CpuChoice),
        shape: RingSize,
    ) -> LockRingSpec {
        LockRingSpec {
            lock,
            count: shape.threads,
            spare: shape.spare,
            policy,
            cpu: (place == CpuChoice::One).then_some(self.cpu),
        }
    }

    /// The sizes of the rings in one group.
    fn shapes(&self) -> Vec<RingSize> {
        let with = |spare: &u32| {
            let spare = *spare;
            let shape = move |threads: &u32| RingSize {
                threads: *threads,
                spare,
            };
            self.threads.iter().map(shape)
        };
        self.spare.iter().flat_map(with).collect()
    }

    fn groups(&self) -> Vec<ArmGroup> {
        let mut groups = Vec::new();
        for lock in &self.locks {
            for setting in &self.settings {
                let name = group_name(*lock, *setting);
                groups.push(self.group(&name, *lock, *setting, &self.shapes()));
            }
        }
        let is_new = self.most >= 2 && !self.threads.contains(&self.most);
        if let (true, Some(lock)) = (is_new, self.locks.first()) {
            groups.push(self.group(MOST, *lock, self.settings[0], &[self.most_shape()]));
        }
        groups
    }

    const fn most_shape(&self) -> RingSize {
        RingSize {
            threads: self.most,
            spare: 1,
        }
    }

    /// The first ring's hot baseline serves all rings of the group: they have the same locks.
    fn group(
        &self,
        name: &str,
        lock: LockKind,
        setting: (Policy, CpuChoice),
        shapes: &[RingSize],
    ) -> ArmGroup {
        let mut group = ArmGroup::new(name, Section::Switch);
        (group.trees, group.rounds) = (TREES, ROUNDS);
        for shape in shapes {
            let role = match group.arms.len() {
                0 => Role::Price,
                _ => Role::Part,
            };
            group.add(Arm {
                spec: ArmSpec::LockRing(self.ring(lock, setting, *shape)),
                kind: format!("{name}: {} threads", shape.threads),
                role,
            });
        }
        // Left free, two rings that do the same may be placed differently for as long as they live.
        if setting.1 == CpuChoice::One {
            timed::add_twin(&mut group);
        }
        group
    }

    fn rows(&self, timed: &Timed) -> Vec<RingResult> {
        let mut rows = Vec::new();
        for lock in &self.locks {
            for setting in &self.settings {
                let name = group_name(*lock, *setting);
                if let Some(measured) = timed.group(&name) {
                    let blocks = Blocks::of(measured);
                    let shapes = self.shapes().into_iter().enumerate();
                    rows.extend(
                        shapes.map(|(arm, shape)| {
                            RingResult::of(&blocks, arm, *lock, *setting, shape)
                        }),
                    );
                }
            }
        }
        if let (Some(measured), Some(lock)) = (timed.group(MOST), self.locks.first()) {
            let blocks = Blocks::of(measured);
            rows.push(RingResult::of(
                &blocks,
                0,
                *lock,
                self.settings[0],
                self.most_shape(),
            ));
        }
        rows
    }
}

/// Name of the group of the largest ring.
const MOST: &str = "most threads";

fn group_name(lock: LockKind, (policy, place): (Policy, CpuChoice)) -> String {
    format!("{lock}, {policy}, {}", place.as_str())
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
    place: CpuChoice,
    shape: RingSize,
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
        (policy, place): (Policy, CpuChoice),
        shape: RingSize,
    ) -> Self {
        Self {
            lock,
            policy,
            place,
            shape,
            hand_over: blocks.estimate(ArmOperation::of(arm)),
            net: blocks.difference(ArmOperation::baseline(0), ArmOperation::of(arm)),
            switches: blocks.switches(ArmOperation::of(arm)),
            left_out: blocks.dropped_of(ArmOperation::of(arm)),
        }
    }

    /// Switches per hand-over that follow from how the ring is built; `None` where a woken thread
    /// may preempt, or run on another CPU.
    fn expected(&self) -> Option<f64> {
        let is_exact = self.policy != Policy::Default && self.place == CpuChoice::One;
        is_exact.then(|| 1.0 / f64::from(self.shape.spare))
    }

    fn counted(&self) -> f64 {
        self.switches.0 + self.switches.1
    }

    /// Time per counted switch, in ns.
    fn per_switch(&self) -> Option<Estimate> {
        let net = self.net.as_ref().filter(|_| self.counted() > 0.0)?;
        Some(times(net, 1.0 / self.counted()))
    }

    fn is_of(&self, lock: LockKind, setting: (Policy, CpuChoice)) -> bool {
        self.lock == lock && (self.policy, self.place) == setting
    }

    fn setting(&self) -> (Policy, CpuChoice) {
        (self.policy, self.place)
    }
}
