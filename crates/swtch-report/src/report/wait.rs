//! `report --by wait`: the objects that tasks waited for: a futex word, a pipe, a socket.
//!
//! A row says what its task began to wait for. How long the wait was, and what ended it, is in the
//! task's next row. A futex word is an address in one process, so objects are distinguished by
//! process, too: the two ends of a pipe in two processes are two rows with the same inode number.

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{
    Arch, Chains, Evidence, EvidenceBits, Meanwhile, Nanos, Open, Reason, ServedAs, Switch,
    Timestamp, WaitObject,
};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text;

use super::ends::{WaitEnds, ended_by};
use super::filter::CountedParts;
use super::group::or_missing;
use super::last::LastByTask;
use super::names::{Names, Process, families};
use super::stack::Symbols;
use super::waker::{MOST_IN_TABLE, Waker, is_blocking};
use super::{report_sheet, words};

/// A row of the table.
struct ObjectRow<'a> {
    object: Object,
    waited: &'a ObjectWaits,
    /// Switches of all objects.
    all: u64,
    names: &'a Names,
    symbols: Option<&'a Symbols>,
}

impl ObjectRow<'_> {
    fn process(&self) -> &Process {
        self.names.process(self.object.process)
    }
}

fn columns<'a>() -> [Column<ObjectRow<'a>>; 14] {
    [
        Column::new(words::WAIT_KEY, |row| Cell::Hex(row.object.key)),
        Column::new(words::KIND, |row| Cell::text(row.object.kind.as_str())),
        Column::new(words::PROCESS, |row| Cell::text(&row.process().comm)),
        Column::new(words::PID, |row| {
            or_missing(row.process().pid, |pid| Cell::Id(pid.get().into()))
        }),
        Column::new(words::SWITCHES, |row| Cell::Count(row.waited.switches)),
        Column::new(words::SHARE, |row| {
            Cell::share(row.waited.switches, row.all)
        }),
        Column::new(words::WAITS, |row| Cell::Count(row.waited.waits)),
        Column::new(words::OFF, |row| Cell::Time(row.waited.off)),
        Column::new(words::BLOCKED, |row| Cell::Time(row.waited.blocked)),
        Column::new(words::RUNQ, |row| Cell::Time(row.waited.runq)),
        Column::new(words::WAITERS, |row| Cell::Count(row.waited.waiters)),
        Column::new(words::WOKEN_BY_WAITERS, |row| {
            Cell::share(row.waited.woken_by_waiter, row.waited.woken_by_task)
        }),
        Column::new(words::LAST_WAKERS, |row| {
            let wakers = row.waited.last_wakers.iter();
            Cell::List(wakers.map(|waker| waker.label(row.names)).collect())
        }),
        Column::new(words::WOKEN_FROM, |row| {
            let from = row
                .symbols
                .and_then(|symbols| woken_from(&row.waited.ends, symbols));
            or_missing(from, Cell::Text)
        }),
    ]
}

/// Objects whose wakers are counted in a table, which takes 2 MB then at most.
const MOST_OBJECTS: usize = 512;

/// Most functions that are named of a waker's stack.
const FUNCTIONS_NAMED: usize = 3;

/// Stands for the place of an object in waits of one process for another that have none.
const BETWEEN_PROCESSES: usize = usize::MAX;

/// Wakeups by one task that are no further apart belong to one call that wakes many: waking a thread takes
/// some µs.
const TOGETHER: Nanos = Nanos::from_ns(50_000);

/// The number of the last different wakers that are kept.
const WAKERS_KEPT: usize = 3;

/// A thing that threads wait for: a futex word, or a file or socket by its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// The process that waits, as its place in [`Names::process`].
    pub process: usize,
    /// The kind of object, which tells what its key is.
    pub kind: ObjectKind,
    /// Address of the futex word, or inode number.
    pub key: u64,
}

impl Object {
    /// Returns true if whoever waits there may wait for others to let go of something. Threads at a regular file wait
    /// for a disk, or for its lock in the kernel.
    pub const fn may_be_a_lock(&self) -> bool {
        matches!(self.kind, ObjectKind::Futex | ObjectKind::Call) || self.holds_tokens()
    }

