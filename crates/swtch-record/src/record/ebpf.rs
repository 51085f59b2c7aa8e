//! `swtch record` by eBPF programs: every switch, with all that explains it.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};
use swtch_capture::{Capture, Guard, HeldCommand, KeptPrivileges, LookedUsers, Settings};
use swtch_core::UntoldSpans;
use swtch_output::caller::{Caller, as_caller};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::{Directory, Error, Meta, Writer, input};

use super::commands::Commands;
use super::named_stacks::StacksToName;
use super::pause::DrainRound;
use super::pipeline::{Pipeline, RowsToMake};
use super::recorded_spans::{ContextsInTrace, RecordedSpans};
use super::request::{StackBudget, Target};
use super::ring::DumpRequests;
use super::user_level::{Finder, UserLevel};
use super::{Backend, RecordRequest, RecordedSoFar, TraceBy, facts, make_trace, priority};

/// A recording by eBPF programs, and its trace.
pub(super) struct EbpfRecording<'a> {
    capture: Capture,
    pipeline: Pipeline,
    /// `None` once the recording has ended.
    guard: Option<Guard>,
    ring: Option<RingInUse<'a>>,
}

/// The request and the dumps of a recording of which the last part is kept.
struct RingInUse<'a> {
    request: &'a super::RingRequest,
    dumps: DumpRequests,
}

impl<'a> EbpfRecording<'a> {
    /// Attaches the programs and makes the trace.
    ///
    /// # Errors
    /// When the kernel does not allow it, or the trace cannot be made.
    pub fn start(
        request: &'a RecordRequest,
        command: Option<&HeldCommand>,
        will_change_user: bool,
    ) -> Result<(Self, Meta)> {
        let arch = facts::arch()?;
        let ring = match &request.by {
            TraceBy::Ring(request) => Some(RingInUse {
                request,
                dumps: DumpRequests::catch(request)?,
            }),
            _ => None,
        };
        let budget = request.by.stacks();
        let looks = budget.map(|_| looked_users(request)).transpose()?;
        let settings = Settings {
            lasting_waits: true,
            looks,
            ..request.capture.settings(command)?
        };
        // The finder inherits a right that we drop later, and must not inherit our priority. The
        // switches that starting it causes are over before recording begins.
        let finder = Finder::start().context("starting to look for user-mode schedulers")?;
        let stacks = budget.map(StacksToName::start).transpose();
        let stacks = stacks.context("starting to read stacks")?;
        if !request.spans.is_empty() {
            Capture::check(&settings)?;
        }
        // Before switches are recorded, so that moments of contexts are those of rows, and spans are taken for as long.
        let contexts = ContextsInTrace::attach(&request.spans, || looked_users(request))?;
        let mut spans = RecordedSpans::attach(&request.spans, contexts, open_as_caller)?;
        let capture = Capture::start(&settings, arch)?;
        spans.iter_mut().for_each(RecordedSpans::begin);
        // The counters in it belong to the moment at which the recording began.
        let at_start = facts::at_start(&request.capture.target, capture.started());
        let stacks = match stacks {
            Some(stacks) => let_look(stacks, &capture)?,
            None => None,
        };
        let meta = Meta {
            hooks: facts::hooks(&capture),
            spans: spans.as_ref().map(|_| UntoldSpans::default()),
            stacks: stacks.as_ref().map(|_| StackBudget::settings()),
            ..at_start
        };
        let writer = as_caller(|| Ok(make_trace(request, &meta)?))?;
        let user_level = UserLevel::new(finder, capture.streams());
        let mut pipeline = Pipeline::new(arch, writer, user_level, stacks, capture.naming());
        pipeline.take_spans(spans);
        let guard = start_guard(&capture, will_change_user)?;
        let recording = Self {
            capture,
            pipeline,
            guard: Some(guard),
            ring,
        };
        Ok((recording, meta))
    }
}

