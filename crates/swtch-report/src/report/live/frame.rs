//! One frame: rates by view, of what was added between two readings.

use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::cost::{Billing, Case, Successor};
use swtch_core::{CgroupId, GroupCounts, Nanos, Pid, Reason, SwitchGroup, TaskKey};

use super::counts::{GrownGroup, LiveCounts};
use super::sums::{BeforeRunq, RowSums, Taker};
use super::tasks::{LiveTask, LiveTasks};

/// The kind of thing that a row of a view stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LiveView {
    /// The process of the task that left.
    Process,
    /// The task that left.
    Thread,
    /// Its cgroup.
    Cgroup,
    /// The reason for which it left.
    Reason,
    /// The task that took the CPU, and the one that lost it.
    Pair,
    /// The CPU.
    Cpu,
    /// The futex word that it waited for: a mutex, a condition variable, a join.
    Lock,
}

impl LiveView {
    /// All views, in the order of their keys on the screen.
    pub const ALL: [Self; 7] = [
        Self::Process,
        Self::Thread,
        Self::Cgroup,
        Self::Reason,
        Self::Pair,
        Self::Cpu,
        Self::Lock,
    ];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Thread => "thread",
            Self::Cgroup => "cgroup",
            Self::Reason => "reason",
            Self::Pair => "pair",
            Self::Cpu => "cpu",
            Self::Lock => "lock",
        }
    }

    /// The view with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.as_str() == word)
    }
}

/// The thing that one row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// A process; `None` for tasks without a name.
    Process(Option<Pid>),
    /// A thread.
    Thread(TaskKey),
    /// A cgroup; `None` for tasks without a name.
    Cgroup(Option<CgroupId>),
    /// A reason.
    Reason(Reason),
    /// The task that took the CPU (`None` if it could not be named), the one that lost it, and the reason.
    Pair(Option<TaskKey>, TaskKey, Reason),
    /// A CPU.
    Cpu(usize),
    /// The process, and the address of the futex word in it.
    Lock(Option<Pid>, u64),
}

/// A row of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveRow {
    /// The thing that it stands for.
    pub key: RowKey,
    /// The sums of what was added in the frame.
    pub sums: RowSums,
    /// Switches from idle, of a CPU: a task came after the CPU had nothing to do.
    pub from_idle: u64,
}

/// The sums of one frame. Divided by its length they are rates.
#[derive(Clone, Debug, Default)]
pub struct RateFrame {
    /// The time between the two readings; 0 before the first frame.
    pub interval: Nanos,
    /// The sums of all rows of a view by task.
    pub total: RowSums,
    /// Switches that were seen and found no room in the kernel's table.
    pub lost: u64,
    /// Switches that the kernel's tracepoint did not report, on all CPUs.
    pub untraced: u64,
    /// Switches from idle, on all CPUs.
    pub from_idle: u64,
    /// Threads that switched.
    pub threads: usize,
    rows: FxHashMap<LiveView, Vec<LiveRow>>,
    /// By thread and futex word, if locks were asked for.
    futex_waits: FxHashMap<(TaskKey, u64), GroupCounts>,
    /// Threads that are blocked at its end, as far as they were looked at.
    open_waits: FxHashMap<TaskKey, LiveWait>,
    /// The number of these threads in each process.
    waiting: FxHashMap<Pid, u64>,
}

/// The wait that a thread was in at the end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveWait {
    /// The reason for which it waits.
    pub reason: Reason,
    /// The futex word, as in [`RowKey::Lock`]; 0 if there is none or they are not told apart.
    pub futex: u64,
    /// The time that it has lasted so far.
    pub lasts: Nanos,
}

impl RateFrame {
    /// Makes the frame of what was counted since the last [`LiveCounts::end_frame`], with the rows
    /// of these views. Without prices nothing has a cost.
    pub fn of(
        counts: &LiveCounts,
        tasks: &LiveTasks,
        billing: Option<&Billing>,
        views: &[LiveView],
        interval: Nanos,
    ) -> Self {
        let mut frame = Self {
            interval,
            ..Self::default()
        };
        let mut threads = FxHashSet::default();
        let mut summed: Vec<(LiveView, Summed)> = views
            .iter()
            .filter(|view| **view != LiveView::Cpu)
            .map(|view| (*view, Summed::default()))
            .collect();
        for grown in counts.grown() {
            let seen = SeenGroup::of(grown, tasks, billing);
            seen.add_to(&mut frame.total);
            threads.insert(seen.task);
            if let Some(futex) = seen.futex().filter(|_| views.contains(&LiveView::Lock)) {
                let waits = frame.futex_waits.entry((seen.task, futex)).or_default();
                waits.add(&grown.growth.counts);
            }
            for (view, summed) in &mut summed {
                if let Some(key) = seen.key(*view) {
                    seen.add_to(summed.row(key));
                }
            }
        }
        frame.threads = threads.len();
        frame.rows = summed
            .into_iter()
            .map(|(view, summed)| (view, summed.rows))
            .collect();
        frame.add_cpus(counts, views);
        frame
    }

