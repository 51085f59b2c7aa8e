//! Switches in user mode, launches, yardsticks, and locks and channels that nobody else uses.

use swtch_bench::cost::{ArmSpec, Coroutine, LaunchEnd, Launcher, Uncontended, Yardstick};

use super::{Arm, ArmGroup, Effort, Menu, Role, Section};

/// Memory of a parent that forks, in MiB.
const BALLASTS: [u32; 2] = [16, 256];

/// Memory of a parent that forks, in MiB, with `--thorough`.
const MORE_BALLASTS: [u32; 4] = [1, 16, 256, 1024];

/// The kind of a switch of goroutines.
const GOROUTINE: &str = "goroutine";

impl Menu {
    /// Adds the groups of coroutines, launches and yardsticks, but not with `--quick`. Goroutines are slow to start (a
    /// compiler runs), so they are measured with `--thorough`, or when they are named.
    pub(super) fn add_others(&mut self, effort: Effort, words: &[String]) {
        if effort == Effort::Quick {
            return;
        }
        let trees = if effort == Effort::Thorough { 12 } else { 6 };
        let asks_for_runtimes = words
            .iter()
            .any(|word| word == "runtime" || word == GOROUTINE);
        let mut groups = vec![coroutines(), launches(effort), yardsticks()];
        if effort == Effort::Thorough || asks_for_runtimes {
            groups.push(runtimes());
        }
        for group in &mut groups {
            group.trees = trees;
        }
        self.groups.append(&mut groups);
    }
}

impl Arm {
    /// An arm that starts a task of a parent with `ballast_mib` MiB of memory, and waits.
    pub fn launch(how: Launcher, until: LaunchEnd, ballast_mib: u32) -> Self {
        Self {
            spec: ArmSpec::Launch {
                how,
                until,
                ballast_mib,
            },
            kind: launch_name(how, until, ballast_mib),
            role: Role::Price,
        }
    }

    /// An arm for an operation to compare a switch with.
    pub fn yardstick(yardstick: Yardstick) -> Self {
        let kind = match yardstick {
            Yardstick::SystemCall => "system-call",
            Yardstick::EmptyCall => "empty call",
            Yardstick::ClockRead => "clock read",
            _ => "copy of 64 KiB",
        };
        Self {
            spec: ArmSpec::Yardstick { yardstick },
            kind: kind.to_owned(),
            role: Role::Price,
        }
    }

    /// An arm for the empty system call that prices are set against.
    pub fn reference() -> Self {
        Self {
            role: Role::Reference,
            ..Self::yardstick(Yardstick::SystemCall)
        }
    }
}

fn coroutines() -> ArmGroup {
    let mut group = ArmGroup::new("coroutine", Section::User);
    for which in Coroutine::ALL {
        group.add(Arm {
            spec: ArmSpec::Coroutine { which: *which },
            kind: match which {
                Coroutine::Registers => "own switch",
                Coroutine::RegistersAndFloatControl => "own switch with FPU control",
                Coroutine::Corosensei => "corosensei",
                Coroutine::Ucontext => "ucontext",
                _ => "async task",
            }
            .to_owned(),
            role: Role::Price,
        });
    }
    group.add(Arm::reference());
    group.rounds = 8;
    group
}

fn runtimes() -> ArmGroup {
    let mut group = ArmGroup::new("runtime", Section::User);
    group.add(Arm {
        spec: ArmSpec::Goroutine,
        kind: GOROUTINE.to_owned(),
        role: Role::Price,
    });
    group.add(Arm::reference());
    group
}

fn launches(effort: Effort) -> ArmGroup {
    let mut group = ArmGroup::new("launch", Section::Launch);
    let mut add = |how, until, ballast_mib| group.add(Arm::launch(how, until, ballast_mib));
    for how in Launcher::ALL {
        if *how != Launcher::PosixSpawn {
            add(*how, LaunchEnd::FirstInstruction, 0);
        }
        add(*how, LaunchEnd::Joined, 0);
    }
    let ballasts: &[u32] = match effort {
        Effort::Thorough => &MORE_BALLASTS,
        _ => &BALLASTS,
    };
    for ballast in ballasts {
        add(Launcher::Fork, LaunchEnd::Joined, *ballast);
    }
    group.add(Arm::reference());
    group.rounds = 6;
    group
}

fn launch_name(how: Launcher, until: LaunchEnd, ballast_mib: u32) -> String {
    let how = match how {
        Launcher::Thread => "thread",
        Launcher::BareThread => "bare thread",
        Launcher::Fork => "fork",
        Launcher::Clone3 => "clone3",
        Launcher::Vfork => "vfork",
        _ => "posix_spawn",
    };
    let of = match ballast_mib {
        0 => String::new(),
        mib => format!(" of {mib} MiB"),
    };
    match until {
        LaunchEnd::FirstInstruction => format!("{how}{of}, to its first instruction"),
        _ => format!("{how}{of}, to its end"),
    }
}

fn yardsticks() -> ArmGroup {
    let mut group = ArmGroup::new("yardstick", Section::Yardstick);
    for yardstick in Yardstick::ALL {
        if *yardstick != Yardstick::SystemCall {
            group.add(Arm::yardstick(*yardstick));
        }
    }
    group.add(Arm::reference());
    group
}

/// Every lock and channel, used by one thread alone. `swtch cost` does not list them; an experiment
/// of the lab asks for them.
pub fn uncontended() -> ArmGroup {
    let mut group = ArmGroup::new("uncontended", Section::Yardstick);
    for what in Uncontended::ALL {
        group.add(Arm {
            spec: ArmSpec::Uncontended { what: *what },
            kind: uncontended_name(*what).to_owned(),
            role: Role::Price,
        });
    }
    group.add(Arm::reference());
    group
}

/// The name of a lock or channel that nobody else uses.
pub const fn uncontended_name(what: Uncontended) -> &'static str {
    match what {
        Uncontended::SpinLock => "spin lock",
        Uncontended::FutexLock => "futex word lock",
        Uncontended::PthreadMutex => "pthread mutex",
        Uncontended::StdMutex => "Rust mutex",
        Uncontended::ReadLock => "read lock",
        Uncontended::WriteLock => "write lock",
        Uncontended::CondvarSignal => "condvar signal",
        Uncontended::PosixSemaphore => "POSIX semaphore",
        Uncontended::SysvSemaphore => "System V semaphore",
        Uncontended::Eventfd => "eventfd",
        Uncontended::FutexWake => "futex wake",
        _ => "pipe",
    }
}
