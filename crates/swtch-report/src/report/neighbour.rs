//! `report --by neighbour`: which cgroups had the CPU while tasks of which others were runnable.
//!
//! All run-queue time is split among the holders of the CPU ([`swtch_core::contention`]), so the
//! rows of a cgroup sum to the run-queue time of its waits, whatever they followed: a task that
//! sleeps, wakes and then queues behind a hog is the hog's victim as much as one that was preempted.
//!
//! A wait is that of the cgroup in which its task is when it gets the CPU, and a task has the CPU as a
//! member of the cgroup in which it was when its run began.

use rustc_hash::FxHashMap;
use swtch_core::{CgroupId, Contended, Contention, HeldWaits, Holder, Nanos, Switch};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet};

use super::filter::CountedParts;
use super::group::{or_missing, owner_cell, path_cell, pod_qos, runtime};
use super::names::Names;
use super::{report_sheet, words};

/// A row of the table.
struct NeighbourRow<'a> {
    /// The cgroup that waited, and who had the CPU; `None` in the line of sums.
    pair: Option<(CgroupId, CgroupHolder)>,
    held: HeldWaits,
    all: Nanos,
    paths: &'a FxHashMap<CgroupId, String>,
}

impl NeighbourRow<'_> {
    fn waiting(&self) -> Option<CgroupId> {
        Some(self.pair?.0)
    }

    fn holder(&self) -> Option<CgroupHolder> {
        Some(self.pair?.1)
    }

    fn path(&self) -> Option<&String> {
        self.paths.get(&self.waiting()?)
    }

    fn neighbour_path(&self) -> Option<&String> {
        match self.holder()? {
            CgroupHolder::Cgroup(had) => self.paths.get(&had),
            CgroupHolder::Other(_) => None,
        }
    }
}

/// Columns that tables leave out: they name the containers in short.
const NOT_IN_TABLES: &[&str] = &[
    "neighbour_runtime",
    "neighbour_container_id",
    "neighbour_pod_qos",
    "runtime",
    "container_id",
    "pod_qos",
];

const WAITS: Word =
    words::WAITS.saying("waits of the cgroup, during a part of which it had the CPU");
const RUNQ: Word =
    words::RUNQ.saying("for how long tasks of the cgroup were runnable while it had the CPU");

fn columns<'a>() -> [Column<NeighbourRow<'a>>; 16] {
    [
        Column::new(words::NEIGHBOUR, |row| match row.holder() {
            Some(CgroupHolder::Cgroup(had)) => path_cell(row.paths, had),
            other => or_missing(other, |other| Cell::text(format!("({})", other.kind()))),
        }),
        Column::new(words::KIND, |row| {
            or_missing(row.holder(), |holder| Cell::text(holder.kind()))
        }),
        Column::new(words::NEIGHBOUR_ID, |row| match row.holder() {
            Some(CgroupHolder::Cgroup(had)) => Cell::Id(had.get()),
            _ => Cell::Missing,
        }),
        Column::new(words::NEIGHBOUR_POD_UID, |row| {
            owner_cell(row.neighbour_path(), |owner| owner.pod_uid)
        }),
        Column::new(words::NEIGHBOUR_RUNTIME, |row| {
            owner_cell(row.neighbour_path(), runtime)
        }),
        Column::new(words::NEIGHBOUR_CONTAINER_ID, |row| {
            owner_cell(row.neighbour_path(), |owner| owner.container_id)
        }),
        Column::new(words::NEIGHBOUR_POD_QOS, |row| {
            owner_cell(row.neighbour_path(), pod_qos)
        }),
        Column::new(words::CGROUP, |row| {
            or_missing(row.waiting(), |cgroup| path_cell(row.paths, cgroup))
        }),
        Column::new(words::CGROUP_ID, |row| {
            or_missing(row.waiting(), |cgroup| Cell::Id(cgroup.get()))
        }),
        Column::new(words::POD_UID, |row| {
            owner_cell(row.path(), |owner| owner.pod_uid)
        }),
        Column::new(words::RUNTIME, |row| owner_cell(row.path(), runtime)),
        Column::new(words::CONTAINER_ID, |row| {
            owner_cell(row.path(), |owner| owner.container_id)
        }),
        Column::new(words::POD_QOS, |row| owner_cell(row.path(), pod_qos)),
        // A wait may have had several neighbours.
        Column::new(WAITS, |row| Cell::Count(row.held.waits)),
        Column::in_total(RUNQ, |row| Cell::Time(row.held.time)),
        Column::in_total(words::SHARE, |row| {
            Cell::share(row.held.time.as_ns(), row.all.as_ns())
        }),
    ]
}

/// A holder of the CPU: a cgroup, or something that is no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum CgroupHolder {
    Cgroup(CgroupId),
    Other(Holder),
}

impl CgroupHolder {
    const fn kind(self) -> &'static str {
        match self {
            Self::Cgroup(_) | Self::Other(Holder::Task(_)) => "cgroup",
            Self::Other(Holder::Interrupts) => "interrupts",
            Self::Other(Holder::Steal) => "steal",
            Self::Other(Holder::Throttle) => "throttle",
            Self::Other(Holder::Idle) => "idle",
            Self::Other(Holder::Unaccounted) => "unaccounted",
        }
    }
}

/// Sums up run-queue waits by the cgroup that waited and the one that had the CPU.
#[derive(Debug)]
pub struct Neighbours {
    contention: Contention,
    sums: CgroupSums,
}

#[derive(Debug)]
struct CgroupSums {
    /// The cgroup in which each task was when its last run began, by its index.
    cgroups: Vec<CgroupId>,
    held: FxHashMap<(CgroupId, CgroupHolder), HeldWaits>,
    /// Parts of the wait that is added, kept for its memory.
    parts: Vec<(CgroupHolder, Nanos)>,
}