    fn add_cpus(&mut self, counts: &LiveCounts, views: &[LiveView]) {
        let mut rows = Vec::new();
        for (number, cpu) in counts.by_cpu().enumerate() {
            self.lost += cpu.lost;
            self.untraced += cpu.untraced;
            self.from_idle += cpu.idle;
            let mut sums = RowSums::default();
            sums.tally.switches = cpu.seen.saturating_sub(cpu.idle + cpu.filtered);
            rows.push(LiveRow {
                key: RowKey::Cpu(number),
                sums,
                from_idle: cpu.idle,
            });
        }
        if views.contains(&LiveView::Cpu) {
            // A CPU that can come but has never been there has counted nothing.
            rows.retain(|row| row.sums.switches() + row.from_idle > 0);
            self.rows.insert(LiveView::Cpu, rows);
        }
    }

    /// The rows of a view, in no order; none if it was not asked for.
    pub fn rows(&self, view: LiveView) -> &[LiveRow] {
        self.rows.get(&view).map_or(&[], Vec::as_slice)
    }

    /// Adds threads that are blocked now, each with what the rules read of it and for how long it lasts.
    /// Threads and processes that did not switch in the frame get rows, so that a hang is seen.
    pub fn add_open_waits(
        &mut self,
        counts: &LiveCounts,
        tasks: &LiveTasks,
        waits: impl Iterator<Item = (SwitchGroup, Nanos)>,
    ) {
        for (group, lasts) in waits {
            let wait = LiveWait {
                reason: counts.reason_of(&group),
                futex: group.futex,
                lasts,
            };
            self.open_waits.insert(group.task, wait);
            if let Some(task) = tasks.get(group.task) {
                *self.waiting.entry(task.pid).or_default() += 1;
            }
        }
        let threads = self.open_waits.keys().map(|task| RowKey::Thread(*task));
        let threads: Vec<_> = threads.collect();
        let processes = self.waiting.keys().map(|pid| RowKey::Process(Some(*pid)));
        let processes: Vec<_> = processes.collect();
        self.add_silent(LiveView::Thread, threads);
        self.add_silent(LiveView::Process, processes);
    }

    fn add_silent(&mut self, view: LiveView, keys: Vec<RowKey>) {
        let Some(rows) = self.rows.get_mut(&view) else {
            return;
        };
        let known: FxHashSet<RowKey> = rows.iter().map(|row| row.key).collect();
        let silent = keys.into_iter().filter(|key| !known.contains(key));
        rows.extend(silent.map(|key| LiveRow {
            key,
            sums: RowSums::default(),
            from_idle: 0,
        }));
    }

    /// The wait that a thread is in, if it was looked at.
    pub fn open_wait(&self, task: TaskKey) -> Option<LiveWait> {
        self.open_waits.get(&task).copied()
    }

    /// Number of threads of a process that are blocked, of those that were looked at.
    pub fn waiting(&self, pid: Pid) -> Option<u64> {
        self.waiting.get(&pid).copied()
    }

    /// The futex words that a thread waited for, with the sums of these waits, in no order.
    pub fn futexes_of(&self, task: TaskKey) -> impl Iterator<Item = (u64, &GroupCounts)> {
        let waits = self.futex_waits.iter();
        waits
            .filter(move |((of, _), _)| *of == task)
            .map(|((_, futex), sums)| (*futex, sums))
    }

    /// Returns true if a thread waited for this futex word, or waits for it now.
    pub fn waits_for(&self, task: TaskKey, futex: u64) -> bool {
        let now = self.open_waits.get(&task).map(|wait| wait.futex);
        now == Some(futex) || self.futex_waits.contains_key(&(task, futex))
    }

    /// Returns true if the rows of this view were made.
    pub fn has(&self, view: LiveView) -> bool {
        self.rows.contains_key(&view)
    }

