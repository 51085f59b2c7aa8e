//! Simulated switches from fixed seeds, made by a small scheduler.
//!
//! Times have the noise and the redundancy of real ones: a run starts where the CPU's previous one
//! ended, and the off-CPU time lasts from the task's last switch-out until there.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "numbers of simulated tasks and CPUs are small"
)]

use std::collections::VecDeque;
use std::path::Path;

use swtch_core::evidence::{Cause, Class, Evidence, EvidenceBits, WaitObject, WakerKind};
use swtch_core::rules::rule_named;
use swtch_core::{
    CgroupId, CpuId, Frame, Gap, Level, Nanos, Open, Pid, Reason, Rule, Stack, StackEnd, StackKind,
    StackNumbers, Switch, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp, UserSide, Wait,
    Wakeup,
};
use swtch_store::{
    CgroupRow, Columns, CommandRow, Error, Meta, SpanRow, Trace, WaitTypeRow, WaitingWorkersRow,
    Writer,
};

/// `splitmix64`: small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Bell-shaped around `mean`, with a standard deviation of `percent` of it.
    pub fn around(&mut self, mean: u64, percent: u64) -> u64 {
        // The sum of 12 uniform numbers has a variance of 1.
        let sum: u64 = (0..12).map(|_| self.below(1000)).sum();
        (mean + mean * percent / 100 * sum / 1000).saturating_sub(mean * percent / 100 * 6)
    }

    /// Skewed, as run lengths are: most near `typical`, some ten times as long.
    pub fn skewed(&mut self, typical: u64) -> u64 {
        let doublings = self.below(400) * self.below(100) / 100;
        let whole = typical << (doublings / 100);
        whole / 2 + self.below(whole)
    }
}

/// State and behaviour of a simulated task.
#[derive(Clone, Debug)]
struct SimulatedTask {
    key: TaskKey,
    last_out: Option<(Timestamp, Reason)>,
    woken: Option<(Timestamp, TaskKey, u16)>,
    inode: u64,
    buffer: u64,
    fd: u64,
}

impl SimulatedTask {
    fn new(key: u32, dice: &mut Dice) -> Self {
        Self {
            key: TaskKey::new(key),
            last_out: None,
            woken: None,
            inode: 48_000 + u64::from(key) * 2,
            buffer: 0x7ffd_0000_0000 + dice.below(1 << 20) * 16,
            fd: 3 + dice.below(40),
        }
    }
}

/// The kind of program that is simulated.
#[derive(Clone, Copy, Debug)]
struct SimulatedProgram {
    tasks: u32,
    cpus: u16,
    typical_run_ns: u64,
    has_steady_runs: bool,
    object: WaitObject,
    blocking_rule: &'static str,
    syscall: u32,
    bytes_per_call: u64,
}

const PIPE: SimulatedProgram = SimulatedProgram {
    tasks: 2,
    cpus: 1,
    typical_run_ns: 1_200,
    has_steady_runs: true,
    object: WaitObject::Fifo,
    blocking_rule: "pipe_file",
    syscall: 0,
    bytes_per_call: 4,
};

const MESSAGING: SimulatedProgram = SimulatedProgram {
    tasks: 400,
    cpus: 2,
    typical_run_ns: 3_000,
    has_steady_runs: false,
    object: WaitObject::Socket,
    blocking_rule: "socket_file",
    syscall: 0,
    bytes_per_call: 100,
};

/// Two tasks that hand a token to each other through pipes, on one CPU.
pub fn pipe(seed: u64) -> impl Iterator<Item = Switch> {
    SwitchSimulator::new(PIPE, seed)
}

/// Forty groups of ten tasks that send to each other through sockets, on two CPUs.
pub fn messaging(seed: u64) -> impl Iterator<Item = Switch> {
    SwitchSimulator::new(MESSAGING, seed)
}

/// Switches at these moments, otherwise those of [`messaging`].
pub fn at_times(times: &[u64]) -> Vec<Switch> {
    let switches = messaging(5).zip(times);
    let at = |(switch, ns): (Switch, &u64)| Switch {
        ts: Timestamp::from_ns(*ns),
        ..switch
    };
    switches.map(at).collect()
}

