//! `swtch import`: makes a trace from what `perf sched record` recorded, or from
//! `perf record -a -e sched:*`.
//!
//! ```text
//! perf.data ─▶ layout ─▶ fields ─▶ scheduler ─Event─▶ timeline ─Switch─▶ store
//!             (is sound)  (where)   (what the kernel side keeps)
//! ```
//!
//! From `Event` on, the code and the rules are the recorder's. perf's tracepoints say when a thread
//! left, in which state, and which task woke it. They do not say in which system call it was, nor
//! what asked for the reschedule. So most reasons are only `blocked` or `preempted`, and the trace
//! is marked as imported: [`Meta::imported`](swtch_store::Meta).

mod compressed;
mod cursor;
mod facts;
mod fields;
mod layout;
mod losses;
mod scheduler;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use linux_perf_data::{Error as PerfError, PerfFile, PerfFileReader, PerfFileRecord};
use linux_perf_event_reader::{
    CommOrExecRecord, EventRecord, RawEventRecord, RecordType, SampleRecord,
};
use rustc_hash::FxHashMap;
use swtch_core::{Arch, CpuId, Gap, SyscallTable, TaskEventKind, Timestamp};
use swtch_output::caller::as_caller;
use swtch_output::message;
use swtch_output::text::{counted, escaped, from_bytes};
use swtch_store::{EventWriter, Imported, Meta, RecordingState, Writer, contained, input};

use cursor::Cursor;
use facts::PerfHead;
use fields::TracepointFormat;
use losses::Losses;
use scheduler::{SchedulerState, SwitchSide};

/// A file to import, and the place for its trace.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The file that perf wrote.
    pub file: PathBuf,
    /// The path of the trace. `None` means this directory, with the file's name and `.swtch` in place of `.data`.
    pub output: Option<PathBuf>,
}

/// Imports a file, and returns the exit code.
///
/// # Errors
/// When perf did not write the file, no switch can be read from it, or the trace cannot be written.
pub fn run(request: &ImportRequest) -> Result<u8> {
    let path = &request.file;
    let shown = || format!("reading {}", path.display());
    let mut file = input::open(path).with_context(shown)?;
    check_magic(&mut file).with_context(shown)?;
    layout::check(&mut file).with_context(shown)?;
    let reader = contained(|| PerfFileReader::parse_file(BufReader::new(file)));
    let reader = reader.with_context(shown)?.map_err(explained);
    let mut reader = reader.with_context(shown)?;
    let head = contained(|| PerfHead::of(&reader.perf_file, path)).with_context(shown)?;
    let head = head.with_context(shown)?;
    let output = request
        .output
        .clone()
        .unwrap_or_else(|| default_output(path));
    // All files that are opened from here on are of the trace.
    as_caller(|| write_trace(&mut reader, head, path, &output))
}

/// Makes the trace of what the file holds, and returns the exit code.
fn write_trace(
    reader: &mut PerfFileReader<BufReader<File>>,
    head: PerfHead,
    path: &Path,
    output: &Path,
) -> Result<u8> {
    let mut meta = head.to_meta();
    let arch = Arch::from_machine(&meta.host.machine).unwrap_or(Arch::X86_64);
    let mut pipeline = ImportPipeline {
        events: EventWriter::new(Writer::create(output, &meta)?, SyscallTable::of(arch)),
        scheduler: SchedulerState::default(),
        losses: Losses::default(),
        head,
        first: None,
        last: Timestamp::default(),
        odd: 0,
    };
    let read = read_all(reader, &mut pipeline);
    let counts = pipeline.scheduler.counts;
    if let Err(error) = pipeline.refusal() {
        pipeline.events.into_writer().discard()?;
        return Err(read.err().unwrap_or(error))
            .with_context(|| format!("reading {}", path.display()));
    }
    if let Err(error) = read {
        meta.state = RecordingState::StoppedEarly;
        meta.stop_reason = Some(format!("the file ends early: {error:#}"));
    }
    pipeline.finish(&mut meta)?;
    tell(&meta, output, counts.untraced);
    Ok(0)
}

/// Record types of the kernel: `enum perf_event_type` (`include/uapi/linux/perf_event.h`, v6.18),
/// with room for some that later kernels may add.
const KINDS_OF_THE_KERNEL: RangeInclusive<u32> = 1..=31;

/// Record types of perf itself: `enum perf_user_event_type` (`tools/lib/perf/include/perf/event.h`,
/// v6.18), likewise.
const KINDS_OF_PERF: RangeInclusive<u32> = 64..=95;

