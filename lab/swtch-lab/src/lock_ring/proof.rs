//! Watches rings of locks: do hand-overs follow the order of the ring, how many switches were
//! counted, and how many CPUs were busy?
//!
//! A watched ring makes a few turns in a fresh process, in several runs. The order must hold in
//! every run. Switches are counted from runs without preemptions: with several spare locks, one
//! preemption makes two threads movable until the end.

use anyhow::{Context as _, Result};
use swtch_bench::cost::{HandOver, LockRingSpec, Observed, Violation, observe, order_violation};
use swtch_core::cost::Estimate;
use swtch_output::text;
use swtch_report::report::{Cell, Sheet};

use super::{CpuChoice, RingParameters, RingSize};
use crate::claim::{Answer, Verdict};
use crate::context::ExperimentContext;
use crate::findings::{Findings, FindingsTable};

/// Runs of each ring; six values have an interval.
const RUNS: usize = 6;

/// Turns of each thread in a watched run.
const TURNS: u64 = 4;

/// The most hand-overs that a table shows.
const SHOWN: usize = 24;

/// The observations of one ring, over all runs.
#[derive(Clone, Debug)]
pub struct Proof {
    pub ring: LockRingSpec,
    /// Hand-overs whose order was checked.
    pub hand_overs: u64,
    /// The first hand-over that broke the order.
    pub violation: Option<Violation>,
    /// The hand-overs of the first run.
    first: Vec<HandOver>,
    /// Number of runs whose switches are counted: those without a preemption in a ring that should
    /// have none, all runs of other rings.
    runs: usize,
    /// Switches per hand-over in these runs.
    switches: Option<f64>,
}

impl Proof {
    fn expected(&self) -> Option<f64> {
        let exact = 1.0 / f64::from(self.ring.spare);
        self.ring.is_exact().then_some(exact)
    }
}

/// Watches a ring; `None` when it was told to stop before the first run was done.
fn prove(ring: &LockRingSpec, context: &ExperimentContext) -> Result<Option<Proof>> {
    let mut proof = Proof {
        ring: ring.clone(),
        hand_overs: 0,
        violation: None,
        first: Vec::new(),
        runs: 0,
        switches: None,
    };
    let [mut counted, mut over] = [0, 0];
    for run in 0..RUNS {
        if context.must_stop() {
            break;
        }
        let observed = watched(ring, TURNS)?;
        proof.hand_overs += observed.hand_overs.len() as u64;
        let violation = order_violation(ring, &observed.hand_overs);
        proof.violation = proof.violation.or(violation);
        if observed.counted.involuntary == 0 || !ring.is_exact() {
            proof.runs += 1;
            counted += observed.counted.voluntary + observed.counted.involuntary;
            over += observed.counted_hand_overs;
        }
        if run == 0 {
            proof.first = observed.hand_overs;
        }
    }
    proof.switches = (over > 0).then(|| counted as f64 / over as f64);
    Ok((proof.hand_overs > 0).then_some(proof))
}

fn watched(ring: &LockRingSpec, turns: u64) -> Result<Observed> {
    observe(ring, turns).with_context(|| {
        format!(
            "watching a ring of {} threads with {} spare locks ({})",
            ring.count, ring.spare, ring.lock
        )
    })
}

/// The rings that are watched after the timing. For every lock and each number of spare locks: the
/// one of the most threads that were timed, up to 1024. And the largest ring of all.
pub fn rings_to_prove(parameters: &RingParameters) -> Vec<LockRingSpec> {
    const MAX_WATCHED: u32 = 1024;
    let largest_watched = parameters.threads.iter().rfind(|one| **one <= MAX_WATCHED);
    let setting = parameters.settings[0];
    let mut rings = Vec::new();
    if let Some(threads) = largest_watched.or(parameters.threads.first()).copied() {
        for lock in &parameters.locks {
            for spare in parameters.spare.iter().copied() {
                rings.push(parameters.ring(*lock, setting, RingSize { threads, spare }));
            }
        }
    }
    if let (Some(lock), 1..) = (parameters.locks.first(), parameters.largest_ring) {
        rings.push(parameters.ring(*lock, setting, parameters.largest_ring_size()));
    }
    rings
}

/// Watches each ring. One that cannot be started (there is a limit to threads) adds a note.
pub fn prove_all(
    rings: &[LockRingSpec],
    context: &ExperimentContext,
    notes: &mut Vec<String>,
) -> Vec<Proof> {
    let mut proofs = Vec::new();
    for ring in rings {
        context.progress(&format!("watching a ring of {} threads", ring.count));
        match prove(ring, context) {
            Ok(proof) => proofs.extend(proof),
            Err(why) => notes.push(format!("{why:#}")),
        }
    }
    proofs
}

