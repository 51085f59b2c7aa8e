//! Messages of the processes of a measurement to the one that reads: one message a line, as JSON, into a pipe that all
//! of them inherit.
//!
//! A line is written by a single call and is shorter than `PIPE_BUF`, so that lines of several
//! processes do not mix. (A longer one comes from a process that nobody writes beside.)

use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::token::SysvSemaphore;

/// Most characters of a line that an error shows.
const SHOWN_CHARS: usize = 200;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message<T> {
    /// A process has failed, or one of its threads, and the process ends.
    Failed { why: String },
    /// A leader has created a System V semaphore set, which outlives a leader that is killed.
    SemaphoreSet { id: i32 },
    /// A report on what is measured.
    Report(T),
}

impl<T: DeserializeOwned> Message<T> {
    /// The message of a line.
    pub(super) fn from_line(line: &str) -> Result<Self, Error> {
        serde_json::from_str(line).map_err(|error| {
            let start: String = line.chars().take(SHOWN_CHARS).collect();
            Error::Member(format!("the process that measures says {start:?}: {error}"))
        })
    }
}

pub(super) fn report(mut out: impl Write, report: &impl Serialize) -> Result<(), Error> {
    out.write_all(line(&Message::Report(report)).as_bytes())
        .map_err(Error::calling("write"))
}

/// The descriptor to which members write. It is set once, before any fork.
static MEMBERS_FD: AtomicI32 = AtomicI32::new(libc::STDERR_FILENO);

/// Sets the descriptor for messages of members: a pipe that all of them inherit.
pub(super) fn set_members_fd(fd: i32) {
    MEMBERS_FD.store(fd, Ordering::Release);
}

/// Tells of the semaphore set that a leader has created.
pub(super) fn register_semaphore_set(set: &SysvSemaphore) {
    write_as_member(&Message::SemaphoreSet { id: set.id() });
}

/// Tells why a member fails, and ends its process.
pub(super) fn fail(error: &Error) -> ! {
    write_as_member(&Message::Failed {
        why: error.to_string(),
    });
    crate::process::fail()
}

/// Writes a message from any process or thread. A failed write is ignored: then no reader is left.
fn write_as_member(message: &Message<()>) {
    let line = line(message);
    // SAFETY: the bytes live across the call.
    unsafe {
        libc::write(
            MEMBERS_FD.load(Ordering::Acquire),
            line.as_ptr().cast(),
            line.len(),
        )
    };
}

fn line<T: Serialize>(message: &Message<T>) -> String {
    let json = serde_json::to_string(message);
    json.expect("invariant: messages are plain data, with texts as keys") + "\n"
}

/// The first reason for a failure among lines of several members, which are whole; `None` if there
/// is none.
pub(super) fn first_failure(lines: &[u8]) -> Option<String> {
    let lines = String::from_utf8_lossy(lines);
    lines
        .lines()
        .find_map(|line| match Message::<()>::from_line(line) {
            Ok(Message::Failed { why }) => Some(why),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason of two lines stays one message, and a semaphore set is no failure.
    #[test]
    fn the_first_failure_is_found_among_other_messages() {
        let set = line(&Message::<()>::SemaphoreSet { id: 7 });
        assert_eq!(first_failure(set.as_bytes()), None);
        let failed = |why: &str| {
            line(&Message::<()>::Failed {
                why: why.to_owned(),
            })
        };
        let lines = [set, failed("one\nand two"), failed("later")].concat();
        assert_eq!(first_failure(lines.as_bytes()).unwrap(), "one\nand two");
    }

    #[test]
    fn what_is_no_message_is_shown() {
        let error = Message::<()>::from_line("sample 1 2").unwrap_err();
        assert!(error.to_string().contains("\"sample 1 2\""), "{error}");
    }
}
