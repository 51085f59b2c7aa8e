//! Reads a trace of Perfetto: `sched_switch` and `sched_waking` in the bundles of its ftrace source, one by one or in
//! columns (*compact sched*). The messages are those that the export writes.
//!
//! A file is a row of packets, and a bundle is of one CPU, so that events of several CPUs are not in order of time. Most
//! of a packet is dropped at once; the events are kept in a few bytes each, and sorted at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use prost::Message as _;
use rustc_hash::FxHashMap;
use swtch_core::{CpuId, TaskEventKind, Timestamp};
use swtch_store::Meta;

use super::scheduler::{EventContext, SwitchSide};
use super::{ImportPipeline, ImportSource, meta_of};
use crate::export::perfetto_message::{CompactSched, FtraceEventBundle, ProcessTree, TracePacket};
use crate::export::{UNKNOWN_STATE, is_not_recorded};

/// The command that records enough.
const RECORD_ENOUGH: &str = "perfetto -o FILE -t 5s sched/sched_switch sched/sched_waking";

/// The key of a packet in a file: field 1 of `Trace`, with a length.
const PACKET_KEY: u8 = 0x0a;
/// The largest packet; Perfetto's own limit is below that.
const MOST_PACKET_BYTES: u64 = 64 << 20;
/// The most events; in memory they are 56 bytes each.
const MOST_EVENTS: usize = 16 << 20;

/// A trace of Perfetto, opened.
#[derive(Debug)]
pub struct PerfettoSource {
    file: File,
    meta: Meta,
}

impl PerfettoSource {
    /// The trace in this file.
    pub fn new(file: File, path: &Path) -> Self {
        let meta = meta_of("Perfetto", path, &["sched_switch", "sched_waking"]);
        Self { file, meta }
    }
}

/// Returns true if a file that begins with these bytes is a trace of Perfetto.
pub fn is_first_packet(head: &[u8]) -> bool {
    let mut rest = head;
    let Ok(Some(length)) = next_length(&mut rest) else {
        return false;
    };
    match usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
    {
        Some((packet, behind)) => {
            TracePacket::decode(packet).is_ok()
                && behind.first().is_none_or(|key| *key == PACKET_KEY)
        }
        // The packet is longer: its first field has a number that a packet can have, and a length.
        None => length <= MOST_PACKET_BYTES && rest.first().is_some_and(|key| *key & 7 == 2),
    }
}

impl ImportSource for PerfettoSource {
    fn to_meta(&self) -> Meta {
        self.meta.clone()
    }

    fn command(&self) -> &'static str {
        RECORD_ENOUGH
    }

    fn read(&mut self, pipeline: &mut ImportPipeline) -> Result<()> {
        let mut events = PacketEvents::default();
        let read = events.read(BufReader::new(&mut self.file), pipeline);
        events.hand_on(pipeline)?;
        read
    }
}

/// The length of the next packet; `None` at the end of the file.
fn next_length(reader: &mut impl Read) -> Result<Option<u64>> {
    let mut byte = [0];
    if reader.read(&mut byte)? == 0 {
        return Ok(None);
    }
    ensure!(
        byte == [PACKET_KEY],
        "it is damaged: a packet does not begin as one"
    );
    let mut length = 0;
    for shift in (0..35).step_by(7) {
        reader.read_exact(&mut byte).context("it is cut short")?;
        length |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            ensure!(
                length <= MOST_PACKET_BYTES,
                "it is damaged: a packet of {length} bytes"
            );
            return Ok(Some(length));
        }
    }
    bail!("it is damaged: the length of a packet has no end")
}

/// An event of one CPU.
#[derive(Clone, Copy, Debug)]
struct PacketEvent {
    ts: Timestamp,
    cpu: u16,
    what: PacketEventKind,
}

#[derive(Clone, Copy, Debug)]
enum PacketEventKind {
    /// Who leaves, if that is told, with its state; and who comes.
    Switch {
        prev: Option<PacketTask>,
        state: i64,
        next: PacketTask,
    },
    /// The flags, the thread that was running, if that is told, who was woken, and where to.
    Waking {
        flags: u32,
        by: Option<u32>,
        woken: PacketTask,
        target: u16,
    },
    /// Events of this CPU were lost before.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct PacketTask {
    tid: u32,
    prio: i16,
    /// Number of its name.
    name: u32,
}

/// The events of all packets, and the names in them.
#[derive(Debug, Default)]
struct PacketEvents {
    events: Vec<PacketEvent>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Process of each thread, as far as a process tree told it.
    processes: FxHashMap<u32, u32>,
}

