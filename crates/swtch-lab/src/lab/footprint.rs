//! `footprint`: the indirect cost of a switch, by memory and by registers.
//!
//! ```text
//!  a hop with work  ─ the work, hot and alone ─▶ net ─ net of a ring without work ─▶ indirect
//!                                                       └ direct
//! ```
//!
//! Four groups: working sets, strides, registers, and the same ring on one CPU, on two, and free.
//! Walks over memory that both processes share are the control: they must show no indirect cost,
//! because the processes warm the caches for each other.

use std::time::Duration;

use anyhow::{Result, ensure};
use swtch_bench::cost::{MemorySharing, Neighbour, Order, RingSpec, WorkSpec, home, neighbours};
use swtch_core::cost::{Estimate, Members, Place, Policy, Primitive};
use swtch_plot::Picture;
use swtch_plot::content::{
    Axis, Chart, Content, Dots, Line, Mark, Measure, NamedDot, Scale, Style,
};
use swtch_report::report::{Cell, Sheet};

use super::claim::{Answer, Verdict, all_of};
use super::findings::{Findings, FindingsTable};
use super::parameters::{ParameterValue, Parameters};
use super::room::ExperimentContext;
use super::timed::{
    self, Timed, WHISKERS, cells, dot, gap, is_larger, is_within, subtitle, time, times,
};
use crate::cost::menu::{Arm, ArmGroup, Menu, Role, Section};
use crate::cost::series::{ArmOperation, Blocks};

const SETS: &str = "working sets";
const STRIDES: &str = "strides";
const REGISTERS: &str = "registers";
const PLACES: &str = "places";

/// Largest working set in bytes; each of the two processes has one.
const MOST_BYTES: u64 = 256 << 20;

/// Second-level cache in bytes, where the kernel shows none.
const USUAL_CACHE: u64 = 512 << 10;

/// A line of the cache, in bytes.
const LINE: u64 = 64;

/// The parameters of the experiment, checked.
struct FootprintParameters {
    sizes: Vec<u64>,
    strides: Vec<u64>,
    reach: u64,
    trees: usize,
    cpu: u32,
    policy: Policy,
}

/// The ring without work is the first arm of each group.
const PLAIN: usize = 0;

/// Runs the experiment.
///
/// # Errors
///
/// A parameter makes no sense, or no process can be started.
pub fn run(parameters: &Parameters, room: &mut ExperimentContext) -> Result<Findings> {
    let menu = Menu::of_groups(Vec::new(), home()?)?;
    let asked = FootprintParameters::read(parameters, &menu)?;
    let groups = vec![
        asked.sets(),
        asked.strides(),
        asked.registers(&menu),
        asked.places()?,
    ];
    let budget = Duration::from_secs(if room.is_quick { 18 } else { 55 });
    let timed = Timed::side_by_side(groups, budget, room)?;
    let mut findings = timed.findings();
    let blocks = |name| timed.group(name).map(Blocks::of);
    if let Some(sets) = blocks(SETS) {
        let spots = asked.spots(&sets);
        findings.tables.push(sets_table(&spots));
        findings.pictures.push(sets_picture(&sets, &spots));
        findings.sentences.extend(asked.control(&sets, &spots));
        let places = blocks(PLACES);
        findings
            .answers
            .extend(asked.afterwards(&sets, &spots, places.as_ref()));
    }
    if let Some(strides) = blocks(STRIDES) {
        findings.tables.push(asked.strides_table(&strides));
        findings.pictures.push(asked.strides_picture(&strides));
    }
    if let Some(registers) = blocks(REGISTERS) {
        findings.tables.push(registers_table(&registers));
        findings.pictures.push(registers_picture(&registers));
        findings.answers.push(registers_add(&registers));
    }
    if let Some(places) = blocks(PLACES) {
        findings.tables.push(places_table(&places));
    }
    Ok(findings)
}

