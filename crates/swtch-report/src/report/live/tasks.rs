//! The tasks that run now. A task that has ended is forgotten some frames later, so that the memory does not grow with
//! the number of tasks that ever ran.
//!
//! What is told of a task comes CPU by CPU: where it moved, an old name may come after the new one.

use rustc_hash::FxHashMap;
use swtch_core::{CgroupId, Pid, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp};
use swtch_output::text;

/// A thread, as it was seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTask {
    /// Thread id.
    pub tid: Tid,
    /// Process id.
    pub pid: Pid,
    /// Process id of the parent.
    pub parent: Pid,
    /// Name; it is not escaped.
    pub comm: String,
    /// The cgroup that it is in, as of its last switch.
    pub cgroup: CgroupId,
    /// True if it is a kernel thread.
    pub is_kernel: bool,
    /// The moment at which that was so.
    pub at: Timestamp,
}

/// All threads that were seen and are not forgotten.
#[derive(Clone, Debug, Default)]
pub struct LiveTasks {
    by_key: FxHashMap<TaskKey, LiveTask>,
    processes: FxHashMap<Pid, ProcessName>,
    /// Tasks that have ended, each with the frame of that, the oldest first.
    ended: std::collections::VecDeque<(TaskKey, u64)>,
    frames: u64,
}

#[derive(Clone, Debug)]
struct ProcessName {
    name: String,
    parent: Pid,
    is_of_leader: bool,
}

/// A task that has ended is named for so many frames: groups of switches to it are counted when the
/// task that it took the CPU from leaves again.
const NAMED_FOR: u64 = 60;

impl LiveTasks {
    /// Takes what the kernel side said of a task.
    pub fn meet(&mut self, event: &TaskEvent) {
        if event.kind == TaskEventKind::Exit {
            self.ended.push_back((event.task, self.frames));
        }
        let known = self.by_key.get(&event.task);
        if known.is_none_or(|known| known.at <= event.ts) {
            self.name(event);
        }
    }

    fn name(&mut self, event: &TaskEvent) {
        let task = LiveTask {
            tid: event.tid,
            pid: event.pid,
            parent: event.parent_pid,
            comm: text::from_bytes(&event.comm),
            cgroup: event.cgroup,
            is_kernel: event.is_kthread,
            at: event.ts,
        };
        let is_of_leader = task.tid.get() == task.pid.get();
        let known = self.processes.get(&task.pid);
        if is_of_leader || known.is_none_or(|known| !known.is_of_leader) {
            let name = ProcessName {
                name: task.comm.clone(),
                parent: task.parent,
                is_of_leader,
            };
            self.processes.insert(task.pid, name);
        }
        self.by_key.insert(event.task, task);
    }

    /// The thread with this key; `None` if nothing was said of it.
    pub fn get(&self, key: TaskKey) -> Option<&LiveTask> {
        self.by_key.get(&key)
    }

    /// The name of a process: that of its first thread.
    pub fn process_name(&self, pid: Pid) -> Option<&str> {
        self.processes
            .get(&pid)
            .map(|process| process.name.as_str())
    }

    /// The parent of a process, if both are known.
    pub fn parent_of(&self, pid: Pid) -> Option<Pid> {
        let parent = self.processes.get(&pid)?.parent;
        self.processes.contains_key(&parent).then_some(parent)
    }

    /// Number of threads that are named.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns true if no thread is named.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Ends a frame: forgets tasks that ended long ago.
    pub fn end_frame(&mut self) {
        self.frames += 1;
        while let Some((key, ended)) = self.ended.front().copied() {
            if self.frames - ended <= NAMED_FOR {
                break;
            }
            self.ended.pop_front();
            let Some(task) = self.by_key.remove(&key) else {
                continue;
            };
            // The id may belong to another process by now, which is named again when it is seen.
            if task.tid.get() == task.pid.get() {
                self.processes.remove(&task.pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::seen;

    #[test]
    fn a_process_is_named_by_its_first_thread() {
        let mut tasks = LiveTasks::default();
        tasks.meet(&seen(2, 10, 11, "worker"));
        assert_eq!(tasks.process_name(Pid::new(10)), Some("worker"));
        tasks.meet(&seen(1, 10, 10, "server"));
        tasks.meet(&seen(3, 10, 12, "helper"));
        assert_eq!(tasks.process_name(Pid::new(10)), Some("server"));
    }

    /// It was started on one CPU and executed a program on another, whose records are read first.
    #[test]
    fn an_older_name_that_comes_later_is_none() {
        let mut tasks = LiveTasks::default();
        let at = |ts, comm| TaskEvent {
            ts: Timestamp::from_ns(ts),
            ..seen(1, 10, 10, comm)
        };
        for event in [at(20, "server"), at(10, "sh")] {
            tasks.meet(&event);
        }
        assert_eq!(tasks.get(TaskKey::new(1)).unwrap().comm, "server");
        assert_eq!(tasks.process_name(Pid::new(10)), Some("server"));
        tasks.meet(&at(30, "idle"));
        assert_eq!(tasks.process_name(Pid::new(10)), Some("idle"));
    }

    /// A machine may start a thousand processes a second, for months.
    #[test]
    fn tasks_that_ended_are_forgotten() {
        let mut tasks = LiveTasks::default();
        for key in 1..2_000 {
            let event = seen(key, key, key, "sh");
            tasks.meet(&event);
            tasks.meet(&TaskEvent {
                kind: TaskEventKind::Exit,
                ..event
            });
            tasks.end_frame();
        }
        assert!(tasks.len() <= 61, "{}", tasks.len());
        assert_eq!(tasks.process_name(Pid::new(1)), None);
        assert!(tasks.get(TaskKey::new(1_999)).is_some());
    }
}