#[derive(Debug)]
struct SwitchSimulator {
    program: SimulatedProgram,
    dice: Dice,
    tasks: Vec<SimulatedTask>,
    /// Tasks on the run queue of each CPU, by index.
    queues: Vec<VecDeque<usize>>,
    blocked: Vec<usize>,
    running: Vec<usize>,
    /// Time of the last switch on each CPU, in ns.
    clocks: Vec<u64>,
    planned: Vec<u64>,
}

impl SwitchSimulator {
    fn new(program: SimulatedProgram, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let cpus = usize::from(program.cpus);
        let tasks = (1..=program.tasks).map(|key| SimulatedTask::new(key, &mut dice));
        let tasks: Vec<_> = tasks.collect();
        let mut machine = Self {
            running: (0..cpus).collect(),
            queues: vec![VecDeque::new(); cpus],
            blocked: Vec::new(),
            clocks: vec![5_000_000_000_000; cpus],
            planned: vec![0; cpus],
            program,
            dice,
            tasks,
        };
        for index in cpus..machine.tasks.len() {
            machine.queues[index % cpus].push_back(index);
        }
        for cpu in 0..cpus {
            machine.plan(cpu);
        }
        machine
    }

    fn plan(&mut self, cpu: usize) {
        let typical = self.program.typical_run_ns;
        let run = if self.program.has_steady_runs {
            self.dice.around(typical, 10)
        } else {
            self.dice.skewed(typical)
        };
        let tick = if self.dice.below(3_000) == 0 {
            self.dice.around(4_000, 20)
        } else {
            0
        };
        self.planned[cpu] = self.clocks[cpu] + run + tick;
    }

    /// The running task wakes a blocked one, if there is any.
    fn wake(&mut self, cpu: usize, start: u64, end: u64) {
        if self.blocked.is_empty() {
            return;
        }
        let choice = self.dice.below(self.blocked.len() as u64) as usize;
        let index = self.blocked.swap_remove(choice);
        let at = start + (end - start) * self.dice.around(40, 8) / 100;
        let target = if self.dice.chance(85) {
            cpu
        } else {
            self.dice.below(u64::from(self.program.cpus)) as usize
        };
        let out = self.tasks[index].last_out.map_or(0, |out| out.0.as_ns());
        let waker = self.tasks[self.running[cpu]].key;
        self.tasks[index].woken = Some((Timestamp::from_ns(at.max(out)), waker, target as u16));
        self.queues[target].push_back(index);
    }

    fn switch(&mut self, cpu: usize) -> Switch {
        let (start, end) = (self.clocks[cpu], self.planned[cpu]);
        self.wake(cpu, start, end);
        let leaver = self.running[cpu];
        let is_alone = self.queues[cpu].is_empty();
        let blocks = self.program.tasks > 2 && self.dice.chance(60) || self.dice.chance(55);
        let blocks = blocks || is_alone;
        if is_alone {
            // No task is queued: take one from another CPU, or wake the next one late.
            self.wake_someone_for(cpu, end, leaver);
        }
        let comer = self.queues[cpu].pop_front().expect("somebody was woken");
        let row = self.row(cpu, start, end, leaver, comer, blocks);
        self.tasks[leaver].last_out = Some((row.ts, row.rule.reason));
        self.tasks[leaver].woken = None;
        if blocks {
            self.blocked.push(leaver);
        } else {
            self.queues[cpu].push_back(leaver);
        }
        self.running[cpu] = comer;
        self.clocks[cpu] = end;
        self.plan(cpu);
        row
    }

    fn wake_someone_for(&mut self, cpu: usize, at: u64, waker: usize) {
        let index = match self.blocked.pop() {
            Some(index) => index,
            None => {
                let other = self.queues.iter_mut().find(|queue| !queue.is_empty());
                let queue = other.expect("somebody waits somewhere");
                queue.pop_front().expect("it is not empty")
            }
        };
        let waker = self.tasks[waker].key;
        let task = &mut self.tasks[index];
        let out = task.last_out.map_or(0, |out| out.0.as_ns());
        let at = Timestamp::from_ns((at - 300).max(out));
        task.woken = Some((at, waker, cpu as u16));
        self.queues[cpu].push_back(index);
    }

