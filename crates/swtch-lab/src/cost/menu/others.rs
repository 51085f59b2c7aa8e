//! Switches in user mode, launches, and yardsticks.

use swtch_bench::cost::{ArmSpec, Coroutine, LanguageRuntime, LaunchEnd, Launcher, Yardstick};

use super::{Arm, ArmGroup, Effort, Menu, Role, Section};

/// Memory of a parent that forks, in MiB.
const BALLASTS: [u32; 2] = [16, 256];

/// Memory of a parent that forks, in MiB, with `--thorough`.
const MORE_BALLASTS: [u32; 4] = [1, 16, 256, 1024];

impl Menu {
    /// Adds the groups of coroutines, launches and yardsticks, but not with `--quick`. Runtimes of
    /// other languages are slow to start (a compiler runs), so they are measured with `--thorough`,
    /// or when one is named.
    pub(super) fn add_others(&mut self, effort: Effort, words: &[String]) {
        if effort == Effort::Quick {
            return;
        }
        let trees = if effort == Effort::Thorough { 12 } else { 6 };
        let asks_for_runtimes = words.iter().any(|word| {
            word == "runtime"
                || LanguageRuntime::ALL
                    .iter()
                    .any(|runtime| word == name_of(*runtime))
        });
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

const fn name_of(runtime: LanguageRuntime) -> &'static str {
    match runtime {
        LanguageRuntime::Goroutine => "goroutine",
        LanguageRuntime::Asyncio => "asyncio",
        LanguageRuntime::Greenlet => "greenlet",
        _ => "java-virtual-thread",
    }
}

fn runtimes() -> ArmGroup {
    let mut group = ArmGroup::new("runtime", Section::User);
    for which in LanguageRuntime::ALL {
        group.add(Arm {
            spec: ArmSpec::Runtime { which: *which },
            kind: name_of(*which).to_owned(),
            role: Role::Price,
        });
    }
    group.add(Arm::reference());
    group
}

fn launches(effort: Effort) -> ArmGroup {
    let mut group = ArmGroup::new("launch", Section::Launch);
    let mut add = |how, until, ballast_mib| {
        group.add(Arm {
            spec: ArmSpec::Launch {
                how,
                until,
                ballast_mib,
            },
            kind: launch_name(how, until, ballast_mib),
            role: Role::Price,
        });
    };
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
        let kind = match yardstick {
            Yardstick::SystemCall => continue,
            Yardstick::EmptyCall => "empty call",
            Yardstick::ClockRead => "clock read",
            _ => "copy of 64 KiB",
        };
        group.add(Arm {
            spec: ArmSpec::Yardstick {
                yardstick: *yardstick,
            },
            kind: kind.to_owned(),
            role: Role::Price,
        });
    }
    group.add(Arm::reference());
    group
}
