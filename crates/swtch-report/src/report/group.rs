//! `report --by process|thread|syscall|cpu|cgroup`: the same measures of groups of rows.
//!
//! Most rows name their group. A system call is different: a row says in which call its run
//! *ended*, and the wait that followed is in the task's next row. So the group of each task's last
//! switch is remembered until then.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use swtch_core::{
    Arch, CgroupId, CgroupOwner, CpuId, CpuPlaces, Evidence, EvidenceBits, GroupCounts,
    JudgedGroup, Open, Reason, Switch, Tally, TaskKey,
};
use swtch_output::column::Column;
use swtch_output::sheet::{Cell, Sheet};

use super::filter::CountedParts;
use super::last::LastByTask;
use super::names::{Names, Process, Thread};
use super::tally::{self, OfTally};
use super::{By, report_sheet, words};

/// The key by which one group is told from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKey {
    /// A thread, by its index.
    Thread(usize),
    /// A process, by its place in [`Names::processes`].
    Process(usize),
    Cpu(u16),
    Cgroup(CgroupId),
    Syscall(RowSyscall),
}

/// A system call of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowSyscall {
    /// Its number in the table of the machine.
    Number(u32),
    /// Its number in the table for 32-bit programs, which has other names.
    Compat(u32),
    /// No call: user mode, a page fault, or a kernel thread.
    None,
    /// Not known: what recorded it does not tell, the switch is not in the trace, or the task is new
    /// and has none.
    NotRecorded,
}

impl RowSyscall {
    /// The call of the row's switch-out.
    pub fn of(row: &Switch) -> Self {
        Self::of_evidence(&row.evidence)
    }

    /// The call that the task was in when it left.
    pub fn of_evidence(evidence: &Evidence) -> Self {
        match evidence.syscall {
            None if evidence.bits.has(EvidenceBits::NO_CALL) => Self::NotRecorded,
            None => Self::None,
            Some(number) if evidence.bits.has(EvidenceBits::COMPAT) => Self::Compat(number),
            Some(number) => Self::Number(number),
        }
    }

    /// Its name, as its manual page has it.
    pub fn name(self, arch: Option<Arch>) -> String {
        match self {
            Self::None => "(none)".to_owned(),
            Self::NotRecorded => "(not recorded)".to_owned(),
            Self::Compat(number) => format!("32-bit call {number}"),
            Self::Number(number) => arch
                .and_then(|arch| arch.syscall_name(number))
                .map_or_else(|| format!("call {number}"), str::to_owned),
        }
    }

    const fn number(self) -> Option<u32> {
        match self {
            Self::Number(number) | Self::Compat(number) => Some(number),
            _ => None,
        }
    }
}

/// A number without a group.
const NO_PLACE: usize = usize::MAX;

/// The largest number of a system call that is looked up without a hash. The kernel has fewer than
/// 500 calls; the two other sets of numbers on x86-64 and damaged data have larger ones.
const MOST_CALLS: u32 = 1024;

#[derive(Debug)]
pub struct Groups {
    by: By,
    /// Places of the groups whose key is a small number, by that number; [`NO_PLACE`] for none.
    numbered: Vec<usize>,
    /// Places of the other groups.
    places: FxHashMap<GroupKey, usize>,
    tallies: Vec<(GroupKey, Tally)>,
    /// Group of each task's last switch.
    last: LastByTask<usize>,
    /// The group found last, kept because rows come in bursts of one group.
    recent: Option<(GroupKey, usize)>,
}

impl Groups {
    /// No counts yet, for a trace with these tasks.
    pub fn new(by: By, names: &Names) -> Self {
        Self {
            by,
            numbered: Vec::new(),
            places: FxHashMap::default(),
            tallies: Vec::new(),
            last: LastByTask::new(names),
            recent: None,
        }
    }

