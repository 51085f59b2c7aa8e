//! A value for each task, kept from one of its rows to the next.
//!
//! Much of what a row says is about the task's previous row: which call a wait began in, what was
//! waited for. Most tasks have an index in [`Names`] and are found by it. Tasks without a name
//! share one index and would overwrite each other, so they are found by their key.

use rustc_hash::FxHashMap;
use swtch_core::TaskKey;

use super::names::Names;

#[derive(Debug)]
pub struct LastByTask<T> {
    named: Vec<Option<T>>,
    nameless: FxHashMap<TaskKey, T>,
}

impl<T: Copy> LastByTask<T> {
    /// No values yet, for a trace with these tasks.
    pub fn new(names: &Names) -> Self {
        Self {
            named: vec![None; names.thread_count()],
            nameless: FxHashMap::default(),
        }
    }

    /// The value of a task, whose index is `index`.
    pub fn of(&self, task: TaskKey, index: usize) -> Option<T> {
        if index == Names::nameless() {
            self.nameless.get(&task).copied()
        } else {
            self.named[index]
        }
    }

    /// Sets the value of a task; `None` removes it.
    pub fn set(&mut self, task: TaskKey, index: usize, value: Option<T>) {
        if index != Names::nameless() {
            self.named[index] = value;
            return;
        }
        match value {
            Some(value) => self.nameless.insert(task, value),
            None => self.nameless.remove(&task),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::names;

    /// Two tasks of the last second of a killed recording: their names were never written.
    #[test]
    fn tasks_without_a_name_are_told_apart() {
        let names = names();
        let mut last = LastByTask::new(&names);
        let [first, second] = [77, 78].map(TaskKey::new);
        let index = names.index(first);
        assert_eq!(index, names.index(second), "both share the index");
        last.set(first, index, Some('a'));
        assert_eq!(last.of(second, index), None);
        last.set(second, index, Some('b'));
        last.set(first, index, None);
        assert_eq!(last.of(first, index), None);
        assert_eq!(last.of(second, index), Some('b'));
    }
}
