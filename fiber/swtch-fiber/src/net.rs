//! Sockets that block the worker and not its thread: TCP and UDP, as in [`std::net`].
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use swtch_fiber::net::TcpListener;
//!
//! let runtime = swtch_fiber::Runtime::new()?;
//! runtime.run(|| -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:7777")?;
//!     loop {
//!         let (mut stream, _) = listener.accept()?;
//!         let echo = move || std::io::copy(&mut stream.try_clone()?, &mut stream);
//!         swtch_fiber::spawn(echo).expect("in a runtime");
//!     }
//! })??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The sockets are those of std, set to non-blocking. They work with any scheduler, and with
//! threads that are not workers, which then block in the kernel. Errors are the kernel's. An
//! operation whose deadline has passed fails with [`TimedOut`](std::io::ErrorKind::TimedOut). A
//! task that is cancelled unwinds out of the operation it waits in; bytes that this operation had
//! read already are lost.

mod tcp;
mod timeout;
mod udp;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use crate::preemptive::preemptive;
use crate::wait_type::WaitType;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;

/// Tries the addresses in turn until `attempt` succeeds, as std does.
///
/// Resolving a name may ask a name server, so it happens in a preemptive section.
fn with_first<Address, Output>(
    address: Address,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<Output>,
) -> io::Result<Output>
where
    Address: ToSocketAddrs + Send,
{
    let wait_type =
        WaitType::named("PREEMPTIVE_OS_GETADDRINFO").unwrap_or(WaitType::PREEMPTIVE_OTHER);
    let addresses = preemptive(wait_type, move || {
        address
            .to_socket_addrs()
            .map(|addresses| addresses.collect::<Vec<_>>())
    })?;
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in addresses {
        match attempt(address) {
            Ok(output) => return Ok(output),
            Err(error) => last = error,
        }
    }
    Err(last)
}
