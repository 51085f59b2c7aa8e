//! TCP sockets: a listener and a stream.

use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::timeout::Timeout;
use super::with_first;
use crate::io::{Interest, IoRequest, completes_here, retry, run, wait_ready};
use crate::park::Deadline;

/// A socket that accepts connections.
#[derive(Debug)]
pub struct TcpListener {
    socket: net::TcpListener,
}

impl TcpListener {
    /// Listens at `address`; port 0 lets the kernel choose, see [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    /// The error of the kernel or of the name resolution.
    pub fn bind(address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        with_first(address, net::TcpListener::bind)?.try_into()
    }

    /// Waits for a connection. Many workers, of several schedulers, may wait at the same listener.
    ///
    /// # Errors
    /// The kernel's error; without a free descriptor (`EMFILE`) at once.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accept = || self.socket.accept();
        let (socket, peer) = retry(self.as_fd(), Interest::Read, None, accept)?;
        Ok((socket.try_into()?, peer))
    }

    /// The local address and port.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Makes another handle to the same socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = self.socket.try_clone()?;
        Ok(Self { socket })
    }
}

impl TryFrom<net::TcpListener> for TcpListener {
    type Error = io::Error;

    /// Converts a listener and makes it non-blocking, which also affects its clones.
    fn try_from(socket: net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A TCP connection. As in std, `&TcpStream` can be read and written as well, so that one worker
/// may read while another writes.
#[derive(Debug)]
pub struct TcpStream {
    socket: net::TcpStream,
    read_timeout: Timeout,
    write_timeout: Timeout,
}

impl TcpStream {
    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// The error of the kernel or of the name resolution, for the last address tried.
    pub fn connect(address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        with_first(address, |address| Self::connect_until(&address, None))
    }

    /// Connects to one address, and waits at most for `timeout`.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        Self::connect_until(address, Some(Deadline::after(timeout)))
    }

    fn connect_until(address: &SocketAddr, deadline: Option<Deadline>) -> io::Result<Self> {
        use rustix::io::Errno;

        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => await_connection(&socket, deadline)?,
            Err(error) => return Err(error.into()),
        }
        net::TcpStream::from(socket).try_into()
    }

    /// Shuts down reading, writing or both. Wakes workers that wait for it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    /// Sets whether small pieces are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.set_nodelay(nodelay)
    }

    /// Returns true if small pieces are sent at once, see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    /// The kernel's error.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.nodelay()
    }

    /// Address of this end of the connection.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Address of the other end of the connection.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Sets the longest time that a read waits. Belongs to this handle, not to its clones.
    ///
    /// # Errors
    /// For a timeout of 0.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout)
    }

    /// Sets the longest time that a write waits. Belongs to this handle, not to its clones.
    ///
    /// # Errors
    /// For a timeout of 0.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout.set(timeout)
    }

    /// The longest time that a read waits; `None` without a limit. See
    /// [`set_read_timeout`](Self::set_read_timeout).
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.read_timeout.get()
    }

    /// The longest time that a write waits; `None` without a limit. See
    /// [`set_write_timeout`](Self::set_write_timeout).
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        self.write_timeout.get()
    }

    /// Makes another handle to the same connection, with the same timeouts.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            read_timeout: self.read_timeout.clone(),
            write_timeout: self.write_timeout.clone(),
        })
    }

    /// Reads without removing the bytes from the socket.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = self.read_timeout.get();
        retry(self.as_fd(), Interest::Read, timeout, || {
            self.socket.peek(buffer)
        })
    }
}

/// Waits until a connection is made or refused.
fn await_connection(socket: &OwnedFd, deadline: Option<Deadline>) -> io::Result<()> {
    loop {
        wait_ready(socket.as_fd(), Interest::Write, deadline)?;
        rustix::net::sockopt::socket_error(socket)??;
        // The wakeup may have been spurious: then there is no peer yet.
        match rustix::net::getpeername(socket) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::NOTCONN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let timeout = self.read_timeout.get();
        if !buffer.is_empty() && completes_here() {
            return receive(self.as_fd(), buffer, timeout);
        }
        retry(self.as_fd(), Interest::Read, timeout, || {
            (&self.socket).read(buffer)
        })
    }
}

fn receive(
    descriptor: BorrowedFd<'_>,
    buffer: &mut [u8],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let deadline = timeout.map(Deadline::after);
    loop {
        let request = IoRequest::Receive {
            descriptor,
            buffer: &mut *buffer,
        };
        match run(request, deadline) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(|bytes| bytes as usize),
        }
    }
}

impl Write for &TcpStream {
    /// Writes as much as fits into the send buffer, and waits only when it is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let timeout = self.write_timeout.get();
        retry(self.as_fd(), Interest::Write, timeout, || {
            (&self.socket).write(bytes)
        })
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let timeout = self.write_timeout.get();
        retry(self.as_fd(), Interest::Write, timeout, || {
            (&self.socket).write_vectored(pieces)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TryFrom<net::TcpStream> for TcpStream {
    type Error = io::Error;

    /// Converts a connection and makes it non-blocking, which also affects its clones.
    fn try_from(socket: net::TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
        })
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
