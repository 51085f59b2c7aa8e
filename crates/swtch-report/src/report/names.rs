//! Names of the tasks of a trace: thread, process, names over time, and whether the capture was
//! asked for them.
//!
//! Rows name tasks by key; reports need a small index to count by and a name to show. Task keys
//! without any [`TaskEvent`] (the last second of a killed recording) share one entry.
//!
//! A process is a pid *and* the moment its leader started, since pids are reused. A thread that
//! executes a program takes over pid and start of the leader it replaces, so both are one process.

use std::collections::BTreeMap;

use swtch_core::{CgroupId, Class, Pid, TaskEvent, TaskKey, Tid, Timestamp};
use swtch_output::sheet::Cell;
use swtch_output::text;
use swtch_store::CommandRow;

#[derive(Clone, Debug)]
pub struct Thread {
    /// Thread id; `None` for idle and for tasks without a name.
    pub tid: Option<Tid>,
    /// Its process, a place in [`Names::process`].
    pub process: usize,
    /// The last name that it had.
    pub comm: String,
    /// The names it had before, oldest first.
    pub earlier: Vec<String>,
    /// True if it is in the scope of the capture.
    pub in_scope: bool,
    /// True if it was a real-time or deadline task when it was seen last.
    pub is_real_time: bool,
    /// Its cgroup then.
    pub cgroup: Option<CgroupId>,
}

#[derive(Clone, Debug)]
pub struct Process {
    /// Process id; `None` for idle and for tasks without a name.
    pub pid: Option<Pid>,
    /// Last name of its leader. Where none of its switches was seen: the program of its command line, or
    /// the name of the first thread that was seen.
    pub comm: String,
    /// The names it had before, oldest first.
    pub earlier: Vec<String>,
    /// Its command line, as it was read last; `None` where none was.
    pub command: Option<String>,
    /// True if its threads are kernel threads.
    pub is_kernel: bool,
    /// Process id of its parent when it was first seen. The parent may have ended since.
    pub parent: Option<Pid>,
    /// The moment at which it was first seen. Its id may have belonged to another process before.
    since: Timestamp,
    /// True if its leader was seen, whose name is the process's.
    has_leader: bool,
}

/// All threads and processes of a trace.
#[derive(Debug)]
pub struct Names {
    by_key: Vec<u32>,
    threads: Vec<Thread>,
    processes: Vec<Process>,
}

/// Index under which tasks without a [`TaskEvent`] are counted.
const NAMELESS: usize = 0;
const IDLE: usize = 1;

/// Keys count up from 1; one beyond this comes from damaged data and stays nameless.
const MOST_KEYS: usize = 1 << 24;

impl Names {
    /// Names the tasks that occur in these events, which must be in order of time.
    pub fn new(events: &[TaskEvent]) -> Self {
        let mut stories: BTreeMap<TaskKey, Vec<&TaskEvent>> = BTreeMap::new();
        for event in events.iter().filter(|event| !event.task.is_idle()) {
            stories.entry(event.task).or_default().push(event);
        }
        let mut names = Self {
            by_key: vec![narrow(NAMELESS), narrow(NAMELESS)],
            threads: vec![
                Thread::without_id("(unnamed)", NAMELESS, true),
                Thread::without_id("(idle)", IDLE, false),
            ],
            processes: vec![
                Process::without_id("(unnamed)"),
                Process::without_id("(idle)"),
            ],
        };
        names.by_key[0] = narrow(IDLE);
        let processes = names.add_processes(&stories);
        for (key, story) in &stories {
            names.add_thread(*key, story, &processes);
        }
        names
    }

    /// As [`Self::new`], with the command lines that were read, in order of time.
    pub fn with_commands(events: &[TaskEvent], commands: &[CommandRow]) -> Self {
        let mut names = Self::new(events);
        let mut places: BTreeMap<Pid, Vec<usize>> = BTreeMap::new();
        for (place, process) in names.processes.iter().enumerate() {
            places
                .entry(process.pid.unwrap_or_default())
                .or_default()
                .push(place);
        }
        for row in commands {
            let places = places.get(&row.pid).map_or(&[][..], Vec::as_slice);
            let before = |place: &&usize| names.processes[**place].since <= row.ts;
            let latest = places
                .iter()
                .filter(before)
                .max_by_key(|place| names.processes[**place].since);
            if let Some(place) = latest.copied() {
                names.processes[place].take_command(&row.command);
            }
        }
        names
    }

