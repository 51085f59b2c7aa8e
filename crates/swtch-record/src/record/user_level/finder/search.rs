//! The side of the finder's process: inspects processes and hands over the pages that it finds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustc_hash::FxHashMap;
use swtch_capture::{ConfinedWork, TargetProcess};
use swtch_core::Pid;
use swtch_observe::{Error, Page};

use super::super::EVERY;
use super::messages::{FinderReply, Hint};
use super::turns::InspectionQueue;
use crate::helper::HelperWork;
use crate::packets::{self, Blocking};

/// Number of looks at a process after an event that may precede a new scheduler.
const LOOKS: u8 = 6;

/// Runs `swtch find-schedulers`, with the recorder's socket as its stdin. Returns exit code 0 when
/// the recorder has ended.
///
/// # Errors
/// When a right cannot be dropped, or stdin is not such a socket.
pub fn find_schedulers() -> Result<u8> {
    let work = HelperWork {
        name: c"swtch-finder",
        bpf: ConfinedWork::ReadsMaps,
    };
    let socket = work.begin()?;
    Search::default().run(&socket)?;
    Ok(0)
}

/// The result of one look at a process.
enum LookResult {
    Page(Box<Page>),
    Refused(String),
}

/// The processes to inspect, and those that are done.
#[derive(Default)]
struct Search {
    turns: InspectionQueue,
    /// Processes that need no further look, as long as the id belongs to the same process.
    known: FxHashMap<u32, TargetProcess>,
}

impl Search {
    /// Inspects processes until the recorder is gone.
    fn run(&mut self, socket: &OwnedFd) -> Result<()> {
        while self.hear(socket).context("hearing from the recorder")? {
            for met in self.round() {
                let told = match &met {
                    LookResult::Page(page) => {
                        let answer = FinderReply::Page { pid: page.pid() };
                        packets::send(socket, &answer, &page.descriptors(), Blocking::Wait)
                    }
                    LookResult::Refused(why) => {
                        let answer = FinderReply::refused(why);
                        packets::send(socket, &answer, &[], Blocking::Wait)
                    }
                };
                match told {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    told => told.context("telling the recorder")?,
                }
            }
        }
        Ok(())
    }

    /// Takes hints for one round's time; if no process waits for a look, the time begins with the
    /// first hint. False if the recorder has ended.
    fn hear(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        let mut until = (!self.turns.is_empty()).then(|| Instant::now() + EVERY);
        while is_readable(socket, until)? {
            let Some((hints, _)) = packets::receive::<Vec<Hint>>(socket, Blocking::Wait)? else {
                return Ok(false);
            };
            hints.into_iter().for_each(|hint| self.note(hint));
            until.get_or_insert_with(|| Instant::now() + EVERY);
        }
        Ok(true)
    }

    fn note(&mut self, hint: Hint) {
        let known = self.known.get(&hint.pid);
        // The id of an ended process may be used again by one that never executes a program.
        if known.is_some_and(|known| !hint.is_exec && !known.is_gone()) {
            return;
        }
        self.known.remove(&hint.pid);
        self.turns.wait(hint.pid, LOOKS);
    }

    /// Looks at the processes whose turn it is.
    fn round(&mut self) -> Vec<LookResult> {
        let turn = self.turns.next_round().into_iter();
        turn.filter_map(|(pid, looks_left)| self.look(pid, looks_left))
            .collect()
    }

    fn look(&mut self, pid: u32, looks_left: u8) -> Option<LookResult> {
        let met = match Page::of_process(pid) {
            Ok(page) => LookResult::Page(Box::new(page)),
            Err(Error::NoScheduler { .. }) => {
                self.turns.wait(pid, looks_left.saturating_sub(1));
                return None;
            }
            // Most processes that may not be inspected have no scheduler: nothing is reported.
            Err(Error::NoProcess { .. } | Error::NotPermitted { .. }) => return None,
            Err(error) => LookResult::Refused(in_words(&error)),
        };
        // A process that has ended meanwhile is not kept, since its id is free.
        let target = TargetProcess::find(Pid::new(pid)).ok();
        self.known.extend(target.map(|target| (pid, target)));
        Some(met)
    }
}

/// True if a message is there, or arrives before `until`; without `until` it waits for one. A
/// recorder that sends without pause is not read for longer than that.
fn is_readable(socket: &OwnedFd, until: Option<Instant>) -> io::Result<bool> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(false);
    }
    // Rounded up to a whole millisecond: a timeout of 0 would be a busy loop.
    let timeout = left.map_or(PollTimeout::NONE, |left| {
        let up = left + Duration::from_micros(999);
        PollTimeout::try_from(up).unwrap_or(PollTimeout::MAX)
    });
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, timeout) {
        // Interrupted by a signal, such as stop and continue.
        Err(nix::errno::Errno::EINTR) => is_readable(socket, until),
        ready => Ok(ready? > 0),
    }
}

/// An error with its causes, as one line.
fn in_words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words += &format!(": {cause}");
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn hint(pid: u32, is_exec: bool) -> Hint {
        Hint { pid, is_exec }
    }

    /// A process without a scheduler costs a few looks and is then left alone.
    #[test]
    fn a_process_without_scheduler_is_looked_at_a_few_times() {
        // Other tests in this process make schedulers, so another process is inspected.
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut search = Search::default();
        search.note(hint(sleeper.id(), false));
        for _ in 0..LOOKS {
            assert!(!search.turns.is_empty());
            assert!(search.round().is_empty());
        }
        assert!(search.turns.is_empty());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_not_looked_at_again() {
        let mut search = Search::default();
        search.note(hint(u32::MAX - 1, false));
        assert!(search.round().is_empty());
        assert!(search.turns.is_empty());
    }

    /// The same page found twice would be two streams of the same switches.
    #[test]
    fn a_known_process_is_looked_at_again_only_when_it_is_another_program() {
        let own = std::process::id();
        let mut search = knowing(own);
        search.note(hint(own, false));
        assert!(search.turns.is_empty());
        search.note(hint(own, true));
        assert_eq!(search.turns.next_round(), [(own, LOOKS)]);
    }

    /// A server that forks its workers executes nothing: ids are used again without an exec event.
    #[test]
    fn the_number_of_a_known_process_that_ended_may_be_that_of_another() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let mut search = knowing(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        search.note(hint(pid, false));
        assert_eq!(search.turns.next_round(), [(pid, LOOKS)]);
        assert!(search.known.is_empty());
    }

    fn knowing(pid: u32) -> Search {
        let mut search = Search::default();
        let target = TargetProcess::find(Pid::new(pid)).unwrap();
        search.known.insert(pid, target);
        search
    }
}
