//! The request that each thread works on, where its program publishes it (OpenTelemetry's thread context, OTEP 4947).
//!
//! ```text
//!   program   writes the ids of trace and span into a variable of the thread
//!   kernel    reads them when the thread leaves its CPU, and tells stretches of time with one context
//!   here      finds out where each process has that variable ([`ContextProcesses`]: that takes `CAP_SYS_PTRACE`)
//! ```
//!
//! A program of its own on `sched_switch`, attached only when contexts are asked for.

mod place;
mod processes;

use std::fmt;
use std::mem::{MaybeUninit, offset_of};

use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, OpenObject};
pub use place::{CONTEXT_VARIABLE, ContextPlace};
pub use processes::{ContextChange, ContextProcesses};

use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::record_ring::{RecordRing, number, word};
use crate::refusal;
use crate::settings::LookedUsers;
use crate::skeleton::contexts::types::{context_ids, context_place, context_record, open_context};
use crate::skeleton::contexts::{ContextsLinks, ContextsSkel, ContextsSkelBuilder};

/// A stretch of a thread's time with one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundContext {
    /// When the thread left its CPU with it for the first time, on the trace clock.
    pub begin_ns: u64,
    /// When it left its CPU with another, or none.
    pub end_ns: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The id of the trace: what was one request to somebody.
    pub trace_id: [u8; 16],
    /// The id of the part of it that was active.
    pub span_id: [u8; 8],
}

/// The attached program. Dropping it takes it away.
pub struct ContextCapture {
    // Declared first: the ring goes before the maps and programs.
    ring: RecordRing<FoundContext>,
    skel: ContextsSkel<'static>,
    /// Those that lasted on when the program was taken away.
    left: Vec<FoundContext>,
}

impl fmt::Debug for ContextCapture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextCapture").finish_non_exhaustive()
    }
}

impl ContextCapture {
    /// Attaches the program, which reads memory of processes of these users. For its moments to be those of rows, this
    /// comes before switches are recorded.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn attach(users: LookedUsers) -> Result<Self, Error> {
        refusal::listen();
        // When the skeleton is dropped, only a few bytes of this storage stay allocated.
        let storage: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = ContextsSkelBuilder::default()
            .open(storage)
            .map_err(Error::of_load)?;
        let constants = open.maps.rodata_data.as_deref_mut();
        let constants = constants.expect("the object has constants");
        constants.look_at_all_users = users == LookedUsers::All;
        if let LookedUsers::One(user) = users {
            constants.look_at_user = user;
        }
        let mut skel = open.load().map_err(Error::of_load)?;
        let ring = RecordRing::of(&skel.maps.contexts, "contexts", context_of)?;
        skel.attach().map_err(|source| Error::Attach {
            program: "the reader of threads' contexts".to_owned(),
            source,
        })?;
        Ok(Self {
            ring,
            skel,
            left: Vec::new(),
        })
    }

    /// From now on the contexts of the threads of this process are read, or not any more: another may get its id.
    ///
    /// # Errors
    /// When there are too many such processes.
    pub fn follow(&self, ContextChange { pid, place }: ContextChange) -> Result<(), Error> {
        let key = pid.get().to_ne_bytes();
        let places = &self.skel.maps.places;
        let Some(place) = place else {
            // It is no error if it was not there.
            let _ = places.delete(&key);
            return Ok(());
        };
        let mut bytes = [0; size_of::<context_place>()];
        for (at, word) in [
            (offset_of!(context_place, module), place.module),
            (offset_of!(context_place, offset), place.offset),
        ] {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        let updated = places.update(&key, &bytes, MapFlags::ANY);
        updated.map_err(|source| Error::Map {
            map: "places",
            source,
        })
    }

    /// Takes the program away. Stretches that last on end now; [`Self::take`] still returns them.
    pub fn detach(&mut self) {
        self.skel.links = ContextsLinks::default();
        let open = self.open(monotonic_ns());
        self.left.extend(open);
    }

    /// The stretches that have ended since the last call.
    ///
    /// # Errors
    /// When the ring cannot be read.
    pub fn take(&mut self) -> Result<Vec<FoundContext>, Error> {
        let mut taken = self.ring.take()?;
        taken.append(&mut self.left);
        Ok(taken)
    }

    /// The stretches that last on, as if they ended at this moment.
    fn open(&self, now_ns: u64) -> Vec<FoundContext> {
        let open = &self.skel.maps.open_contexts;
        let values = open.keys().filter_map(|key| {
            let value = open.lookup(&key, MapFlags::ANY).ok()??;
            open_of(&value, now_ns)
        });
        values.collect()
    }

    /// The number of stretches that were lost, for which there was no room.
    pub fn lost(&self) -> u64 {
        let counts = self.skel.maps.bss_data.as_deref();
        counts.map_or(0, |counts| counts.lost_contexts) + self.ring.unreadable()
    }

    /// The number of switch-outs at which the memory was not there, so that the context was not known.
    pub fn unread(&self) -> u64 {
        let counts = self.skel.maps.bss_data.as_deref();
        counts.map_or(0, |counts| counts.unread_contexts)
    }
}

/// The ids of trace and span that lie at this place.
fn ids_at(bytes: &[u8], at: usize) -> Option<([u8; 16], [u8; 8])> {
    let bytes = bytes.get(at..)?;
    let trace = *bytes.get(offset_of!(context_ids, trace)..)?.first_chunk()?;
    let span = *bytes.get(offset_of!(context_ids, span)..)?.first_chunk()?;
    Some((trace, span))
}

/// `None` if it is no record.
fn context_of(bytes: &[u8]) -> Option<FoundContext> {
    let (trace_id, span_id) = ids_at(bytes, offset_of!(context_record, ids))?;
    Some(FoundContext {
        begin_ns: word(bytes, offset_of!(context_record, begin_ns))?,
        end_ns: word(bytes, offset_of!(context_record, end_ns))?,
        pid: number(bytes, offset_of!(context_record, pid))?,
        tid: number(bytes, offset_of!(context_record, tid))?,
        trace_id,
        span_id,
    })
}

/// `None` if the thread has no context now.
fn open_of(bytes: &[u8], now_ns: u64) -> Option<FoundContext> {
    let (trace_id, span_id) = ids_at(bytes, offset_of!(open_context, ids))?;
    (trace_id != [0; 16]).then_some(())?;
    let begin_ns = word(bytes, offset_of!(open_context, begin_ns))?;
    Some(FoundContext {
        begin_ns,
        end_ns: now_ns.max(begin_ns),
        pid: number(bytes, offset_of!(open_context, pid))?,
        tid: number(bytes, offset_of!(open_context, tid))?,
        trace_id,
        span_id,
    })
}
