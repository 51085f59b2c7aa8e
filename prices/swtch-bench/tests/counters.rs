//! Checks that the workloads switch as often as they claim, by the kernel's own counters; no
//! recorder is involved.
//!
//! ```text
//! cargo test -p swtch-bench --test counters            all
//! cargo test -p swtch-bench --test counters -- pipe    those whose names contain "pipe"
//! ```
//!
//! A workload needs a process that has no other thread, which the usual harness cannot provide. So
//! this program is its own harness, and starts itself anew for each workload.

use std::collections::BTreeSet;
use std::env;
use std::process::{Command, ExitCode};

use swtch_bench::{
    Expect, ExpectedRows, Needs, ThreadOutcome, Workload, WorkloadOutcome, workload_named,
    workloads,
};
use swtch_core::reason::{Category, Reason};
use swtch_test::Results;

/// Environment variable with the name of the workload, set for the process that runs it.
const WORKLOAD: &str = "SWTCH_TEST_WORKLOAD";

/// Tolerated switches for reasons that the bounds do not name, such as a cold page of the test.
const STRANGERS: u64 = 3;

/// Plays in a row in which a workload must block too often for that to be a defect of it.
const PLAYS: usize = 3;

fn main() -> ExitCode {
    if let Ok(name) = env::var(WORKLOAD) {
        return play(&name);
    }
    let mut results = Results::from_args();
    for workload in workloads() {
        judge(workload, &mut results);
    }
    results.finish()
}

fn judge(workload: &Workload, results: &mut Results) {
    let needs_root = matches!(workload.needs, Needs::Root | Needs::CpuController);
    let is_asked_for = match needs_root {
        true => results.asks_for_privileged(workload.name),
        false => results.asks_for(workload.name),
    };
    if !is_asked_for {
        return;
    }
    if workload.needs.are_met() {
        results.record(workload.name, &lasting_misses(workload));
    } else if needs_root && !Needs::Root.are_met() {
        results.ignore(workload.name);
    } else {
        results.skip(workload.name, &format!("it needs {}", workload.needs));
    }
}

/// Blocks beyond the bounds may be waits for the lock of the address space, in page faults while other
/// threads of the workload start and end (`swtch report` calls them `fault`; a thread of `storm` had up
/// to 3 of them in 20 plays). A workload that blocks too often by itself does so in every play, so such
/// misses count when [`PLAYS`] plays in a row have them. Everything else must hold at once.
fn lasting_misses(workload: &Workload) -> Vec<String> {
    let is_block_too_many = |miss: &String| miss.contains(", more than");
    let mut found = Vec::new();
    for _ in 0..PLAYS {
        found = misses(workload);
        if found.is_empty() || !found.iter().all(is_block_too_many) {
            break;
        }
    }
    found
}

fn play(name: &str) -> ExitCode {
    let workload = workload_named(name).expect("invariant: the name comes from the list");
    match workload.run((workload.default_count / 4).max(1)) {
        Ok(outcome) => {
            println!(
                "{}",
                serde_json::to_string(&outcome).expect("invariant: plain data")
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn misses(workload: &Workload) -> Vec<String> {
    let myself = env::current_exe().expect("invariant: a running program has a path");
    let played = Command::new(myself).env(WORKLOAD, workload.name).output();
    let played = played.expect("invariant: this program can be started, since it runs");
    if !played.status.success() {
        return vec![String::from_utf8_lossy(&played.stderr).into_owned()];
    }
    let outcome: WorkloadOutcome = match serde_json::from_slice(&played.stdout) {
        Ok(outcome) => outcome,
        Err(error) => return vec![format!("no outcome: {error}")],
    };
    outcome.threads.iter().flat_map(misses_of_thread).collect()
}

/// Compares the bounds of all reasons together with the kernel's count. The exit comes after the
/// count; `migrate` may be counted as voluntary or involuntary.
fn misses_of_thread(thread: &ThreadOutcome) -> Vec<String> {
    let counted = thread.counted;
    let moves = at_least(thread, |reason| reason == Reason::Migrate);
    let blocks_least = at_least(thread, is_block);
    let preempted_least = at_least(thread, is_preemption);
    let mut misses = Vec::new();
    if counted.voluntary < blocks_least {
        misses.push(format!(
            "blocked {} times, not {blocks_least}",
            counted.voluntary
        ));
    }
    if counted.involuntary < preempted_least {
        misses.push(format!(
            "preempted {} times, not {preempted_least}",
            counted.involuntary
        ));
    }
    if counted.total() < blocks_least + preempted_least + moves {
        misses.push(format!(
            "{} switches are too few with {moves} moves",
            counted.total()
        ));
    }
    let most = at_most(thread).map(|most| most + STRANGERS + most / 100);
    if most.is_some_and(|most| counted.voluntary > most) {
        misses.push(format!(
            "blocked {} times, more than {most:?}",
            counted.voluntary
        ));
    }
    misses
        .iter()
        .map(|miss| format!("{}: {miss}", thread.name))
        .collect()
}

fn is_block(reason: Reason) -> bool {
    !matches!(
        reason.category(),
        Category::Preemption | Category::Yield | Category::Exit
    )
}

fn is_preemption(reason: Reason) -> bool {
    matches!(reason.category(), Category::Preemption | Category::Yield) && reason != Reason::Migrate
}

/// Fewest rows over the reasons of one kind: the strictest bound of each reason, summed.
fn at_least(thread: &ThreadOutcome, is_of_kind: impl Fn(Reason) -> bool) -> u64 {
    let of_kind = |expect: &&Expect| expect.reasons.iter().all(|reason| is_of_kind(*reason));
    let mut strictest: Vec<(&[Reason], u64)> = Vec::new();
    for expect in thread.expect.iter().filter(of_kind) {
        let ExpectedRows::Count {
            at_least: least_of_this,
            ..
        } = expect.amount
        else {
            continue;
        };
        match strictest
            .iter_mut()
            .find(|(reasons, _)| *reasons == expect.reasons)
        {
            Some((_, least)) => *least = least_of_this.max(*least),
            None => strictest.push((&expect.reasons, least_of_this)),
        }
    }
    strictest.iter().map(|(_, least)| least).sum()
}

/// Most blocks and moves; `None` if a reason has no bound.
fn at_most(thread: &ThreadOutcome) -> Option<u64> {
    let counts = |reason: &Reason| is_block(*reason) || *reason == Reason::Migrate;
    let named = thread.expect.iter().flat_map(|expect| &expect.reasons);
    let reasons: BTreeSet<_> = named.copied().filter(counts).collect();
    reasons
        .into_iter()
        .map(|reason| bound(thread, reason))
        .sum()
}

/// The strictest upper bound of a reason; `None` if there is none.
fn bound(thread: &ThreadOutcome, reason: Reason) -> Option<u64> {
    let of_reason = thread
        .expect
        .iter()
        .filter(|expect| expect.reasons == [reason]);
    let bounds = of_reason.filter_map(|expect| match expect.amount {
        ExpectedRows::Count { at_most, .. } => at_most,
        ExpectedRows::ShareOfRunnable { .. } => None,
    });
    bounds.min()
}
