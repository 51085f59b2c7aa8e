//! Reads `perf.data`: tracepoints of the scheduler, or the switches that `perf record --switch-events` adds to any
//! recording. The crate that reads the format sorts its records by time.

use std::fs::File;
use std::io::{BufReader, Seek as _};
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Result, bail};
use linux_perf_data::{Error as PerfError, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{
    CommOrExecRecord, CommonData, ContextSwitchRecord, EventRecord, RawEventRecord, RecordType,
    SampleRecord, TaskWasPreempted,
};
use swtch_core::{CpuId, Gap, TaskEventKind, Timestamp};
use swtch_store::{Meta, contained};

use super::cursor::Cursor;
use super::facts::PerfHead;
use super::layout;
use super::pipe::{self, PipedFile};
use super::scheduler::{DepartureKind, EventContext};
use super::{ImportPipeline, ImportSource};

/// The commands that record enough.
const RECORD_ENOUGH: &str = "perf sched record, or perf record -a -e 'sched:*'";

/// Record types of the kernel: `enum perf_event_type` (`include/uapi/linux/perf_event.h`, v6.18),
/// with room for some that later kernels may add.
const KINDS_OF_THE_KERNEL: RangeInclusive<u32> = 1..=31;

/// Record types of perf itself: `enum perf_user_event_type` (`tools/lib/perf/include/perf/event.h`,
/// v6.18), likewise.
const KINDS_OF_PERF: RangeInclusive<u32> = 64..=95;

/// A file of perf, checked and opened.
pub struct PerfSource {
    head: PerfHead,
    reader: PerfFileReader<BufReader<File>>,
    is_cut: bool,
}

impl PerfSource {
    /// Opens what perf wrote into a pipe.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_pipe(file: File, path: &Path) -> Result<Self> {
        let PipedFile { file, is_cut } = pipe::to_file(file)?;
        let source = Self::open(file, path)?;
        Ok(Self { is_cut, ..source })
    }

    /// Opens what perf wrote into a file.
    ///
    /// # Errors
    /// When the file is cut or damaged, or no switch can be in it.
    pub fn open(mut file: File, path: &Path) -> Result<Self> {
        file.rewind()?;
        layout::check(&mut file)?;
        let reader = contained(|| PerfFileReader::parse_file(BufReader::new(file)))?;
        let reader = reader.map_err(explained)?;
        let head = contained(|| PerfHead::of(&reader.perf_file, path))??;
        Ok(Self {
            head,
            reader,
            is_cut: false,
        })
    }
}

impl ImportSource for PerfSource {
    fn to_meta(&self) -> Meta {
        self.head.to_meta()
    }

    fn command(&self) -> &'static str {
        RECORD_ENOUGH
    }

    fn read(&mut self, pipeline: &mut ImportPipeline) -> Result<()> {
        let PerfFileReader {
            perf_file,
            record_iter,
        } = &mut self.reader;
        let mut stage = PerfStage {
            head: &self.head,
            pipeline,
        };
        loop {
            let (file, records) = (&mut *perf_file, &mut *record_iter);
            let record = contained(move || records.next_record(file))?;
            match record.map_err(explained)? {
                None if self.is_cut => bail!("it is cut short, in the middle of a record"),
                None => return Ok(()),
                Some(PerfFileRecord::EventRecord { record, .. }) => stage.take(&record)?,
                Some(PerfFileRecord::UserRecord(record)) => {
                    let RecordType(kind) = record.record_type.into();
                    stage.pipeline.odd += u64::from(!KINDS_OF_PERF.contains(&kind));
                }
            }
        }
    }
}

/// Hands the records of a file on, one by one.
struct PerfStage<'p> {
    head: &'p PerfHead,
    pipeline: &'p mut ImportPipeline,
}