impl PacketEvents {
    fn read(&mut self, mut reader: impl Read, pipeline: &mut ImportPipeline) -> Result<()> {
        let mut bytes = Vec::new();
        while let Some(length) = next_length(&mut reader)? {
            bytes.clear();
            (&mut reader).take(length).read_to_end(&mut bytes)?;
            ensure!(bytes.len() as u64 == length, "it is cut short");
            match TracePacket::decode(&bytes[..]) {
                Ok(packet) => self.take(packet, pipeline)?,
                Err(_) => pipeline.odd += 1,
            }
        }
        Ok(())
    }

    fn take(&mut self, packet: TracePacket, pipeline: &mut ImportPipeline) -> Result<()> {
        if let Some(packed) = packet.compressed_packets {
            let unpacked = flate2::read::ZlibDecoder::new(&packed[..]).take(MOST_PACKET_BYTES);
            // Packets that are packed hold none that are.
            let mut inner = BufReader::new(unpacked);
            while let Some(length) = next_length(&mut inner)? {
                let mut bytes = Vec::new();
                (&mut inner).take(length).read_to_end(&mut bytes)?;
                match TracePacket::decode(&bytes[..]) {
                    Ok(packet) if packet.compressed_packets.is_none() => {
                        self.take(packet, pipeline)?
                    }
                    _ => pipeline.odd += 1,
                }
            }
        }
        if let Some(tree) = &packet.process_tree {
            self.take_tree(tree, pipeline);
        }
        if let Some(bundle) = &packet.ftrace_events {
            let understood = self.bundle(bundle);
            pipeline.odd += u64::from(understood.is_none());
        }
        ensure!(
            self.events.len() <= MOST_EVENTS,
            "it has more than {MOST_EVENTS} events of the scheduler: record for a shorter time"
        );
        Ok(())
    }

    /// Notes the processes and the names of threads.
    fn take_tree(&mut self, tree: &ProcessTree, pipeline: &mut ImportPipeline) {
        for thread in &tree.threads {
            if let Some((tid, pid)) = thread.tid.zip(thread.tgid) {
                let (tid, pid) = (tid.cast_unsigned(), pid.cast_unsigned());
                self.processes.insert(tid, pid);
                let name = thread.name.as_deref().unwrap_or_default();
                let start = Timestamp::default();
                pipeline
                    .scheduler
                    .name(start, tid, pid, name.as_bytes(), TaskEventKind::Rename);
            }
        }
        for process in &tree.processes {
            if let Some(pid) = process.pid.map(i32::cast_unsigned) {
                self.processes.insert(pid, pid);
            }
        }
    }

    fn bundle(&mut self, bundle: &FtraceEventBundle) -> Option<()> {
        let cpu = u16::try_from(bundle.cpu.unwrap_or(0)).ok()?;
        let at = self.events.len();
        for event in &bundle.event {
            let ts = Timestamp::from_ns(event.timestamp?);
            if let Some(switch) = &event.sched_switch {
                let prev = (
                    switch.prev_pid,
                    switch.prev_prio,
                    switch.prev_comm.as_deref(),
                );
                let next = (
                    switch.next_pid,
                    switch.next_prio,
                    switch.next_comm.as_deref(),
                );
                let what = PacketEventKind::Switch {
                    prev: Some(self.task(prev)?),
                    state: switch.prev_state.unwrap_or(0),
                    next: self.task(next)?,
                };
                self.events.push(PacketEvent { ts, cpu, what });
            }
            if let Some(waking) = &event.sched_waking {
                let woken = (waking.pid, waking.prio, waking.comm.as_deref());
                let what = PacketEventKind::Waking {
                    flags: event.common_flags.unwrap_or(0),
                    by: event.pid,
                    woken: self.task(woken)?,
                    target: u16::try_from(waking.target_cpu.unwrap_or(0)).ok()?,
                };
                self.events.push(PacketEvent { ts, cpu, what });
            }
        }
        let understood = bundle
            .compact_sched
            .as_ref()
            .map_or(Some(()), |compact| self.compact(cpu, compact));
        let first = self.events.iter().skip(at).map(|event| event.ts).min();
        if let Some(ts) = first
            && bundle.lost_events == Some(true)
        {
            let what = PacketEventKind::Lost;
            self.events.insert(at, PacketEvent { ts, cpu, what });
        }
        understood
    }

