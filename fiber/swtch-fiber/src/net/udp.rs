//! UDP sockets, which send and receive datagrams.

use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::timeout::Timeout;
use super::with_first;
use crate::io::{Interest, retry};

/// A UDP socket, which sends and receives datagrams.
#[derive(Debug)]
pub struct UdpSocket {
    socket: net::UdpSocket,
    read_timeout: Timeout,
    write_timeout: Timeout,
}

impl UdpSocket {
    /// Binds a socket to `address`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// The error of the kernel or of the name resolution.
    pub fn bind(address: impl ToSocketAddrs + Send) -> io::Result<Self> {
        with_first(address, net::UdpSocket::bind)?.try_into()
    }

    /// Sets the only address to send to and to receive from.
    ///
    /// # Errors
    /// The error of the kernel or of the name resolution.
    pub fn connect(&self, address: impl ToSocketAddrs + Send) -> io::Result<()> {
        with_first(address, |address| self.socket.connect(address))
    }

    /// Sends a datagram to `address`.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn send_to(&self, datagram: &[u8], address: &SocketAddr) -> io::Result<usize> {
        self.write(|| self.socket.send_to(datagram, address))
    }

    /// Waits for a datagram. Bytes that do not fit into `buffer` are lost, as usual with UDP.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read(|| self.socket.recv_from(buffer))
    }

    /// Sends a datagram to the address it is [connected](Self::connect) to.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.write(|| self.socket.send(datagram))
    }

    /// Waits for a datagram from the address it is [connected](Self::connect) to.
    ///
    /// # Errors
    /// The kernel's error; [`io::ErrorKind::TimedOut`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(|| self.socket.recv(buffer))
    }

    fn read<Output>(&self, attempt: impl FnMut() -> io::Result<Output>) -> io::Result<Output> {
        let timeout = self.read_timeout.get();
        retry(self.as_fd(), Interest::Read, timeout, attempt)
    }

    fn write<Output>(&self, attempt: impl FnMut() -> io::Result<Output>) -> io::Result<Output> {
        let timeout = self.write_timeout.get();
        retry(self.as_fd(), Interest::Write, timeout, attempt)
    }

    /// Sets the longest time that a receive waits. Belongs to this handle, not to its clones.
    ///
    /// # Errors
    /// For a timeout of 0.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout)
    }

    /// Sets the longest time that a send waits. Belongs to this handle, not to its clones.
    ///
    /// # Errors
    /// For a timeout of 0.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout.set(timeout)
    }

    /// Sets whether datagrams to a broadcast address may be sent.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.socket.set_broadcast(broadcast)
    }

    /// Local address of the socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The address it is [connected](Self::connect) to.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Makes another handle to the same socket, with the same timeouts.
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
}

impl TryFrom<net::UdpSocket> for UdpSocket {
    type Error = io::Error;

    /// Converts a socket and makes it non-blocking, which also affects its clones.
    fn try_from(socket: net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            read_timeout: Timeout::default(),
            write_timeout: Timeout::default(),
        })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