impl PerfStage<'_> {
    fn take(&mut self, record: &RawEventRecord<'_>) -> Result<()> {
        let Ok((ts, Ok(parsed))) = contained(|| (record.timestamp(), record.parse())) else {
            self.pipeline.odd += 1;
            return Ok(());
        };
        let ts = Timestamp::from_ns(ts.unwrap_or(0));
        match parsed {
            EventRecord::Sample(sample) => {
                self.pipeline.odd += u64::from(self.sample(&sample).is_none());
            }
            EventRecord::Comm(comm) => self.comm(ts, &comm),
            EventRecord::Fork(fork) => {
                let (tid, pid) = (fork.tid.cast_unsigned(), fork.pid.cast_unsigned());
                self.pipeline
                    .scheduler
                    .fork(ts, tid, pid, fork.ppid.cast_unsigned());
            }
            EventRecord::Exit(exit) => {
                let (tid, pid) = (exit.tid.cast_unsigned(), exit.pid.cast_unsigned());
                let at = common_of(record).and_then(|common| moment_of(&common, (pid, tid)));
                self.pipeline.scheduler.exit(ts, tid, at);
            }
            EventRecord::ContextSwitch(switch) if self.head.has_switch_records => {
                match common_of(record).and_then(|common| moment_in_own_thread(&common)) {
                    Some(at) => self.switch(at, switch),
                    None => self.pipeline.odd += 1,
                }
            }
            EventRecord::Lost(lost) => {
                let gap = self.lose(record, ts, lost.count);
                self.pipeline.keep_gap(gap)?;
            }
            EventRecord::Raw(record)
                if record.record_type == RecordType::LOST_SAMPLES
                    && self.pipeline.losses.want_samples() =>
            {
                let gap = self.lose(&record, ts, lost_samples(&record));
                self.pipeline.losses.add_samples(gap);
            }
            EventRecord::Raw(record) => {
                let RecordType(kind) = record.record_type;
                self.pipeline.odd += u64::from(!KINDS_OF_THE_KERNEL.contains(&kind));
            }
            _ => {}
        }
        self.pipeline.hand_on()
    }

    fn comm(&mut self, ts: Timestamp, comm: &CommOrExecRecord<'_>) {
        let kind = if comm.is_execve {
            TaskEventKind::Exec
        } else {
            TaskEventKind::Rename
        };
        let name = comm.name.as_slice();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let (tid, pid) = (comm.tid.cast_unsigned(), comm.pid.cast_unsigned());
        self.pipeline.scheduler.name(ts, tid, pid, name, kind);
    }

    fn lose(&mut self, record: &RawEventRecord<'_>, ts: Timestamp, lost: u64) -> Gap {
        let cpu = common_of(record).and_then(|common| common.cpu);
        let cpu = cpu.and_then(|cpu| u16::try_from(cpu).ok()).map(CpuId::new);
        // Losses that perf counts at the end have no moment (0).
        let ts = ts.max(self.pipeline.first.unwrap_or_default());
        self.pipeline.scheduler.lose(ts, cpu, lost)
    }

    fn switch(&mut self, at: EventContext, switch: ContextSwitchRecord) {
        self.pipeline.see(at.ts);
        let scheduler = &mut self.pipeline.scheduler;
        match switch {
            ContextSwitchRecord::In { .. } => scheduler.arrive(at),
            ContextSwitchRecord::Out {
                next_tid,
                preempted,
                ..
            } => {
                let departure = match preempted {
                    TaskWasPreempted::Yes => DepartureKind::Runnable,
                    TaskWasPreempted::No => DepartureKind::Asleep,
                };
                scheduler.depart(at, departure, next_tid.map(i32::cast_unsigned));
            }
        }
    }

    /// Takes a tracepoint; `None` if its bytes do not match its description.
    fn sample(&mut self, sample: &SampleRecord<'_>) -> Option<()> {
        let Some(raw) = sample
            .raw
            .as_ref()
            .filter(|_| self.head.describes_tracepoints())
        else {
            return Some(());
        };
        let bytes = raw.as_slice();
        let endian = self.head.endian;
        // Every tracepoint begins with its number, `common_type`.
        let number = Cursor::new(&bytes, endian).short()?;
        let Some(format) = self.head.formats.get(&number) else {
            // A tracepoint of another system is fine; one that nothing in this file describes is
            // not.
            return self.head.others.contains(&number).then_some(());
        };
        let at = self.head.place(sample, format, &bytes)?;
        if format.name == "sched_switch" && self.head.has_switch_records {
            return Some(());
        }
        self.pipeline.tracepoint(at, format, &bytes, endian)
    }
}

/// What every record ends with (`sample_id_all`); `None` if it is damaged.
fn common_of(record: &RawEventRecord<'_>) -> Option<CommonData> {
    contained(|| record.common_data()).ok()?.ok()
}

/// Where and when a record about this process and thread was written; `None` if it does not tell.
fn moment_of(common: &CommonData, thread: (u32, u32)) -> Option<EventContext> {
    Some(EventContext {
        ts: Timestamp::from_ns(common.timestamp?),
        cpu: CpuId::new(u16::try_from(common.cpu?).ok()?),
        current: thread,
        flags: 0,
    })
}

/// As [`moment_of`], of a record about the thread in which it was written.
fn moment_in_own_thread(common: &CommonData) -> Option<EventContext> {
    let thread = (common.pid?.cast_unsigned(), common.tid?.cast_unsigned());
    moment_of(common, thread)
}

/// The message of the crate that reads the file, with what a person can do.
fn explained(error: PerfError) -> anyhow::Error {
    match error {
        PerfError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            anyhow::anyhow!("it is cut short: perf was killed, or the file not copied whole")
        }
        other @ (PerfError::Read(_)
        | PerfError::InvalidPerfEventSize
        | PerfError::InconsistentAttributeSizes(..)) => {
            anyhow::Error::new(other).context("it is damaged")
        }
        other => anyhow::Error::new(other),
    }
}

/// `RECORD_LOST_SAMPLES` holds one number: how many samples were lost.
fn lost_samples(record: &RawEventRecord<'_>) -> u64 {
    let bytes = record.data.as_slice();
    let mut cursor = Cursor::new(&bytes, record.parse_info.endian);
    cursor.long().unwrap_or(1)
}