    /// Number of threads, the nameless and idle among them: indexes are below it.
    pub const fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// The index of a task.
    #[inline]
    pub fn index(&self, key: TaskKey) -> usize {
        let place = usize::try_from(key.get()).unwrap_or(usize::MAX);
        self.by_key
            .get(place)
            .map_or(NAMELESS, |index| widen(*index))
    }

    /// The index of the tasks that have no name in the trace.
    pub const fn nameless() -> usize {
        NAMELESS
    }

    /// All keys, each with the place of its thread.
    pub fn keys(&self) -> impl Iterator<Item = (TaskKey, usize)> {
        let keys = (0..).map(TaskKey::new);
        keys.zip(self.by_key.iter().map(|index| widen(*index)))
    }

    /// The thread at this place in the list of threads.
    pub fn thread(&self, index: usize) -> &Thread {
        &self.threads[index]
    }

    /// The process at this place in the list of processes.
    pub fn process(&self, place: usize) -> &Process {
        &self.processes[place]
    }

    /// Returns for each process, by its place, whether it was recorded. Others are only named.
    pub fn recorded(&self) -> Vec<bool> {
        let mut recorded = vec![false; self.processes.len()];
        for thread in &self.threads {
            recorded[thread.process] |= thread.in_scope && thread.tid.is_some();
        }
        recorded
    }

    /// Returns true if the whole machine was recorded: threads of the kernel, too.
    pub fn is_of_the_machine(&self) -> bool {
        let mut recorded = self.recorded().into_iter().zip(&self.processes);
        recorded.any(|(is_it, process)| is_it && process.is_kernel)
    }

    /// All processes, in the order of their places.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process of a thread.
    pub fn process_of(&self, index: usize) -> &Process {
        &self.processes[self.threads[index].process]
    }

    /// The cell that names a thread.
    pub fn comm_cell(&self, index: usize) -> Cell {
        Cell::text(&self.thread(index).comm)
    }

    /// The cell of its id.
    pub fn tid_cell(&self, index: usize) -> Cell {
        let tid = self.thread(index).tid;
        tid.map_or(Cell::Missing, |tid| Cell::Id(tid.get().into()))
    }

    /// The cell of the id of its process.
    pub fn pid_cell(&self, index: usize) -> Cell {
        let pid = self.process_of(index).pid;
        pid.map_or(Cell::Missing, |pid| Cell::Id(pid.get().into()))
    }

    /// `name/tid`, as the text of a report names a thread.
    pub fn label(&self, index: usize) -> String {
        let thread = &self.threads[index];
        match thread.tid {
            Some(tid) => format!("{}/{tid}", thread.comm),
            None => thread.comm.clone(),
        }
    }

    /// Adds one process for each start of a leader, and one for each pid whose leader was not seen.
    fn add_processes(&mut self, stories: &BTreeMap<TaskKey, Vec<&TaskEvent>>) -> Starts {
        let mut starts = Starts::default();
        let last_events = || stories.values().filter_map(|story| story.last());
        for event in last_events().filter(|event| event.pid.get() == event.tid.get()) {
            let started = starts.0.entry(event.pid).or_default();
            started.entry(event.started_ns).or_insert_with(|| {
                self.processes.push(Process::of(event));
                self.processes.len() - 1
            });
        }
        for event in last_events() {
            let started = starts.0.entry(event.pid).or_default();
            if started.is_empty() {
                self.processes.push(Process::of(event));
                started.insert(0, self.processes.len() - 1);
            }
        }
        starts
    }

    fn add_thread(&mut self, key: TaskKey, story: &[&TaskEvent], starts: &Starts) {
        let place = usize::try_from(key.get()).unwrap_or(usize::MAX);
        let Some(last) = story.last().filter(|_| place < MOST_KEYS) else {
            return;
        };
        if place >= self.by_key.len() {
            self.by_key.resize(place + 1, narrow(NAMELESS));
        }
        self.by_key[place] = narrow(self.threads.len());
        let mut comms = names_over_time(story);
        let comm = comms.pop().unwrap_or_default();
        let process = starts.process_of(last);
        let since = story.first().map_or(last.ts, |first| first.ts);
        self.processes[process].take_name(last, &comm, &comms);
        self.processes[process].since = self.processes[process].since.min(since);
        self.threads.push(Thread {
            tid: Some(last.tid),
            process,
            comm,
            earlier: comms,
            in_scope: story.iter().any(|event| event.in_scope),
            is_real_time: matches!(last.class, Class::RealTime | Class::Deadline),
            cgroup: Some(last.cgroup),
        });
    }
}