    fn row(
        &mut self,
        cpu: usize,
        start: u64,
        end: u64,
        leaver: usize,
        comer: usize,
        blocks: bool,
    ) -> Switch {
        let task = self.tasks[leaver].clone();
        let evidence = if blocks {
            self.blocked_evidence(&task)
        } else {
            self.preempted_evidence(end - start, self.tasks[comer].key)
        };
        let rule = if blocks {
            self.program.blocking_rule
        } else {
            "woken_task"
        };
        let irq = match self.dice.below(2_000) {
            0 => self.dice.around(2_500, 20),
            _ => 0,
        };
        Switch {
            ts: Timestamp::from_ns(end),
            cpu: CpuId::new(cpu as u16),
            task: task.key,
            ran: Some(Nanos::from_ns(end - start)),
            irq: Nanos::from_ns(irq),
            stolen: Nanos::ZERO,
            rule: rule_named(rule).expect("a rule of this version"),
            evidence,
            next_task: Some(self.tasks[comer].key),
            user_task: None,
            level: Level::Os,
            user: UserSide::default(),
            cgroup: CgroupId::new(4_711),
            wait: wait_of(&task, Timestamp::from_ns(start)),
        }
    }

    fn blocked_evidence(&mut self, task: &SimulatedTask) -> Evidence {
        Evidence {
            state: 1,
            bits: EvidenceBits::VOLUNTARY,
            syscall: Some(self.program.syscall),
            args: [task.fd, task.buffer, self.program.bytes_per_call],
            wait_object: self.program.object,
            wait_key: Some(task.inode),
            ..Evidence::RUNNABLE
        }
    }

    fn preempted_evidence(&mut self, run: u64, nominator: TaskKey) -> Evidence {
        let delay = run * self.dice.around(30, 10) / 100;
        Evidence {
            bits: EvidenceBits::WOKEN_IS_NEXT,
            cause: Cause::Wakeup,
            nominator: Some(nominator),
            need_resched_delay: Some(Nanos::from_ns(delay)),
            syscall: Some(1),
            ..Evidence::RUNNABLE
        }
    }
}

fn wait_of(task: &SimulatedTask, start: Timestamp) -> Wait {
    let Some((out, reason)) = task.last_out else {
        return Wait::default();
    };
    let off = start.since(out);
    let wait = Wait {
        reason: Some(reason),
        off,
        runq: off,
        ..Wait::default()
    };
    match task.woken {
        None => wait,
        Some((woken, waker, cpu)) => Wait {
            runq: start.since(woken.min(start)),
            wakeup: Wakeup {
                waker: Some(waker),
                kind: Some(WakerKind::Task),
                cpu: Some(CpuId::new(cpu)),
                ..Wakeup::default()
            },
            ..wait
        },
    }
}

impl Iterator for SwitchSimulator {
    type Item = Switch;

    fn next(&mut self) -> Option<Switch> {
        let cpus = 0..usize::from(self.program.cpus);
        let cpu = cpus.min_by_key(|cpu| self.planned[*cpu])?;
        Some(self.switch(cpu))
    }
}