    /// Returns true if it is a call that waits for nothing but a lock, whoever lets go of it.
    pub fn is_lock_call(&self, arch: Option<Arch>) -> bool {
        let number = u32::try_from(self.key)
            .ok()
            .filter(|_| self.kind == ObjectKind::Call);
        let name = number.and_then(|number| arch?.syscall_name(number));
        name.is_some_and(|name| ["flock", "fcntl"].contains(&name))
    }

    /// Returns true if what comes out of it may be a token.
    pub const fn holds_tokens(&self) -> bool {
        matches!(
            self.kind,
            ObjectKind::File(WaitObject::Fifo | WaitObject::Socket | WaitObject::EventFd)
        )
    }
}

/// Kinds of objects that tasks wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    Futex,
    /// The thing that lies behind a file descriptor.
    File(WaitObject),
    /// A call that waits for what the trace does not name: a lock of a file, a semaphore of System V. The key is the
    /// number of the call, and the process the first of its program: processes share such things.
    Call,
}

impl ObjectKind {
    /// A bit of its own.
    const fn bit(self) -> u32 {
        match self {
            Self::Futex => 1,
            Self::File(object) => 4 << object.index(),
            Self::Call => 2,
        }
    }

    /// The word used in columns.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Futex => "futex",
            Self::File(object) => object.as_str(),
            Self::Call => "call",
        }
    }
}

/// The counts of one object.
#[derive(Clone, Debug, Default)]
pub struct ObjectWaits {
    /// Switch-outs into a wait for it.
    pub switches: u64,
    /// Waits for it that ended.
    pub waits: u64,
    /// Time off the CPU in these waits: blocked and in the run queue.
    pub off: Nanos,
    /// Time until the task became runnable.
    pub blocked: Nanos,
    /// Time runnable in a run queue.
    pub runq: Nanos,
    /// The number of threads that waited for it.
    pub waiters: u64,
    /// Waits that were ended by a task.
    pub woken_by_task: u64,
    /// Of the waits ended by a task, those ended by one that had itself waited for the object: the sign of a lock.
    pub woken_by_waiter: u64,
    /// Of the waits ended by a task, those ended by one of the same program that had itself waited for an
    /// object of this kind.
    pub woken_by_peer: u64,
    /// Of the waits ended by a task, those that it ended together with another wait, as at a barrier.
    pub woken_together: u64,
    /// Of the blocked time in waits that threads of the same program ended: what these did meanwhile.
    pub meanwhile: Meanwhile,
    /// The last wakeup by a task: who it was, and when.
    last_wakeup: Option<(usize, Timestamp)>,
    /// The last different wakers, latest first.
    pub last_wakers: Vec<Waker>,
    /// Counts of what ended these waits, and in which functions they began and ended; the tasks that ended them only
    /// after [`Objects::finish`].
    pub ends: WaitEnds,
}

/// The objects that threads waited for, as rows are counted.
#[derive(Debug)]
pub struct Objects {
    places: FxHashMap<Object, usize>,
    objects: Vec<(Object, ObjectWaits)>,
    /// Objects, by place, and tasks that have waited for them.
    waiters: FxHashSet<(usize, usize)>,
    /// The object that each task was added to `waiters` with last: mostly it is the same again.
    last_waited: Vec<Option<usize>>,
    /// The kinds of objects that each task has waited for, as bits.
    waited_kinds: Vec<u32>,
    /// A number for the program of each task.
    programs: Vec<usize>,
    /// The object that each task began to wait for when it last left.
    last: LastByTask<usize>,
    /// Number of waits for each of the first [`MOST_OBJECTS`] objects that each task ended, at object ×
    /// tasks + waker; empty in a trace of many tasks. A hash would be most of the work.
    woken_by: Vec<u64>,
    /// The chains that tell what tasks did while others waited for them, if that is asked for; the tag is the object's
    /// place, or [`BETWEEN_PROCESSES`].
    chains: Option<Chains>,
    /// The time of waits of one process of a program for another, by what the other did, at what is no object that
    /// could be a lock.
    between_processes: Meanwhile,
    switches: u64,
    nameless: u64,
}

impl ObjectWaits {
    /// Returns true if the last wakeup by a task was by this one, too, and in the same go.
    fn is_together(&self, waker: usize, woken: Timestamp) -> bool {
        self.last_wakeup.is_some_and(|(last, before)| {
            let apart = woken.since(before).or_else(|| before.since(woken));
            last == waker && apart.is_some_and(|apart| apart <= TOGETHER)
        })
    }
}

