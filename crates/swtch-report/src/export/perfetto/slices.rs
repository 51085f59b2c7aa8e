//! Slices for what ftrace has no event for: why a thread did not run, what a user-mode scheduler
//! ran, and what was lost. Evidence goes into their arguments.

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_core::{Gap, Level, Reason, Switch, Timestamp};

use super::intern::InternedStrings;
use super::message::{DebugAnnotation, TracePacket, TrackDescriptor, TrackEvent};
use super::packets::Packets;
use super::threads::{NamedThreads, thread_track};
use crate::export::evidence::{self, EvidenceValue, Vocabulary};
use crate::export::life::{Moments, name_of_wait};
use crate::export::rows::ExportRows;
use crate::report::SpansByThread;

/// Id of the one sequence of packets, which share interned strings.
const SEQUENCE: u32 = 1;
/// Flags of a packet: `SequenceFlags`, defined in `trace_packet.proto`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// Kinds of events: `Type`, defined in `track_event.proto`.
const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;

/// Where numbers of tracks begin: of user-mode tasks, of all such tasks of a process, of losses, of spans. Those below
/// are of threads
/// (`threads.rs`).
const USER_TASK_TRACKS: u64 = 3 << 40;
const USER_GROUP_TRACKS: u64 = 4 << 40;
const LOSS_TRACKS: u64 = 5 << 40;
const SPAN_TRACKS: u64 = 6 << 40;

/// The begin or end of a slice, or an event without a length.
#[derive(Debug)]
struct SliceEvent<'a> {
    kind: i32,
    at: Timestamp,
    track: u64,
    name: &'a str,
    category: &'a str,
    facts: Vec<(&'static str, EvidenceValue)>,
}

/// Writes slices, with interned strings.
#[derive(Debug)]
pub struct Slices {
    words: InternedStrings,
    vocabulary: Vocabulary,
    /// The track of each user-mode task, by its process and its number.
    workers: FxHashMap<(usize, u64), u64>,
    has_begun: bool,
}

impl Slices {
    /// Begins with no slice, for the rows of this trace.
    ///
    /// # Errors
    /// When the names of wait types cannot be read.
    pub fn new(rows: &ExportRows<'_>) -> Result<Self> {
        Ok(Self {
            words: InternedStrings::default(),
            vocabulary: Vocabulary::new(rows)?,
            workers: FxHashMap::default(),
            has_begun: false,
        })
    }

    /// Writes the wait before a run, from the moment the thread left (a new thread: was started) to
    /// its run.
    pub fn wait(
        &mut self,
        row: &Switch,
        before: Option<&Switch>,
        moments: &Moments,
        threads: &NamedThreads,
        packets: &mut Packets<'_>,
    ) -> Result<()> {
        let (Some(began), Some(start)) = (moments.wait_began(), moments.start) else {
            return Ok(());
        };
        let track = thread_track(row.task);
        let name = name_of_wait(row);
        let category = row.wait.reason.unwrap_or(Reason::Unknown).category();
        let category = category.as_str();
        let label = |task| threads.label(task);
        let mut facts = Vec::new();
        if let Some(before) = before {
            evidence::of_departure(before, &self.vocabulary, &label, &mut facts);
        }
        evidence::of_wait(row, &label, &mut facts);
        self.tell(
            SliceEvent {
                kind: BEGIN,
                at: began,
                track,
                name,
                category,
                facts,
            },
            packets,
        )?;
        self.end(start, track, packets)
    }

    /// Writes a wait that was open when the trace ended: a slice without an end.
    pub fn open(
        &mut self,
        left: &Switch,
        threads: &NamedThreads,
        packets: &mut Packets<'_>,
    ) -> Result<()> {
        let reason = left.rule.reason;
        let label = |task| threads.label(task);
        let mut facts = Vec::new();
        evidence::of_departure(left, &self.vocabulary, &label, &mut facts);
        let track = thread_track(left.task);
        let category = reason.category().as_str();
        self.tell(
            SliceEvent {
                kind: BEGIN,
                at: left.ts,
                track,
                name: reason.as_str(),
                category,
                facts,
            },
            packets,
        )
    }

    /// Writes a run of a worker of a user-mode scheduler, and why it left.
    pub fn worker(
        &mut self,
        row: &Switch,
        threads: &NamedThreads,
        packets: &mut Packets<'_>,
    ) -> Result<()> {
        let (Some(start), Some(worker)) = (Moments::of(row).start, row.user_task) else {
            return Ok(());
        };
        let track = self.worker_track(row, worker, start, threads, packets)?;
        let mut facts = vec![
            ("thread", EvidenceValue::Word(threads.label(row.task))),
            (
                "left_for",
                EvidenceValue::Word(row.rule.reason.as_str().to_owned()),
            ),
        ];
        evidence::of_worker(row, &self.vocabulary, &mut facts);
        self.tell(
            SliceEvent {
                kind: BEGIN,
                at: start,
                track,
                name: "running",
                category: "user",
                facts,
            },
            packets,
        )?;
        self.end(row.ts, track, packets)
    }