/// A switch in which every field has an uncommon value.
pub fn odd_switch(ts: u64) -> Switch {
    Switch {
        ts: Timestamp::from_ns(ts),
        cpu: CpuId::new(u16::MAX),
        task: TaskKey::new(u32::MAX - 1),
        ran: None,
        irq: Nanos::from_ns(u64::MAX),
        stolen: Nanos::from_ns(1 << 63),
        rule: rule_named("higher_class").expect("a rule of this version"),
        evidence: Evidence {
            state: u32::MAX,
            bits: EvidenceBits(u32::MAX),
            cause: Cause::NoHook,
            nominator: Some(TaskKey::IDLE),
            need_resched_delay: Some(Nanos::from_ns(u64::MAX)),
            syscall: Some(u32::MAX),
            args: [u64::MAX, 1 << 63, 0],
            wait_object: WaitObject::OtherFd,
            wait_key: Some(u64::MAX),
            class: Class::Deadline,
            prio: i16::MIN,
            next_class: Class::Stop,
            next_prio: i16::MAX,
        },
        next_task: None,
        user_task: Some(u64::MAX),
        level: Level::Os,
        user: UserSide {
            run: Some(u32::MAX),
            next_task: Some(0),
            waker: Some(1 << 63),
            wait_type: Some(u16::MAX),
            off_wait_type: Some(0),
        },
        cgroup: CgroupId::new(u64::MAX),
        wait: Wait {
            reason: Some(Reason::Unknown),
            off: Some(Nanos::from_ns(u64::MAX)),
            runq: None,
            wakeup: Wakeup {
                waker: Some(TaskKey::IDLE),
                kind: Some(WakerKind::SoftIrq),
                cpu: Some(CpuId::new(0)),
                waker_stacks: StackNumbers {
                    kernel: Some(u32::MAX - 1),
                    user: Some(7),
                },
            },
            moved: Some(Nanos::ZERO),
            stacks: StackNumbers {
                kernel: Some(0),
                user: Some(u32::MAX),
            },
            seen_for: Some(Nanos::from_ns(u64::MAX)),
            holder_stack: Some(u32::MAX),
        },
    }
}

/// All values of a row, in a form that can be compared.
pub fn said(row: &Switch) -> impl PartialEq + std::fmt::Debug + Clone + use<> {
    let Rule {
        name,
        reason,
        certainty,
        ..
    } = *row.rule;
    let run = (row.ts, row.cpu, row.task, row.ran, row.irq, row.stolen);
    let rest = (row.next_task, row.user_task, row.cgroup, row.wait);
    let rest = (rest, row.level, row.user);
    (run, (name, reason, certainty), row.evidence, rest)
}

/// A task whose name has these bytes.
pub fn task_named(comm: &[u8]) -> TaskEvent {
    TaskEvent {
        ts: Timestamp::from_ns(77),
        kind: TaskEventKind::Exec,
        task: TaskKey::new(3),
        tid: Tid::new(1_234),
        pid: Pid::new(1_230),
        parent_pid: Pid::new(1),
        started_ns: 12_345,
        comm: comm.to_vec(),
        cgroup: CgroupId::new(9),
        class: Class::RealTime,
        prio: -1,
        is_kthread: false,
        in_scope: true,
        voluntary_switches: 10,
        involuntary_switches: u64::MAX,
    }
}

/// Rows for every table but `switch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    pub tasks: Vec<TaskEvent>,
    pub gaps: Vec<Gap>,
    pub opens: Vec<Open>,
    pub cgroups: Vec<CgroupRow>,
    pub stacks: Vec<Stack>,
    pub frames: Vec<Frame>,
    pub wait_types: Vec<WaitTypeRow>,
    pub commands: Vec<CommandRow>,
    pub workers: Vec<WaitingWorkersRow>,
    pub spans: Vec<SpanRow>,
}