impl Neighbours {
    /// For a trace with these tasks.
    pub fn new(contention: Contention, names: &Names) -> Self {
        Self {
            contention,
            sums: CgroupSums {
                cgroups: vec![CgroupId::new(0); names.thread_count()],
                held: FxHashMap::default(),
                parts: Vec::new(),
            },
        }
    }

    /// Takes the next row. All rows of the trace are needed, including those that do not count,
    /// because other tasks waited for their runs.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        let sums = &mut self.sums;
        sums.cgroups[task] = row.cgroup;
        let mut sink = |wait: Contended<'_>| sums.add(wait, names);
        if counted.wait {
            self.contention.push(row, &mut sink);
        } else {
            self.contention.push_run(row, &mut sink);
        }
    }

    /// Takes the waits that could not be split before the end of the trace.
    pub fn finish(&mut self, names: &Names) {
        let sums = &mut self.sums;
        self.contention
            .finish(&mut |wait: Contended<'_>| sums.add(wait, names));
    }

    /// The report: pairs by time, those of different cgroups and of a cgroup with itself.
    pub fn sheet(&self, paths: &FxHashMap<CgroupId, String>) -> Sheet {
        let mut pairs: Vec<_> = self.sums.held.iter().collect();
        pairs.sort_by(|a, b| b.1.time.cmp(&a.1.time).then(a.0.cmp(b.0)));
        let all: Nanos = pairs.iter().map(|(_, held)| held.time).sum();
        let row = |pair, held| NeighbourRow {
            pair,
            held,
            all,
            paths,
        };
        let sums = HeldWaits {
            time: all,
            ..HeldWaits::default()
        };
        let rows = pairs.into_iter();
        let rows = rows.map(|(pair, held)| row(Some(*pair), *held));
        Sheet {
            not_in_tables: NOT_IN_TABLES,
            ..report_sheet("neighbour", &columns(), rows).with_total(&columns(), &row(None, sums))
        }
    }
}

impl CgroupSums {
    fn add(&mut self, wait: Contended<'_>, names: &Names) {
        let victim = self.cgroups[names.index(wait.task)];
        self.parts.clear();
        wait.for_each_part(|holder, time| {
            let neighbour = match holder {
                Holder::Task(task) => CgroupHolder::Cgroup(self.cgroups[names.index(task)]),
                other => CgroupHolder::Other(other),
            };
            // A wait has few holders by cgroup, however many runs it spans.
            match self.parts.iter_mut().find(|part| part.0 == neighbour) {
                Some(part) => part.1 += time,
                None => self.parts.push((neighbour, time)),
            }
        });
        for (neighbour, time) in self.parts.drain(..) {
            let held = self.held.entry((victim, neighbour)).or_default();
            held.time += time;
            held.waits += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, row};
    use crate::report::filter::{Filter, Selection};
    use swtch_core::{Coverage, Reason, TaskKey, Timestamp};

    fn run(task: u32, cgroup: u64, reason: Reason, start: u64, end: u64, next: u32) -> Switch {
        let mut run = row(task, reason);
        run.ts = Timestamp::from_ns(end);
        run.ran = Some(Nanos::from_ns(end - start));
        run.cgroup = CgroupId::new(cgroup);
        run.next_task = Some(TaskKey::new(next));
        run
    }

    /// ```text
    /// cpu 0  hog 0──────100  worker 100─120  server 120─130
    ///                 └ server wakes at 40, and waits ┘
    /// ```
    #[test]
    fn a_task_that_wakes_behind_a_hog_is_the_hogs_victim() {
        let names = names();
        let mut hog = run(3, 30, Reason::Slice, 0, 100, 2);
        hog.irq = Nanos::from_ns(10);
        let worker = run(2, 20, Reason::Sleep, 100, 120, 1);
        let server = after(
            run(1, 20, Reason::Sleep, 120, 130, 0),
            Reason::Sleep,
            500,
            80,
        );
        let selection = Selection::new(&Filter::default(), &names, Timestamp::default());
        let contention = Contention::new(Coverage::EveryTask, 1, &[]);
        let mut neighbours = Neighbours::new(contention, &names);
        for row in [hog, worker, server] {
            let task = names.index(row.task);
            neighbours.add(&row, task, selection.counts(&row, task), &names);
        }
        neighbours.finish(&names);
        let id = "3f2a".repeat(16);
        let paths = [
            (30, format!("/lxc/noisy/docker/{id}")),
            (20, "/victim".into()),
        ];
        let paths = paths.map(|(id, path)| (CgroupId::new(id), path));
        let sheet = neighbours.sheet(&paths.into_iter().collect());
        let table = sheet.to_table_in(200, 20);
        let expected = "\
neighbour            kind        neighbour id  cgroup   cgroup id  waits   runq  share %
────────────────────────────────────────────────────────────────────────────────────────
docker:3f2a3f2a3f2a  cgroup                30  /victim         20      1  54 ns     67.5
/victim              cgroup                20  /victim         20      1  20 ns     25.0
(interrupts)         interrupts             -  /victim         20      1   6 ns      7.5
────────────────────────────────────────────────────────────────────────────────────────
total                                                                     80 ns    100.0
";
        assert_eq!(table, expected);
        let row = &sheet.to_json_rows()[0];
        assert_eq!(row["neighbour_container_id"], *id);
        assert_eq!(row["neighbour_runtime"], "docker");
        assert!(row["container_id"].is_null() && row["neighbour_pod_uid"].is_null());
    }
}