impl FootprintParameters {
    fn read(parameters: &Parameters, menu: &Menu) -> Result<Self> {
        let mut sizes = parameters.counts("sizes");
        sizes.extend(swtch_host::private_cache_bytes());
        sizes.sort_unstable();
        sizes.dedup();
        let reach = match parameters.find("reach") {
            Some(ParameterValue::Size(reach)) => *reach,
            other => unreachable!("the experiment's file has a size reach: {other:?}"),
        };
        for bytes in sizes.iter().chain([&reach]) {
            ensure!(
                (LINE..=MOST_BYTES).contains(bytes),
                "{} is not between one line of {LINE} bytes and 256 MiB",
                ParameterValue::Size(*bytes)
            );
        }
        let strides = parameters.counts("strides");
        for stride in &strides {
            ensure!(
                *stride > 0 && stride % LINE == 0 && *stride <= reach,
                "a stride of {} is no multiple of {LINE} bytes within the reach",
                ParameterValue::Size(*stride)
            );
        }
        Ok(Self {
            sizes,
            strides,
            reach,
            trees: timed::trees(parameters)?,
            cpu: menu.cpu,
            policy: menu.steady,
        })
    }

    fn ring(&self, work: WorkSpec) -> RingSpec {
        let (primitive, members) = (Primitive::FutexShared, Members::Processes);
        RingSpec {
            work,
            ..RingSpec::pair(primitive, members, self.policy, self.cpu)
        }
    }

    /// A group that begins with the ring without work.
    fn group(&self, name: &str) -> ArmGroup {
        let mut group = ArmGroup::new(name, Section::Curve);
        (group.trees, group.rounds) = (self.trees, 6);
        group.has_all_baselines = true;
        group.add(Arm::ring(self.ring(WorkSpec::Nothing), Role::Price));
        group
    }

    fn sets(&self) -> ArmGroup {
        let mut group = self.group(SETS);
        for bytes in &self.sizes {
            for (order, sharing) in WALKS {
                let work = WorkSpec::WorkingSet {
                    bytes: *bytes,
                    order,
                    sharing,
                };
                group.add(Arm::ring(self.ring(work), Role::Part));
            }
        }
        timed::add_twin(&mut group);
        group
    }

    fn strides(&self) -> ArmGroup {
        let mut group = self.group(STRIDES);
        for stride in &self.strides {
            let work = WorkSpec::Strided {
                bytes: self.reach,
                stride: *stride,
            };
            group.add(Arm::ring(self.ring(work), Role::Part));
        }
        timed::add_twin(&mut group);
        group
    }

    fn registers(&self, menu: &Menu) -> ArmGroup {
        let mut group = menu.registers();
        // The effect is about a hundredth of a switch, so more trees and rounds are needed.
        (group.trees, group.rounds) = (self.trees.max(10), 20);
        group
    }

    /// The same rings on one CPU, on two, and free. They walk over half of the second-level cache,
    /// so that it fits where a process has such a cache to itself.
    fn places(&self) -> Result<ArmGroup> {
        let mut group = ArmGroup::new(PLACES, Section::Curve);
        (group.trees, group.rounds) = (self.trees, 8);
        group.has_all_baselines = true;
        let mut places = vec![(Place::SameCpu, Some((self.cpu, self.cpu)))];
        let near = neighbours(self.cpu)?
            .into_iter()
            .find_map(|Neighbour { place, cpu }| Some((place, Some((self.cpu, cpu.ok()?)))));
        places.extend(near);
        places.push((Place::Free, None));
        for (place, cpus) in places {
            for work in [WorkSpec::Nothing, fitting()] {
                let ring = RingSpec {
                    place,
                    cpus,
                    policy: Policy::Default,
                    ..self.ring(work)
                };
                group.add(Arm::ring(ring, Role::Part));
            }
        }
        Ok(group)
    }

