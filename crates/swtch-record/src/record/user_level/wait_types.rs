//! Numbers of wait types: each process has numbers of its own, a trace has one list for all.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use swtch_core::UserWaitType;
use swtch_store::WaitTypeRow;

/// Further names get no number: a process that makes names up must not fill a trace.
const MOST: u16 = 4096;

/// The wait types of a trace, by name.
#[derive(Debug, Default)]
pub(super) struct WaitTypes {
    known: FxHashMap<String, Arc<UserWaitType>>,
    fresh: Vec<WaitTypeRow>,
}

impl WaitTypes {
    /// Looks a name up, and adds it to the list if it is new and the list is not full.
    pub(super) fn named(&mut self, name: &str) -> Arc<UserWaitType> {
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        let number = u16::try_from(self.known.len()).ok().filter(|n| *n < MOST);
        let name = name.to_owned();
        if let Some(wait_type) = number {
            let name = name.clone();
            self.fresh.push(WaitTypeRow { wait_type, name });
        }
        let wait_type = Arc::new(UserWaitType { number, name });
        if number.is_some() {
            let name = wait_type.name.clone();
            self.known.insert(name, Arc::clone(&wait_type));
        }
        wait_type
    }

    /// The wait types that are new since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<WaitTypeRow> {
        std::mem::take(&mut self.fresh)
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