/// Hands on every record of the kernel, in order of time.
fn read_all(
    reader: &mut PerfFileReader<BufReader<File>>,
    pipeline: &mut ImportPipeline,
) -> Result<()> {
    let PerfFileReader {
        perf_file,
        record_iter,
    } = reader;
    loop {
        let (file, records) = (&mut *perf_file, &mut *record_iter);
        let record = contained(move || records.next_record(file))?;
        match record.map_err(explained)? {
            None => return Ok(()),
            Some(PerfFileRecord::EventRecord { record, .. }) => pipeline.take(&record)?,
            Some(PerfFileRecord::UserRecord(record)) => {
                let RecordType(kind) = record.record_type.into();
                pipeline.odd += u64::from(!KINDS_OF_PERF.contains(&kind));
            }
        }
    }
}

/// All stages between the file and the trace.
struct ImportPipeline {
    head: PerfHead,
    scheduler: SchedulerState,
    losses: Losses,
    events: EventWriter,
    first: Option<Timestamp>,
    last: Timestamp,
    /// Number of records that could not be understood.
    odd: u64,
}

impl ImportPipeline {
    fn take(&mut self, record: &RawEventRecord<'_>) -> Result<()> {
        let Ok((ts, Ok(parsed))) = contained(|| (record.timestamp(), record.parse())) else {
            self.odd += 1;
            return Ok(());
        };
        let ts = Timestamp::from_ns(ts.unwrap_or(0));
        match parsed {
            EventRecord::Sample(sample) => {
                self.odd += u64::from(self.sample(&sample).is_none());
            }
            EventRecord::Comm(comm) => self.comm(ts, &comm),
            EventRecord::Fork(fork) => {
                let (tid, pid) = (fork.tid.cast_unsigned(), fork.pid.cast_unsigned());
                self.scheduler.fork(ts, tid, pid, fork.ppid.cast_unsigned());
            }
            EventRecord::Exit(exit) => self.scheduler.exit(ts, exit.tid.cast_unsigned()),
            EventRecord::Lost(lost) => {
                let gap = self.lose(record, ts, lost.count);
                let gap = self.losses.add_records(gap);
                self.events.writer_mut().push_gap(&gap)?;
            }
            EventRecord::Raw(record)
                if record.record_type == RecordType::LOST_SAMPLES && self.losses.want_samples() =>
            {
                let gap = self.lose(&record, ts, lost_samples(&record));
                self.losses.add_samples(gap);
            }
            EventRecord::Raw(record) => {
                let RecordType(kind) = record.record_type;
                self.odd += u64::from(!KINDS_OF_THE_KERNEL.contains(&kind));
            }
            _ => {}
        }
        self.hand_on()
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
        self.scheduler.name(ts, tid, pid, name, kind);
    }

    fn lose(&mut self, record: &RawEventRecord<'_>, ts: Timestamp, lost: u64) -> Gap {
        let common = contained(|| record.common_data());
        let cpu = common
            .ok()
            .and_then(Result::ok)
            .and_then(|common| common.cpu);
        let cpu = cpu.and_then(|cpu| u16::try_from(cpu).ok()).map(CpuId::new);
        // Losses that perf counts at the end have no moment (0).
        let ts = ts.max(self.first.unwrap_or_default());
        self.scheduler.lose(ts, cpu, lost)
    }

    /// Takes a tracepoint; `None` if its bytes do not match its description.
    fn sample(&mut self, sample: &SampleRecord<'_>) -> Option<()> {
        let Some(raw) = &sample.raw else {
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
        self.first.get_or_insert(at.ts);
        self.last = self.last.max(at.ts);
        let get = |name| format.number(name, &bytes, endian);
        let tid = |name| get(name).and_then(|tid| u32::try_from(tid).ok());
        match format.name.as_str() {
            "sched_switch" => {
                let prev = SwitchSide {
                    tid: tid("prev_pid")?,
                    comm: format.text("prev_comm", &bytes)?,
                    prio: get("prev_prio")?,
                };
                let next = SwitchSide {
                    tid: tid("next_pid")?,
                    comm: format.text("next_comm", &bytes)?,
                    prio: get("next_prio")?,
                };
                self.scheduler.switch(at, prev, get("prev_state")?, next);
            }
            // The moment of a wakeup is that of `sched_waking`, which comes first and in the
            // waker's context.
            "sched_wakeup" if self.head.has_waking => {}
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let woken = SwitchSide {
                    tid: tid("pid")?,
                    comm: format.text("comm", &bytes)?,
                    prio: get("prio")?,
                };
                let target = u16::try_from(get("target_cpu")?).ok()?;
                self.scheduler.wake(at, woken, CpuId::new(target));
            }
            "sched_migrate_task" => self.scheduler.migrate(at, tid("pid")?),
            _ => {}
        }
        Some(())
    }

