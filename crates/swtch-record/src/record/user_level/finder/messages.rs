//! Messages between the recorder and the finder, the process that looks for pages of user-mode schedulers.

use serde::{Deserialize, Serialize};

/// The most hints in one packet: so many, of at most 40 bytes of JSON each, fit `packets::MOST_BYTES`.
pub(super) const MOST_HINTS: usize = 256;

/// The most characters of a reason. In JSON a character takes up to 6 bytes, so a packet has room for them.
const MOST_OF_REASON: usize = 2_000;

/// A process that may have a scheduler now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hint {
    pub(super) pid: u32,
    /// The process has executed a program: what was known of it does not hold any more.
    pub(super) is_exec: bool,
}

/// The result of a look at a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FinderReply {
    /// The process has a page, whose descriptors go with the message.
    Page { pid: u32 },
    /// The process has a page that cannot be used, with the reason.
    Refused(String),
}

impl FinderReply {
    /// A refusal for this reason, whose end is cut off if it is too long for a packet.
    pub(super) fn refused(why: &str) -> Self {
        Self::Refused(why.chars().take(MOST_OF_REASON).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{Blocking, pair, receive, send};

    /// A message that is too long would end the finder.
    #[test]
    fn the_longest_refusal_is_one_packet() {
        for character in ["\u{1}", "\u{10ffff}", "a"] {
            let (ours, theirs) = pair().unwrap();
            let reply = FinderReply::refused(&character.repeat(100_000));
            send(&ours, &reply, &[], Blocking::DoNotWait).unwrap();
            let read = receive::<FinderReply>(&theirs, Blocking::DoNotWait).unwrap();
            assert_eq!(read.unwrap().0, reply);
        }
    }

    /// A full batch must fit, or it would be lost.
    #[test]
    fn the_longest_batch_of_hints_is_one_packet() {
        let (ours, theirs) = pair().unwrap();
        let hint = Hint {
            pid: u32::MAX,
            is_exec: false,
        };
        let hints = vec![hint; MOST_HINTS];
        send(&ours, &hints, &[], Blocking::DoNotWait).unwrap();
        let read = receive::<Vec<Hint>>(&theirs, Blocking::DoNotWait).unwrap();
        assert_eq!(read.unwrap().0, hints);
    }
}
