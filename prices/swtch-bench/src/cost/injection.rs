//! Forces switches upon a running program at random moments, and notes when it did what.
//!
//! ```text
//! injector (SCHED_FIFO, never on the CPU that it acts on)
//!   sleeps for a drawn time ─▶ looks which thread of the program runs, and where ─▶ draws a lot ─▶ acts, notes
//!                                       an interrupt  │ reads a perf event of that CPU: the kernel asks the CPU itself
//!                                       a switch      │ wakes the intruder of that CPU (SCHED_FIFO, pinned there)
//! ```
//!
//! The look comes before the draw, so it says nothing of the lot. A timer of the intruder's own would interrupt its CPU,
//! which in a virtual machine costs ten times as much as the switch; here each lot but "nothing" has one interrupt sent
//! by another CPU, and the lot "interrupt" has that alone.
//!
//! Nothing of the program is changed: no affinity, no priority. All threads are of this process and end with it, however
//! it ends. What this module does *not* do: record, or judge.

mod interrupt;
mod intruder;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use swtch_core::cost::injection::{InjectedMoment, Injection, TouchedMemory};
use swtch_core::{CpuId, Nanos, Pid, ProcessStat, Timestamp};

use super::work::random::SplitMix64;
use crate::clock;
use crate::cpu::{self, Policy};
use crate::error::Error;
use interrupt::InterruptedCpu;
use intruder::{Intruder, IntruderAct};

/// The longest time between two looks of which the last has met no thread on a CPU.
const LONGEST_IN_VAIN: Duration = Duration::from_millis(3);

/// The shortest time between two acts, so that the caches of the program are its own again.
const SHORTEST_GAP: Duration = Duration::from_millis(1);
/// The longest mean time between two looks, so that the injector ends soon when it is told to.
const LONGEST_GAP: Duration = Duration::from_millis(100);
/// The time after which the threads of the program, and its CPU time, are read again.
const REFRESH_EVERY: Nanos = Nanos::from_ns(500_000_000);
/// The most threads that one look examines: each takes some microseconds.
const MOST_LOOKED_AT: usize = 32;
/// The CPU time that may be spent before the program has used any.
const ADVANCE_NS: f64 = 1e6;
/// The longest time for which a CPU is held. A walk takes some hundred microseconds, but the hypervisor may have given the
/// CPU to others meanwhile.
const LONGEST_HOLD: Nanos = Nanos::from_ns(1_000_000);
/// For how long an intruder that was woken is waited for: a task of a higher class may have its CPU, or the hypervisor.
const PATIENCE: Duration = Duration::from_millis(100);
/// By how much a walk is counted dearer than it took: the program may have to fetch as much of its own memory again.
const WALK_FACTOR: f64 = 2.0;

/// What is to be injected.
#[derive(Clone, Copy, Debug)]
pub struct InjectionPlan {
    /// For how long.
    pub duration: Duration,
    /// The share of its CPU time, from 0 to 1, by which the program may be slowed.
    pub budget: f64,
    /// Chooses the moments and the lots.
    pub seed: u64,
}

/// The threads of the program, each with its process, and the CPU time that they have used so far.
#[derive(Clone, Debug, Default)]
pub struct ProgramThreads {
    /// The threads. Where there are none, the program has ended.
    pub threads: Vec<(Pid, Pid)>,
    /// CPU time of all of them since the first reading.
    pub cpu_time: Nanos,
}

/// What was injected.
#[derive(Clone, Debug, Default)]
pub struct InjectionLog {
    /// The moments, in the order of time.
    pub moments: Vec<InjectedMoment>,
    /// CPU time that injected tasks used on CPUs of the program.
    pub intruders_ran: Nanos,
    /// How long it went on.
    pub took: Duration,
    /// True if the program ended before the time was up.
    pub program_ended: bool,
}