impl Thread {
    fn without_id(comm: &str, process: usize, in_scope: bool) -> Self {
        Self {
            tid: None,
            process,
            comm: comm.to_owned(),
            earlier: Vec::new(),
            in_scope,
            is_real_time: false,
            cgroup: None,
        }
    }

    /// All its names, oldest first.
    pub fn comms(&self) -> impl Iterator<Item = &str> {
        let earlier = self.earlier.iter().map(String::as_str);
        earlier.chain([self.comm.as_str()])
    }
}

impl Process {
    fn of(event: &TaskEvent) -> Self {
        Self {
            pid: Some(event.pid),
            is_kernel: event.is_kthread,
            parent: Some(event.parent_pid).filter(|pid| pid.get() != 0),
            since: event.ts,
            ..Self::without_id("")
        }
    }

    fn without_id(comm: &str) -> Self {
        Self {
            pid: None,
            comm: comm.to_owned(),
            earlier: Vec::new(),
            command: None,
            is_kernel: false,
            parent: None,
            since: Timestamp::default(),
            has_leader: false,
        }
    }

    /// The leader's name is the process's; until it is seen, the first thread's.
    fn take_name(&mut self, last: &TaskEvent, comm: &str, earlier: &[String]) {
        let is_leader = last.pid.get() == last.tid.get();
        self.has_leader |= is_leader;
        if is_leader || self.comm.is_empty() {
            comm.clone_into(&mut self.comm);
            self.earlier = earlier.to_vec();
        }
    }

    /// A process whose first thread only waits, as Java's does, is not called by another thread's name.
    fn take_command(&mut self, command: &str) {
        self.command = Some(command.to_owned());
        if let Some(program) = program_of(command).filter(|_| !self.has_leader) {
            program.clone_into(&mut self.comm);
        }
    }

    /// Tells the process apart from others of its name, in at most `most` columns: by its command
    /// line, or by its name if that is not known. Hostile characters are escaped.
    pub fn title(&self, most: usize) -> String {
        let command = self.command.as_deref().map(without_directory);
        let words = command.unwrap_or(&self.comm);
        text::cut(&text::escaped(words), most)
    }

    /// `name/pid`, as the text of a report names a process.
    pub fn label(&self) -> String {
        match self.pid {
            Some(pid) => format!("{}/{pid}", self.comm),
            None => self.comm.clone(),
        }
    }
}

/// The program of a command line, as long as the kernel's names are: 15 bytes (`TASK_COMM_LEN`). A title that
/// a process has set itself (`postgres: checkpointer`) begins with it, too.
fn program_of(command: &str) -> Option<&str> {
    let first = command.split_whitespace().next()?;
    let name = first.rsplit('/').next()?.trim_end_matches(':');
    let end = (0..=name.len().min(15)).rfind(|end| name.is_char_boundary(*end))?;
    (end > 0).then(|| &name[..end])
}

/// A command line without the directory of its program: `/usr/bin/python3 -m http.server` is
/// `python3 -m http.server`.
fn without_directory(command: &str) -> &str {
    let end = command.find(' ').unwrap_or(command.len());
    let (program, _) = command.split_at(end);
    let start = if program.starts_with('/') {
        program.rfind('/').map_or(0, |slash| slash + 1)
    } else {
        0
    };
    &command[start..]
}

/// Processes by pid and start of the leader.
#[derive(Debug, Default)]
struct Starts(BTreeMap<Pid, BTreeMap<u64, usize>>);

impl Starts {
    /// The process with this pid whose leader started last, but no later than the thread.
    fn process_of(&self, thread: &TaskEvent) -> usize {
        let Some(started) = self.0.get(&thread.pid) else {
            return NAMELESS;
        };
        let before = started.range(..=thread.started_ns).next_back();
        let found = before.or_else(|| started.first_key_value());
        found.map_or(NAMELESS, |found| *found.1)
    }
}

