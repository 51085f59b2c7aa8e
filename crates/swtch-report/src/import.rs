//! `swtch import`: makes a trace from what other tools recorded of the scheduler.
//!
//! ```text
//!               pipe ──────▶ perf_file ─▶ layout ─▶ fields ─╮
//! unpack ─▶ kind ─▶ ftrace_text ───────────────────────────┼─▶ scheduler ─Event─▶ timeline ─Switch─▶ store
//!  (.gz, .zst)  └▶ perfetto_file ──────────────────────────╯   (what the kernel side keeps)
//! ```
//!
//! From `Event` on, the code and the rules are the recorder's. The tracepoints say when a thread
//! left, in which state, and which task woke it. They do not say in which system call it was, nor
//! what asked for the reschedule. So most reasons are only `blocked` or `preempted`, and the trace
//! is marked as imported: [`Meta::imported`](swtch_store::Meta).

mod compressed;
mod cursor;
mod facts;
mod fields;
mod ftrace_text;
mod kind;
mod layout;
mod losses;
mod perf_file;
mod perfetto_file;
mod pipe;
mod scheduler;
mod unpack;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Seek as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use linux_perf_event_reader::Endianness;
use swtch_core::{Arch, CpuId, Gap, SyscallTable, Timestamp};
use swtch_output::caller::as_caller;
use swtch_output::message;
use swtch_output::text::{counted, escaped, from_bytes};
use swtch_store::{EventWriter, Imported, Meta, RecordingState, Writer, input};

use fields::TracepointFormat;
use ftrace_text::TextSource;
use kind::FileKind;
use losses::Losses;
use perf_file::PerfSource;
use perfetto_file::PerfettoSource;
use scheduler::{EventContext, SchedulerState, SwitchSide};
use unpack::UnpackedFile;

/// A file to import, and the place for its trace.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The file that the other tool wrote.
    pub file: PathBuf,
    /// The path of the trace. `None` means this directory, with the file's name and `.swtch` in place of its ending.
    pub output: Option<PathBuf>,
}

/// A file of another tool, opened: what it says of itself, and its events.
trait ImportSource {
    /// Returns the metadata that is known before the first event is read.
    fn to_meta(&self) -> Meta;

    /// The command that would have recorded enough.
    fn command(&self) -> &'static str;

    /// Hands all events on, in order of time.
    fn read(&mut self, pipeline: &mut ImportPipeline) -> Result<()>;
}

/// Imports a file, and returns the exit code.
///
/// # Errors
/// When the file is of no known format, no switch can be read from it, or the trace cannot be written.
pub fn run(request: &ImportRequest) -> Result<u8> {
    let path = &request.file;
    let file = input::open(path);
    let source = file.map_err(Into::into).and_then(|file| opened(file, path));
    let (mut source, is_cut) = source.with_context(|| format!("reading {}", path.display()))?;
    let output = request
        .output
        .clone()
        .unwrap_or_else(|| default_output(path));
    // All files that are opened from here on are of the trace.
    as_caller(|| write_trace(&mut *source, is_cut, path, &output))
}

/// Returns who wrote a file that can be imported; `None` if it is no such file.
pub fn maker_of(path: &Path) -> Option<&'static str> {
    let first = unpack::first_bytes(input::open(path).ok()?).ok()?;
    FileKind::of_bytes(&first).map(FileKind::maker)
}

/// The metadata of a file that tells little of itself.
fn meta_of(format: &str, path: &Path, events: &[&str]) -> Meta {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Meta {
        scope: format!("import of {name}"),
        imported: Some(Imported {
            format: format.to_owned(),
            file: name.into_owned(),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            ..Imported::default()
        }),
        ..Meta::default()
    }
}

/// Finds out the format of a file, and opens it; true if what it was packed in is cut.
fn opened(file: File, path: &Path) -> Result<(Box<dyn ImportSource>, bool)> {
    let UnpackedFile { mut file, is_cut } = unpack::unpacked(file)?;
    let first = unpack::first_bytes(file.try_clone()?)?;
    file.rewind()?;
    let source: Box<dyn ImportSource> = match FileKind::of_bytes(&first) {
        Some(FileKind::Perf) => Box::new(PerfSource::open(file, path)?),
        Some(FileKind::PerfPipe) => Box::new(PerfSource::open_pipe(file, path)?),
        Some(FileKind::Text) => Box::new(TextSource::new(file, path)),
        Some(FileKind::Perfetto) => Box::new(PerfettoSource::new(file, path)),
        Some(FileKind::TraceCmd) => bail!(
            "it is a trace.dat of trace-cmd, of which the text can be imported: trace-cmd report FILE > FILE.txt, then \
             swtch import FILE.txt"
        ),
        None => bail!(
            "it is no perf.data file, no text of ftrace and no trace of Perfetto: import takes what perf sched record, \
             perf record -a -e 'sched:*', trace-cmd report or perfetto wrote"
        ),
    };
    Ok((source, is_cut))
}