/// Adds what was done meanwhile to the object at this place, or to what has none.
fn charge(
    objects: &mut [(Object, ObjectWaits)],
    between: &mut Meanwhile,
    place: usize,
    meanwhile: &Meanwhile,
) {
    match objects.get_mut(place) {
        Some((_, waited)) => waited.meanwhile.add(meanwhile),
        None => between.add(meanwhile),
    }
}

/// Returns when the task of a row was woken to its run.
fn moment_of_wakeup(row: &Switch) -> Option<Timestamp> {
    Some(row.ts.before(row.ran?).before(row.wait.runq?))
}

impl Objects {
    /// For a trace with these tasks.
    pub fn new(names: &Names) -> Self {
        Self {
            places: FxHashMap::default(),
            objects: Vec::new(),
            waiters: FxHashSet::default(),
            last_waited: vec![None; names.thread_count()],
            waited_kinds: vec![0; names.thread_count()],
            programs: families(names),
            last: LastByTask::new(names),
            woken_by: Vec::new(),
            chains: None,
            between_processes: Meanwhile::default(),
            switches: 0,
            nameless: 0,
        }
    }

    /// As [`Self::new`], and what those did who ended the waits is followed.
    pub fn with_chains(names: &Names) -> Self {
        Self {
            chains: Some(Chains::new(names.thread_count())),
            ..Self::new(names)
        }
    }

    /// Adds what counts of a row of the task with this index, and returns the object of the wait
    /// that was counted. Rows that do not count are needed, too: they may begin a wait that does.
    pub fn add(
        &mut self,
        row: &Switch,
        task: usize,
        counted: CountedParts,
        names: &Names,
    ) -> Option<Object> {
        // Without a reason, the wait did not begin with the task's last row in the trace.
        let began = self.last.of(row.task, task);
        let began = began.filter(|_| row.wait.reason.is_some());
        let ended = began.filter(|_| counted.wait && row.wait.off.is_some());
        if let Some(place) = ended {
            self.add_wait(place, row, task, names);
        }
        self.follow(ended, row, task, names);
        let object = object_of(row, names.thread(task).process);
        let object = object.or_else(|| self.call_of(row, task));
        let place = object.map(|object| self.place(object));
        self.last.set(row.task, task, place);
        if counted.switch {
            self.add_switch(row, task, place);
        }
        ended.map(|place| self.objects[place].0)
    }

    /// Counts what can be told only after the last row.
    pub fn finish(&mut self) {
        let tasks = self.waited_kinds.len();
        for (counted, count) in std::mem::take(&mut self.woken_by).into_iter().enumerate() {
            if count > 0 {
                let (place, waker) = (counted / tasks, Waker::Task(counted % tasks));
                let wakers = &mut self.objects[place].1.ends.wakers;
                *wakers.entry(waker).or_default() += count;
            }
        }
    }

    /// Takes the waits and runs that were open at the end, and divides the waits that are kept back.
    pub fn finish_chains(&mut self, waits: &[Open], runs: &[Open], names: &Names) {
        let Some(chains) = &mut self.chains else {
            return;
        };
        for open in waits.iter().chain(runs) {
            let task = names.index(open.task);
            if task != Names::nameless() {
                chains.push_open(open, task);
            }
        }
        let (objects, between) = (&mut self.objects, &mut self.between_processes);
        chains.finish(&mut |place, meanwhile| charge(objects, between, place, meanwhile));
    }

    /// Returns what processes of one program did while others of them waited for them, in epoll, at a pipe or a socket.
    pub const fn between_processes(&self) -> &Meanwhile {
        &self.between_processes
    }

    /// Returns how long the task with this index ran while others of its program waited for it at futexes: at least so
    /// long.
    pub fn served_in_turn(&self, task: usize) -> Nanos {
        self.of_chains(|chains| chains.served_in_turn(task))
    }

    /// Returns how long the task with this index had no CPU while one of higher priority waited for it.
    pub fn held_back(&self, task: usize) -> Nanos {
        self.of_chains(|chains| chains.held_back(task))
    }

    /// Returns how long the task with this index waited for one of lower priority that had no CPU.
    pub fn inverted(&self, task: usize) -> Nanos {
        self.of_chains(|chains| chains.inverted(task))
    }

    /// Returns how long the task with this index waited at futexes for others that ran meanwhile.
    pub fn waited_in_turn(&self, task: usize) -> Nanos {
        self.of_chains(|chains| chains.waited_in_turn(task))
    }