/// The names of a task in order of time, without repetitions in a row.
fn names_over_time(story: &[&TaskEvent]) -> Vec<String> {
    let mut names: Vec<String> = story
        .iter()
        .map(|event| text::from_bytes(&event.comm))
        .collect();
    names.dedup();
    names
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("fewer threads than task keys, which are u32")
}

fn widen(index: u32) -> usize {
    usize::try_from(index).expect("an index that was narrowed from usize")
}

/// A number for the family of each thread, by its place in [`Names`]: whose threads are a program's own when
/// the question is who took the CPU from it. In a recording of some processes, these and their descendants
/// are one family, and every other process is one of its own, whatever its name. In one of the whole machine,
/// processes that a process has forked and that do the same (they have its name, as the backends of a server)
/// are its family.
pub fn families(names: &Names) -> Vec<usize> {
    let processes = names.processes();
    let is_recorded = names.recorded();
    let is_of_the_machine = names.is_of_the_machine();
    let first = is_recorded.iter().position(|is_it| *is_it);
    let by_pid: BTreeMap<Pid, usize> = (0..processes.len())
        .filter_map(|place| Some((processes[place].pid?, place)))
        .collect();
    let family = |place: usize| match (is_recorded[place], is_of_the_machine) {
        (true, false) => first.unwrap_or(place),
        (true, true) => eldest_of_its_name(processes, &by_pid, place),
        (false, _) => place,
    };
    let families: Vec<_> = (0..processes.len()).map(family).collect();
    names
        .threads
        .iter()
        .map(|thread| families[thread.process])
        .collect()
}