    fn spots(&self, blocks: &Blocks<'_>) -> Vec<SizeResult> {
        let sizes = self.sizes.iter().enumerate();
        let spot = |(index, bytes): (usize, &u64)| {
            let arm = PLAIN + 1 + index * WALKS.len();
            let [random, sequential, control] =
                [0, 1, 2].map(|walk| blocks.net_beyond(PLAIN, arm + walk));
            SizeResult {
                bytes: *bytes,
                walk: blocks.estimate(ArmOperation::baseline(arm)),
                random,
                sequential,
                control,
            }
        };
        sizes.map(spot).collect()
    }
}

/// Walks over a working set: two, and the control.
const WALKS: [(Order, MemorySharing); 3] = [
    (Order::Random, MemorySharing::Private),
    (Order::Sequential, MemorySharing::Private),
    (Order::Random, MemorySharing::Shared),
];

fn fitting() -> WorkSpec {
    WorkSpec::WorkingSet {
        bytes: swtch_host::private_cache_bytes().unwrap_or(USUAL_CACHE) / 2,
        order: Order::Random,
        sharing: MemorySharing::Private,
    }
}

/// The results for one working-set size.
struct SizeResult {
    bytes: u64,
    /// Time of the random walk, hot and alone.
    walk: Option<Estimate>,
    /// Indirect cost of a switch, ns.
    random: Option<Estimate>,
    sequential: Option<Estimate>,
    control: Option<Estimate>,
}

/// The direct cost of a switch: the ring without work.
fn direct(blocks: &Blocks<'_>) -> Option<Estimate> {
    blocks.difference(ArmOperation::baseline(PLAIN), ArmOperation::of(PLAIN))
}

fn sets_table(spots: &[SizeResult]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint",
        &[
            "working_set",
            "working_set_bytes",
            "walk_ns",
            "random_ns",
            "random_half_width_ns",
            "random_low_ns",
            "random_high_ns",
            "per_line_ns",
            "sequential_ns",
            "sequential_half_width_ns",
            "sequential_low_ns",
            "sequential_high_ns",
            "shared_ns",
            "shared_half_width_ns",
            "shared_low_ns",
            "shared_high_ns",
        ],
    );
    sheet.not_in_tables = &[
        "working_set_bytes",
        "random_low_ns",
        "random_high_ns",
        "sequential_low_ns",
        "sequential_high_ns",
        "shared_low_ns",
        "shared_high_ns",
    ];
    let row = |spot: &SizeResult| {
        let point = |of: Option<f64>| of.map_or(Cell::Missing, Cell::Estimated);
        let lines = (spot.bytes / LINE) as f64;
        let mut all = vec![
            Cell::text(ParameterValue::Size(spot.bytes).to_string()),
            Cell::Count(spot.bytes),
            point(spot.walk.map(|walk| walk.point)),
        ];
        all.extend(cells(spot.random.as_ref()));
        all.push(point(spot.random.map(|random| random.point / lines)));
        all.extend(cells(spot.sequential.as_ref()));
        all.extend(cells(spot.control.as_ref()));
        all
    };
    sheet.rows = spots.iter().map(row).collect();
    FindingsTable {
        title:
            "What a switch costs afterwards, by memory that each process walks over: at random, by \
                address, and over memory that both share"
                .to_owned(),
        sheet,
    }
}

impl FootprintParameters {
    /// A sentence that sets the control beside the walk that it controls.
    fn control(&self, blocks: &Blocks<'_>, spots: &[SizeResult]) -> Option<String> {
        // Only what fits into a CPU's own cache: beyond it, the result also depends on others.
        let fits = |spot: &&SizeResult| {
            spot.bytes <= swtch_host::private_cache_bytes().unwrap_or(USUAL_CACHE)
                && spot.random.is_some()
                && spot.control.is_some()
        };
        let spot = spots.iter().rfind(fits)?;
        Some(format!(
            "A switch alone costs {}; after it, walking over {} costs {} more than without a switch, and {} more \
             where the memory is shared.",
            time(&direct(blocks)?),
            ParameterValue::Size(spot.bytes),
            time(spot.random.as_ref()?),
            time(spot.control.as_ref()?)
        ))
    }

