//! Reads what the file says about itself: machine, events, and where their fields are. Says why a file cannot be
//! imported.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use linux_perf_data::{AttributeDescription, Feature, PerfFile};
use linux_perf_event_reader::{AttrFlags, Endianness, SampleFormat, SampleRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{CpuId, Timestamp};
use swtch_store::{ClockSample, Imported, Meta, TraceHost};

use super::fields::{Described, TracepointFormat, described};
use super::scheduler::EventContext;

/// `CLOCK_MONOTONIC`, if perf was asked to use it (`perf record -k`).
const CLOCK_MONOTONIC: u32 = 1;

/// The head of a file of perf.
#[derive(Debug)]
pub struct PerfHead {
    /// The tracepoints of the scheduler.
    pub formats: FxHashMap<u16, TracepointFormat>,
    /// Numbers of all other tracepoints in the file.
    pub others: FxHashSet<u16>,
    /// Byte order of all numbers in the file.
    pub endian: Endianness,
    /// True if switches are told by `perf record --switch-events`, and by no tracepoint.
    pub has_switch_records: bool,
    meta: Meta,
}

impl PerfHead {
    /// Reads the head; an error if no switches can be read from the file.
    pub fn of(file: &PerfFile, path: &Path) -> Result<Self> {
        let endian = file.endian();
        let events: Vec<String> = file
            .event_attributes()
            .iter()
            .filter_map(|event| event.name().map(str::to_owned))
            .collect();
        let tracepoint = named(file, "sched:sched_switch");
        let switching = tracepoint.or_else(|| file.event_attributes().iter().find(has_switches));
        let Some(switching) = switching else {
            bail!("{}", no_switches(&events));
        };
        check_fields(switching, tracepoint.is_some())?;
        let section = file.feature_section_data(Feature::TRACING_DATA);
        let Described { formats, others } = match section {
            Some(section) => described(section, endian)
                .context("the kernel's description of its tracepoints cannot be understood")?,
            None if tracepoint.is_none() => Described::default(),
            None => bail!("it lacks the kernel's description of its tracepoints"),
        };
        let meta = meta(file, path, events);
        Ok(Self {
            formats,
            others,
            endian,
            has_switch_records: tracepoint.is_none(),
            meta,
        })
    }

    /// Returns the metadata that is known before the first record is read.
    pub fn to_meta(&self) -> Meta {
        self.meta.clone()
    }

    /// Returns true if the file says where the fields of tracepoints are.
    pub fn describes_tracepoints(&self) -> bool {
        !(self.formats.is_empty() && self.others.is_empty())
    }

    /// Returns where and when a tracepoint was hit; `None` if the sample lacks it.
    pub fn place(
        &self,
        sample: &SampleRecord<'_>,
        format: &TracepointFormat,
        bytes: &[u8],
    ) -> Option<EventContext> {
        Some(EventContext {
            ts: Timestamp::from_ns(sample.timestamp?),
            cpu: CpuId::new(u16::try_from(sample.cpu?).ok()?),
            current: (sample.pid?.cast_unsigned(), sample.tid?.cast_unsigned()),
            flags: format
                .number("common_flags", bytes, self.endian)
                .unwrap_or(0),
        })
    }
}

fn named<'f>(file: &'f PerfFile, name: &str) -> Option<&'f AttributeDescription> {
    let mut events = file.event_attributes().iter();
    events.find(|event| event.name() == Some(name))
}

/// Whether `perf record --switch-events` adds switches to the records of this event.
fn has_switches(event: &&AttributeDescription) -> bool {
    let flags = event.attributes().flags;
    flags.contains(AttrFlags::CONTEXT_SWITCH) && flags.contains(AttrFlags::SAMPLE_ID_ALL)
}

/// Says why a file has no switches, and how to record some.
fn no_switches(events: &[String]) -> String {
    let found = match events {
        [] => String::new(),
        some => format!(", only {}", some.join(", ")),
    };
    let why = match events.iter().any(|event| event.contains("offcpu-time")) {
        true => " (--off-cpu keeps sums of time by stack, and no switches)",
        false => "",
    };
    format!(
        "it holds no sched:sched_switch events{found}{why}: record with perf sched record, or perf record -a -e \
         'sched:*'; without tracepoints, with perf record -a --switch-events"
    )
}

fn check_fields(event: &AttributeDescription, is_tracepoint: bool) -> Result<()> {
    let found = event.attributes().sample_format;
    for (field, what, option) in [
        (SampleFormat::RAW, "their fields", "-R"),
        (SampleFormat::TIME, "their time", "-T"),
        (SampleFormat::CPU, "their CPU", "-a or --sample-cpu"),
        (SampleFormat::TID, "their thread", "-a"),
    ] {
        let is_needed = is_tracepoint || field != SampleFormat::RAW;
        if is_needed && !found.contains(field) {
            bail!("its samples do not tell {what}: record with perf sched record, or add {option}");
        }
    }
    Ok(())
}

fn meta(file: &PerfFile, path: &Path, events: Vec<String>) -> Meta {
    let text = |found: Result<Option<&str>, _>| found.ok().flatten().unwrap_or_default().to_owned();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let command = file.cmdline().ok().flatten().unwrap_or_default();
    let cpus = file.nr_cpus().ok().flatten();
    Meta {
        host: TraceHost {
            hostname: text(file.hostname()),
            kernel_release: text(file.os_release()),
            machine: text(file.arch()),
            cpus: cpus.map_or(0, |cpus| cpus.nr_cpus_online),
            ..TraceHost::default()
        },
        clock: clock(file),
        command: command.into_iter().map(str::to_owned).collect(),
        scope: format!("import of {name}"),
        imported: Some(Imported {
            format: format!("perf.data, perf {}", text(file.perf_version())),
            file: name.into_owned(),
            events,
            // These are known only after the file has been read.
            runs_without_start: 0,
            unreadable_records: 0,
        }),
        ..Meta::default()
    }
}

/// perf's own clock has no fixed relation to others. Only with `perf record -k monotonic` is it the
/// trace's clock.
fn clock(file: &PerfFile) -> ClockSample {
    match file.clock_data() {
        Ok(Some(data)) if data.clockid == CLOCK_MONOTONIC => ClockSample {
            monotonic_ns: data.clockid_time_ns,
            boottime_ns: 0,
            realtime_ns: data.wall_clock_ns,
        },
        _ => ClockSample::default(),
    }
}
