//! Catches signals that are meant for the command and passes them on.
//!
//! A key of the terminal (Ctrl-C) reaches the whole foreground process group, the command too:
//! passing it on would deliver it twice. A signal that a process sent (`kill`) reached only us.

use std::io;
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal as Name, kill};
use nix::unistd::Pid as NixPid;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::iterator::{Handle, SignalsInfo};
use swtch_capture::signals::{not_ignored, pass_over_user_signals};
use swtch_output::message;

/// `SIGCHLD` tells that the command ended; the others are passed on to it, unless they were ignored
/// when we were started.
const HEARD: [i32; 5] = [
    libc::SIGCHLD,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalOrigin {
    /// Sent by the kernel: a key of the terminal, or the end of a child.
    Kernel,
    /// Sent by a process, with `kill` or the like.
    Process,
}

impl SignalOrigin {
    /// `si_code` is positive for signals that the kernel sends (`sigaction(2)`).
    const fn of_code(code: i32) -> Self {
        if code > 0 {
            Self::Kernel
        } else {
            Self::Process
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Signal {
    pub number: i32,
    pub origin: SignalOrigin,
}

/// Catches signals until it is dropped.
#[derive(Debug)]
pub(super) struct Signals {
    events: Receiver<Signal>,
    handle: Handle,
    listener: Option<JoinHandle<()>>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        pass_over_user_signals();
        let mut source = SignalsInfo::<WithRawSiginfo>::new(not_ignored(&HEARD))?;
        let handle = source.handle();
        let (sender, events) = mpsc::channel();
        let listener = std::thread::Builder::new()
            .name("swtch-signals".into())
            .spawn(move || {
                for info in source.forever() {
                    let signal = Signal {
                        number: info.si_signo,
                        origin: SignalOrigin::of_code(info.si_code),
                    };
                    if sender.send(signal).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self {
            events,
            handle,
            listener: Some(listener),
        })
    }

    /// The next signal, or `None` if none arrives within `pause`.
    pub(super) fn next_within(&self, pause: Duration) -> Option<Signal> {
        self.events.recv_timeout(pause).ok()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(listener) = self.listener.take() {
            listener
                .join()
                .expect("the listener only forwards and cannot panic");
        }
    }
}

/// Sends a signal to the command. It is not reaped yet, so its id cannot belong to another process.
pub(super) fn pass_on(number: i32, child: &Child) {
    let (Ok(name), Ok(pid)) = (Name::try_from(number), i32::try_from(child.id())) else {
        return;
    };
    if name == Name::SIGCHLD {
        return;
    }
    if let Err(error) = kill(NixPid::from_raw(pid), name) {
        message!("warning: cannot pass {name} on to the command: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_terminal_is_told_from_a_sent_signal() {
        const SI_KERNEL: i32 = 0x80;
        assert_eq!(SignalOrigin::of_code(SI_KERNEL), SignalOrigin::Kernel);
        assert_eq!(SignalOrigin::of_code(libc::SI_USER), SignalOrigin::Process);
        assert_eq!(SignalOrigin::of_code(libc::SI_TKILL), SignalOrigin::Process);
    }
}