/// Makes the trace of what the file holds, and returns the exit code.
fn write_trace(
    source: &mut dyn ImportSource,
    is_cut: bool,
    path: &Path,
    output: &Path,
) -> Result<u8> {
    let mut meta = source.to_meta();
    let arch = Arch::from_machine(&meta.host.machine).unwrap_or(Arch::X86_64);
    let mut pipeline = ImportPipeline {
        events: EventWriter::new(Writer::create(output, &meta)?, SyscallTable::of(arch)),
        scheduler: SchedulerState::default(),
        losses: Losses::default(),
        has_waking: false,
        first: None,
        last: Timestamp::default(),
        odd: 0,
    };
    let read = source.read(&mut pipeline).and_then(|()| {
        anyhow::ensure!(!is_cut, "what it was packed in is cut short");
        Ok(())
    });
    let counts = pipeline.scheduler.counts;
    if let Err(error) = pipeline.refusal(source.command()) {
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

/// All stages between the file and the trace.
struct ImportPipeline {
    scheduler: SchedulerState,
    losses: Losses,
    events: EventWriter,
    /// True once a wakeup was told by `sched_waking`.
    has_waking: bool,
    first: Option<Timestamp>,
    last: Timestamp,
    /// Number of records that could not be understood.
    odd: u64,
}

impl ImportPipeline {
    /// Notes the moment of an event.
    fn see(&mut self, ts: Timestamp) {
        self.first = Some(self.first.map_or(ts, |first| first.min(ts)));
        self.last = self.last.max(ts);
    }

    /// Takes a tracepoint by the kernel's description of it; `None` if its bytes do not match.
    fn tracepoint(
        &mut self,
        at: EventContext,
        format: &TracepointFormat,
        bytes: &[u8],
        endian: Endianness,
    ) -> Option<()> {
        self.see(at.ts);
        let get = |name| format.number(name, bytes, endian);
        let side = |pid, comm, prio| {
            Some(SwitchSide {
                tid: get(pid).and_then(|tid| u32::try_from(tid).ok())?,
                comm: format.text(comm, bytes)?,
                prio: get(prio)?,
            })
        };
        match format.name.as_str() {
            "sched_switch" => {
                let prev = side("prev_pid", "prev_comm", "prev_prio")?;
                let next = side("next_pid", "next_comm", "next_prio")?;
                self.scheduler.switch(at, prev, get("prev_state")?, next);
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let target = u16::try_from(get("target_cpu")?).ok()?;
                let woken = side("pid", "comm", "prio")?;
                self.wake(&format.name, at, woken, CpuId::new(target));
            }
            "sched_migrate_task" => {
                let tid = get("pid").and_then(|tid| u32::try_from(tid).ok())?;
                self.scheduler.migrate(at, tid);
            }
            _ => {}
        }
        Some(())
    }

    /// Takes a wakeup, by the name of its tracepoint. The moment of a wakeup is that of `sched_waking`, which comes first
    /// and in the waker's context; `sched_wakeup` stands for it where it was not recorded.
    fn wake(&mut self, tracepoint: &str, at: EventContext, woken: SwitchSide<'_>, target: CpuId) {
        self.has_waking |= tracepoint == "sched_waking";
        if tracepoint != "sched_wakeup" || !self.has_waking {
            self.scheduler.wake(at, woken, target);
        }
    }

    /// Keeps a gap in which records were lost.
    fn keep_gap(&mut self, gap: Gap) -> Result<()> {
        let gap = self.losses.add_records(gap);
        Ok(self.events.writer_mut().push_gap(&gap)?)
    }

    fn hand_on(&mut self) -> Result<()> {
        for event in self.scheduler.take_events() {
            self.events.push(event);
        }
        Ok(self.events.check()?)
    }

    /// An error if nothing useful can be made of what was read.
    fn refusal(&self, command: &str) -> Result<()> {
        let counts = self.scheduler.counts;
        if counts.switches == 0 {
            bail!(
                "there is no switch in it{}: record with {command}",
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
                 CPUs ({command})",
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

/// `perf.data` becomes `perf.swtch`, in the current directory. Only endings that tell the format are dropped, and what
/// tells that it is packed: the names `run.1` and `run.2`, or `perf.data.old`, are needed in full.
fn default_output(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().as_bytes();
    for ending in [
        ".gz",
        ".zst",
        ".data",
        ".txt",
        ".pftrace",
        ".perfetto-trace",
    ] {
        let stem = name.strip_suffix(ending.as_bytes());
        name = stem.filter(|stem| !stem.is_empty()).unwrap_or(name);
    }
    let mut output = OsStr::from_bytes(name).to_owned();
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
        message!("swtch: note: {switches} of threads whose run was not seen to begin");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two recordings must not become one trace.
    #[test]
    fn a_trace_has_all_of_the_files_name_but_data() {
        for (file, output) in [
            ("perf.data", "perf.swtch"),
            ("/tmp/run.2024.data", "run.2024.swtch"),
            ("perf.data.gz", "perf.swtch"),
            ("perf.data.old", "perf.data.old.swtch"),
            ("run.1", "run.1.swtch"),
            (".data", ".data.swtch"),
        ] {
            assert_eq!(default_output(Path::new(file)), Path::new(output), "{file}");
        }
    }
}