    /// Adds what counts of a row of the task with this index. By system call, rows that do not
    /// count are needed, too: a later wait belongs to their call.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        if counted.wait && row.wait.length().is_some() {
            let group = self.group_of_wait(row, task, names);
            self.tallies[group].1.add_wait(row);
        }
        if counted.switch || self.by == By::Syscall {
            let group = self.group(self.key_of(row, task, names));
            self.last.set(row.task, task, Some(group));
            if counted.switch {
                self.tallies[group].1.add_switch(row);
            }
        }
    }

    /// Adds a wait that was open at the end.
    pub fn add_open(&mut self, open: &Open, names: &Names) {
        let task = names.index(open.task);
        let group = match self.by {
            By::Thread => Some(self.group(GroupKey::Thread(task))),
            By::Process => Some(self.group(GroupKey::Process(names.thread(task).process))),
            By::Syscall => self.last.of(open.task, task),
            _ => None,
        };
        if let Some(group) = group {
            self.tallies[group].1.add_open(open);
        }
    }

    /// Adds what the kernel counted of a thread.
    pub fn add_counted(&mut self, task: usize, of: &JudgedGroup, counts: &GroupCounts) {
        let group = self.group(GroupKey::Thread(task));
        self.tallies[group].1.add_counted(of, counts);
    }

    /// Counts by process, of counts by thread.
    pub fn by_process(&self, names: &Names) -> Self {
        let mut processes = Self::new(By::Process, names);
        for (key, tally) in &self.tallies {
            let GroupKey::Thread(thread) = *key else {
                unreachable!("these groups are threads");
            };
            let group = processes.group(GroupKey::Process(names.thread(thread).process));
            processes.tallies[group].1.add(tally);
        }
        processes
    }

    /// Groups and what was counted, most switches first.
    pub fn ranked(&self) -> Vec<&(GroupKey, Tally)> {
        let mut ranked: Vec<_> = self.tallies.iter().filter(|(_, t)| !t.is_empty()).collect();
        ranked.sort_by(|a, b| b.1.switches.cmp(&a.1.switches).then(a.0.cmp(&b.0)));
        ranked
    }

    pub fn sheet(&self, names: &KeyNames<'_>) -> Sheet {
        let mut total = Tally::default();
        for (_, tally) in &self.tallies {
            total.add(tally);
        }
        let mut columns = label_columns(self.by);
        if self.by == By::Cpu {
            columns.extend(names.place_columns());
        }
        columns.extend(tally::measures());
        let all = total.switches;
        let row = |key, tally| GroupRow {
            key,
            tally,
            all,
            names,
        };
        let rows = self.ranked().into_iter();
        let rows = rows.map(|(key, tally)| row(Some(*key), tally));
        let mut sheet =
            report_sheet(self.by.as_str(), &columns, rows).with_total(&columns, &row(None, &total));
        sheet.not_in_tables = NOT_IN_TABLES;
        sheet.notes = tally::notes(&total);
        sheet
    }

    fn key_of(&self, row: &Switch, task: usize, names: &Names) -> GroupKey {
        match self.by {
            By::Process => GroupKey::Process(names.thread(task).process),
            By::Syscall => GroupKey::Syscall(RowSyscall::of(row)),
            By::Cpu => GroupKey::Cpu(row.cpu.get()),
            By::Cgroup => GroupKey::Cgroup(row.cgroup),
            _ => GroupKey::Thread(task),
        }
    }

    fn group_of_wait(&mut self, row: &Switch, task: usize, names: &Names) -> usize {
        if self.by != By::Syscall {
            return self.group(self.key_of(row, task, names));
        }
        let last = self.last.of(row.task, task);
        let last = last.filter(|_| row.wait.reason.is_some());
        last.unwrap_or_else(|| self.group(GroupKey::Syscall(RowSyscall::NotRecorded)))
    }

    fn group(&mut self, key: GroupKey) -> usize {
        if let Some((_, place)) = self.recent.filter(|recent| recent.0 == key) {
            return place;
        }
        let next = self.tallies.len();
        let place = match key.small_number() {
            Some(number) => {
                if number >= self.numbered.len() {
                    self.numbered.resize(number + 1, NO_PLACE);
                }
                let place = &mut self.numbered[number];
                if *place == NO_PLACE {
                    *place = next;
                }
                *place
            }
            None => *self.places.entry(key).or_insert(next),
        };
        if place == next {
            self.tallies.push((key, Tally::default()));
        }
        self.recent = Some((key, place));
        place
    }
}

impl GroupKey {
    /// A number that no other key of the same kind of group has, where it is sure to be small.
    fn small_number(self) -> Option<usize> {
        match self {
            Self::Thread(number) | Self::Process(number) => Some(number),
            Self::Cpu(number) => Some(usize::from(number)),
            Self::Syscall(RowSyscall::Number(number)) if number < MOST_CALLS => {
                usize::try_from(number).ok()
            }
            Self::Syscall(_) | Self::Cgroup(_) => None,
        }
    }
}

/// A row of a table by group.
struct GroupRow<'a> {
    /// `None` in the line of sums.
    key: Option<GroupKey>,
    tally: &'a Tally,
    all: u64,
    names: &'a KeyNames<'a>,
}

