//! Numbers of wait types: each process has numbers of its own, a trace has one list for all.

use rustc_hash::FxHashMap;
use swtch_core::{Reason, Rule, UserDeparture, classify_user};
use swtch_store::WaitTypeRow;

/// Further names get no number: a process that makes names up must not fill a trace.
const MOST: u16 = 4096;

/// The wait types of a trace, by name.
#[derive(Debug, Default)]
pub(super) struct WaitTypes {
    numbers: FxHashMap<String, u16>,
    fresh: Vec<WaitTypeRow>,
}

/// A wait type with its number in the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedWaitType {
    /// The index in the trace's list; `None` if the list is full.
    pub(super) number: Option<u16>,
    /// The rule that gives this wait its reason.
    pub(super) rule: &'static Rule,
}

impl WaitTypes {
    /// Looks a name up, and adds it to the list if it is new.
    pub(super) fn named(&mut self, name: &str) -> NumberedWaitType {
        let rule = classify_user(UserDeparture::Wait(name));
        if let Some(number) = self.numbers.get(name) {
            return NumberedWaitType {
                number: Some(*number),
                rule,
            };
        }
        let number = u16::try_from(self.numbers.len()).ok().filter(|n| *n < MOST);
        if let Some(number) = number {
            self.numbers.insert(name.to_owned(), number);
            self.fresh.push(WaitTypeRow {
                wait_type: number,
                name: name.to_owned(),
            });
        }
        NumberedWaitType { number, rule }
    }

    /// The wait types that are new since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<WaitTypeRow> {
        std::mem::take(&mut self.fresh)
    }
}

impl NumberedWaitType {
    /// The rule for a worker that waits for this. Yields and preemptive sections are told by the
    /// event, so a name cannot claim to be one.
    pub(super) fn rule_of_a_wait(self) -> &'static Rule {
        match self.rule.reason {
            Reason::Yield | Reason::Preemptive => classify_user(UserDeparture::Wait("")),
            _ => self.rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_is_told_once() {
        let mut types = WaitTypes::default();
        let first = types.named("MUTEX").number;
        let second = types.named("SLEEP_TASK").number;
        assert_eq!((first, second), (Some(0), Some(1)));
        assert_eq!(types.named("MUTEX").number, first);
        assert_eq!(types.take_fresh().len(), 2);
        assert!(types.take_fresh().is_empty());
    }

    #[test]
    fn a_process_that_makes_up_names_does_not_fill_a_trace() {
        let mut types = WaitTypes::default();
        for index in 0..10_000 {
            types.named(&format!("T{index}"));
        }
        assert_eq!(types.take_fresh().len(), usize::from(MOST));
        assert_eq!(types.named("ONE_MORE").number, None);
    }
}
