//! Threads and processes as Perfetto numbers them: by thread id. Ids are used again, and some tasks of a
//! trace have none, so this is where a task becomes a number.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::TaskKey;

use super::lanes::Who;
use super::message::{
    Process, ProcessDescriptor, ProcessTree, Thread, ThreadDescriptor, TrackDescriptor,
};
use crate::report::Names;
use crate::text::escaped;

/// The kernel gives no thread id from here on (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const BEYOND_IDS: i32 = 1 << 22;
/// Threads that stand for what is not recorded, one a CPU, in a process of their own.
const NOT_RECORDED: i32 = BEYOND_IDS + 1;
/// Tasks without a name in the trace, by key.
const UNNAMED: i32 = BEYOND_IDS + (1 << 17);

/// Track ids by what they are for.
const THREAD_TRACKS: u64 = 1 << 40;
const PROCESS_TRACKS: u64 = 2 << 40;

/// Who has been spoken of.
#[derive(Debug)]
pub struct Threads {
    names: Rc<Names>,
    met: FxHashSet<TaskKey>,
    processes: FxHashSet<usize>,
    ids: FxHashMap<i32, TaskKey>,
}

/// What must be written when a task is first spoken of.
#[derive(Debug)]
pub struct Met {
    /// It, and its process.
    pub tree: ProcessTree,
    /// Their tracks.
    pub tracks: Vec<TrackDescriptor>,
    /// Whether another task had its thread id before.
    pub takes_the_place_of_another: bool,
}

impl Threads {
    /// Nobody yet.
    pub fn new(names: Rc<Names>) -> Self {
        Self {
            names,
            met: FxHashSet::default(),
            processes: FxHashSet::default(),
            ids: FxHashMap::default(),
        }
    }

    /// What to write when the task is first spoken of; `None` later.
    pub fn meet(&mut self, task: TaskKey) -> Option<Met> {
        if !self.met.insert(task) {
            return None;
        }
        let tid = self.tid(task);
        let takes_the_place_of_another = self.ids.insert(tid, task).is_some();
        let process = self.process(task);
        let is_new = self.processes.insert(process) || takes_the_place_of_another;
        let mut tree = ProcessTree {
            processes: Vec::new(),
            threads: vec![Thread {
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
        Some(Met {
            tree,
            tracks,
            takes_the_place_of_another,
        })
    }

    /// Whether the task has been spoken of.
    pub fn is_met(&self, task: TaskKey) -> bool {
        self.met.contains(&task)
    }

    /// Thread id and name.
    pub fn called(&self, who: Who) -> (i32, String) {
        match who {
            Who::Task(task) => (self.tid(task), self.name(task)),
            Who::Idle => (0, "swapper".to_owned()),
            Who::NotRecorded(cpu) => (
                NOT_RECORDED + i32::from(cpu.get()),
                "(not recorded)".to_owned(),
            ),
        }
    }

    /// The thread id, or a number beyond all ids.
    pub fn tid(&self, task: TaskKey) -> i32 {
        let tid = self.names.thread(self.names.index(task)).tid;
        let tid = tid.and_then(|tid| i32::try_from(tid.get()).ok());
        tid.unwrap_or_else(|| {
            let room = i32::MAX - UNNAMED;
            UNNAMED + i32::try_from(task.get()).unwrap_or(room).min(room)
        })
    }

    /// Its name and id, as reports give them.
    pub fn label(&self, task: TaskKey) -> String {
        escaped(&self.names.label(self.names.index(task))).into_owned()
    }

    /// The place of its process in the trace's list.
    pub fn process(&self, task: TaskKey) -> usize {
        self.names.thread(self.names.index(task)).process
    }

    /// The track of its process.
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

    /// A single word of the command line would be cut at its first space.
    fn named_process(&self, task: TaskKey) -> Process {
        let comm = &self.names.process_of(self.names.index(task)).comm;
        let mut cmdline = vec![escaped(comm).into_owned()];
        if comm.contains(' ') {
            cmdline.push(String::new());
        }
        Process {
            pid: Some(self.pid(task)),
            ppid: Some(0),
            cmdline,
        }
    }
}

/// The track of a thread.
pub fn thread_track(task: TaskKey) -> u64 {
    THREAD_TRACKS | u64::from(task.get())
}
