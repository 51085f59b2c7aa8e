//! The indirect cost of a switch over a size: memory to fetch again, pages to look up again,
//! branches to predict again.

use swtch_bench::cost::{MemorySharing, Order, PageSize, PatternSharing, RingSpec, WorkSpec};
use swtch_core::cost::{Members, Primitive};

use super::{Arm, ArmGroup, CurveName, CurvePoint, Effort, Menu, Role, Section};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Sizes of working sets, in bytes. The longest walk takes a millisecond or so.
const SETS: [u64; 6] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];

/// A way to walk over a working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkPattern {
    order: Order,
    sharing: MemorySharing,
    /// The curve of its costs over the size of the working set.
    pub curve: &'static str,
    label: &'static str,
}

impl WalkPattern {
    /// Memory of each member, at random.
    pub const RANDOM: Self = Self {
        order: Order::Random,
        sharing: MemorySharing::Private,
        curve: "working-set-random-private",
        label: "private, at random",
    };

    /// Memory of each member, by address.
    pub const SEQUENTIAL: Self = Self {
        order: Order::Sequential,
        sharing: MemorySharing::Private,
        curve: "working-set-sequential-private",
        label: "private, by address",
    };

    /// Memory that all members share, at random: the control, because the members warm the caches
    /// for each other.
    pub const SHARED: Self = Self {
        order: Order::Random,
        sharing: MemorySharing::Shared,
        curve: "working-set-random-shared",
        label: "shared, at random (control)",
    };

    /// All patterns of a working set. A bill uses only the first, to bound what a task loses.
    pub const ALL: [Self; 3] = [Self::RANDOM, Self::SEQUENTIAL, Self::SHARED];
}

/// The curve that [`Menu::add_strides`] adds.
pub const STRIDES: &str = "stride";

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

    fn working_sets(&self, effort: Effort) -> ArmGroup {
        let mut group = ArmGroup::new("working-set", Section::Curve);
        let walks = match effort {
            Effort::Quick => &WalkPattern::ALL[..1],
            Effort::Default | Effort::Thorough => &WalkPattern::ALL,
        };
        self.add_working_sets(&mut group, &self.set_sizes(effort), walks);
        group
    }

    /// Adds a curve for each of the `walks`, over working sets of these sizes in bytes.
    pub fn add_working_sets(&self, group: &mut ArmGroup, sizes: &[u64], walks: &[WalkPattern]) {
        for bytes in sizes.iter().copied() {
            for walk in walks {
                let work = WorkSpec::WorkingSet {
                    bytes,
                    order: walk.order,
                    sharing: walk.sharing,
                };
                let curve = CurveName {
                    name: walk.curve.to_owned(),
                    figure: "working-set",
                    label: walk.label.to_owned(),
                    size_is: "working_set_bytes",
                };
                self.add_spot(group, work, Members::Processes, 2, curve, bytes);
            }
        }
    }

    /// Adds a curve over the distance from line to line, in bytes, of lines that are spread over
    /// `reach` bytes. `swtch cost` does not list it; an experiment of the lab asks for it.
    pub fn add_strides(&self, group: &mut ArmGroup, reach: u64, strides: &[u64]) {
        for stride in strides.iter().copied() {
            let work = WorkSpec::Strided {
                bytes: reach,
                stride,
            };
            let curve = CurveName {
                name: STRIDES.to_owned(),
                figure: STRIDES,
                label: WalkPattern::RANDOM.label.to_owned(),
                size_is: "stride_bytes",
            };
            self.add_spot(group, work, Members::Processes, 2, curve, stride);
        }
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
                (PatternSharing::PerMember, "own", "a pattern of its own"),
                (PatternSharing::Same, "same", "the same pattern (control)"),
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
