//! Spans of threads between two places of a program, such as those of a server's statements: when they began and ended.
//!
//! Independent of the recording of switches: the kernel stops a thread at the two places for a moment (uprobes), and
//! nowhere else. Every process that runs the file is stopped there, also one that is not recorded.

mod places;

use std::fs::File;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::{fmt, io};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, OpenObject, ProgramMut, UprobeOpts};
use swtch_core::UntoldSpans;

pub use places::{NoSpan, PlaceInProgram, SpanChoice};

use crate::error::Error;
use crate::record_ring::{RecordRing, number, word};
use crate::refusal;
use crate::skeleton::spans::types::span_record;
use crate::skeleton::spans::{SpansSkel, SpansSkelBuilder};
use places::{SpanPlaces, SpanProbe};

/// A span of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSpan {
    /// When it began, on the trace clock.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its kind, a place in [`SpanCapture::names`].
    pub kind: usize,
}

/// The attached probes. Dropping them takes them away.
pub struct SpanCapture {
    // Declared first: the ring and the links go before the maps and programs.
    ring: RecordRing<FoundSpan>,
    links: Vec<Link>,
    skel: SpansSkel<'static>,
    names: Vec<String>,
}

impl fmt::Debug for SpanCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanCapture").finish_non_exhaustive()
    }
}

impl SpanCapture {
    /// Finds the places and attaches the probes, which takes a tenth of a second each. Spans are taken from
    /// [`Self::begin`] on. `open` opens a file that was named.
    ///
    /// # Errors
    /// When a place is not found, or the kernel allows no probe there.
    pub fn attach(
        choices: &[SpanChoice],
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> Result<Self, Error> {
        refusal::listen();
        let mut kinds: Vec<SpanPlaces> = Vec::new();
        for choice in choices {
            kinds.extend(choice.places(&open)?);
        }
        // When the skeleton is dropped, only a few bytes of this storage stay allocated.
        let storage: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = SpansSkelBuilder::default()
            .open(storage)
            .map_err(Error::of_load)?;
        let skel = open.load().map_err(Error::of_load)?;
        let ring = RecordRing::of(&skel.maps.spans, "spans", span_of)?;
        let mut links = Vec::new();
        for (number, kind) in (0..).zip(&kinds) {
            // Ends are attached first: an end whose begin was not seen is counted, and no more. A begin whose end was not
            // seen stays open until a begin comes that is no deeper in the stack; before that, the end of a span around
            // it would be taken for its own.
            for (program, probes) in [
                (&skel.progs.span_end, &kind.end),
                (&skel.progs.span_begin, &kind.begin),
            ] {
                for probe in probes {
                    links.push(attach_probe(program, kind, *probe, number)?);
                }
            }
        }
        Ok(Self {
            ring,
            links,
            skel,
            names: kinds.into_iter().map(|kind| kind.name).collect(),
        })
    }

    /// How each kind is called.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// From now on spans are taken.
    pub fn begin(&mut self) {
        self.say_whether_taken(true);
    }

    /// No more begin or end is seen. [`Self::take`] still returns spans that ended before.
    pub fn end(&mut self) {
        self.say_whether_taken(false);
    }

    fn say_whether_taken(&mut self, are_taken: bool) {
        if let Some(told) = self.skel.maps.bss_data.as_deref_mut() {
            told.are_taken = u32::from(are_taken);
        }
    }

    /// Detaches the probes, as slowly as they came.
    pub fn detach(&mut self) {
        self.end();
        self.links.clear();
    }

    /// The spans that have ended since the last call.
    ///
    /// # Errors
    /// When the ring cannot be read.
    pub fn take(&mut self) -> Result<Vec<FoundSpan>, Error> {
        self.ring.take()
    }

    /// Counts of spans that could not be reported, since the probes were attached.
    pub fn untold(&self) -> UntoldSpans {
        let counts = self.skel.maps.bss_data.as_deref();
        counts.map_or_else(UntoldSpans::default, |counts| UntoldSpans {
            lost: counts.lost + self.ring.unreadable(),
            without_begin: counts.without_begin,
            without_end: counts.without_end,
            too_deep: counts.too_deep,
        })
    }
}

/// Attaches a program at a place, for all processes that run the file. `number` is that of the kind, which the program
/// writes into its records.
fn attach_probe(
    program: &ProgramMut<'_>,
    kind: &SpanPlaces,
    probe: SpanProbe,
    number: u64,
) -> Result<Link, Error> {
    let in_usize = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let options = UprobeOpts {
        ref_ctr_offset: in_usize(probe.semaphore),
        cookie: number,
        retprobe: probe.is_return,
        ..UprobeOpts::default()
    };
    let everyone = -1;
    let offset = in_usize(probe.offset);
    let file = format!("/proc/self/fd/{}", kind.file.as_raw_fd());
    let link = program.attach_uprobe_with_opts(everyone, file, offset, options);
    link.map_err(|source| Error::Attach {
        program: format!("a probe at {:#x} of {}", probe.offset, kind.shown.display()),
        source,
    })
}

/// The span of a record; `None` if the record is too short.
fn span_of(bytes: &[u8]) -> Option<FoundSpan> {
    Some(FoundSpan {
        begin_ns: word(bytes, offset_of!(span_record, begin_ns))?,
        end_ns: word(bytes, offset_of!(span_record, end_ns))?,
        pid: number(bytes, offset_of!(span_record, pid))?,
        tid: number(bytes, offset_of!(span_record, tid))?,
        kind: usize::try_from(word(bytes, offset_of!(span_record, kind))?).ok()?,
    })
}