impl Backend for EbpfRecording<'_> {
    fn discard(self) -> Result<(), Error> {
        self.pipeline.discard()
    }

    fn directory(&self) -> &Directory {
        self.pipeline.directory()
    }

    fn start_helpers(&mut self) -> Result<()> {
        self.pipeline.read_commands(Commands::start()?);
        Ok(())
    }

    fn begin(&mut self, meta: &Meta) -> Result<()> {
        if let Some(ring) = &mut self.ring {
            self.pipeline
                .keep_last_part(ring.request, meta, &self.capture)?;
            ring.dumps.listen(self.pipeline.directory());
        }
        Ok(())
    }

    fn slots_per_cpu(&self) -> u64 {
        self.capture.slots_per_cpu()
    }

    fn round(&mut self) -> Result<DrainRound> {
        let round = self.pipeline.round(&mut self.capture)?;
        if let Some(ring) = &mut self.ring {
            ring.dumps.serve(&mut self.pipeline, &self.capture)?;
        }
        Ok(round)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.pipeline.flush(&self.capture)
    }

    fn so_far(&self) -> RecordedSoFar {
        RecordedSoFar {
            switches: self.pipeline.taken(),
            lost: self.capture.counters().lost,
            bytes: self.pipeline.bytes_written(),
        }
    }

    fn targets_are_gone(&self) -> bool {
        self.capture.targets_are_gone()
    }

    fn detach(&mut self, meta: &mut Meta) {
        self.ring = None;
        self.pipeline.end_spans();
        let mut at_end = facts::at_end(meta, &mut self.capture);
        self.capture.detach();
        self.pipeline.detach_spans();
        // Who has got a CPU since is in both, and what is told last holds.
        at_end.extend(self.capture.running_at_end());
        self.pipeline.note_at_end(at_end);
        meta.guard = self.guard.take().map(|guard| {
            let lends = guard.priority();
            priority::guard_in_trace(lends, guard.end())
        });
    }

    fn take_rest(&mut self) -> Result<()> {
        let ended = self.pipeline.end(&mut self.capture);
        // Who left a copy after the last look has nobody who takes it.
        if let Err(error) = self.capture.wipe_stack_copies() {
            message!(
                "swtch: copies of stacks stay in the kernel until this ends: {}",
                escaped(&error.to_string())
            );
        }
        Ok(ended?)
    }

    fn into_rows(mut self, meta: &mut Meta) -> (Writer, RowsToMake) {
        facts::complete(meta, &self.capture, &mut self.pipeline);
        self.pipeline.narrow_to_kept(meta, &self.capture);
        self.pipeline.into_rows()
    }
}

/// Opens a program that was named, with the rights of who called sudo.
pub fn open_as_caller(path: &Path) -> io::Result<File> {
    as_caller(|| Ok(input::open(path)?)).map_err(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        io::Error::new(kind.unwrap_or(io::ErrorKind::Other), error)
    })
}

/// Whose stacks may be looked at: those of the user who called sudo, and of a command that this user has sudo run;
/// without sudo, root's rights decide.
fn looked_users(request: &RecordRequest) -> Result<LookedUsers> {
    let is_command = matches!(request.capture.target, Target::Command(_));
    Ok(match Caller::of_sudo()? {
        Some(caller) if !is_command => LookedUsers::One(caller.user.as_raw()),
        _ => LookedUsers::All,
    })
}

/// Hands what looks to the process that reads; `None` where the kernel has nothing that does.
fn let_look(stacks: StacksToName, capture: &Capture) -> Result<Option<StacksToName>> {
    let Some(sources) = capture.look_sources()? else {
        message!(
            "swtch: this kernel does not let the stacks of waiting threads be read (Linux 5.18 and later do): recording \
             without stacks"
        );
        return Ok(None);
    };
    match stacks.begin(&sources) {
        Ok(()) => Ok(Some(stacks)),
        Err(error) => {
            message!(
                "swtch: stacks are not read: {}",
                escaped(&error.to_string())
            );
            Ok(None)
        }
    }
}

/// Starts the guard that keeps this thread from being starved, while there is the right to a
/// real-time priority. If the process changes its user later, the guard changes with it.
fn start_guard(capture: &Capture, will_change_user: bool) -> Result<Guard> {
    let kept = KeptPrivileges {
        change_user: will_change_user,
        ..KeptPrivileges::default()
    };
    let guard = capture
        .guard(kept)
        .context("starting to guard the recorder")?;
    if let Some(warning) = priority::warning(guard.priority()) {
        message!("swtch: {}", escaped(&warning));
    }
    Ok(guard)
}