impl Others {
    pub fn sample() -> Self {
        Self {
            tasks: vec![
                task_named(b"redis-server"),
                task_named(b"\xff\x1b[31m\n"),
                task_named(b""),
            ],
            gaps: vec![Gap {
                cpu: CpuId::new(1),
                start: Timestamp::from_ns(5),
                end: Timestamp::from_ns(9),
                lost: 4,
                level: Level::Os,
            }],
            opens: [Some(Reason::Futex), None]
                .map(|reason| Open {
                    task: TaskKey::new(8),
                    reason,
                    since: Timestamp::from_ns(1),
                    lasted: Nanos::from_ns(2),
                    runq: reason.map(|_| Nanos::from_ns(1)),
                    cpu: Some(CpuId::new(3)),
                })
                .to_vec(),
            cgroups: vec![CgroupRow {
                cgroup: CgroupId::new(4_711),
                path: "/user.slice/ü".into(),
            }],
            stacks: vec![
                Stack {
                    id: 7,
                    kind: StackKind::User,
                    pid: Some(Pid::new(42)),
                    frames: vec![3, 2, 1],
                    end: Some(StackEnd::Cut),
                },
                Stack::default(),
            ],
            frames: vec![
                Frame {
                    id: 3,
                    address: u64::MAX - 4095,
                    symbol: Some("schedule".into()),
                    module: Some("vmlinux".into()),
                    offset: Some(12),
                    file: Some("core.c".into()),
                    line: Some(6_800),
                    file_address: Some(0x4f00),
                    build_id: Some("c0ffee".into()),
                },
                Frame::default(),
            ],
            wait_types: vec![WaitTypeRow {
                wait_type: 3,
                name: "MUTEX".into(),
            }],
            commands: vec![CommandRow {
                ts: Timestamp::from_ns(78),
                pid: Pid::new(1_230),
                command: "postgres: \u{1b}[31m ü".into(),
            }],
            workers: vec![
                WaitingWorkersRow {
                    ts: Timestamp::from_ns(79),
                    pid: Pid::new(1_230),
                    reason: Some("sync.Mutex.Lock".into()),
                    stack: Some(u32::MAX),
                    thousandths: 8_500,
                    between: Nanos::from_ns(20_000_000),
                },
                WaitingWorkersRow::default(),
            ],
            spans: vec![
                SpanRow {
                    trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
                    span_id: None,
                    begin: Timestamp::from_ns(80),
                    end: Timestamp::from_ns(90),
                    pid: Pid::new(1_230),
                    tid: Tid::new(1_231),
                    name: "query \u{1b}[31m ü".into(),
                },
                SpanRow::default(),
            ],
        }
    }

    pub fn push_to(&self, writer: &mut Writer) -> Result<(), Error> {
        self.tasks
            .iter()
            .try_for_each(|row| writer.push_task(row))?;
        self.gaps.iter().try_for_each(|row| writer.push_gap(row))?;
        self.opens
            .iter()
            .try_for_each(|row| writer.push_open(row))?;
        self.stacks
            .iter()
            .try_for_each(|row| writer.push_stack(row))?;
        self.frames
            .iter()
            .try_for_each(|row| writer.push_frame(row))?;
        self.wait_types
            .iter()
            .try_for_each(|row| writer.push_wait_type(row))?;
        self.commands
            .iter()
            .try_for_each(|row| writer.push_command(row))?;
        self.workers
            .iter()
            .try_for_each(|row| writer.push_worker(row))?;
        self.spans
            .iter()
            .try_for_each(|row| writer.push_span(row))?;
        let mut cgroups = self.cgroups.iter();
        cgroups.try_for_each(|row| writer.push_cgroup(row.cgroup, &row.path))
    }

    pub fn of(trace: &Trace) -> Result<Self, Error> {
        Ok(Self {
            tasks: trace.tasks()?,
            gaps: trace.gaps()?,
            opens: trace.opens()?,
            cgroups: trace.cgroups()?,
            stacks: trace.stacks()?,
            frames: trace.frames()?,
            wait_types: trace.wait_types()?,
            commands: trace.commands()?,
            workers: {
                let mut workers = Vec::new();
                trace.each_worker(&mut |row| workers.push(row.clone()))?;
                workers
            },
            spans: {
                let mut spans = Vec::new();
                trace.each_span(&mut |row| spans.push(row.clone()))?;
                spans
            },
        })
    }
}

/// The end of a trace: finished, or left as a killed recorder leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    Killed,
}

/// Records these switches, `rows_per_flush` at a time, and the sample of everything else.
pub fn record(path: &Path, switches: &[Switch], rows_per_flush: usize, end: End) {
    let mut writer = Writer::create(path, &Meta::default()).expect("a new path");
    Others::sample().push_to(&mut writer).expect("space");
    for rows in switches.chunks(rows_per_flush) {
        for row in rows {
            writer.push_switch(row).expect("space");
        }
        writer.flush().expect("space");
    }
    match end {
        End::Killed => drop(writer),
        End::Finished => writer
            .finish(&Meta::default(), &mut |_, _| ())
            .expect("space"),
    }
}

pub fn rows(trace: &Trace) -> Result<Vec<Switch>, Error> {
    let mut rows = Vec::new();
    trace.scan(Columns::all(), None, &mut |row| rows.push(*row))?;
    Ok(rows)
}
