//! Decides how long the recorder sleeps between two rounds, and what wakes it before that.
//!
//! ```text
//! round ─▶ sleeps until  the pause is over ─┐
//!            ▲           a signal comes     ├─▶ round
//!            │           the command ends  ─┘     │
//!            └────────────────────────────────────┘
//! ```
//!
//! One wakeup takes the recorder as long as copying some 600 records (60 µs and 0.1 µs each, AMD
//! EPYC virtual machine, Linux 6.18), so where few records come, most of its CPU time is wakeups. It
//! sleeps as long as it may:
//!
//! - A ring must not fill while it sleeps, also if many more switches come than before.
//! - What records name must be looked up before it is gone: command lines and user-mode schedulers. So it sleeps only
//!   briefly after a task was started, and whenever a user-mode scheduler is watched, whose ring is small.
//! - A recorder that is killed loses at most a second: [`Pauses::LONGEST`] and the time between two
//!   flushes are less than that together.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use swtch_capture::signals::{not_ignored, pass_over_user_signals};

/// The findings of one round of emptying the rings.
#[derive(Clone, Copy, Debug)]
pub struct DrainRound {
    /// Number of records that the fullest ring held.
    pub most_in_a_ring: u64,
    /// True if something may have to be looked up soon, before it is gone.
    pub is_urgent: bool,
}

/// The pauses between the rounds of one recording.
#[derive(Debug)]
pub struct Pauses {
    /// Number of records that a ring has room for.
    slots: u64,
    last: Duration,
    /// Until then, pauses are at most [`Self::LONGEST_IF_URGENT`].
    urgent_until: Instant,
}

impl Pauses {
    /// The longest pause: five wakeups a second.
    pub const LONGEST: Duration = Duration::from_millis(200);
    /// The longest pause while something may have to be looked up.
    const LONGEST_IF_URGENT: Duration = Duration::from_millis(20);
    /// The shortest pause, unless a ring fills fast.
    const SHORTEST: Duration = Duration::from_millis(1);
    /// The time for which it stays urgent: a scheduler's page is looked for during half a second after the start of a
    /// thread, and a forked process gets a command line of its own in this time.
    const URGENT_FOR: Duration = Duration::from_secs(1);
    /// Records that a ring should gather between two rounds: 340 kB, which stays in a core's cache.
    const RECORDS_A_ROUND: u64 = 2_000;
    /// Switches a second of one CPU for which an empty ring has room during a pause, whatever came
    /// before: what a CPU makes that does nothing else, while it is recorded.
    const MOST_A_SECOND: u64 = 1_300_000;

    /// The pauses of a recording whose rings have room for so many records each.
    pub fn new(slots: u64, now: Instant) -> Self {
        Self {
            slots,
            last: Self::LONGEST_IF_URGENT,
            urgent_until: now + Self::URGENT_FOR,
        }
    }

    /// The pause after a round: one that would have gathered the wanted number of records, and at
    /// most twice the last one. Zero if far more came.
    pub fn after(&mut self, round: DrainRound, now: Instant) -> Duration {
        if round.is_urgent {
            self.urgent_until = now + Self::URGENT_FOR;
        }
        // So many that a ring does not fill even if ten times as many come.
        let wanted = Self::RECORDS_A_ROUND.min(self.slots / 16);
        self.last = if round.most_in_a_ring > 8 * wanted {
            Duration::ZERO
        } else {
            let longest = self.longest(now).min(2 * self.last);
            let last = self.last.max(Self::SHORTEST);
            let gathered = round.most_in_a_ring.max(1);
            last.mul_f64(as_ratio(wanted, gathered))
                .min(longest)
                .max(Self::SHORTEST)
        };
        self.last
    }