    fn hand_on(&mut self) -> Result<()> {
        for event in self.scheduler.take_events() {
            self.events.push(event);
        }
        Ok(self.events.check()?)
    }

    /// An error if nothing useful can be made of what was read.
    fn refusal(&self) -> Result<()> {
        let counts = self.scheduler.counts;
        if counts.switches == 0 {
            bail!(
                "there is no switch in it{}; perf may have been killed before it wrote its end",
                match self.odd {
                    0 => String::new(),
                    odd => format!(
                        " that can be understood ({} cannot)",
                        counted(odd, "record")
                    ),
                }
            );
        }
        // The idle task belongs to no process. A recording of single tasks never sees it leave, and
        // sees a task come only at the moment another of them leaves.
        if counts.idle == 0 && counts.unstarted * 10 > counts.switches {
            bail!(
                "{}it was recorded for single tasks, so that a switch is seen only when they leave: record whole \
                 CPUs (perf sched record, or perf record -a -e 'sched:*')",
                match self.odd {
                    0 => String::new(),
                    odd => format!(
                        "it is damaged ({} cannot be understood), or ",
                        counted(odd, "record")
                    ),
                }
            );
        }
        Ok(())
    }

    fn finish(mut self, meta: &mut Meta) -> Result<()> {
        self.events.end(self.last, &[])?;
        let writer = self.events.writer_mut();
        for gap in self.losses.settle() {
            writer.push_gap(&gap)?;
        }
        writer.flush()?;
        let lost = self.losses.count();
        let counts = self.scheduler.counts;
        meta.start_ns = self.first.unwrap_or_default().as_ns();
        meta.end_ns = self.last.as_ns();
        meta.counts = swtch_store::Counts {
            switches_seen: counts.switches + lost,
            lost,
            idle: counts.idle,
            untraced: counts.untraced,
            ..swtch_store::Counts::default()
        };
        self.events.complete(meta);
        if let Some(imported) = &mut meta.imported {
            imported.runs_without_start = counts.unstarted;
            imported.unreadable_records = self.odd;
        }
        if meta.state == RecordingState::Recording {
            meta.state = RecordingState::Finished;
        }
        Ok(self.events.finish(meta, &mut |_, _| ())?)
    }
}

/// The first bytes of a file of perf, in both byte orders.
pub const MAGICS: [&[u8]; 2] = [b"PERFILE2", b"2ELIFREP"];

/// A file that perf did not write may be shorter than perf's head.
fn check_magic(file: &mut File) -> Result<()> {
    let mut magic = Vec::new();
    file.by_ref().take(8).read_to_end(&mut magic)?;
    file.rewind()?;
    if !MAGICS.contains(&magic.as_slice()) {
        bail!(
            "it is no perf.data file: import takes what perf sched record or perf record -a -e 'sched:*' wrote"
        );
    }
    Ok(())
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

/// `perf.data` becomes `perf.swtch`, in the current directory. Only the ending `.data` is dropped:
/// the names `run.1` and `run.2`, or `perf.data.old`, are needed in full.
fn default_output(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().as_bytes();
    let stem = name.strip_suffix(b".data").filter(|stem| !stem.is_empty());
    let mut output = OsStr::from_bytes(stem.unwrap_or(name)).to_owned();
    output.push(".swtch");
    PathBuf::from(output)
}

fn tell(meta: &Meta, output: &Path, untraced: u64) {
    let counts = &meta.counts;
    message!(
        "swtch: {}, {} lost: {}",
        counted(counts.stored, "context switch"),
        counted(counts.lost, "record"),
        escaped(&meta.scope)
    );
    if untraced > 0 {
        let switches = counted(untraced, "context switch");
        message!("swtch: note: {switches} of threads whose run perf did not see begin");
    }
    if let Some(note) = meta.imported.as_ref().and_then(Imported::incomplete) {
        message!("swtch: note: {note}");
    }
    if let Some(reason) = &meta.stop_reason {
        message!(
            "swtch: note: {}; what came before is in the trace",
            escaped(reason)
        );
    }
    let output = from_bytes(output.as_os_str().as_encoded_bytes());
    message!("swtch: the trace is {}", escaped(&output));
}

/// Formats by number, as the head keeps them.
type Formats = FxHashMap<u16, TracepointFormat>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two recordings must not become one trace.
    #[test]
    fn a_trace_has_all_of_the_files_name_but_data() {
        for (file, output) in [
            ("perf.data", "perf.swtch"),
            ("/tmp/run.2024.data", "run.2024.swtch"),
            ("perf.data.old", "perf.data.old.swtch"),
            ("run.1", "run.1.swtch"),
            (".data", ".data.swtch"),
        ] {
            assert_eq!(default_output(Path::new(file)), Path::new(output), "{file}");
        }
    }
}