impl OfTally for GroupRow<'_> {
    fn tally(&self) -> &Tally {
        self.tally
    }

    fn all(&self) -> u64 {
        self.all
    }
}

impl OfGroup for GroupRow<'_> {
    fn key(&self) -> Option<GroupKey> {
        self.key
    }

    fn names(&self) -> &KeyNames<'_> {
        self.names
    }
}

/// A row of a table that says which group it is about.
pub trait OfGroup {
    /// `None` where that is no group, and the cells are missing.
    fn key(&self) -> Option<GroupKey>;

    fn names(&self) -> &KeyNames<'_>;

    /// The thread that the group is.
    fn thread(&self) -> Option<&Thread> {
        match self.key()? {
            GroupKey::Thread(index) => Some(self.names().names.thread(index)),
            _ => None,
        }
    }

    /// The process that the group is, or that its thread belongs to.
    fn process(&self) -> Option<&Process> {
        match self.key()? {
            GroupKey::Thread(index) => Some(self.names().names.process_of(index)),
            GroupKey::Process(place) => Some(self.names().names.process(place)),
            _ => None,
        }
    }

    fn cpu(&self) -> Option<CpuId> {
        match self.key()? {
            GroupKey::Cpu(cpu) => Some(CpuId::new(cpu)),
            _ => None,
        }
    }

    fn cgroup(&self) -> Option<CgroupId> {
        match self.key()? {
            GroupKey::Cgroup(cgroup) => Some(cgroup),
            _ => None,
        }
    }

    fn cgroup_path(&self) -> Option<&String> {
        self.names().cgroups.get(&self.cgroup()?)
    }

    fn syscall(&self) -> Option<RowSyscall> {
        match self.key()? {
            GroupKey::Syscall(call) => Some(call),
            _ => None,
        }
    }
}

/// The columns that name a group.
pub fn label_columns<R: OfGroup>(by: By) -> Vec<Column<R>> {
    let process = Column::new(words::PROCESS, |row: &R| {
        or_missing(row.process(), |process| Cell::text(&process.comm))
    });
    let pid = Column::new(words::PID, |row: &R| {
        let pid = row.process().and_then(|process| process.pid);
        or_missing(pid, |pid| Cell::Id(pid.get().into()))
    });
    match by {
        By::Process => vec![
            process,
            pid,
            Column::new(words::COMMAND, |row| {
                let command = row.process().and_then(|process| process.command.as_ref());
                or_missing(command, Cell::text)
            }),
            Column::new(words::EARLIER_NAMES, |row| {
                or_missing(row.process(), |process| Cell::List(process.earlier.clone()))
            }),
        ],
        By::Syscall => vec![
            Column::new(words::SYSCALL, |row| {
                or_missing(row.syscall(), |call| {
                    Cell::text(call.name(row.names().arch))
                })
            }),
            Column::new(words::SYSCALL_NUMBER, |row| {
                let number = row.syscall().and_then(RowSyscall::number);
                or_missing(number, |number| Cell::Id(number.into()))
            }),
        ],
        By::Cpu => vec![Column::new(words::CPU, |row| {
            or_missing(row.cpu(), |cpu| Cell::Id(cpu.get().into()))
        })],
        By::Cgroup => vec![
            Column::new(words::CGROUP, |row| {
                or_missing(row.cgroup(), |cgroup| {
                    path_cell(row.names().cgroups, cgroup)
                })
            }),
            Column::new(words::CGROUP_ID, |row| {
                or_missing(row.cgroup(), |cgroup| Cell::Id(cgroup.get()))
            }),
            Column::new(words::POD_UID, |row| {
                owner_cell(row.cgroup_path(), |owner| owner.pod_uid)
            }),
            Column::new(words::RUNTIME, |row| owner_cell(row.cgroup_path(), runtime)),
            Column::new(words::CONTAINER_ID, |row| {
                owner_cell(row.cgroup_path(), |owner| owner.container_id)
            }),
            Column::new(words::POD_QOS, |row| owner_cell(row.cgroup_path(), pod_qos)),
        ],
        _ => vec![
            Column::new(words::THREAD, |row| {
                or_missing(row.thread(), |thread| Cell::text(&thread.comm))
            }),
            Column::new(words::TID, |row| {
                let tid = row.thread().and_then(|thread| thread.tid);
                or_missing(tid, |tid| Cell::Id(tid.get().into()))
            }),
            pid,
            process,
            Column::new(words::EARLIER_NAMES, |row| {
                or_missing(row.thread(), |thread| Cell::List(thread.earlier.clone()))
            }),
        ],
    }
}