/// Whether the order was proved, over how many hand-overs; `None` when nothing was watched.
pub fn sentence(proofs: &[Proof]) -> Option<String> {
    let broken = proofs
        .iter()
        .find_map(|proof| Some((proof, proof.violation?)));
    if let Some((proof, violation)) = broken {
        return Some(format!(
            "The order of a ring of {} threads with {} spare locks ({}) was broken: {violation}.",
            proof.ring.count, proof.ring.spare, proof.ring.lock
        ));
    }
    let hand_overs: u64 = proofs.iter().map(|proof| proof.hand_overs).sum();
    let threads = proofs.iter().map(|proof| proof.ring.count).max()?;
    Some(format!(
        "Order proved over {} hand-overs of {}, of up to {} threads: every lock was handed to the thread \
         behind, and with one spare lock all hand-overs came in the one order that the ring allows.",
        text::grouped(hand_overs),
        text::counted(proofs.len() as u64, "ring"),
        text::grouped(u64::from(threads))
    ))
}

/// How many CPUs a watched ring keeps busy: CPU time over wall time. `None` when told to stop.
pub fn busy_cpus(ring: &LockRingSpec, context: &ExperimentContext) -> Result<Option<Estimate>> {
    /// Hand-overs in a run: a few hundredths of a second.
    const MOVES: u64 = 50_000;
    let turns = MOVES / (u64::from(ring.count) * u64::from(ring.spare));
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        if context.must_stop() {
            return Ok(None);
        }
        let observed = watched(ring, turns.max(TURNS))?;
        let busy = observed.cpu_time.as_ns() as f64 / observed.elapsed.as_ns().max(1) as f64;
        runs.push(vec![busy]);
    }
    Ok(Estimate::of_trees(&runs))
}

/// Watches all rings and shows their hand-overs; times nothing.
pub fn show(parameters: &RingParameters, context: &ExperimentContext) -> Findings {
    let mut rings = Vec::new();
    for lock in &parameters.locks {
        for setting in &parameters.settings {
            let sizes = parameters.sizes().into_iter();
            rings.extend(sizes.map(|size| parameters.ring(*lock, *setting, size)));
        }
    }
    let mut notes = Vec::new();
    let proofs = prove_all(&rings, context, &mut notes);
    let told = sentence(&proofs);
    let is_many = proofs
        .iter()
        .any(|proof| proof.ring.count >= super::answers::MANY);
    let answer = told.clone().filter(|_| is_many).map(|ours| Answer {
        claim: "E5",
        ours,
        verdict: Verdict::of(proofs.iter().all(|proof| proof.violation.is_none())),
    });
    let tables = [proofs_table(&proofs)];
    Findings {
        tables: tables
            .into_iter()
            .chain(first_hand_overs(&proofs))
            .collect(),
        sentences: told.into_iter().collect(),
        answers: answer.into_iter().collect(),
        notes,
        was_interrupted: context.must_stop(),
        ..Findings::default()
    }
}

fn proofs_table(proofs: &[Proof]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "lock-ring-order",
        &[
            "lock",
            "policy",
            "place",
            "threads",
            "spare",
            "hand_overs",
            "order",
            "switches",
            "expected",
            "off_pct",
            "runs",
        ],
    );
    sheet.rows = proofs.iter().map(row).collect();
    sheet.notes.push(format!(
        "Each ring was watched {RUNS} times; where nobody should be preempted, switches a hand-over are those of \
         the runs in which nobody was."
    ));
    FindingsTable {
        title: "The order of hand-overs, and the switches that the kernel counted for them"
            .to_owned(),
        sheet,
    }
}

fn row(proof: &Proof) -> Vec<Cell> {
    let ring = &proof.ring;
    let cpus = match ring.cpu {
        Some(_) => CpuChoice::One,
        None => CpuChoice::All,
    };
    let number = |number: Option<f64>| number.map_or(Cell::Missing, Cell::Ratio);
    let off = proof.switches.zip(proof.expected());
    let off = off.map(|(switches, expected)| (switches / expected - 1.0) * 100.0);
    vec![
        Cell::text(ring.lock.as_str()),
        Cell::text(ring.policy.as_str()),
        Cell::text(cpus.as_str()),
        Cell::Count(u64::from(ring.count)),
        Cell::Count(u64::from(ring.spare)),
        Cell::Count(proof.hand_overs),
        Cell::text(
            proof
                .violation
                .map_or_else(|| "proved".to_owned(), |one| one.to_string()),
        ),
        number(proof.switches),
        number(proof.expected()),
        off.map_or(Cell::Missing, Cell::Percent),
        Cell::Count(proof.runs as u64),
    ]
}

/// The first hand-overs of the ring with the most threads, and of these the fewest spare locks.
fn first_hand_overs(proofs: &[Proof]) -> Option<FindingsTable> {
    let shown = proofs
        .iter()
        .max_by_key(|proof| (proof.ring.count, std::cmp::Reverse(proof.ring.spare)))?;
    let mut sheet = Sheet::new("lock-ring-hand-overs", &["hand_over", "thread", "lock"]);
    let moves = shown.first.iter().take(SHOWN).enumerate();
    sheet.rows = moves
        .map(|(index, HandOver { thread, lock })| {
            vec![
                Cell::Count(index as u64),
                Cell::Id(u64::from(*thread)),
                Cell::Id(u64::from(*lock)),
            ]
        })
        .collect();
    Some(FindingsTable {
        title: format!(
            "The first hand-overs of a ring of {} threads and {} spare ({})",
            shown.ring.count, shown.ring.spare, shown.ring.lock
        ),
        sheet,
    })
}