    /// So many in this frame, per second.
    pub fn per_second(&self, number: u64) -> f64 {
        match self.interval.as_ns() {
            0 => 0.0,
            ns => number as f64 * 1e9 / ns as f64,
        }
    }

    /// A time in this frame as a share of it, in percent: 100 for one CPU, or one thread.
    pub fn share_pct(&self, time_ns: f64) -> f64 {
        match self.interval.as_ns() {
            0 => 0.0,
            ns => time_ns * 100.0 / ns as f64,
        }
    }
}

/// Rows of one view while they are summed.
#[derive(Default)]
struct Summed {
    rows: Vec<LiveRow>,
    places: FxHashMap<RowKey, usize>,
}

impl Summed {
    fn row(&mut self, key: RowKey) -> &mut RowSums {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.rows.push(LiveRow {
                key,
                sums: RowSums::default(),
                from_idle: 0,
            });
            self.rows.len() - 1
        });
        &mut self.rows[place].sums
    }
}

/// The growth of a group, with all that its rows need.
struct SeenGroup<'a> {
    grown: &'a GrownGroup,
    task: TaskKey,
    of_task: Option<&'a LiveTask>,
    taker: Option<Taker>,
    billing: Option<&'a Billing>,
}

impl<'a> SeenGroup<'a> {
    fn of(grown: &'a GrownGroup, tasks: &'a LiveTasks, billing: Option<&'a Billing>) -> Self {
        let group = &grown.of.group;
        let of_task = tasks.get(group.task);
        let taker = grown.of.is_preemption().then(|| {
            let Some(next) = group.next_task else {
                return Taker::Unnamed;
            };
            if next.is_idle() {
                return Taker::Idle;
            }
            match (of_task, tasks.get(next)) {
                (Some(task), Some(next)) if task.pid == next.pid => Taker::OwnProcess,
                // The kernel's threads live in the root cgroup, and belong to nobody there.
                (Some(task), Some(next)) if next.is_kernel && !task.is_kernel => Taker::Foreign,
                (Some(task), Some(next)) if task.cgroup == next.cgroup => Taker::OwnCgroup,
                (Some(_), Some(_)) => Taker::Foreign,
                _ => Taker::Unnamed,
            }
        });
        Self {
            grown,
            task: group.task,
            of_task,
            taker,
            billing,
        }
    }

    fn key(&self, view: LiveView) -> Option<RowKey> {
        let reason = self.grown.of.rule.reason;
        match view {
            LiveView::Process => Some(RowKey::Process(self.of_task.map(|task| task.pid))),
            LiveView::Thread => Some(RowKey::Thread(self.task)),
            LiveView::Cgroup => Some(RowKey::Cgroup(self.of_task.map(|task| task.cgroup))),
            LiveView::Reason => Some(RowKey::Reason(reason)),
            LiveView::Pair => self
                .taker
                .filter(|taker| *taker != Taker::Idle)
                .map(|_| RowKey::Pair(self.grown.of.group.next_task, self.task, reason)),
            LiveView::Lock => {
                let pid = self.of_task.map(|task| task.pid);
                self.futex().map(|futex| RowKey::Lock(pid, futex))
            }
            LiveView::Cpu => None,
        }
    }

    /// The futex word that it waited for.
    fn futex(&self) -> Option<u64> {
        let of = &self.grown.of;
        (of.rule.reason == Reason::Futex && of.group.futex != 0).then_some(of.group.futex)
    }

    fn add_to(&self, row: &mut RowSums) {
        let growth = &self.grown.growth;
        row.add_grown(&self.grown.of, growth);
        if let Some(taker) = self.taker {
            row.count_taker(taker, growth.counts.switches);
        }
        row.count_runq(self.before_runq(), growth.counts.runq);
        self.add_cost(row);
    }

    fn before_runq(&self) -> BeforeRunq {
        let has_blocked = self.grown.of.group.evidence.state != 0;
        match self.taker {
            _ if has_blocked => BeforeRunq::Wakeup,
            Some(Taker::OwnProcess) => BeforeRunq::OwnProcess,
            Some(Taker::OwnCgroup) => BeforeRunq::OwnCgroup,
            Some(Taker::Foreign) => BeforeRunq::Foreign,
            Some(Taker::Unnamed | Taker::Idle) | None => BeforeRunq::Other,
        }
    }