    /// Stretches in which a task ran while others of its program waited for it at futexes, with its index.
    pub fn turns(&self) -> &[(usize, Timestamp, Timestamp)] {
        self.chains.as_ref().map_or(&[], Chains::turns)
    }

    fn of_chains(&self, time: impl Fn(&Chains) -> Nanos) -> Nanos {
        self.chains.as_ref().map_or(Nanos::ZERO, time)
    }

    /// Objects, most blocked time first.
    pub fn ranked(&self) -> Vec<&(Object, ObjectWaits)> {
        let used = |waited: &ObjectWaits| waited.switches + waited.waits > 0;
        let mut ranked: Vec<_> = self.objects.iter().filter(|(_, w)| used(w)).collect();
        ranked.sort_by(|a, b| {
            let by_time = b.1.blocked.cmp(&a.1.blocked);
            by_time
                .then(b.1.switches.cmp(&a.1.switches))
                .then(a.0.cmp(&b.0))
        });
        ranked
    }

    /// The report. With `symbols` it names the functions that ended the waits, such as those that
    /// release a lock.
    pub fn sheet(&self, names: &Names, symbols: Option<&Symbols>) -> Sheet {
        let ranked = self.ranked();
        let is_named = |one: &&&(Object, ObjectWaits)| one.0.kind != ObjectKind::Call;
        let rows = ranked
            .iter()
            .filter(is_named)
            .map(|(object, waited)| ObjectRow {
                object: *object,
                waited,
                all: self.switches,
                names,
                symbols,
            });
        let mut sheet = report_sheet("wait", &columns(), rows);
        sheet.not_in_tables = &["woken_by_waiters_pct"];
        if self.nameless > 0 {
            sheet.notes.push(format!(
                "{} blocked on something that has no address or inode number (sleep, poll, child, …)",
                text::counted(self.nameless, "more context switch")
            ));
        }
        sheet
    }

    /// Follows who ended the row's wait; `place` is that of the object it was for.
    fn follow(&mut self, place: Option<usize>, row: &Switch, task: usize, names: &Names) {
        let Some(chains) = &mut self.chains else {
            return;
        };
        if task == Names::nameless() {
            return;
        }
        let objects = &mut self.objects;
        // Two that talk have a conversation, and no lock.
        let is_asked = |place: &usize| match &objects[*place] {
            (object, _) if object.kind == ObjectKind::Futex => true,
            (object, _) if object.kind == ObjectKind::Call => true,
            (object, waited) => object.may_be_a_lock() && waited.waiters > 2,
        };
        let ended = ended_by(Waker::of(row, names), task, &self.programs);
        let process = |task: usize| names.thread(task).process;
        let is_between = || {
            let is_message = matches!(
                row.wait.reason,
                Some(Reason::Poll | Reason::Pipe | Reason::Net)
            );
            is_message && ended.own.is_some_and(|own| process(own) != process(task))
        };
        let place = place.filter(is_asked);
        let place = place.or_else(|| is_between().then_some(BETWEEN_PROCESSES));
        // Two that talk by a pipe take turns, too, and that is no lock.
        let served = match place.and_then(|place| Some(objects.get(place)?.0.kind)) {
            Some(ObjectKind::Futex) => ServedAs::Turn,
            _ => ServedAs::Message,
        };
        let between = &mut self.between_processes;
        chains.push(
            row,
            task,
            ended,
            (place, served),
            &mut |place, meanwhile| charge(objects, between, place, meanwhile),
        );
    }

    fn add_switch(&mut self, row: &Switch, task: usize, place: Option<usize>) {
        self.switches += 1;
        let Some(place) = place else {
            self.nameless += u64::from(is_blocking(row.rule.reason));
            return;
        };
        let (object, waited) = &mut self.objects[place];
        self.nameless += u64::from(object.kind == ObjectKind::Call);
        waited.switches += 1;
        if self.last_waited[task] != Some(place) {
            self.last_waited[task] = Some(place);
            waited.waiters += u64::from(self.waiters.insert((place, task)));
        }
        self.waited_kinds[task] |= object.kind.bit();
    }

