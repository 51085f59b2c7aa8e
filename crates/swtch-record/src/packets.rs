//! Messages between the recorder and the processes that help it: one packet each, with descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    recvmsg, sendmsg, shutdown, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest packet in bytes.
pub const MOST_BYTES: usize = 16 << 10;

/// The most descriptors beside a message.
const DESCRIPTORS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocking {
    Wait,
    /// Fails with [`io::ErrorKind::WouldBlock`] instead of waiting.
    DoNotWait,
}

/// A pair of connected sockets that keep packets apart. A reader learns when the other end is
/// closed.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

/// Tells the other end that nothing more is sent to it: it can still send, and reads to the end.
pub fn end_sending(socket: &OwnedFd) -> io::Result<()> {
    Ok(shutdown(socket, Shutdown::Write)?)
}

/// Waits until something can be received, or the other end sends nothing more; false when the time is over.
pub fn await_message(socket: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    Ok(retried(|| poll(&mut polled, Some(&limit)))? > 0)
}

/// Waits until the other end is closed.
pub fn await_end(socket: &OwnedFd) -> io::Result<()> {
    retried(|| poll(&mut [PollFd::new(socket, PollFlags::empty())], None))?;
    Ok(())
}

/// Sends one message, with descriptors beside it.
pub fn send(
    socket: &OwnedFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
    patience: Blocking,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, patience == Blocking::DoNotWait);
    retried(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, flags))?;
    Ok(())
}

/// The next message with its descriptors; `None` if the other end is closed. Descriptors for which this process has no
/// room any more (`RLIMIT_NOFILE`) are missing.
pub fn receive<Message: DeserializeOwned>(
    socket: &OwnedFd,
    patience: Blocking,
) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, patience == Blocking::DoNotWait);
    let read = retried(|| {
        recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut beside,
            flags,
        )
    });
    let read = match read {
        Ok(read) => read,
        // The other end was closed before it had read all that was sent to it.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
    };
    let descriptors = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect::<Vec<_>>()),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    if read.bytes == 0 {
        return Ok(None);
    }
    if read.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::other("a message was too long"));
    }
    let message = serde_json::from_slice(&bytes[..read.bytes])?;
    Ok(Some((message, descriptors)))
}

fn retried<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    fn received(socket: &OwnedFd, patience: Blocking) -> (String, Vec<OwnedFd>) {
        receive(socket, patience).unwrap().unwrap()
    }

    #[test]
    fn descriptors_come_with_their_message_and_mean_the_same_file() {
        let (ours, theirs) = pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"page").unwrap();
        let sent = [file.as_fd(), file.as_fd()];
        send(&ours, &"two files", &sent, Blocking::Wait).unwrap();
        send(&ours, &"none", &[], Blocking::Wait).unwrap();
        let (message, descriptors) = received(&theirs, Blocking::Wait);
        assert_eq!((message.as_str(), descriptors.len()), ("two files", 2));
        let mut same = File::from(descriptors.into_iter().next().unwrap());
        same.rewind().unwrap();
        let mut text = String::new();
        same.read_to_string(&mut text).unwrap();
        assert_eq!(text, "page");
        let (message, descriptors) = received(&theirs, Blocking::Wait);
        assert_eq!((message.as_str(), descriptors.len()), ("none", 0));
    }

    /// The end of a killed recorder is closed by the kernel; this is how a helper learns of it.
    #[test]
    fn an_end_that_is_gone_is_told_from_one_that_is_silent() {
        let (ours, theirs) = pair().unwrap();
        let silent = receive::<String>(&theirs, Blocking::DoNotWait).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(
            receive::<String>(&theirs, Blocking::Wait)
                .unwrap()
                .is_none()
        );
        let gone = send(&theirs, &1, &[], Blocking::Wait).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
    }
}
