//! Writes packets: gathers events into bundles, one CPU each, and converts moments from the trace's
//! clock to the format's.

use std::io::Write;

use anyhow::{Context as _, Result};
use prost::Message as _;
use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Gap, Level, Timestamp};
use swtch_output::text::escaped;
use swtch_store::Meta;

use super::message::{
    ClockSnapshot, FtraceEvent, FtraceEventBundle, SnapshotClock, SystemInfo, TracePacket,
    TrackDescriptor, Utsname,
};

/// Number of events of a CPU that go into one bundle.
const EVENTS_A_BUNDLE: usize = 512;

/// Clock ids: `BuiltinClock`, defined in `common/builtin_clock.proto`.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

/// Writes packets, and gathers events until a bundle is full.
pub struct Packets<'a> {
    out: &'a mut dyn Write,
    /// Time in suspend, by which `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`.
    ahead_ns: u64,
    bundles: FxHashMap<CpuId, Vec<FtraceEvent>>,
    bytes: Vec<u8>,
}

impl<'a> Packets<'a> {
    /// Without any packet yet; `meta` tells how far the clocks are apart.
    pub fn new(meta: &Meta, out: &'a mut dyn Write) -> Self {
        let clock = &meta.clock;
        Self {
            out,
            ahead_ns: clock.boottime_ns.saturating_sub(clock.monotonic_ns),
            bundles: FxHashMap::default(),
            bytes: Vec::new(),
        }
    }

    /// Writes clocks, kernel and processor. Without the kernel's version, states are read as those
    /// of 4.4.
    pub fn write_head(&mut self, meta: &Meta) -> Result<()> {
        let clock = &meta.clock;
        let one = |clock_id, timestamp| SnapshotClock {
            clock_id: Some(clock_id),
            timestamp: Some(timestamp),
        };
        let mut clocks = vec![
            one(BOOTTIME, clock.monotonic_ns + self.ahead_ns),
            one(MONOTONIC, clock.monotonic_ns),
        ];
        if clock.realtime_ns > 0 {
            clocks.push(one(REALTIME, clock.realtime_ns));
        }
        self.write(&TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks,
                primary_trace_clock: Some(BOOTTIME),
            }),
            ..TracePacket::default()
        })?;
        let host = &meta.host;
        let words = |text: &str| Some(escaped(text).into_owned());
        self.write(&TracePacket {
            system_info: Some(SystemInfo {
                utsname: Some(Utsname {
                    sysname: words("Linux"),
                    release: words(&host.kernel_release),
                    machine: words(&host.machine),
                }),
                num_cpus: Some(host.cpus),
            }),
            ..TracePacket::default()
        })
    }

    /// Takes an event of a CPU. Its timestamp is on the trace's clock.
    pub fn event(&mut self, cpu: CpuId, mut event: FtraceEvent) -> Result<()> {
        event.timestamp = event.timestamp.map(|ns| ns + self.ahead_ns);
        let events = self.bundles.entry(cpu).or_default();
        events.push(event);
        if events.len() < EVENTS_A_BUNDLE {
            return Ok(());
        }
        let events = std::mem::take(events);
        self.bundle(cpu, events, None)
    }

    fn bundle(&mut self, cpu: CpuId, event: Vec<FtraceEvent>, lost: Option<bool>) -> Result<()> {
        self.write(&TracePacket {
            ftrace_events: Some(FtraceEventBundle {
                cpu: Some(u32::from(cpu.get())),
                event,
                lost_events: lost,
                compact_sched: None,
            }),
            ..TracePacket::default()
        })
    }

    /// Marks the CPUs of which events are missing, with the format's own flag. It is about kernel
    /// events: what a user-mode scheduler lost is not marked.
    pub fn lost_on(&mut self, gaps: &[Gap]) -> Result<()> {
        let of_kernel = gaps.iter().filter(|gap| gap.level == Level::Os);
        let mut cpus: Vec<_> = of_kernel.map(|gap| gap.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut lossy = cpus.into_iter();
        lossy.try_for_each(|cpu| self.bundle(cpu, Vec::new(), Some(true)))
    }

    /// Writes the description of a track.
    pub fn descriptor(&mut self, at: Timestamp, track: TrackDescriptor) -> Result<()> {
        let packet = TracePacket {
            track_descriptor: Some(track),
            ..TracePacket::default()
        };
        self.write_at(at, packet)
    }

    /// Writes a packet that has a timestamp.
    pub fn write_at(&mut self, at: Timestamp, packet: TracePacket) -> Result<()> {
        self.write(&TracePacket {
            timestamp: Some(at.as_ns() + self.ahead_ns),
            ..packet
        })
    }

    /// Writes the events that are left in bundles.
    pub fn flush(&mut self) -> Result<()> {
        let mut left: Vec<_> = self.bundles.drain().collect();
        left.sort_by_key(|(cpu, _)| *cpu);
        let mut left = left.into_iter().filter(|(_, events)| !events.is_empty());
        left.try_for_each(|(cpu, events)| self.bundle(cpu, events, None))
    }

    /// `Trace` is a list of packets, each under field 1.
    fn write(&mut self, packet: &TracePacket) -> Result<()> {
        const PACKET: u8 = 1 << 3 | 2;
        self.bytes.clear();
        self.bytes.push(PACKET);
        packet
            .encode_length_delimited(&mut self.bytes)
            .context("encoding a packet")?;
        Ok(self.out.write_all(&self.bytes)?)
    }
}