    /// The call in which the row's task begins to wait, if who ends such waits is followed.
    fn call_of(&self, row: &Switch, task: usize) -> Option<Object> {
        let call = row
            .evidence
            .syscall
            .filter(|_| row.rule.reason == Reason::Ipc);
        Some(Object {
            process: self.programs[task],
            kind: ObjectKind::Call,
            key: call.filter(|_| self.chains.is_some())?.into(),
        })
    }

    /// Adds a wait of the task with this index.
    fn add_wait(&mut self, place: usize, row: &Switch, task: usize, names: &Names) {
        let (object, waited) = &mut self.objects[place];
        waited.waits += 1;
        waited.off += row.wait.off.unwrap_or(Nanos::ZERO);
        waited.blocked += row.wait.blocked().unwrap_or(Nanos::ZERO);
        waited.runq += row.wait.runq.unwrap_or(Nanos::ZERO);
        let waker = Waker::of(row, names);
        let tasks = self.waited_kinds.len();
        match waker {
            Some(Waker::Task(waker)) if tasks <= MOST_IN_TABLE && place < MOST_OBJECTS => {
                let counted = place * tasks + waker;
                if counted >= self.woken_by.len() {
                    self.woken_by.resize((place + 1) * tasks, 0);
                }
                self.woken_by[counted] += 1;
                waited.ends.add_stacks(row);
            }
            _ => waited.ends.add(row, names),
        }
        let Some(waker) = waker else {
            return;
        };
        if let Waker::Task(waker) = waker {
            waited.woken_by_task += 1;
            if let Some(woken) = moment_of_wakeup(row) {
                waited.woken_together += u64::from(waited.is_together(waker, woken));
                waited.last_wakeup = Some((waker, woken));
            }
            let is_waiter =
                self.last_waited[waker] == Some(place) || self.waiters.contains(&(place, waker));
            waited.woken_by_waiter += u64::from(is_waiter);
            // Processes of one program may share a lock in memory, as PostgreSQL's do.
            let is_of_program = self.programs[waker] == self.programs[task];
            let is_peer = is_of_program && self.waited_kinds[waker] & object.kind.bit() != 0;
            waited.woken_by_peer += u64::from(is_peer);
        }
        if waited.last_wakers.first() != Some(&waker) {
            waited.last_wakers.retain(|known| *known != waker);
            waited.last_wakers.insert(0, waker);
            waited.last_wakers.truncate(WAKERS_KEPT);
        }
    }

    fn place(&mut self, object: Object) -> usize {
        let next = self.objects.len();
        let place = *self.places.entry(object).or_insert(next);
        if place == next {
            self.objects.push((object, ObjectWaits::default()));
        }
        place
    }
}

/// The functions in which most of these waits were ended, the innermost first.
fn woken_from(ends: &WaitEnds, symbols: &Symbols) -> Option<String> {
    let (stack, _) = ends
        .woken_from
        .iter()
        .max_by_key(|(stack, count)| (**count, **stack))?;
    symbols.functions_in_line(*stack, FUNCTIONS_NAMED)
}

/// Returns the object that the row's task begins to wait for, if the trace tells.
pub fn object_of(row: &Switch, process: usize) -> Option<Object> {
    if !is_blocking(row.rule.reason) {
        return None;
    }
    let (kind, key) = match row.rule.reason {
        Reason::Futex => (ObjectKind::Futex, futex_word(&row.evidence)?),
        _ => (
            ObjectKind::File(row.evidence.wait_object),
            row.evidence.wait_key?,
        ),
    };
    Some(Object { process, kind, key })
}

/// Calls that wait for several futexes: their first argument is not a word but a list of words
/// (`include/uapi/asm-generic/unistd.h`, v6.12; the same numbers on all architectures).
const LISTS_OF_WORDS: [u32; 2] = [449, 456];