/// Injects into a program until the time is up, the program ends, or `stop` is set.
///
/// # Errors
/// This process may use one CPU only, has no right to `SCHED_FIFO` or to perf events of a CPU, or a thread cannot be
/// started.
pub fn inject(
    plan: InjectionPlan,
    program: impl FnMut() -> ProgramThreads + Send,
    stop: &AtomicBool,
) -> Result<InjectionLog, Error> {
    // A thread of its own, so that its CPU and policy end with it.
    thread::scope(|scope| {
        let injector = scope.spawn(|| Injector::new(plan, program)?.run(stop));
        injector.join().map_err(|_| Error::Panicked {
            name: "injector".to_owned(),
        })?
    })
}

/// The mean CPU time that a moment costs a program, as far as the acts themselves are known: of a walk through memory
/// that is not in a cache, twice.
///
/// # Errors
/// As [`inject`].
pub fn cost_of_moment(stop: &AtomicBool) -> Result<Nanos, Error> {
    const ROUNDS: u32 = 3;
    let no_program = InjectionPlan {
        duration: Duration::ZERO,
        budget: 0.0,
        seed: 0,
    };
    thread::scope(|scope| {
        let injector = scope.spawn(|| {
            let mut injector = Injector::new(no_program, ProgramThreads::default)?;
            let cpu = injector.other_than(injector.own);
            for _ in 0..ROUNDS {
                for injection in Injection::LOTS {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    injector.act(cpu, injection)?;
                    thread::sleep(SHORTEST_GAP);
                    injector.settle();
                }
            }
            Ok(Nanos::from_rounded(injector.mean_cost_ns()))
        });
        injector.join().map_err(|_| Error::Panicked {
            name: "injector".to_owned(),
        })?
    })
}

/// The thread that draws and acts.
struct Injector<Program> {
    plan: InjectionPlan,
    program: Program,
    random: SplitMix64,
    cpus: Vec<u32>,
    /// The CPU that this thread is on.
    own: u32,
    acting: BTreeMap<u32, ActedOnCpu>,
    now: ProgramThreads,
    log: InjectionLog,
    /// The run that an intruder was woken for, and the place of its moment, until it has ended.
    pending: Option<(usize, u32)>,
    /// CPU time that acts have cost the program, as far as they are known.
    acts_ns: f64,
    /// CPU time that was taken from it before, to make intruders.
    made_ns: f64,
    /// How long the last interrupt took, until its CPU had answered.
    last_interrupt: Nanos,
}

/// What acts on one CPU.
struct ActedOnCpu {
    intruder: Intruder,
    interrupt: InterruptedCpu,
    /// How long the last walks took.
    walks: BTreeMap<TouchedMemory, Nanos>,
}