    /// `None` if its columns are not of one length.
    fn compact(&mut self, cpu: u16, compact: &CompactSched) -> Option<()> {
        let name = |index: &u32| {
            compact
                .intern_table
                .get(*index as usize)
                .map(String::as_str)
        };
        let mut ts = Timestamp::default();
        for (at, step) in compact.switch_timestamp.iter().enumerate() {
            ts = Timestamp::from_ns(ts.as_ns().checked_add(*step)?);
            let next = (
                compact.switch_next_pid.get(at).copied(),
                compact.switch_next_prio.get(at).copied(),
                compact.switch_next_comm_index.get(at).and_then(name),
            );
            let what = PacketEventKind::Switch {
                prev: None,
                state: *compact.switch_prev_state.get(at)?,
                next: self.task(next)?,
            };
            self.events.push(PacketEvent { ts, cpu, what });
        }
        let mut ts = Timestamp::default();
        for (at, step) in compact.waking_timestamp.iter().enumerate() {
            ts = Timestamp::from_ns(ts.as_ns().checked_add(*step)?);
            let woken = (
                compact.waking_pid.get(at).copied(),
                compact.waking_prio.get(at).copied(),
                compact.waking_comm_index.get(at).and_then(name),
            );
            let what = PacketEventKind::Waking {
                flags: compact.waking_common_flags.get(at).copied().unwrap_or(0),
                by: None,
                woken: self.task(woken)?,
                target: u16::try_from(*compact.waking_target_cpu.get(at)?).ok()?,
            };
            self.events.push(PacketEvent { ts, cpu, what });
        }
        Some(())
    }

    fn task(
        &mut self,
        (tid, prio, name): (Option<i32>, Option<i32>, Option<&str>),
    ) -> Option<PacketTask> {
        let name = name.unwrap_or_default();
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.names.len()).ok()?;
                self.names.push(name.to_owned());
                self.numbers.insert(name.to_owned(), number);
                number
            }
        };
        Some(PacketTask {
            tid: tid.unwrap_or(0).cast_unsigned(),
            prio: i16::try_from(prio.unwrap_or(0)).unwrap_or(i16::MAX),
            name: number,
        })
    }

    fn hand_on(mut self, pipeline: &mut ImportPipeline) -> Result<()> {
        self.events.sort_by_key(|event| event.ts);
        let mut running: FxHashMap<u16, PacketTask> = FxHashMap::default();
        for event in std::mem::take(&mut self.events) {
            let current = running.get(&event.cpu).copied();
            let at = |tid: Option<u32>, flags| {
                let tid = tid.unwrap_or(0);
                EventContext {
                    ts: event.ts,
                    cpu: CpuId::new(event.cpu),
                    current: (self.processes.get(&tid).copied().unwrap_or(tid), tid),
                    flags,
                }
            };
            pipeline.see(event.ts);
            match event.what {
                PacketEventKind::Switch { prev, state, next } => {
                    running.insert(event.cpu, next);
                    let prev = prev.or(current).filter(|prev| !is_not_recorded(prev.tid));
                    let at = at(prev.map(|prev| prev.tid), 0);
                    match prev {
                        Some(prev) => {
                            let (prev, next) = (self.side(prev), self.side(next));
                            pipeline.scheduler.switch(at, prev, state, next);
                            if state == UNKNOWN_STATE {
                                pipeline.scheduler.forget_wait(prev.tid);
                            }
                        }
                        // Nothing tells who leaves first, nor what an export of ours has no row for.
                        None => pipeline.scheduler.come(at, next.tid),
                    }
                }
                PacketEventKind::Waking {
                    flags,
                    by,
                    woken,
                    target,
                } => {
                    let by = by.or(current.map(|current| current.tid));
                    let woken = self.side(woken);
                    let at = at(by, i64::from(flags));
                    pipeline.wake("sched_waking", at, woken, CpuId::new(target));
                }
                PacketEventKind::Lost => {
                    running.remove(&event.cpu);
                    // How many is not told.
                    let cpu = CpuId::new(event.cpu);
                    let gap = pipeline.scheduler.lose(event.ts, Some(cpu), 1);
                    pipeline.keep_gap(gap)?;
                }
            }
            pipeline.hand_on()?;
        }
        Ok(())
    }

    fn side(&self, task: PacketTask) -> SwitchSide<'_> {
        let name = self.names.get(task.name as usize);
        SwitchSide {
            tid: task.tid,
            comm: name.map_or(&[], |name| name.as_bytes()),
            prio: task.prio.into(),
        }
    }
}
