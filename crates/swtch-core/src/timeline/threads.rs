//! What user-mode switches must be told about their threads: a user-mode scheduler knows the id of
//! its thread and nothing of the kernel's CPUs.

use std::collections::HashMap;

use crate::ids::{CgroupId, CpuId, TaskKey, Tid};
use crate::switch::TaskEvent;

/// The threads of a trace, as far as they are known by now.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_tid: HashMap<Tid, TaskKey>,
    places: Vec<Place>,
}

/// Where a thread ran last, and which cgroup it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) cpu: Option<CpuId>,
    pub(super) cgroup: CgroupId,
}

impl Threads {
    /// A thread was named. Ids are reused: the latest name counts, and one that has ended keeps its
    /// id until then, because its last switches may come later.
    pub(super) fn name(&mut self, event: &TaskEvent) {
        self.by_tid.insert(event.tid, event.task);
        self.place(event.task).cgroup = event.cgroup;
    }

    /// A thread was on this CPU. Whether that is the first that is known of it.
    pub(super) fn put(&mut self, task: TaskKey, cpu: CpuId) -> bool {
        !task.is_idle() && self.place(task).cpu.replace(cpu).is_none()
    }

    /// The thread with this id, and where it is.
    pub(super) fn find(&self, tid: Tid) -> Option<(TaskKey, Place)> {
        let task = *self.by_tid.get(&tid)?;
        let index = usize::try_from(task.get()).ok()?;
        Some((task, self.places.get(index).copied().unwrap_or_default()))
    }

    fn place(&mut self, task: TaskKey) -> &mut Place {
        let index = usize::try_from(task.get()).unwrap_or(usize::MAX);
        if index >= self.places.len() {
            self.places.resize(index + 1, Place::default());
        }
        &mut self.places[index]
    }
}