    fn worker_track(
        &mut self,
        row: &Switch,
        worker: u64,
        at: Timestamp,
        threads: &NamedThreads,
        packets: &mut Packets<'_>,
    ) -> Result<u64> {
        let process = threads.process(row.task);
        if let Some(track) = self.workers.get(&(process, worker)) {
            return Ok(*track);
        }
        let group = USER_GROUP_TRACKS | process as u64;
        if !self.workers.keys().any(|key| key.0 == process) {
            let parent = threads.process_track(row.task);
            self.track(at, group, parent, "user-mode tasks".to_owned(), packets)?;
        }
        let track = USER_TASK_TRACKS | self.workers.len() as u64;
        self.workers.insert((process, worker), track);
        self.track(at, track, group, format!("task {worker}"), packets)?;
        Ok(track)
    }

    /// Writes the spans of threads that have rows, each kind on a track of its own below the thread's.
    pub fn spans(
        &mut self,
        all: &SpansByThread,
        threads: &NamedThreads,
        packets: &mut Packets<'_>,
    ) -> Result<()> {
        let met = all.each().filter(|(task, _, _)| threads.is_met(*task));
        for (track, (task, kind, spans)) in (SPAN_TRACKS..).zip(met) {
            let Some(first) = spans.first() else {
                continue;
            };
            let parent = thread_track(task);
            self.track(
                first.begin,
                track,
                parent,
                format!("spans: {kind}"),
                packets,
            )?;
            for span in spans {
                let id = span.trace.and_then(|trace| all.trace_id(trace));
                let facts = id.map(|id| ("trace_id", EvidenceValue::Word(id.to_owned())));
                let begin = SliceEvent {
                    kind: BEGIN,
                    at: span.begin,
                    track,
                    name: kind,
                    category: "span",
                    facts: facts.into_iter().collect(),
                };
                self.tell(begin, packets)?;
                self.end(span.end, track, packets)?;
            }
        }
        Ok(())
    }

    fn track(
        &self,
        at: Timestamp,
        uuid: u64,
        parent: u64,
        name: String,
        packets: &mut Packets<'_>,
    ) -> Result<()> {
        let descriptor = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(parent),
            name: Some(name),
            ..TrackDescriptor::default()
        };
        packets.descriptor(at, descriptor)
    }

    /// Writes what was lost: a slice as long as the gap, on a track of its CPU and level.
    pub fn losses(&mut self, gaps: &[Gap], packets: &mut Packets<'_>) -> Result<()> {
        for gap in gaps {
            let level = gap.level.as_str();
            let track = LOSS_TRACKS | (gap.level as u64) << 16 | u64::from(gap.cpu.get());
            let name = format!("lost records, CPU {} ({level})", gap.cpu);
            self.track(gap.start, track, 0, name, packets)?;
            let name = match gap.level {
                Level::Os => "lost switches of the kernel",
                Level::User => "lost switches of user-mode schedulers",
            };
            let is_moment = gap.end <= gap.start;
            let event = SliceEvent {
                kind: if is_moment { INSTANT } else { BEGIN },
                at: gap.start,
                track,
                name,
                category: "lost",
                facts: vec![("lost", EvidenceValue::Count(gap.lost))],
            };
            self.tell(event, packets)?;
            if !is_moment {
                self.end(gap.end, track, packets)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self, event: SliceEvent<'_>, packets: &mut Packets<'_>) -> Result<()> {
        let arguments = event.facts.into_iter();
        let arguments = arguments.map(|(name, fact)| self.argument(name, fact));
        let of_track = TrackEvent {
            debug_annotations: arguments.collect(),
            category_iids: vec![self.words.category(event.category)],
            r#type: Some(event.kind),
            name_iid: Some(self.words.name(event.name)),
            track_uuid: Some(event.track),
        };
        self.write(event.at, of_track, packets)
    }

    fn end(&mut self, at: Timestamp, track: u64, packets: &mut Packets<'_>) -> Result<()> {
        let event = TrackEvent {
            r#type: Some(END),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.write(at, event, packets)
    }

    fn argument(&mut self, name: &str, fact: EvidenceValue) -> DebugAnnotation {
        let name_iid = Some(self.words.argument(name));
        match fact {
            EvidenceValue::Word(word) => DebugAnnotation {
                name_iid,
                string_value_iid: Some(self.words.value(&word)),
                ..DebugAnnotation::default()
            },
            EvidenceValue::Count(count) => DebugAnnotation {
                name_iid,
                uint_value: Some(count),
                ..DebugAnnotation::default()
            },
            EvidenceValue::Address(address) => DebugAnnotation {
                name_iid,
                pointer_value: Some(address),
                ..DebugAnnotation::default()
            },
        }
    }

    fn write(&mut self, at: Timestamp, event: TrackEvent, packets: &mut Packets<'_>) -> Result<()> {
        let flags = if std::mem::replace(&mut self.has_begun, true) {
            NEEDS_STATE
        } else {
            STATE_CLEARED | NEEDS_STATE
        };
        let packet = TracePacket {
            track_event: Some(event),
            interned_data: self.words.take_fresh(),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(flags),
            ..TracePacket::default()
        };
        packets.write_at(at, packet)
    }
}