/// The path of a cgroup.
pub fn path_cell(paths: &FxHashMap<CgroupId, String>, cgroup: CgroupId) -> Cell {
    let path = paths.get(&cgroup);
    path.map_or_else(
        || Cell::text("(unknown path)"),
        |path| Cell::Cgroup(path.clone()),
    )
}

/// A part of what the path of a cgroup tells about whose it is.
pub fn owner_cell(
    path: Option<&String>,
    part: impl for<'p> FnOnce(CgroupOwner<'p>) -> Option<Cow<'p, str>>,
) -> Cell {
    let part = path.and_then(|path| part(CgroupOwner::of(path)));
    or_missing(part, Cell::text)
}

pub fn runtime(owner: CgroupOwner<'_>) -> Option<Cow<'_, str>> {
    owner.runtime.map(|runtime| runtime.as_str().into())
}

pub fn pod_qos(owner: CgroupOwner<'_>) -> Option<Cow<'_, str>> {
    owner.pod_qos.map(|class| class.as_str().into())
}

/// Columns that tables leave out, since they say it in short or elsewhere.
const NOT_IN_TABLES: &[&str] = &[
    "waits",
    "open_waits",
    "open_ns",
    "runtime",
    "container_id",
    "pod_qos",
];

/// The cell of what may not be there.
pub fn or_missing<T>(what: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
    what.map_or(Cell::Missing, cell)
}

/// The facts of a trace by which a [`GroupKey`] is shown as names.
#[derive(Debug)]
pub struct KeyNames<'a> {
    /// Names of the threads and processes.
    pub names: &'a Names,
    /// Architecture, for the names of system calls.
    pub arch: Option<Arch>,
    /// Paths of the cgroups, by id.
    pub cgroups: &'a FxHashMap<CgroupId, String>,
    /// Nodes and cores of the CPUs; `None` where CPUs are not shown, or the trace does not tell.
    pub places: Option<&'a CpuPlaces>,
}

impl KeyNames<'_> {
    /// The columns that say where a CPU is: its node where there is more than one, and the CPUs of
    /// its core where any core has more than one.
    fn place_columns<R: OfGroup>(&self) -> impl Iterator<Item = Column<R>> + use<R> {
        let node = Column::new(words::NODE, |row: &R| {
            let node = row.cpu().and_then(|cpu| row.names().places?.node(cpu));
            or_missing(node, |node| Cell::Id(node.into()))
        });
        let core = Column::new(words::CORE_CPUS, |row: &R| {
            let core = row.cpu().and_then(|cpu| row.names().places?.core(cpu));
            or_missing(core, Cell::text)
        });
        let has_nodes = self.places.is_some_and(CpuPlaces::has_nodes);
        let has_siblings = self.places.is_some_and(CpuPlaces::has_siblings);
        let columns = [has_nodes.then_some(node), has_siblings.then_some(core)];
        columns.into_iter().flatten()
    }
}

