//! The queue of processes to inspect; the one that has waited longest comes first.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Processes inspected in one round, so that a machine that starts thousands keeps its CPUs.
const MOST_A_ROUND: usize = 64;

/// Processes that wait for a look.
#[derive(Debug, Default)]
pub(super) struct InspectionQueue {
    /// Each process that has looks left, once.
    waiting: VecDeque<u32>,
    looks_left: FxHashMap<u32, u8>,
}

impl InspectionQueue {
    /// Queues a process for `looks` looks. One that waits already keeps its place.
    pub(super) fn wait(&mut self, pid: u32, looks: u8) {
        if looks > 0 && self.looks_left.insert(pid, looks).is_none() {
            self.waiting.push_back(pid);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the processes whose turn it is, with the looks that each has left.
    pub(super) fn next_round(&mut self) -> Vec<(u32, u8)> {
        let turn = self.waiting.len().min(MOST_A_ROUND);
        let turn = self.waiting.drain(..turn);
        turn.filter_map(|pid| self.looks_left.remove_entry(&pid))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `-a` all processes of a machine come at once, and the busy ones start threads all the
    /// time: they must not keep the others from their first look.
    #[test]
    fn everybody_is_looked_at_before_anybody_is_again() {
        let mut turns = InspectionQueue::default();
        (1..=300).for_each(|pid| turns.wait(pid, 6));
        let mut looked_at = Vec::new();
        while looked_at.len() < 300 {
            let round = turns.next_round();
            assert!(round.len() <= MOST_A_ROUND);
            for (pid, looks) in round {
                looked_at.push(pid);
                turns.wait(pid, looks - 1);
                // As after a new thread of this process.
                turns.wait(pid, 6);
            }
        }
        let first_looks: Vec<u32> = (1..=300).collect();
        assert_eq!(looked_at[..300], first_looks);
    }

    /// A new thread adds looks, but no second place in the queue.
    #[test]
    fn a_process_is_looked_at_once_a_round() {
        let mut turns = InspectionQueue::default();
        turns.wait(7, 2);
        turns.wait(8, 1);
        turns.wait(7, 6);
        assert_eq!(turns.next_round(), [(7, 6), (8, 1)]);
        assert!(turns.is_empty());
        turns.wait(8, 0);
        assert!(turns.next_round().is_empty());
    }
}
