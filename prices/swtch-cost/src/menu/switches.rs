//! Hand-overs: each primitive between threads and between processes, on one CPU and across CPUs.

use anyhow::Result;
use swtch_bench::cost::{Neighbour, RingSpec, neighbours};
use swtch_core::cost::{Members, MissingPrice, Place, Policy, Primitive};

use super::{Arm, ArmGroup, Effort, Menu, Role, Section};

/// The primitives that `explain` needs: one for each reason that a switch may have.
const QUICK: [Primitive; 7] = [
    Primitive::FutexShared,
    Primitive::Pipe,
    Primitive::SocketPair,
    Primitive::Epoll,
    Primitive::Eventfd,
    Primitive::SysvSemaphore,
    Primitive::Yield,
];

/// Primitives measured across CPUs: the barest, and the one that everybody measures.
const ACROSS: [Primitive; 2] = [Primitive::FutexShared, Primitive::Pipe];

impl Menu {
    /// Adds a group for each primitive on one CPU.
    ///
    /// `SCHED_FIFO` is measured when there is time: with `--thorough`, or when a kind is named.
    pub(super) fn add_switches(&mut self, effort: Effort, words: &[String]) {
        for primitive in Primitive::ALL {
            let is_named = words.iter().any(|word| word == primitive.as_str());
            if effort == Effort::Quick && !QUICK.contains(primitive) && !is_named {
                continue;
            }
            let policies: &[Policy] = match effort {
                Effort::Quick => &[Policy::Batch],
                Effort::Default if words.is_empty() => &[Policy::Batch, Policy::Default],
                Effort::Default | Effort::Thorough => Policy::ALL,
            };
            let group = self.switches(*primitive, policies, effort);
            self.groups.push(group);
        }
    }

    /// The primitive on one CPU, by members and policy.
    fn switches(&self, primitive: Primitive, policies: &[Policy], effort: Effort) -> ArmGroup {
        let cpu = self.cpu;
        let pair = |members, policy| RingSpec::pair(primitive, members, policy, cpu);
        let members: &[Members] = match primitive {
            Primitive::FutexPrivate => &[Members::Threads],
            _ => Members::ALL,
        };
        let first = pair(members[0], Policy::Batch);
        let mut group = ArmGroup::new(primitive.as_str(), Section::Switch);
        for policy in policies {
            for members in members {
                group.add(Arm::ring(pair(*members, *policy), Role::Price));
            }
        }
        group.add(Arm::ring(
            first,
            Role::Twin(group.position_of(members[0], Policy::Batch)),
        ));
        group.add(Arm::reference());
        (group.trees, group.rounds) = match effort {
            Effort::Quick => (6, 8),
            Effort::Default => (6, 10),
            Effort::Thorough => (24, 20),
        };
        group
    }

    /// Adds a group for each primitive that is measured across CPUs.
    pub(super) fn add_places(&mut self, effort: Effort) -> Result<()> {
        if effort == Effort::Quick {
            return Ok(());
        }
        let mut found: Vec<(Place, Option<(u32, u32)>)> = vec![(Place::Free, None)];
        for Neighbour { place, cpu } in neighbours(self.cpu)? {
            match cpu {
                Ok(other) => found.push((place, Some((self.cpu, other)))),
                Err(why) => self.missing.push(MissingPrice {
                    kind: place.as_str().to_owned(),
                    why,
                }),
            }
        }
        for primitive in ACROSS {
            let mut group = ArmGroup::new(&format!("{primitive}-across"), Section::Place);
            for (place, cpus) in &found {
                for members in Members::ALL {
                    let spec = RingSpec {
                        place: *place,
                        cpus: *cpus,
                        ..RingSpec::pair(primitive, *members, Policy::Default, self.cpu)
                    };
                    group.add(Arm::ring(spec, Role::Price));
                }
            }
            group.add(Arm::reference());
            (group.trees, group.rounds) = match effort {
                Effort::Thorough => (24, 20),
                _ => (6, 10),
            };
            self.groups.push(group);
        }
        Ok(())
    }
}
