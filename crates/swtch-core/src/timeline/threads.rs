//! Task, CPU and cgroup of a thread by its id: a user-mode scheduler knows the id of its thread,
//! but neither the kernel's CPUs nor the keys of the trace.

use std::collections::HashMap;

use crate::ids::{CgroupId, CpuId, TaskKey, Tid};
use crate::switch::TaskEvent;

/// The threads of a trace, as far as they are known by now.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_tid: HashMap<Tid, TaskKey>,
    places: Vec<ThreadLocation>,
}

/// The CPU on which a thread ran last, and its cgroup.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadLocation {
    pub(super) cpu: Option<CpuId>,
    pub(super) cgroup: CgroupId,
}

impl Threads {
    /// Notes the task that has this thread id. Ids are reused, so the latest event wins; a thread
    /// that has ended keeps its id until then, because its last switches may come later.
    pub(super) fn name(&mut self, event: &TaskEvent) {
        self.by_tid.insert(event.tid, event.task);
        self.place(event.task).cgroup = event.cgroup;
    }

    /// Notes the CPU that a thread was on. True if it is the first one known of this thread.
    pub(super) fn put(&mut self, task: TaskKey, cpu: CpuId) -> bool {
        !task.is_idle() && self.place(task).cpu.replace(cpu).is_none()
    }

    /// The task with this thread id, its last CPU and its cgroup.
    pub(super) fn find(&self, tid: Tid) -> Option<(TaskKey, ThreadLocation)> {
        let task = *self.by_tid.get(&tid)?;
        let index = usize::try_from(task.get()).ok()?;
        Some((task, self.places.get(index).copied().unwrap_or_default()))
    }

    fn place(&mut self, task: TaskKey) -> &mut ThreadLocation {
        let index = usize::try_from(task.get()).unwrap_or(usize::MAX);
        if index >= self.places.len() {
            self.places.resize(index + 1, ThreadLocation::default());
        }
        &mut self.places[index]
    }
}