    /// Adds the cost of the switches. The task that came after one that blocked is not counted, so the price is that of
    /// a switch to another process.
    fn add_cost(&self, row: &mut RowSums) {
        let Some(billing) = self.billing else {
            return;
        };
        let successor = match self.taker {
            Some(Taker::OwnProcess) => Successor::SameProcess,
            Some(Taker::OwnCgroup | Taker::Foreign) => Successor::OtherProcess,
            Some(Taker::Idle) => Successor::Idle,
            Some(Taker::Unnamed) | None => Successor::Unknown,
        };
        let reason = self.grown.of.rule.reason;
        let switches = self.grown.growth.counts.switches;
        match billing.tariff(Case { reason, successor }) {
            Ok(tariff) => row.cost = row.cost.plus(tariff.direct.times(switches as f64)),
            Err(_) => row.unpriced += switches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{prices, seen};
    use crate::report::live::drawn_live::{blocked_in_read, preempted_by, totals};
    use swtch_core::Arch;

    const SECOND: Nanos = Nanos::from_ns(1_000_000_000);

    /// The server blocks, its worker takes its CPU, and a program of another cgroup does.
    fn counted() -> (LiveCounts, LiveTasks) {
        let mut counts = LiveCounts::new(Arch::X86_64);
        counts.meet(0, &blocked_in_read(1), &totals(30));
        counts.meet(1, &preempted_by(1, 2), &totals(8));
        counts.meet(2, &preempted_by(1, 3), &totals(4));
        counts.meet(3, &preempted_by(1, 4), &totals(2));
        counts.meet(4, &preempted_by(2, 0), &totals(1));
        let mut tasks = LiveTasks::default();
        tasks.meet(&seen(1, 10, 10, "server"));
        tasks.meet(&seen(2, 10, 11, "worker"));
        tasks.meet(&seen(3, 30, 30, "beside"));
        tasks.meet(&swtch_core::TaskEvent {
            cgroup: CgroupId::new(9),
            ..seen(4, 40, 40, "stranger")
        });
        (counts, tasks)
    }

    fn row(frame: &RateFrame, key: RowKey) -> RowSums {
        let rows = LiveView::ALL.iter().flat_map(|view| frame.rows(*view));
        let mut rows = rows.filter(|row| row.key == key);
        rows.next()
            .unwrap_or_else(|| panic!("{key:?}"))
            .sums
            .clone()
    }

    #[test]
    fn own_and_foreign_preemptions_are_told_apart() {
        let (counts, tasks) = counted();
        let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        let server = row(&frame, RowKey::Thread(TaskKey::new(1)));
        let of = (
            server.by_own_process,
            server.by_own_cgroup,
            server.by_foreign,
        );
        assert_eq!(of, (8, 4, 2));
        assert_eq!(server.switches(), 44);
        let worker = row(&frame, RowKey::Thread(TaskKey::new(2)));
        assert_eq!(
            worker.by_own_process + worker.by_own_cgroup + worker.by_foreign,
            0
        );
        assert_eq!(
            frame.rows(LiveView::Pair).len(),
            3,
            "idle takes no CPU away"
        );
    }

    /// A thread that sleeps and cannot get the CPU back is preempted by nobody.
    #[test]
    fn time_in_a_run_queue_is_told_by_what_came_before() {
        let (counts, tasks) = counted();
        let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        let server = row(&frame, RowKey::Thread(TaskKey::new(1)));
        let of_one = totals(1).counts.runq.as_ns();
        let after = server.runq_after.map(Nanos::as_ns);
        assert!(of_one > 0);
        assert_eq!(after, [30 * of_one, 8 * of_one, 4 * of_one, 2 * of_one, 0]);
        assert_eq!(after.iter().sum::<u64>(), server.tally.runq.as_ns());
    }

    /// If nobody has made cgroups, all tasks are in the root.
    #[test]
    fn a_thread_of_the_kernel_is_foreign_in_every_cgroup() {
        let (counts, mut tasks) = counted();
        tasks.meet(&swtch_core::TaskEvent {
            is_kthread: true,
            ..seen(3, 30, 30, "kworker/0:1")
        });
        let frame = RateFrame::of(&counts, &tasks, None, &[LiveView::Thread], SECOND);
        let server = row(&frame, RowKey::Thread(TaskKey::new(1)));
        assert_eq!((server.by_own_cgroup, server.by_foreign), (0, 6));
    }

    #[test]
    fn every_view_has_all_switches() {
        let (counts, tasks) = counted();
        let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        for view in [
            LiveView::Process,
            LiveView::Thread,
            LiveView::Cgroup,
            LiveView::Reason,
        ] {
            let rows = frame.rows(view).iter();
            let sum: u64 = rows.map(|row| row.sums.switches()).sum();
            assert_eq!(sum, 45, "{view:?}");
        }
        assert_eq!(frame.total.switches(), 45);
        assert_eq!(frame.threads, 2);
    }

    #[test]
    fn a_rate_is_per_second_and_not_per_frame() {
        let (counts, tasks) = counted();
        let half = Nanos::from_ns(500_000_000);
        let frame = RateFrame::of(&counts, &tasks, None, &[], half);
        assert!((frame.per_second(frame.total.switches()) - 90.0).abs() < 1e-9);
        assert!((frame.share_pct(5e6) - 1.0).abs() < 1e-9);
        let none = RateFrame::default();
        assert!((none.per_second(7), none.share_pct(7.0)) == (0.0, 0.0));
    }

    #[test]
    fn a_price_is_an_interval_and_what_has_none_is_counted() {
        let (counts, tasks) = counted();
        let billing = Billing::new(&prices());
        let frame = RateFrame::of(&counts, &tasks, Some(&billing), &[], SECOND);
        let cost = frame.total.cost;
        assert!(0.0 < cost.low_ns && cost.low_ns < cost.point_ns && cost.point_ns < cost.high_ns);
        assert_eq!(frame.total.unpriced, 0);
    }

    /// The thread waits for a futex word at this address.
    fn waits_for(task: u32, futex: u64) -> SwitchGroup {
        let mut group = blocked_in_read(task);
        group.futex = futex;
        group.evidence.syscall = Some(202);
        group.evidence.wait_object = swtch_core::WaitObject::None;
        group
    }

    /// Threads of one process wait for the same lock, and another process has one at that address.
    #[test]
    fn a_lock_is_an_address_in_a_process() {
        let (mut counts, tasks) = counted();
        counts.meet(10, &waits_for(1, 0x1000), &totals(5));
        counts.meet(11, &waits_for(2, 0x1000), &totals(3));
        counts.meet(12, &waits_for(3, 0x1000), &totals(2));
        counts.meet(13, &waits_for(3, 0), &totals(9));
        let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        let of = |pid| row(&frame, RowKey::Lock(Some(Pid::new(pid)), 0x1000)).switches();
        assert_eq!((of(10), of(30)), (8, 2));
        assert_eq!(frame.rows(LiveView::Lock).len(), 2, "0 is no lock");
        let first = TaskKey::new(1);
        let own: Vec<_> = frame
            .futexes_of(first)
            .map(|(futex, of)| (futex, of.switches))
            .collect();
        assert_eq!(own, [(0x1000, 5)]);
        assert!(frame.waits_for(first, 0x1000) && !frame.waits_for(first, 0x2000));
        let without = RateFrame::of(&counts, &tasks, None, &[LiveView::Thread], SECOND);
        assert_eq!(without.futexes_of(first).count(), 0);
    }

    #[test]
    fn a_thread_that_only_waits_has_a_row_without_switches() {
        let (counts, mut tasks) = counted();
        tasks.meet(&seen(9, 90, 90, "stuck"));
        let mut frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
        let rows = frame.rows(LiveView::Thread).len();
        let hour = Nanos::from_ns(3_600_000_000_000);
        let waits = [(waits_for(9, 0x1000), hour), (waits_for(1, 0), SECOND)];
        frame.add_open_waits(&counts, &tasks, waits.into_iter());
        assert_eq!(frame.rows(LiveView::Thread).len(), rows + 1);
        let stuck = TaskKey::new(9);
        assert_eq!(row(&frame, RowKey::Thread(stuck)).switches(), 0);
        let wait = frame.open_wait(stuck).unwrap();
        assert_eq!(
            (wait.reason, wait.futex, wait.lasts),
            (Reason::Futex, 0x1000, hour)
        );
        assert!(frame.waits_for(stuck, 0x1000));
        assert_eq!(frame.waiting(Pid::new(90)), Some(1));
        let known = row(&frame, RowKey::Process(Some(Pid::new(10))));
        assert_eq!(known.switches(), 45, "a row that was there is not doubled");
        assert_eq!(frame.rows(LiveView::Process).len(), 2);
    }
}