    /// B4: the indirect cost can exceed the switch itself, and processes that have a CPU each lose
    /// less.
    fn afterwards(
        &self,
        blocks: &Blocks<'_>,
        spots: &[SizeResult],
        places: Option<&Blocks<'_>>,
    ) -> Option<Answer> {
        let direct = direct(blocks)?;
        let known: Vec<(u64, Estimate)> = spots
            .iter()
            .filter_map(|spot| Some((spot.bytes, spot.random?)))
            .collect();
        let (_, largest) = known.last()?;
        let exceeds = |estimate: &Estimate| is_within(&gap(estimate, &direct), 0.0..f64::INFINITY);
        let first = known
            .iter()
            .find(|(_, lost)| exceeds(lost) == Verdict::Holds);
        let (words, verdict) = match first {
            Some((bytes, lost)) => (
                format!(
                    "at {}: {} afterwards, {} the switch itself",
                    ParameterValue::Size(*bytes),
                    time(lost),
                    time(&direct)
                ),
                Verdict::Holds,
            ),
            None => (
                format!(
                    "at most {} afterwards, {} the switch itself",
                    time(largest),
                    time(&direct)
                ),
                exceeds(largest),
            ),
        };
        let (more, spared) = places.map_or_else(no_places, a_cpu_of_its_own);
        Some(Answer {
            claim: "B4",
            ours: format!("{words}; {more}"),
            verdict: all_of([verdict, spared]),
        })
    }
}

fn no_places() -> (String, Verdict) {
    (
        "places were not compared".to_owned(),
        Verdict::Undecided("it was ended before places were compared".to_owned()),
    )
}

/// Whether processes that have a CPU each lose less than two on one CPU, and what they lose when
/// the kernel places them.
fn a_cpu_of_its_own(places: &Blocks<'_>) -> (String, Verdict) {
    let lost = |is_there: fn(Place) -> bool| {
        let arms = places.group().arms.iter();
        let plain = arms
            .clone()
            .position(|arm| arm.as_ring().is_some_and(|ring| is_there(ring.place)))?;
        places.net_beyond(plain, plain + 1)
    };
    let together = lost(|place| place == Place::SameCpu);
    let apart = lost(|place| place != Place::SameCpu && place != Place::Free);
    let free = lost(|place| place == Place::Free);
    let (Some(together), Some(apart)) = (together, apart) else {
        return (
            "a CPU of one's own could not be tried".to_owned(),
            match timed::cpus() {
                1 => Verdict::CannotBeTested("this process may use one CPU only".to_owned()),
                _ => Verdict::Undecided("too few blocks counted".to_owned()),
            },
        );
    };
    let free = free.map_or_else(String::new, |free| format!(", {} free", time(&free)));
    (
        format!(
            "half the second-level cache each: {} afterwards on one CPU, {} on a CPU each{free}",
            time(&together),
            time(&apart)
        ),
        is_within(&gap(&together, &apart), 0.0..f64::INFINITY),
    )
}

fn sets_picture(blocks: &Blocks<'_>, spots: &[SizeResult]) -> Picture {
    let line = |label: &str, of: fn(&SizeResult) -> Option<Estimate>| Line {
        label: label.to_owned(),
        style: Style::Measured,
        colour: None,
        points: spots
            .iter()
            .filter_map(|spot| Some(dot(spot.bytes as f64, &of(spot)?)))
            .collect(),
    };
    let mut lines = vec![
        line("private, at random", |spot| spot.random),
        line("private, by address", |spot| spot.sequential),
        line("shared (control)", |spot| spot.control),
    ];
    lines.extend(direct(blocks).map(|direct| {
        Line {
            label: "the switch itself".to_owned(),
            style: Style::Ideal,
            colour: None,
            points: spots
                .iter()
                .map(|spot| dot(spot.bytes as f64, &direct))
                .collect(),
        }
    }));
    Picture {
        name: "footprint".to_owned(),
        title: "What a switch costs afterwards, by memory".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "Net of the walk itself, hot and alone, and of a switch without memory. {WHISKERS}"
        ),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: sizes_axis("memory that each process walks over"),
            y: time_axis("time per switch"),
            lines,
            marks: cache_marks(),
        }),
    }
}

