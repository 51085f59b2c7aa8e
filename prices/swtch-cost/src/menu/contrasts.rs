//! Contrasts that show the parts of a switch: pairs that differ in one thing, each with a control
//! that must come to 0.
//!
//! Small differences are measured by the same ring, which does both works in turn
//! (`RingSpec::against`): two rings that do the same differ by about 1 %, by where their memory
//! happens to lie.

use swtch_bench::cost::{
    ArmSpec, ExtendedRegisters, Mitigation, MitigationSpec, Protected, RegisterEnding, RingCgroups,
    RingSpec, WorkSpec,
};
use swtch_core::cost::{Members, Policy, Primitive};

use super::{Arm, ArmGroup, ArmPair, Effort, Menu, Role, Section};
use crate::series::ArmOperation;

/// A delay near 1 % of a hop, to check that such a difference is found. Part of the multiplications
/// hides behind the calls of the hop: 20 came to 1.1 % on Zen 5, 10 to 0.35 %.
const INJECTED_LOOPS: u32 = 20;

impl Menu {
    /// Adds all contrasts, but not with `--quick`.
    pub(super) fn add_contrasts(&mut self, effort: Effort) {
        if effort == Effort::Quick {
            return;
        }
        let mut between_rings = vec![
            self.address_space(),
            self.mitigation(Mitigation::IndirectBranch, Protected::All),
            self.mitigation(Mitigation::StoreBypass, Protected::One),
            self.mitigation(Mitigation::L1dFlush, Protected::All),
            self.cgroups(),
        ];
        for group in &mut between_rings {
            (group.trees, group.rounds) = match effort {
                Effort::Thorough => (60, 15),
                _ => (16, 8),
            };
        }
        let mut registers = self.registers();
        (registers.trees, registers.rounds) = match effort {
            Effort::Thorough => (24, 30),
            _ => (8, 15),
        };
        self.groups.append(&mut between_rings);
        self.groups.push(registers);
    }

    /// Adds two arms that do the same and one with 1 % more, only when named.
    pub(super) fn add_self_check(&mut self, words: &[String]) {
        if !words.iter().any(|word| word == "self-check") {
            return;
        }
        let mut group = ArmGroup::new("self-check", Section::SelfCheck);
        let ring = self.ring(Members::Threads);
        let first = group.add(Arm::ring(ring.clone(), Role::Price));
        group.add(Arm::ring(ring.clone(), Role::Twin(first)));
        for (name, about, loops, control_of) in [
            (
                "injected-1-pct",
                "the same ring with about 1 % more to do",
                INJECTED_LOOPS,
                None,
            ),
            (
                "injected-control",
                "the same ring with the same to do",
                0,
                Some("injected-1-pct".to_owned()),
            ),
        ] {
            let delay = |loops| WorkSpec::Delay { loops };
            let ring = RingSpec {
                work: delay(1),
                against: Some(delay(1 + loops)),
                ..ring.clone()
            };
            let arm = group.add(Arm::ring(ring, Role::Part));
            group.pairs.push(ArmPair {
                name: name.to_owned(),
                about: about.to_owned(),
                with: ArmOperation::other_work(arm),
                without: ArmOperation::of(arm),
                control_of,
            });
        }
        (group.trees, group.rounds) = (20, 10);
        self.groups.push(group);
    }

    /// Two members without work that hand over by a shared futex word, under the steady policy.
    pub fn ring(&self, members: Members) -> RingSpec {
        RingSpec::pair(Primitive::FutexShared, members, self.steady, self.cpu)
    }

    /// Both members hand over by the same shared futex word; they differ in whether they share an
    /// address space.
    fn address_space(&self) -> ArmGroup {
        let mut group = ArmGroup::new("address-space", Section::Contrast);
        let threads = group.add(Arm::ring(self.ring(Members::Threads), Role::Part));
        let processes = group.add(Arm::ring(self.ring(Members::Processes), Role::Part));
        let twin = group.add(Arm::ring(self.ring(Members::Threads), Role::Twin(threads)));
        group.contrast(
            "address-space",
            "processes instead of threads, by the same shared futex",
            processes,
            threads,
        );
        group.control("threads instead of threads", twin, threads);
        group
    }

