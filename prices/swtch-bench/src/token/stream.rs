//! A token as one byte (or a counter) in a file that is read: pipe, eventfd, sockets. Processes
//! that are forked later share these.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::Token;
use crate::error::{Error, checked};

const BYTE: [u8; 1] = *b"t";

fn write_byte(mut end: impl Write) -> Result<(), Error> {
    end.write_all(&BYTE).map_err(Error::calling("write"))
}

/// Reads the byte. The end of the stream means that the peer has failed.
fn read_byte(mut end: impl Read, stream: &'static str) -> Result<(), Error> {
    let mut byte = [0];
    match end.read(&mut byte).map_err(Error::calling("read"))? {
        0 => Err(Error::PeerGone(stream)),
        _ => Ok(()),
    }
}

/// A pipe that holds the token as one byte.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(super) reader: PipeReader,
    writer: PipeWriter,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self, Error> {
        let (reader, writer) = pipe().map_err(Error::calling("pipe2"))?;
        Ok(Self { reader, writer })
    }
}

impl Token for Pipe {
    fn pass(&self) -> Result<(), Error> {
        write_byte(&self.writer)
    }

    fn take(&self) -> Result<(), Error> {
        read_byte(&self.reader, "pipe")
    }
}

/// An eventfd whose counter is the token.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    /// A counter that is 0. Taking resets it to 0.
    pub(crate) fn new() -> Result<Self, Error> {
        Self::of(libc::EFD_CLOEXEC)
    }

    /// A counter that is 0. Taking subtracts 1.
    pub(crate) fn counting() -> Result<Self, Error> {
        Self::of(libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE)
    }

    fn of(flags: libc::c_int) -> Result<Self, Error> {
        // SAFETY: no memory is involved.
        let fd = checked("eventfd2", unsafe { libc::eventfd(0, flags) })?;
        // SAFETY: the descriptor was just opened and nothing else owns it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }
}

impl Token for EventFd {
    fn pass(&self) -> Result<(), Error> {
        (&self.0)
            .write_all(&1_u64.to_ne_bytes())
            .map_err(Error::calling("write"))
    }

    fn take(&self) -> Result<(), Error> {
        (&self.0)
            .read_exact(&mut [0; 8])
            .map_err(Error::calling("read"))
    }
}

/// A pair of connected Unix stream sockets.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    near: UnixStream,
    far: UnixStream,
}

impl UnixSocket {
    pub(crate) fn new() -> Result<Self, Error> {
        let (near, far) = UnixStream::pair().map_err(Error::calling("socketpair"))?;
        Ok(Self { near, far })
    }
}

impl Token for UnixSocket {
    fn pass(&self) -> Result<(), Error> {
        write_byte(&self.near)
    }

    fn take(&self) -> Result<(), Error> {
        read_byte(&self.far, "socket")
    }
}

/// A TCP connection over the loopback device.
#[derive(Debug)]
pub(crate) struct Tcp {
    near: TcpStream,
    far: TcpStream,
}

impl Tcp {
    /// A connection to this process that sends every byte without delay (`TCP_NODELAY`).
    pub(crate) fn new() -> Result<Self, Error> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::calling("bind"))?;
        let address = listener
            .local_addr()
            .map_err(Error::calling("getsockname"))?;
        let near = TcpStream::connect(address).map_err(Error::calling("connect"))?;
        let (far, _) = listener.accept().map_err(Error::calling("accept4"))?;
        for end in [&near, &far] {
            end.set_nodelay(true)
                .map_err(Error::calling("setsockopt"))?;
        }
        Ok(Self { near, far })
    }
}

impl Token for Tcp {
    fn pass(&self) -> Result<(), Error> {
        write_byte(&self.near)
    }

    fn take(&self) -> Result<(), Error> {
        read_byte(&self.far, "socket")
    }
}