fn sizes_axis(name: &str) -> Axis {
    Axis {
        name: name.to_owned(),
        measure: Measure::Size,
        scale: Scale::Logarithmic,
    }
}

fn time_axis(name: &str) -> Axis {
    Axis {
        name: name.to_owned(),
        measure: Measure::Time,
        scale: Scale::Logarithmic,
    }
}

/// The sizes of the caches, where the kernel shows them.
fn cache_marks() -> Vec<Mark> {
    let caches = [
        ("cache_l1d_bytes", "L1d"),
        ("cache_l2_bytes", "L2"),
        ("cache_l3_bytes", "L3"),
    ];
    let mark = |(fact, label): (&str, &str)| {
        Some(Mark {
            at: timed::fact_words(fact)?.parse().ok()?,
            label: label.to_owned(),
        })
    };
    caches.into_iter().filter_map(mark).collect()
}

impl FootprintParameters {
    fn strides_table(&self, blocks: &Blocks<'_>) -> FindingsTable {
        let mut sheet = Sheet::new(
            "footprint-stride",
            &[
                "stride",
                "stride_bytes",
                "lines",
                "walk_ns",
                "indirect_ns",
                "indirect_half_width_ns",
                "indirect_low_ns",
                "indirect_high_ns",
                "per_line_ns",
            ],
        );
        sheet.not_in_tables = &["stride_bytes", "indirect_low_ns", "indirect_high_ns"];
        let row = |(index, stride): (usize, &u64)| {
            let arm = PLAIN + 1 + index;
            let point = |of: Option<f64>| of.map_or(Cell::Missing, Cell::Estimated);
            let lines = self.reach / stride;
            let lost = blocks.net_beyond(PLAIN, arm);
            let mut all = vec![
                Cell::text(ParameterValue::Size(*stride).to_string()),
                Cell::Count(*stride),
                Cell::Count(lines),
                point(
                    blocks
                        .estimate(ArmOperation::baseline(arm))
                        .map(|walk| walk.point),
                ),
            ];
            all.extend(cells(lost.as_ref()));
            all.push(point(lost.map(|lost| lost.point / lines as f64)));
            all
        };
        sheet.rows = self.strides.iter().enumerate().map(row).collect();
        FindingsTable {
            title: format!(
                "What a switch costs afterwards, by the distance of the lines over {}",
                ParameterValue::Size(self.reach)
            ),
            sheet,
        }
    }

    fn strides_picture(&self, blocks: &Blocks<'_>) -> Picture {
        let point = |(index, stride): (usize, &u64)| {
            let lost = blocks.net_beyond(PLAIN, PLAIN + 1 + index)?;
            let lines = (self.reach / stride) as f64;
            Some(dot(*stride as f64, &times(&lost, 1.0 / lines)))
        };
        Picture {
            name: "footprint-stride".to_owned(),
            title: "What a switch costs afterwards for each line, by their distance".to_owned(),
            subtitle: subtitle(),
            explanation: format!(
                "Lines at random over {} of each process. {WHISKERS}",
                ParameterValue::Size(self.reach)
            ),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: sizes_axis("from line to line"),
                y: time_axis("time per line and switch"),
                lines: vec![Line {
                    label: "private, at random".to_owned(),
                    style: Style::Measured,
                    colour: None,
                    points: self.strides.iter().enumerate().filter_map(point).collect(),
                }],
                marks: Vec::new(),
            }),
        }
    }
}