impl<Program: FnMut() -> ProgramThreads> Injector<Program> {
    fn new(plan: InjectionPlan, program: Program) -> Result<Self, Error> {
        let cpus: Vec<u32> = cpu::allowed()?
            .into_iter()
            .filter_map(|cpu| u32::try_from(cpu).ok())
            .collect();
        let [own, _, ..] = cpus[..] else {
            return Err(Error::NotHere(
                "a second CPU, from which switches are forced upon the first: this process may use one only".to_owned(),
            ));
        };
        cpu::move_to(0, own as usize)?;
        Policy::Fifo.adopt()?;
        Ok(Self {
            plan,
            program,
            random: SplitMix64::new(plan.seed),
            cpus,
            own,
            acting: BTreeMap::new(),
            now: ProgramThreads::default(),
            log: InjectionLog::default(),
            pending: None,
            acts_ns: 0.0,
            made_ns: 0.0,
            last_interrupt: Nanos::ZERO,
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<InjectionLog, Error> {
        let started = clock::now();
        let end = started.after(Nanos::from_ns(
            u64::try_from(self.plan.duration.as_nanos()).unwrap_or(u64::MAX),
        ));
        let mut refreshed = None;
        // The time after which to look again where nothing could be done; `None` after an act.
        let mut in_vain: Option<Duration> = None;
        while clock::now() < end && !stop.load(Ordering::Relaxed) {
            if refreshed.is_none_or(|last: Timestamp| clock::now() >= last.after(REFRESH_EVERY)) {
                refreshed = Some(clock::now());
                // Of a program with thousands of threads this takes a while.
                Policy::Other.adopt()?;
                self.now = (self.program)();
                Policy::Fifo.adopt()?;
                if self.now.threads.is_empty() {
                    self.log.program_ended = true;
                    break;
                }
            }
            thread::sleep(match in_vain {
                None => self.gap(started),
                Some(again) => again,
            });
            let longer = in_vain.map_or(SHORTEST_GAP, |last| (2 * last).min(LONGEST_IN_VAIN));
            in_vain = Some(longer);
            self.settle();
            if self.is_over_budget() {
                in_vain = None;
                continue;
            }
            match self.running_on() {
                Some(cpu) if cpu == self.own => {
                    // It cannot run where this thread does; next time it can.
                    self.own = self.other_than(cpu);
                    cpu::move_to(0, self.own as usize)?;
                    in_vain = Some(SHORTEST_GAP);
                }
                Some(cpu) if self.acting.contains_key(&cpu) => {
                    let lot = self.random.below(Injection::LOTS.len());
                    self.act(cpu, Injection::LOTS[lot])?;
                    in_vain = None;
                }
                Some(cpu) => self.prepare(cpu)?,
                None => {}
            }
        }
        thread::sleep(SHORTEST_GAP);
        self.settle();
        self.log.took =
            Duration::from_nanos(clock::now().since(started).unwrap_or(Nanos::ZERO).as_ns());
        Ok(self.log)
    }

    /// A CPU that this process may use, other than this one.
    fn other_than(&self, cpu: u32) -> u32 {
        let others = self.cpus.iter().filter(|other| **other != cpu);
        // The one after it, which is nearest: its memory is too.
        let next = others.clone().find(|other| **other > cpu);
        *next
            .or(others.clone().next())
            .expect("invariant: there are two CPUs")
    }

    /// A drawn time: at the mean rate the program is slowed by the budget. Times between random moments are exponential.
    fn gap(&mut self, started: Timestamp) -> Duration {
        let passed = clock::now().since(started).unwrap_or(Nanos::ZERO);
        let load = self.now.cpu_time.as_ns() as f64 / passed.as_ns().max(1) as f64;
        let allowed = (self.plan.budget * load).max(1e-9);
        let longest = LONGEST_GAP.as_nanos() as f64;
        let mean = (self.mean_cost_ns() / allowed).min(longest);
        let beyond = (mean - SHORTEST_GAP.as_nanos() as f64).max(0.0);
        let drawn = -beyond * (1.0 - self.random.share()).ln();
        SHORTEST_GAP + Duration::from_nanos(Nanos::from_rounded(drawn).as_ns())
    }

    fn mean_cost_ns(&self) -> f64 {
        /// Before the first act: an interrupt of a virtual machine, and the shares of walks.
        const GUESS_NS: f64 = 50_000.0;
        match self.log.moments.len() {
            0 => GUESS_NS,
            count => self.acts_ns / count as f64,
        }
    }

    fn is_over_budget(&self) -> bool {
        let used = self.now.cpu_time.as_ns() as f64;
        self.acts_ns + self.made_ns > self.plan.budget * used + ADVANCE_NS
    }

    /// The CPU of a thread of the program that runs; `None` if none was met.
    fn running_on(&mut self) -> Option<u32> {
        let count = self.now.threads.len();
        let first = self.random.below(count);
        let order = (0..count.min(MOST_LOOKED_AT)).map(|step| (first + step) % count);
        let mut threads = order.map(|index| self.now.threads[index]);
        threads.find_map(|(pid, tid)| {
            let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
            running_cpu(&stat).filter(|cpu| self.cpus.contains(cpu))
        })
    }

    /// Makes what acts on a CPU, which takes milliseconds.
    fn prepare(&mut self, cpu: u32) -> Result<(), Error> {
        if self.acting.contains_key(&cpu) {
            return Ok(());
        }
        let intruder = Intruder::start(cpu)?;
        // The first walk is longer than those later, which find something in the caches.
        let mut walks = BTreeMap::new();
        for memory in [TouchedMemory::ALL, TouchedMemory::ALL].concat() {
            intruder.wake(IntruderAct::Touch(memory))?;
            if let Some(run) = intruder.last_run(PATIENCE) {
                walks.insert(memory, run.length().min(LONGEST_HOLD));
                self.made_ns += WALK_FACTOR * run.length().as_ns() as f64;
            }
        }
        let acting = ActedOnCpu {
            intruder,
            interrupt: InterruptedCpu::open(cpu)?,
            walks,
        };
        self.acting.insert(cpu, acting);
        Ok(())
    }

    /// Does what was drawn for this CPU, and notes it.
    fn act(&mut self, cpu: u32, injection: Injection) -> Result<(), Error> {
        self.prepare(cpu)?;
        self.prepare(self.own)?;
        let act = self.act_of_intruder(cpu, injection);
        let at = clock::now();
        match act {
            Some((where_it_runs, act)) => {
                self.acting[&where_it_runs].intruder.wake(act)?;
                self.pending = Some((self.log.moments.len(), where_it_runs));
            }
            None if injection == Injection::Interrupt => {
                self.acting[&cpu].interrupt.interrupt()?;
                self.last_interrupt = clock::now().since(at).unwrap_or(Nanos::ZERO);
                self.acts_ns += self.last_interrupt.as_ns() as f64;
            }
            None => {}
        }
        self.log.moments.push(InjectedMoment {
            at,
            cpu: CpuId::new(u16::try_from(cpu).unwrap_or(u16::MAX)),
            injection,
            // When its CPU has answered, an interrupt has come; when another act came, the intruder tells.
            began: (injection == Injection::Interrupt).then(|| at.after(self.last_interrupt)),
        });
        Ok(())
    }

    /// Where an intruder has to act for this lot, and how; `None` if none has.
    fn act_of_intruder(&self, cpu: u32, injection: Injection) -> Option<(u32, IntruderAct)> {
        let walks = &self.acting[&cpu].walks;
        let lasted = |memory| walks.get(&memory).copied().unwrap_or(Nanos::ZERO);
        match injection {
            Injection::Nothing | Injection::Interrupt => None,
            Injection::Elsewhere => Some((self.own, IntruderAct::Nothing)),
            Injection::Switch => Some((cpu, IntruderAct::Nothing)),
            Injection::Touch(memory) => Some((cpu, IntruderAct::Touch(memory))),
            Injection::Hold(memory) => Some((cpu, IntruderAct::Hold(lasted(memory)))),
        }
    }

    /// Takes what the intruder that was woken last has noted. One that has not had its CPU yet is waited for.
    fn settle(&mut self) {
        let Some((place, cpu)) = self.pending.take() else {
            return;
        };
        let acting = self.acting.get_mut(&cpu).expect("invariant: it was woken");
        let Some(run) = acting.intruder.last_run(PATIENCE) else {
            return;
        };
        let moment = &mut self.log.moments[place];
        if !moment.injection.takes_the_cpu() {
            return;
        }
        moment.began = Some(run.began);
        let ran = run.length();
        let factor = match moment.injection {
            Injection::Touch(memory) => {
                acting.walks.insert(memory, ran.min(LONGEST_HOLD));
                WALK_FACTOR
            }
            _ => 1.0,
        };
        self.log.intruders_ran += ran;
        self.acts_ns += self.last_interrupt.as_ns() as f64 + factor * ran.as_ns() as f64;
    }
}

/// The CPU of a thread that runs, or is in a run queue, by its `stat` (`proc_pid_stat(5)`): the state is the first field
/// after the name, the CPU the 37th.
fn running_cpu(stat: &[u8]) -> Option<u32> {
    let stat = ProcessStat::parse(stat)?;
    stat.number(39).filter(|_| stat.state() == Some('R'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_thread_is_known_while_it_runs() {
        let stat = |state: char| {
            let fields: Vec<_> = (4..=52).map(|field| field.to_string()).collect();
            running_cpu(format!("7 (a) R (b) {state} {}", fields.join(" ")).as_bytes())
        };
        // The fields of this line hold their own numbers, and the CPU is the 39th.
        assert_eq!((stat('R'), stat('S')), (Some(39), None));
    }
}
