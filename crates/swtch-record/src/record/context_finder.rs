//! Finds the processes that publish what their threads work on, in a separate process: that takes a right which the
//! recorder must not have ([`crate::helper`]).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use swtch_capture::{ConfinedWork, ContextChange, ContextPlace, ContextProcesses};
use swtch_core::Pid;

use crate::helper::{HelperProcess, HelperWork};
use crate::packets::{self, Blocking};

/// The hidden command that runs the finder.
const VERB: &str = "find-contexts";

/// Time between two looks at the list of processes.
const EVERY: Duration = Duration::from_millis(200);

/// Changes in one packet, of at most 50 bytes each.
const MOST_CHANGES: usize = 256;

/// A [`ContextChange`] on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SentChange(u32, Option<(u64, u64)>);

impl From<ContextChange> for SentChange {
    fn from(ContextChange { pid, place }: ContextChange) -> Self {
        Self(pid.get(), place.map(|place| (place.module, place.offset)))
    }
}

impl From<SentChange> for ContextChange {
    fn from(SentChange(pid, place): SentChange) -> Self {
        Self {
            pid: Pid::new(pid),
            place: place.map(|(module, offset)| ContextPlace { module, offset }),
        }
    }
}

/// Handle of the finder's process. Dropping it ends the process.
#[derive(Debug)]
pub struct ContextFinder {
    process: HelperProcess,
}

impl ContextFinder {
    /// Starts the finder. Must be called while there are rights that it can inherit.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start() -> io::Result<Self> {
        let process = HelperProcess::start(VERB)?;
        Ok(Self { process })
    }

    /// What has changed since the last call.
    ///
    /// # Errors
    /// When the finder has ended: further processes are not found.
    pub fn changes(&mut self) -> io::Result<Vec<ContextChange>> {
        let mut changes = Vec::new();
        while let Some(socket) = &self.process.socket {
            match packets::receive::<Vec<SentChange>>(socket, Blocking::DoNotWait) {
                Ok(Some((sent, _))) => changes.extend(sent.into_iter().map(ContextChange::from)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Told with the next call.
                Ok(None) if !changes.is_empty() => break,
                ended => {
                    self.process.socket = None;
                    let why = ended.err();
                    return Err(why.unwrap_or_else(|| io::Error::other("it has ended")));
                }
            }
        }
        Ok(changes)
    }

    /// The finder's process, whose cost is part of the overhead.
    pub const fn process(&self) -> &HelperProcess {
        &self.process
    }
}

/// Runs `swtch find-contexts`, with the recorder's socket as its stdin. Returns exit code 0 when the recorder has ended.
///
/// # Errors
/// When a right cannot be dropped, or stdin is not such a socket.
pub fn find_contexts() -> Result<u8> {
    let work = HelperWork {
        name: c"swtch-contexts",
        bpf: ConfinedWork::ReadsMaps,
    };
    let socket = work.begin()?;
    let mut processes = ContextProcesses::default();
    loop {
        let changes: Vec<_> = processes.look().into_iter().map(SentChange::from).collect();
        for batch in changes.chunks(MOST_CHANGES) {
            match packets::send(&socket, &batch, &[], Blocking::Wait) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                sent => sent.context("telling the recorder")?,
            }
        }
        if has_ended(&socket)? {
            return Ok(0);
        }
    }
}

/// Waits until it is time for the next look; true if the recorder, which sends nothing, has ended.
fn has_ended(socket: &OwnedFd) -> io::Result<bool> {
    packets::await_message(socket, EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full batch must fit, or it would be lost.
    #[test]
    fn the_longest_batch_is_one_packet() {
        let (ours, theirs) = packets::pair().unwrap();
        let changes = vec![SentChange(u32::MAX, Some((u64::MAX, u64::MAX))); MOST_CHANGES];
        packets::send(&ours, &changes, &[], Blocking::DoNotWait).unwrap();
        let read = packets::receive::<Vec<SentChange>>(&theirs, Blocking::DoNotWait).unwrap();
        assert_eq!(read.unwrap().0, changes);
        assert!(!has_ended(&ours).unwrap());
        drop(theirs);
        assert!(has_ended(&ours).unwrap());
    }
}