/// The process from which this one is forked, as long as both have one name.
fn eldest_of_its_name(processes: &[Process], by_pid: &BTreeMap<Pid, usize>, place: usize) -> usize {
    let mut eldest = place;
    // Process ids are reused, so that parents may go round in a ring.
    for _ in 0..processes.len() {
        let parent = processes[eldest].parent.and_then(|pid| by_pid.get(&pid));
        match parent {
            Some(parent)
                if processes[*parent].comm == processes[place].comm && *parent != place =>
            {
                eldest = *parent;
            }
            _ => break,
        }
    }
    eldest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::seen;
    use swtch_core::TaskEventKind;

    #[test]
    fn the_last_name_is_shown_and_the_earlier_are_kept() {
        let mut events = vec![seen(1, 10, 10, "bash")];
        events.push(TaskEvent {
            kind: TaskEventKind::Exec,
            ..seen(1, 10, 10, "server")
        });
        let names = Names::new(&events);
        let thread = names.thread(names.index(TaskKey::new(1)));
        assert_eq!(thread.comm, "server");
        assert_eq!(thread.earlier, ["bash"]);
        assert_eq!(
            names.process_of(names.index(TaskKey::new(1))).comm,
            "server"
        );
    }

    #[test]
    fn a_pid_used_twice_is_two_processes() {
        let first = TaskEvent {
            started_ns: 5,
            ..seen(1, 10, 10, "first")
        };
        let second = TaskEvent {
            started_ns: 9,
            ..seen(2, 10, 10, "second")
        };
        let worker = TaskEvent {
            started_ns: 10,
            ..seen(3, 10, 11, "worker")
        };
        let names = Names::new(&[first, second, worker]);
        let process = |key| {
            names
                .process_of(names.index(TaskKey::new(key)))
                .comm
                .clone()
        };
        assert_eq!(
            [process(1), process(2), process(3)],
            ["first", "second", "second"]
        );
    }

    /// `de_thread()` in `fs/exec.c` gives the new leader the old one's start.
    #[test]
    fn a_thread_that_executes_a_program_stays_in_its_process() {
        let leader = TaskEvent {
            started_ns: 5,
            ..seen(1, 10, 10, "old")
        };
        let thread = TaskEvent {
            started_ns: 5,
            ..seen(2, 10, 10, "new")
        };
        let names = Names::new(&[leader, thread]);
        let of = |key| names.thread(names.index(TaskKey::new(key))).process;
        assert_eq!(of(1), of(2));
    }

    fn command(ts: u64, pid: u32, words: &str) -> CommandRow {
        CommandRow {
            ts: Timestamp::from_ns(ts),
            pid: Pid::new(pid),
            command: words.to_owned(),
        }
    }

    /// The second process with an id gets the command line that was read while it lived.
    #[test]
    fn a_command_line_is_that_of_the_process_that_lived_then() {
        let second = TaskEvent {
            started_ns: 900,
            ts: Timestamp::from_ns(50),
            ..seen(2, 10, 10, "second")
        };
        let events = [seen(1, 10, 10, "first"), second];
        let commands = [
            command(5, 10, "/bin/first -v"),
            command(60, 10, "second: starts"),
            command(70, 10, "second: works"),
            command(70, 77, "of nobody"),
        ];
        let names = Names::with_commands(&events, &commands);
        let title = |key| names.process_of(names.index(TaskKey::new(key))).title(40);
        assert_eq!(
            (title(1).as_str(), title(2).as_str()),
            ("first -v", "second: works")
        );
    }

    #[test]
    fn a_title_is_cut_and_has_no_directory() {
        let titled = |words: &str, most| {
            let names = Names::with_commands(&[seen(1, 10, 10, "x")], &[command(1, 10, words)]);
            names.process_of(names.index(TaskKey::new(1))).title(most)
        };
        assert_eq!(titled("/usr/bin/python3 -m /x/y", 40), "python3 -m /x/y");
        assert_eq!(titled("postgres: walwriter", 40), "postgres: walwriter");
        assert_eq!(titled("ぽすとぐれす: 書く", 10), "ぽすとぐ…");
        assert_eq!(titled("abc def", 5), "abc…");
        assert_eq!(titled("./a/b c", 40), "./a/b c");
    }

    #[test]
    fn a_task_without_an_event_is_nameless_and_idle_is_no_task() {
        let names = Names::new(&[seen(1, 10, 10, "a")]);
        assert_eq!(names.index(TaskKey::new(77)), Names::nameless());
        assert_eq!(names.thread(names.index(TaskKey::IDLE)).comm, "(idle)");
        assert!(!names.thread(names.index(TaskKey::IDLE)).in_scope);
    }

    fn forked(key: u32, pid: u32, parent: u32, comm: &str, in_scope: bool) -> TaskEvent {
        TaskEvent {
            parent_pid: Pid::new(parent),
            in_scope,
            ..seen(key, pid, pid, comm)
        }
    }

    /// The hog with an equal name is a stranger; the recorded processes are one family.
    #[test]
    fn a_stranger_of_the_same_name_is_no_family() {
        let names = Names::new(&[
            forked(1, 10, 1, "hog", true),
            forked(2, 11, 10, "sh", true),
            forked(3, 20, 1, "hog", false),
        ]);
        let families = families(&names);
        let of = |key| families[names.index(TaskKey::new(key))];
        assert_eq!(of(1), of(2));
        assert_ne!(of(1), of(3));
    }

    #[test]
    fn in_a_recording_of_the_machine_forked_processes_of_one_name_are_a_family() {
        let kernel = TaskEvent {
            is_kthread: true,
            ..forked(9, 2, 0, "kthreadd", true)
        };
        let names = Names::new(&[
            kernel,
            forked(1, 10, 1, "postgres", true),
            forked(2, 11, 10, "postgres", true),
            forked(3, 12, 11, "postgres", true),
            forked(4, 20, 1, "postgres", true),
            forked(5, 13, 10, "sh", true),
        ]);
        let families = families(&names);
        let of = |key| families[names.index(TaskKey::new(key))];
        assert_eq!([of(1), of(2)], [of(3); 2]);
        assert!(of(4) != of(1) && of(5) != of(1));
    }

    /// Java's first thread waits for the others all the time.
    #[test]
    fn a_process_whose_leader_is_not_seen_has_the_name_of_its_program() {
        let command = |pid, command: &str| CommandRow {
            ts: Timestamp::from_ns(1),
            pid: Pid::new(pid),
            command: command.to_owned(),
        };
        let names = Names::with_commands(
            &[
                seen(1, 10, 11, "ForkJoinPool-1-"),
                seen(2, 20, 20, "leader"),
            ],
            &[
                command(10, "/usr/lib/jvm/bin/java -jar x.jar"),
                command(20, "./other"),
            ],
        );
        let comm = |key| {
            names
                .process_of(names.index(TaskKey::new(key)))
                .comm
                .clone()
        };
        assert_eq!((comm(1), comm(2)), ("java".to_owned(), "leader".to_owned()));
    }
}
