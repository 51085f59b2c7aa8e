//! Stacks of other processes, read from outside while their threads sleep.
//!
//! ```text
//! kernel side (looks.h)          swtch read-stacks                            recorder
//!  registers, copies of stacks ─▶ reader: unwound with process_code ─news─▶ StackReader ─▶ records, names
//! ```
//!
//! `process_code` knows the code that a process maps, `file_tables` what a file says of the frames of its functions; the
//! walk itself is `swtch-unwind`'s. [`outside`] uses both for who has no eBPF.

pub mod budget;
pub mod file_tables;
mod goroutines;
mod javas;
mod memory;
mod messages;
pub mod outside;
mod process_code;
mod pythons;
mod reader;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use swtch_capture::LookSources;
use swtch_core::StackEnd;
use swtch_unwind::{Chain, ChainEnd};

pub use messages::{FoundLook, FoundWorkers, NotRead, StackNews};
pub use reader::read_stacks;

use crate::helper::HelperProcess;
use crate::packets::{self, Blocking};
use messages::LookOrders;

/// The most distinct stacks that are kept of a recording. Waits in those that come later have no place.
const MOST_STACKS: u32 = 1 << 20;

const fn end_of(chain: &Chain) -> StackEnd {
    match chain.end {
        ChainEnd::Root if chain.is_guessed => StackEnd::Guessed,
        ChainEnd::Root => StackEnd::Start,
        ChainEnd::Cut => StackEnd::Cut,
        ChainEnd::NoTables => StackEnd::NoTables,
        ChainEnd::Unknown => StackEnd::Unknown,
        ChainEnd::TooDeep => StackEnd::Deep,
    }
}

/// The hidden command that reads stacks.
const VERB: &str = "read-stacks";

/// Handle of the process that reads stacks. Dropping it ends the process.
#[derive(Debug)]
pub struct StackReader(HelperProcess);

impl StackReader {
    /// Starts the process. Must be called while there are rights that it can inherit.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start() -> io::Result<Self> {
        HelperProcess::start(VERB).map(Self)
    }

    /// Lets it look.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn begin(&self, sources: &LookSources, cpu_thousandths: u32) -> io::Result<()> {
        let Some(socket) = &self.0.socket else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let orders = LookOrders {
            cpu_thousandths,
            waker_slots: sources.waker_slots,
            deep_slots: sources.deep_slots,
        };
        let maps = [&sources.wakers, &sources.deep].map(|map| map.as_fd());
        let beside = [sources.program.as_fd(), maps[0], maps[1]];
        packets::send(socket, &orders, &beside, Blocking::Wait)
    }

    /// What it has found since the last call, with the files beside it; an error is its last news.
    pub fn news(&mut self, take: impl FnMut(StackNews, Vec<OwnedFd>)) -> io::Result<()> {
        self.news_until(Instant::now(), take).map(|_| ())
    }

    /// Ends the looks. What a look has found that is under way is passed on, if it ends within the limit; returns false if
    /// it does not.
    pub fn last_news(
        &mut self,
        limit: Duration,
        take: impl FnMut(StackNews, Vec<OwnedFd>),
    ) -> io::Result<bool> {
        let Some(socket) = &self.0.socket else {
            return Ok(true);
        };
        packets::end_sending(socket)?;
        let is_done = self.news_until(Instant::now() + limit, take)?;
        self.0.hold();
        Ok(is_done)
    }

    /// Returns true if the process has said that there is no more.
    fn news_until(
        &mut self,
        end: Instant,
        mut take: impl FnMut(StackNews, Vec<OwnedFd>),
    ) -> io::Result<bool> {
        while let Some(socket) = &self.0.socket {
            match packets::receive(socket, Blocking::DoNotWait) {
                Ok(Some((StackNews::Done, _))) => return Ok(true),
                Ok(Some((news, files))) => take(news, files),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() || !packets::await_message(socket, left)? {
                        break;
                    }
                }
                ended => {
                    self.0.socket = None;
                    return Err(ended.err().unwrap_or(io::ErrorKind::BrokenPipe.into()));
                }
            }
        }
        Ok(false)
    }

    /// The process, whose cost is part of the overhead.
    pub const fn process(&self) -> &HelperProcess {
        &self.0
    }
}