fn registers_table(blocks: &Blocks<'_>) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint-registers",
        &[
            "registers",
            "adds_ns",
            "adds_half_width_ns",
            "adds_low_ns",
            "adds_high_ns",
            "ratio",
            "seen",
        ],
    );
    sheet.not_in_tables = &["adds_low_ns", "adds_high_ns"];
    for pair in &blocks.group().pairs {
        if let Some(contrast) = blocks.contrast(pair.without, pair.with) {
            let mut all = vec![Cell::text(pair.about.as_str())];
            all.extend(cells(Some(&contrast.difference)));
            all.push(Cell::Ratio(contrast.ratio.point));
            all.push(
                blocks
                    .proof(pair.without, pair.with)
                    .map_or(Cell::Missing, Cell::text),
            );
            sheet.rows.push(all);
        }
    }
    FindingsTable {
        title: "What register state adds to a switch: in use instead of cleared".to_owned(),
        sheet,
    }
}

fn registers_picture(blocks: &Blocks<'_>) -> Picture {
    let pairs = blocks.group().pairs.iter();
    let row = pairs.filter_map(|pair| {
        let adds = blocks.contrast(pair.without, pair.with)?.difference;
        Some(NamedDot {
            label: pair.name.clone(),
            series: None,
            value: adds.point,
            interval: Some((adds.low, adds.high)),
        })
    });
    Picture {
        name: "footprint-registers".to_owned(),
        title: "What register state adds to a switch".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "In use at the switch instead of cleared, by the same ring in turn. {WHISKERS}"
        ),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis {
                scale: Scale::Linear,
                ..time_axis("time added to a switch")
            },
            rows: row.collect(),
        }),
    }
}

/// B3: vector registers in use add to the switch. The widest that this machine has decide.
fn registers_add(blocks: &Blocks<'_>) -> Answer {
    let group = blocks.group();
    let vectors = group
        .pairs
        .iter()
        .filter(|pair| pair.name.starts_with("avx"));
    let found: Vec<_> = vectors
        .filter_map(|pair| Some((pair, blocks.contrast(pair.without, pair.with)?)))
        .collect();
    let words: Vec<String> = found
        .iter()
        .map(|(pair, contrast)| format!("{} adds {}", pair.name, time(&contrast.difference)))
        .collect();
    let verdict = match found.last() {
        None => Verdict::CannotBeTested(
            "this CPU has no vector registers that can be cleared".to_owned(),
        ),
        Some((pair, contrast)) => {
            let twin = group
                .twin_of(pair)
                .and_then(|twin| blocks.contrast(twin.without, twin.with));
            is_larger(contrast, twin.as_ref())
        }
    };
    Answer {
        claim: "B3",
        ours: words.join(", "),
        verdict,
    }
}

fn places_table(blocks: &Blocks<'_>) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint-place",
        &[
            "place",
            "hand_over_ns",
            "hand_over_half_width_ns",
            "hand_over_low_ns",
            "hand_over_high_ns",
            "indirect_ns",
            "indirect_half_width_ns",
            "indirect_low_ns",
            "indirect_high_ns",
        ],
    );
    sheet.not_in_tables = &[
        "hand_over_low_ns",
        "hand_over_high_ns",
        "indirect_low_ns",
        "indirect_high_ns",
    ];
    let arms: Vec<&Arm> = blocks.group().arms.iter().collect();
    for (pair, arms) in arms.chunks_exact(2).enumerate() {
        let plain = pair * 2;
        let place = arms[0].as_ring().map_or("", |ring| ring.place.as_str());
        let mut all = vec![Cell::text(place)];
        all.extend(cells(
            blocks
                .difference(ArmOperation::baseline(plain), ArmOperation::of(plain))
                .as_ref(),
        ));
        all.extend(cells(blocks.net_beyond(plain, plain + 1).as_ref()));
        sheet.rows.push(all);
    }
    FindingsTable {
        title:
            "Two processes, each walking over half the second-level cache, on one CPU and elsewhere"
                .to_owned(),
        sheet,
    }
}