/// The address of the futex word: the first argument of the call.
fn futex_word(evidence: &Evidence) -> Option<u64> {
    let first = || {
        let call = evidence.syscall?;
        // The registers of 32-bit programs hold other arguments.
        let is_word = !LISTS_OF_WORDS.contains(&call) && !evidence.bits.has(EvidenceBits::COMPAT);
        Some(evidence.args[0]).filter(|word| is_word && *word != 0)
    };
    evidence.wait_key.or_else(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row, woken_by};

    const BOTH: CountedParts = CountedParts {
        switch: true,
        wait: true,
    };

    fn on(mut row: Switch, key: u64) -> Switch {
        row.evidence.wait_key = Some(key);
        row
    }

    fn fed(rows: &[Switch]) -> Objects {
        let names = names();
        let mut objects = Objects::new(&names);
        for row in rows {
            objects.add(row, names.index(row.task), BOTH, &names);
        }
        objects.finish();
        objects
    }

    /// They are counted in a table for the first objects, and in a hash for the others.
    #[test]
    fn wakers_of_many_objects_are_all_counted() {
        let words = 0..u64::try_from(MOST_OBJECTS + 20).unwrap();
        let wait = |word: u64| {
            let left = on(row(1, Reason::Futex), 0x1000 + word);
            [
                left,
                woken_by(after(row(1, Reason::Exit), Reason::Futex, 80, 20), 2),
            ]
        };
        let rows: Vec<_> = words.flat_map(wait).collect();
        let objects = fed(&rows);
        let waker = Waker::Task(names().index(swtch_core::TaskKey::new(2)));
        let ranked = objects.ranked();
        assert_eq!(ranked.len(), MOST_OBJECTS + 20);
        for (object, waited) in ranked {
            let wakers: Vec<_> = waited.ends.wakers.iter().collect();
            assert_eq!(wakers, [(&waker, &1)], "{object:?}");
        }
    }

    /// Task 1 leaves for the word, comes back after 80 ns blocked, woken by task 2 which had
    /// itself waited for the word: a lock.
    #[test]
    fn time_and_wakers_come_from_the_next_row() {
        let objects = fed(&[
            on(row(2, Reason::Futex), 0xf00),
            on(row(1, Reason::Futex), 0xf00),
            woken_by(after(row(1, Reason::Exit), Reason::Futex, 80, 20), 2),
        ]);
        let table = objects.sheet(&names(), None).to_table(20);
        let expected = "\
wait key  kind   process  pid  switches  share %  waits     off  blocked   runq  waiters  last wakers
─────────────────────────────────────────────────────────────────────────────────────────────────────
   0xf00  futex  server    10         2     66.7      1  100 ns    80 ns  20 ns        2  worker/11
";
        assert_eq!(table, expected);
    }

    /// The recorder keeps the arguments of a call that blocks; futex, 202 on x86-64, has the word
    /// first.
    #[test]
    fn a_futex_word_is_the_first_argument_of_its_call() {
        let called = |number, bits| {
            let mut row = row(1, Reason::Futex);
            row.evidence.syscall = Some(number);
            row.evidence.bits = bits;
            row.evidence.args = [0xf00, 0x80, 2];
            object_of(&row, 0).map(|object| (object.kind, object.key))
        };
        let word = Some((ObjectKind::Futex, 0xf00));
        assert_eq!(called(202, EvidenceBits::VOLUNTARY), word);
        assert_eq!(called(449, EvidenceBits::VOLUNTARY), None);
        assert_eq!(called(240, EvidenceBits::COMPAT), None);
    }

    #[test]
    fn one_address_in_two_processes_is_two_objects() {
        let objects = fed(&[on(row(1, Reason::Futex), 8), on(row(3, Reason::Futex), 8)]);
        assert_eq!(objects.ranked().len(), 2);
    }

    /// Tasks without a name share an index, but they do not wait for the same objects.
    #[test]
    fn a_task_without_a_name_ends_no_wait_of_another() {
        let back = |task| after(row(task, Reason::Exit), Reason::Futex, 80, 20);
        let objects = fed(&[on(row(77, Reason::Futex), 8), back(78)]);
        assert_eq!(objects.ranked()[0].1.waits, 0);
        let objects = fed(&[on(row(77, Reason::Futex), 8), back(78), back(77)]);
        assert_eq!(objects.ranked()[0].1.waits, 1);
    }

    /// The wait did not begin with the task's last row in the trace.
    #[test]
    fn a_wait_after_a_lost_switch_belongs_to_no_object() {
        let mut lost = after(row(1, Reason::Exit), Reason::Futex, 80, 20);
        lost.wait.reason = None;
        let objects = fed(&[on(row(1, Reason::Futex), 8), lost]);
        assert_eq!(objects.ranked()[0].1.waits, 0);
    }

    #[test]
    fn a_preempted_task_waits_for_no_object() {
        let objects = fed(&[on(row(1, Reason::Wakeup), 8)]);
        assert!(objects.ranked().is_empty());
        assert!(objects.sheet(&names(), None).notes.is_empty());
    }
}