    fn longest(&self, now: Instant) -> Duration {
        if now < self.urgent_until {
            return Self::LONGEST_IF_URGENT;
        }
        let until_full = Duration::from_millis(self.slots * 1000 / Self::MOST_A_SECOND);
        until_full.clamp(Self::LONGEST_IF_URGENT, Self::LONGEST)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of small counts")]
fn as_ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Signals that end a recording properly, while SIGUSR1 and SIGUSR2 do not end it. A signal that was ignored
/// when we were started stays ignored, as `nohup` and the background jobs of scripts expect.
#[derive(Debug)]
pub struct StopSignals {
    last: Arc<AtomicUsize>,
    /// A byte comes with each signal.
    arrived: UnixStream,
}

impl StopSignals {
    /// Catches them from now on, to the end of the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch() -> Result<Self> {
        let (arrived, arrives) = UnixStream::pair().context("waiting for signals")?;
        let nonblocking = arrived.set_nonblocking(true);
        nonblocking.context("waiting for signals")?;
        pass_over_user_signals();
        let last = Arc::new(AtomicUsize::new(0));
        for signal in not_ignored(&[SIGINT, SIGTERM, SIGHUP]) {
            let number = usize::try_from(signal).unwrap_or(0);
            // Both run in this order: who is woken by the byte finds the number.
            signal_hook::flag::register_usize(signal, Arc::clone(&last), number)
                .context("catching signals")?;
            let arrives = arrives.try_clone().context("catching signals")?;
            signal_hook::low_level::pipe::register(signal, arrives).context("catching signals")?;
        }
        Ok(Self { last, arrived })
    }

    /// The last signal that came; 0 if none did.
    pub fn last(&self) -> i32 {
        i32::try_from(self.last.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns true if any came.
    pub fn any(&self) -> bool {
        self.last() != 0
    }

    /// Sleeps until the pause is over, a signal comes, or `also` can be read or is closed.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn sleep(&self, pause: Duration, also: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let watched = [Some(self.arrived.as_fd()), also];
        let watched = watched.into_iter().flatten();
        let mut watched: Vec<_> = watched
            .map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut watched, Some(TimeSpec::from_duration(pause)), None) {
            // A signal was handled: there is a byte for it, or it is none of ours.
            Ok(_) | Err(nix::Error::EINTR) => self.forget_arrivals(),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the bytes of signals that came, so that they end no further sleep.
    fn forget_arrivals(&self) -> io::Result<()> {
        match (&self.arrived).read(&mut [0; 64]) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u64 = 1 << 18;

    fn round(most_in_a_ring: u64) -> DrainRound {
        DrainRound {
            most_in_a_ring,
            is_urgent: false,
        }
    }

    /// Goes on at this rate, in switches of one CPU a second, until pauses are equal.
    fn settled(pauses: &mut Pauses, rate: u64, now: Instant) -> Duration {
        let mut pause = pauses.last;
        for _ in 0..50 {
            let micros = u64::try_from(pause.as_micros()).unwrap();
            let gathered = micros * rate / 1_000_000;
            pause = pauses.after(round(gathered), now);
        }
        pause
    }

    #[test]
    fn the_fewer_come_the_longer_it_sleeps() {
        let start = Instant::now();
        let later = start + Duration::from_secs(60);
        let mut pauses = Pauses::new(SLOTS, start);
        let mut last = Duration::ZERO;
        for rate in [1_000_000, 240_000, 87_000, 28_000, 15_000, 0] {
            let pause = settled(&mut pauses, rate, later);
            assert!(pause > last, "{rate}: {pause:?} after {last:?}");
            last = pause;
        }
        assert!(
            last > Duration::from_millis(190) && last <= Pauses::LONGEST,
            "{last:?}"
        );
    }

    /// Rings of all sizes, after all rates, have room for ten times as many.
    #[test]
    fn no_ring_fills_at_ten_times_the_rate() {
        let start = Instant::now();
        for slots in [512, 4_096, 1 << 13, SLOTS, 1 << 22] {
            for rate in [1_000, 20_000, 100_000, 400_000] {
                let mut pauses = Pauses::new(slots, start);
                let pause = settled(&mut pauses, rate, start + Duration::from_secs(60));
                if pause > Pauses::SHORTEST {
                    let gathered = pause.as_secs_f64() * rate as f64 * 10.0;
                    assert!(gathered < slots as f64, "{slots} {rate}: {pause:?}");
                }
            }
        }
    }

    #[test]
    fn a_ring_has_room_for_a_burst_after_a_rest() {
        let start = Instant::now();
        let mut pauses = Pauses::new(SLOTS, start);
        let pause = settled(&mut pauses, 0, start + Duration::from_secs(60));
        assert!(pause.as_secs_f64() * 1.3e6 <= SLOTS as f64);
    }

    #[test]
    fn it_sleeps_briefly_for_a_second_after_a_task_was_started() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pauses = Pauses::new(SLOTS, start);
        let brief = Pauses::LONGEST_IF_URGENT;
        // The start of the recording counts, too.
        assert_eq!(pauses.after(round(0), start), brief);
        assert!(pauses.after(round(0), at(2)) > brief);
        let urgent = DrainRound {
            is_urgent: true,
            ..round(0)
        };
        assert_eq!(pauses.after(urgent, at(3)), brief);
        assert_eq!(pauses.after(round(0), at(3)), brief);
        assert!(pauses.after(round(0), at(4)) > brief);
    }

    #[test]
    fn far_more_than_wanted_is_taken_without_a_pause() {
        let mut pauses = Pauses::new(SLOTS, Instant::now());
        assert_eq!(pauses.after(round(16_001), Instant::now()), Duration::ZERO);
        assert_eq!(pauses.after(round(0), Instant::now()), Pauses::SHORTEST);
    }

    #[test]
    fn a_signal_or_a_closed_descriptor_ends_the_sleep() {
        let signals = StopSignals::catch().unwrap();
        let long = Duration::from_secs(60);
        let begin = Instant::now();
        // Under nohup, or in the background of a script, the others are ignored.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        signals.sleep(long, None).unwrap();
        assert_eq!(signals.last(), SIGTERM);
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        signals.sleep(long, Some(reader.as_fd())).unwrap();
        assert!(begin.elapsed() < long);
        // A signal that was noticed does not end further sleeps.
        let short = Duration::from_millis(5);
        let begin = Instant::now();
        signals.sleep(short, None).unwrap();
        assert!(begin.elapsed() >= short);
    }
}
