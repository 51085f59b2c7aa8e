//! What recorder and finder tell each other.

use serde::{Deserialize, Serialize};

/// Hints in one packet, of at most 40 bytes each.
pub(super) const MOST_HINTS: usize = 256;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{Blocking, pair, receive, send};

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
