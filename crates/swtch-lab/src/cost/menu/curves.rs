//! The indirect cost of a switch over a size: memory to fetch again, pages to look up again,
//! branches to predict again.

use swtch_bench::cost::{MemorySharing, Order, PageSize, Patterns, RingSpec, WorkSpec};
use swtch_core::cost::{Members, Primitive};

use super::{Arm, ArmGroup, CurveName, CurvePoint, Effort, Menu, Role, Section};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Sizes of working sets, in bytes. The longest walk takes a millisecond or so.
const SETS: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];

/// Walks over a working set, with the end of their curve's name and its label.
const WALKS: [(Order, MemorySharing, &str, &str); 3] = [
    (
        Order::Random,
        MemorySharing::Private,
        "random-private",
        "private, at random",
    ),
    (
        Order::Sequential,
        MemorySharing::Private,
        "sequential-private",
        "private, by address",
    ),
    (
        Order::Random,
        MemorySharing::Shared,
        "random-shared",
        "shared, at random (control)",
    ),
];

/// Sizes of rings: the kernel keeps six address-space identifiers per CPU
/// (`TLB_NR_DYN_ASIDS`, `arch/x86/mm/tlb.c`, v6.18); a ring of more must do without.
const RINGS: [u32; 9] = [2, 3, 4, 5, 6, 7, 8, 10, 12];

/// Numbers of branches in each hop.
const BRANCHES: [u32; 6] = [64, 256, 1024, 4096, 16_384, 32_768];

impl Menu {
    /// Adds the groups of all curves.
    pub(super) fn add_curves(&mut self, effort: Effort) {
        let mut groups = vec![self.working_sets(effort)];
        if effort != Effort::Quick {
            groups.push(self.rings_of_processes(effort));
            groups.push(self.branches(effort));
        }
        for group in &mut groups {
            (group.trees, group.rounds) = match effort {
                Effort::Thorough => (12, 15),
                _ => (6, 5),
            };
        }
        self.groups.append(&mut groups);
    }

    /// Private memory, at random and by address, and shared memory as the control.
    fn working_sets(&self, effort: Effort) -> ArmGroup {
        let mut group = ArmGroup::new("working-set", Section::Curve);
        for bytes in self.set_sizes(effort) {
            // A bill uses only the first walk, to bound what a task loses.
            let wanted = if effort == Effort::Quick {
                1
            } else {
                WALKS.len()
            };
            for (order, sharing, name, label) in WALKS.into_iter().take(wanted) {
                let work = WorkSpec::WorkingSet {
                    bytes,
                    order,
                    sharing,
                };
                let curve = CurveName {
                    name: format!("working-set-{name}"),
                    figure: "working-set",
                    label: label.to_owned(),
                    size_is: "working_set_bytes",
                };
                self.add_spot(&mut group, work, Members::Processes, 2, curve, bytes);
            }
        }
        group
    }

    /// Up to four times the last-level cache, when there is time. The size of the private cache is
    /// always among them.
    fn set_sizes(&self, effort: Effort) -> Vec<u64> {
        let private = swtch_host::private_cache_bytes();
        let mut sizes = match effort {
            Effort::Quick => vec![SETS[0]],
            Effort::Default | Effort::Thorough => SETS.to_vec(),
        };
        sizes.extend(private);
        if effort == Effort::Thorough {
            let last = swtch_host::last_level_cache_bytes().unwrap_or(32 * MIB);
            let largest = last * 4;
            sizes.extend([8 * KIB, 32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB]);
            sizes.extend(
                (3..)
                    .map(|doubling| MIB << doubling)
                    .take_while(|size| *size <= largest),
            );
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Processes and threads, without memory and with 64 pages each, in rings of growing size.
    fn rings_of_processes(&self, effort: Effort) -> ArmGroup {
        let mut group = ArmGroup::new("tlb", Section::Curve);
        let pages: &[u32] = match effort {
            Effort::Thorough => &[0, 64, 256, 1024],
            _ => &[0, 64],
        };
        let mut kinds: Vec<(u32, PageSize)> = pages
            .iter()
            .map(|pages| (*pages, PageSize::Small))
            .collect();
        if effort == Effort::Thorough {
            kinds.push((64, PageSize::Huge));
        }
        for (pages, size) in kinds {
            for count in RINGS {
                for members in Members::ALL {
                    self.add_ring_spot(&mut group, (pages, size), *members, count);
                }
            }
        }
        group
    }

    fn add_ring_spot(
        &self,
        group: &mut ArmGroup,
        (pages, size): (u32, PageSize),
        members: Members,
        count: u32,
    ) {
        let work = match pages {
            0 => WorkSpec::Nothing,
            _ => WorkSpec::Pages { pages, size },
        };
        let (huge, of_pages) = match size {
            PageSize::Huge => ("-huge", format!("{pages} huge pages")),
            PageSize::Small => ("", format!("{pages} pages")),
        };
        let curve = CurveName {
            name: format!("tlb-{members}-{pages}{huge}"),
            figure: "tlb",
            label: format!("{members}, {of_pages} each"),
            size_is: "members",
        };
        self.add_spot(group, work, members, count, curve, u64::from(count));
    }

    /// Branches with a pattern of their own per member, and with one for all as the control.
    fn branches(&self, effort: Effort) -> ArmGroup {
        let mut group = ArmGroup::new("branches", Section::Curve);
        let mut counts = BRANCHES.to_vec();
        if effort == Effort::Thorough {
            counts.extend([128, 512, 2048, 8192]);
            counts.sort_unstable();
        }
        for count in counts {
            for (patterns, name, label) in [
                (Patterns::PerMember, "own", "a pattern of its own"),
                (Patterns::Same, "same", "the same pattern (control)"),
            ] {
                let work = WorkSpec::Branches { count, patterns };
                let curve = CurveName {
                    name: format!("branches-{name}"),
                    figure: "branches",
                    label: label.to_owned(),
                    size_is: "branches",
                };
                self.add_spot(
                    &mut group,
                    work,
                    Members::Threads,
                    2,
                    curve,
                    u64::from(count),
                );
            }
        }
        group
    }

    fn add_spot(
        &self,
        group: &mut ArmGroup,
        work: WorkSpec,
        members: Members,
        count: u32,
        curve: CurveName,
        size: u64,
    ) {
        let ring = RingSpec {
            work,
            count,
            ..RingSpec::pair(Primitive::FutexShared, members, self.steady, self.cpu)
        };
        let arm = group.add(Arm {
            kind: format!("{} {size}", curve.name),
            ..Arm::ring(ring, Role::Part)
        });
        group.spots.push(CurvePoint { curve, size, arm });
    }
}