/// The reason under which an open wait counts; `None` if it is no wait.
pub fn reason_of_open(open: &Open) -> Option<Reason> {
    // Without a reason it is a run; idle does not wait.
    open.reason.filter(|_| open.task != TaskKey::IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row};

    const BOTH: CountedParts = CountedParts {
        switch: true,
        wait: true,
    };

    fn in_call(mut row: Switch, number: u32) -> Switch {
        row.evidence.syscall = Some(number);
        row
    }

    fn table(by: By, rows: &[Switch]) -> String {
        placed_table(by, rows, None)
    }

    fn placed_table(by: By, rows: &[Switch], places: Option<&CpuPlaces>) -> String {
        let names = names();
        let mut groups = Groups::new(by, &names);
        for row in rows {
            groups.add(row, names.index(row.task), BOTH, &names);
        }
        let cgroups = [(CgroupId::new(1), "/a\u{1b}b".to_owned())];
        let words = KeyNames {
            names: &names,
            arch: Some(Arch::X86_64),
            cgroups: &cgroups.into_iter().collect(),
            places,
        };
        groups.sheet(&words).to_table(20)
    }

    fn placed(nodes: &[(u32, &str)], siblings: &[&str]) -> String {
        let mut rows = [
            row(1, Reason::Pipe),
            row(2, Reason::Pipe),
            row(3, Reason::Slice),
        ];
        for (row, cpu) in rows.iter_mut().zip([0, 0, 5]) {
            row.cpu = CpuId::new(cpu);
        }
        let nodes = nodes.iter().map(|(node, cpus)| (*node, (*cpus).to_owned()));
        let siblings = siblings.iter().map(|list| (*list).to_owned());
        let places = swtch_core::CpuTopology::of_lists(nodes, siblings).places();
        placed_table(By::Cpu, &rows, Some(&places))
    }

    /// Two sockets with SMT: the table says on which node a CPU is, and with whom it shares its
    /// core.
    #[test]
    fn cpus_of_several_nodes_and_of_shared_cores_have_their_place() {
        let nodes = [(0, "0-1,4-5"), (1, "2-3,6-7")];
        let table = placed(&nodes, &["0,4", "1,5", "2,6", "3,7"]);
        let expected = [
            vec!["CPU", "node", "core"],
            vec!["0", "0", "0,4"],
            vec!["5", "0", "1,5"],
            vec!["total", "3", "100.0"],
        ];
        assert_eq!(first_words(&table), expected, "{table}");
        let table = placed(&nodes, &[]);
        let heads = first_words(&table)[0].clone();
        assert_eq!(heads, ["CPU", "node", "switches"], "{table}");
        let table = placed(&[(0, "0-7")], &["0,4", "1,5"]);
        let heads = first_words(&table)[0].clone();
        assert_eq!(heads, ["CPU", "core", "CPUs"], "{table}");
    }

    /// A machine with one node and no shared core has no such columns, and neither has a trace
    /// that does not tell.
    #[test]
    fn there_is_no_place_where_all_cpus_are_alike() {
        let table = placed(&[(0, "0-7")], &["0", "1"]);
        assert_eq!(
            first_words(&table)[0],
            ["CPU", "switches", "share"],
            "{table}"
        );
        assert_eq!(
            first_words(&self::table(By::Cpu, &[row(1, Reason::Pipe)]))[0],
            ["CPU", "switches", "share"]
        );
    }

    fn first_words(table: &str) -> Vec<Vec<&str>> {
        table
            .lines()
            .filter(|line| !line.starts_with('─') && !line.starts_with("note"))
            .map(|line| line.split_whitespace().take(3).collect())
            .collect()
    }

    /// The task leaves in `read` (0). Its wait until the next row counts for `read`, although that
    /// row ends in `futex` (202).
    #[test]
    fn a_wait_belongs_to_the_call_that_it_began_in() {
        let rows = [
            in_call(row(1, Reason::Pipe), 0),
            in_call(after(row(1, Reason::Futex), Reason::Pipe, 5_000, 0), 202),
        ];
        let table = table(By::Syscall, &rows);
        let lines: Vec<_> = table.lines().collect();
        assert!(
            lines[2].starts_with("read") && lines[2].contains("5.00 µs"),
            "{table}"
        );
        assert!(
            lines[3].starts_with("futex") && !lines[3].contains("5.00 µs"),
            "{table}"
        );
    }

    /// Tasks without a name share an index, but not their system calls.
    #[test]
    fn a_wait_of_a_task_without_a_name_is_in_no_call_of_another() {
        let rows = [
            in_call(row(77, Reason::Pipe), 0),
            in_call(after(row(78, Reason::Futex), Reason::Pipe, 5_000, 0), 202),
        ];
        let table = table(By::Syscall, &rows);
        let line = table.lines().find(|line| line.contains("5.00 µs"));
        let line = line.unwrap_or(&table);
        assert!(line.starts_with("(not recorded)"), "{table}");
    }

    #[test]
    fn threads_of_one_process_are_one_row_by_process() {
        let rows = [
            row(1, Reason::Pipe),
            row(2, Reason::Pipe),
            row(3, Reason::Slice),
        ];
        let expected = [
            vec!["process", "pid", "switches"],
            vec!["server", "10", "2"],
            vec!["hog", "30", "1"],
            vec!["total", "3", "100.0"],
        ];
        assert_eq!(first_words(&table(By::Process, &rows)), expected);
        assert_eq!(first_words(&table(By::Thread, &rows)).len(), 5);
    }

    #[test]
    fn a_cgroup_is_shown_by_its_path_made_harmless() {
        let table = table(By::Cgroup, &[row(1, Reason::Pipe)]);
        assert!(table.contains("/a\\x1bb"), "{table}");
    }

    #[test]
    fn calls_without_a_name_keep_their_number() {
        assert_eq!(
            RowSyscall::Number(9999).name(Some(Arch::X86_64)),
            "call 9999"
        );
        assert_eq!(RowSyscall::Number(0).name(None), "call 0");
        assert_eq!(
            RowSyscall::Compat(3).name(Some(Arch::X86_64)),
            "32-bit call 3"
        );
    }
}
