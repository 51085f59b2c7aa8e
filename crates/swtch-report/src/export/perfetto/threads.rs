//! Threads and processes by thread id, as Perfetto numbers them. Ids are reused, and some tasks of
//! a trace have none, so tasks get their numbers here.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::TaskKey;
use swtch_output::text::escaped;

use super::cpu_chains::CpuOccupant;
use super::message::{
    ProcessDescriptor, ProcessTree, ProcessTreeThread, ThreadDescriptor, TrackDescriptor,
    TreeProcess,
};
use crate::report::Names;

/// The kernel assigns no thread id from here on (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const BEYOND_IDS: i32 = 1 << 22;
/// Threads that stand for runs which are not recorded: one per CPU, in a process of their own.
const NOT_RECORDED: i32 = BEYOND_IDS + 1;
/// Tasks that have no name in the trace, numbered by key.
const UNNAMED: i32 = BEYOND_IDS + (1 << 17);

/// Returns true if this thread id stands for runs which are not recorded.
pub fn is_not_recorded(tid: u32) -> bool {
    i32::try_from(tid).is_ok_and(|tid| (NOT_RECORDED..UNNAMED).contains(&tid))
}

/// Ranges of track ids, by what the tracks are for.
const THREAD_TRACKS: u64 = 1 << 40;
const PROCESS_TRACKS: u64 = 2 << 40;

/// Threads and processes that were named so far.
#[derive(Debug)]
pub struct NamedThreads {
    names: Rc<Names>,
    met: FxHashSet<TaskKey>,
    processes: FxHashSet<usize>,
    ids: FxHashMap<i32, TaskKey>,
}

/// The messages that must be written when a task first occurs.
#[derive(Debug)]
pub struct FirstOccurrence {
    /// The thread, and its process if that is new, too.
    pub tree: ProcessTree,
    /// Track of the thread, and of its process if that is new, too.
    pub tracks: Vec<TrackDescriptor>,
    /// True if another task had its thread id before.
    pub takes_the_place_of_another: bool,
}

impl NamedThreads {
    /// No task has occurred yet.
    pub fn new(names: Rc<Names>) -> Self {
        Self {
            names,
            met: FxHashSet::default(),
            processes: FxHashSet::default(),
            ids: FxHashMap::default(),
        }
    }

    /// Returns what to write when the task first occurs; `None` later.
    pub fn meet(&mut self, task: TaskKey) -> Option<FirstOccurrence> {
        if !self.met.insert(task) {
            return None;
        }
        let tid = self.tid(task);
        let takes_the_place_of_another = self.ids.insert(tid, task).is_some();
        let process = self.process(task);
        let is_new = self.processes.insert(process) || takes_the_place_of_another;
        let mut tree = ProcessTree {
            processes: Vec::new(),
            threads: vec![ProcessTreeThread {
                tid: Some(tid),
                name: Some(self.name(task)),
                tgid: Some(self.pid(task)),
            }],
        };
        let mut tracks = Vec::new();
        if is_new {
            tree.processes.push(self.named_process(task));
            tracks.push(TrackDescriptor {
                uuid: Some(self.process_track(task)),
                process: Some(ProcessDescriptor {
                    pid: Some(self.pid(task)),
                }),
                ..TrackDescriptor::default()
            });
        }
        tracks.push(TrackDescriptor {
            uuid: Some(thread_track(task)),
            thread: Some(ThreadDescriptor {
                pid: Some(self.pid(task)),
                tid: Some(i64::from(tid)),
            }),
            ..TrackDescriptor::default()
        });
        Some(FirstOccurrence {
            tree,
            tracks,
            takes_the_place_of_another,
        })
    }

    /// Returns true if the task has occurred before.
    pub fn is_met(&self, task: TaskKey) -> bool {
        self.met.contains(&task)
    }

    /// Thread id and name, as events have them.
    pub fn called(&self, who: CpuOccupant) -> (i32, String) {
        match who {
            CpuOccupant::Task(task) => (self.tid(task), self.name(task)),
            CpuOccupant::Idle => (0, "swapper".to_owned()),
            CpuOccupant::NotRecorded(cpu) => (
                NOT_RECORDED + i32::from(cpu.get()),
                "(not recorded)".to_owned(),
            ),
        }
    }

    /// The thread id, or a number beyond all ids if the task has none.
    pub fn tid(&self, task: TaskKey) -> i32 {
        let tid = self.names.thread(self.names.index(task)).tid;
        let tid = tid.and_then(|tid| i32::try_from(tid.get()).ok());
        tid.unwrap_or_else(|| {
            let room = i32::MAX - UNNAMED;
            UNNAMED + i32::try_from(task.get()).unwrap_or(room).min(room)
        })
    }

    /// Name and id of the thread, as reports give them.
    pub fn label(&self, task: TaskKey) -> String {
        escaped(&self.names.label(self.names.index(task))).into_owned()
    }

    /// The place of its process in [`Names::processes`].
    pub fn process(&self, task: TaskKey) -> usize {
        self.names.thread(self.names.index(task)).process
    }

    /// Id of the track of the task's process.
    pub fn process_track(&self, task: TaskKey) -> u64 {
        PROCESS_TRACKS | self.process(task) as u64
    }

    fn pid(&self, task: TaskKey) -> i32 {
        let pid = self.names.process_of(self.names.index(task)).pid;
        let pid = pid.and_then(|pid| i32::try_from(pid.get()).ok());
        pid.unwrap_or_else(|| self.tid(task))
    }

    fn name(&self, task: TaskKey) -> String {
        escaped(&self.names.thread(self.names.index(task)).comm).into_owned()
    }

    /// A process with its name as command line. A second, empty word keeps readers from cutting the
    /// name at its first space.
    fn named_process(&self, task: TaskKey) -> TreeProcess {
        let comm = &self.names.process_of(self.names.index(task)).comm;
        let mut cmdline = vec![escaped(comm).into_owned()];
        if comm.contains(' ') {
            cmdline.push(String::new());
        }
        TreeProcess {
            pid: Some(self.pid(task)),
            ppid: Some(0),
            cmdline,
        }
    }
}

/// Id of the track of a thread.
pub fn thread_track(task: TaskKey) -> u64 {
    THREAD_TRACKS | u64::from(task.get())
}
