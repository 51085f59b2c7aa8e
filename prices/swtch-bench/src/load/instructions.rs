//! The body of a member as a flat list of instructions, so that a step costs a few ns and allocates
//! nothing.
//!
//! ```text
//! spin                      0 spin
//! repeat 1000 {             1 begin  counter 0, 1000 times
//!     lock m          ─▶    2 lock   ───▶ the mutex itself
//!     spin                  3 spin
//!     unlock m              4 unlock
//! }                         5 again  counter 0, from 2
//! ```
//!
//! [`flat`] makes the list. It is the same for every member of a group, and each member stores the
//! index of its current instruction, so the player can tell which step the member is at.
//! `program` adds what one member uses: locks, files, memory.

use super::Step;

/// An instruction that is not yet bound to the locks, files and memory of a member.
#[derive(Clone, Copy, Debug)]
pub(super) enum UnboundInstruction<'a> {
    /// Sets the counter to `times`.
    Begin { counter: usize, times: u64 },
    /// Decrements a counter, and continues at `from` unless it is now 0.
    Again { counter: usize, from: usize },
    /// A step that contains no other steps.
    Do(&'a Step),
}

/// The instructions of a body. A repeat of 0 times has none.
pub(super) fn flat(body: &[Step]) -> Vec<UnboundInstruction<'_>> {
    let mut list = Vec::new();
    flatten(body, &mut 0, &mut list);
    list
}

fn flatten<'a>(body: &'a [Step], counters: &mut usize, list: &mut Vec<UnboundInstruction<'a>>) {
    for step in body {
        match step {
            Step::Repeat { times: 0, .. } => {}
            Step::Repeat { times, body } => {
                let counter = *counters;
                *counters += 1;
                list.push(UnboundInstruction::Begin {
                    counter,
                    times: *times,
                });
                let from = list.len();
                flatten(body, counters, list);
                list.push(UnboundInstruction::Again { counter, from });
            }
            step => list.push(UnboundInstruction::Do(step)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ChainOperation;

    fn spin(iterations: u64) -> Step {
        Step::Spin {
            kernel: ChainOperation::Add,
            iterations,
        }
    }

    fn repeat(times: u64, body: Vec<Step>) -> Step {
        Step::Repeat { times, body }
    }

    /// Interprets the list as `Program::run` does, and counts iterations.
    fn iterations(list: &[UnboundInstruction<'_>]) -> u64 {
        let (mut next, mut sum) = (0, 0);
        let mut counters = vec![0; list.len()];
        while let Some(instruction) = list.get(next) {
            next += 1;
            match *instruction {
                UnboundInstruction::Begin { counter, times } => counters[counter] = times,
                UnboundInstruction::Again { counter, from } => {
                    counters[counter] -= 1;
                    if counters[counter] > 0 {
                        next = from;
                    }
                }
                UnboundInstruction::Do(Step::Spin { iterations, .. }) => sum += iterations,
                UnboundInstruction::Do(step) => panic!("{step:?}"),
            }
        }
        sum
    }

    #[test]
    fn nested_repeats_multiply() {
        let body = [
            spin(1),
            repeat(3, vec![spin(10), repeat(4, vec![spin(100)])]),
        ];
        assert_eq!(iterations(&flat(&body)), 1 + 3 * (10 + 4 * 100));
    }

    #[test]
    fn what_is_repeated_no_times_is_left_out() {
        assert!(flat(&[repeat(0, vec![spin(5)])]).is_empty());
    }
}