    /// Members that ask the kernel for protection, beside those that do not. Threads are the
    /// control, because they share all that is protected.
    fn mitigation(&self, mitigation: Mitigation, members: Protected) -> ArmGroup {
        let (name, about) = match mitigation {
            Mitigation::IndirectBranch => ("ibpb", "processes that ask for IBPB at switches"),
            Mitigation::StoreBypass => ("ssbd", "one of two processes asks for SSBD"),
            _ => (
                "l1d-flush",
                "processes that ask for a flush of the first cache",
            ),
        };
        let mut group = ArmGroup::new(name, Section::Contrast);
        let mut add = |of, mitigation: Option<MitigationSpec>| {
            let ring = RingSpec {
                mitigation,
                ..self.ring(of)
            };
            group.add(Arm::ring(ring, Role::Part))
        };
        let protection = Some(MitigationSpec {
            mitigation,
            members,
        });
        let (plain, protected) = (
            add(Members::Processes, None),
            add(Members::Processes, protection),
        );
        let (plain_threads, protected_threads) = (
            add(Members::Threads, None),
            add(Members::Threads, protection),
        );
        let twin = group.add(Arm::ring(self.ring(Members::Processes), Role::Twin(plain)));
        group.contrast(name, about, protected, plain);
        match mitigation {
            // The barrier is between address spaces, and threads share one.
            Mitigation::IndirectBranch => {
                group.control("threads that ask for it", protected_threads, plain_threads);
            }
            // This is a setting of each thread, so threads are no control.
            _ => {
                group.contrast(
                    &format!("{name}-threads"),
                    "the same between threads",
                    protected_threads,
                    plain_threads,
                );
                group.control("processes that do not ask for it", twin, plain);
            }
        }
        group
    }

    /// Members of two cgroups beside members of one, at the same depth.
    fn cgroups(&self) -> ArmGroup {
        let mut group = ArmGroup::new("cgroup", Section::Contrast);
        let mut add = |groups, role| {
            let ring = RingSpec {
                groups,
                // A fresh cgroup of version 1 has no real-time budget.
                policy: Policy::Batch,
                ..self.ring(Members::Processes)
            };
            group.add(Arm::ring(ring, role))
        };
        let one = add(RingCgroups::One, Role::Part);
        let two = add(RingCgroups::Two, Role::Part);
        let twin = add(RingCgroups::One, Role::Twin(one));
        group.contrast(
            "cgroup",
            "processes of two cgroups instead of one",
            two,
            one,
        );
        group.control("processes of one cgroup", twin, one);
        group
    }

    /// Register state that the kernel must save, beside the same instructions that leave none.
    pub fn registers(&self) -> ArmGroup {
        let mut group = ArmGroup::new("registers", Section::Contrast);
        let state = |registers, ending| WorkSpec::Registers { registers, ending };
        for registers in ExtendedRegisters::ALL {
            if registers == ExtendedRegisters::Init {
                continue;
            }
            let ring = RingSpec {
                work: state(registers, RegisterEnding::Cleared),
                against: Some(state(registers, RegisterEnding::Live)),
                ..self.ring(Members::Threads)
            };
            let name = registers_name(registers);
            let arm = group.add(Arm {
                spec: ArmSpec::Ring(ring),
                kind: name.to_owned(),
                role: Role::Part,
            });
            group.pairs.push(ArmPair {
                name: name.to_owned(),
                about: format!("{name} registers in use instead of cleared"),
                with: ArmOperation::other_work(arm),
                without: ArmOperation::of(arm),
                control_of: None,
            });
        }
        let cleared = state(ExtendedRegisters::Sse, RegisterEnding::Cleared);
        let control = group.add(Arm::ring(
            RingSpec {
                work: cleared,
                against: Some(cleared),
                ..self.ring(Members::Threads)
            },
            Role::Part,
        ));
        group.pairs.push(ArmPair {
            name: "registers-control".to_owned(),
            about: "cleared instead of cleared".to_owned(),
            with: ArmOperation::other_work(control),
            without: ArmOperation::of(control),
            control_of: Some("registers".to_owned()),
        });
        group
    }
}

const fn registers_name(registers: ExtendedRegisters) -> &'static str {
    match registers {
        ExtendedRegisters::Init => "init",
        ExtendedRegisters::Sse => "sse",
        ExtendedRegisters::Avx2 => "avx2",
        ExtendedRegisters::Avx512 => "avx512",
        _ => "amx",
    }
}

impl ArmGroup {
    /// Adds a contrast of two arms.
    fn contrast(&mut self, name: &str, about: &str, with: usize, without: usize) {
        self.pairs.push(ArmPair {
            name: name.to_owned(),
            about: about.to_owned(),
            with: ArmOperation::of(with),
            without: ArmOperation::of(without),
            control_of: None,
        });
    }

    /// Adds the control of the group's contrast.
    fn control(&mut self, about: &str, with: usize, without: usize) {
        self.pairs.push(ArmPair {
            name: format!("{}-control", self.name),
            about: about.to_owned(),
            with: ArmOperation::of(with),
            without: ArmOperation::of(without),
            control_of: Some(self.name.clone()),
        });
    }
}
