//! Runs a load. The process that calls [`Load::play`] is the *player*: it starts the members,
//! releases them, waits until all are done, and makes sure that no process is left.
//!
//! ```text
//! player ──fork──▶ a process for each group of threads ──clone──▶ its threads
//!        ──fork──▶ each member that is a process
//! ```
//!
//! While members run their bodies the player sleeps. Only the end of a child wakes it, and no child
//! ends before all members are done, unless it fails.

use std::thread;
use std::time::{Duration, Instant};

use swtch_core::cost::Members;

use super::child_ends::ChildEnds;
use super::member::Member;
use super::overdue::not_done;
use super::state::LoadState;
use super::{Group, Load, LoadResults};
use crate::clock;
use crate::cpu::SchedAttr;
use crate::error::Error;
use crate::limits::raise_open_files;
use crate::process::{self, ForkedChild};

/// Longest time for all members together to start; a hundred thousand start within seconds.
const LONGEST_START: Duration = Duration::from_secs(60);

/// Interval between checks of members that are starting.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

impl Load {
    /// Runs the load. The calling process must have a single thread and no children.
    ///
    /// # Errors
    /// The load cannot run here ([`Load::check`]), a member cannot be started or fails, or the load
    /// exceeds its limit. In each case everything that was started has ended.
    pub fn play(&self) -> Result<LoadResults, Error> {
        self.check()
            .map_err(|fault| Error::Member(fault.to_string()))?;
        raise_open_files();
        let state = LoadState::build(self)?;
        let ends = ChildEnds::hold()?;
        let mut members = MemberProcesses::start(self, &state)?;
        members.wait_until_ready(self, &state)?;
        // Not earlier: members that are started later would inherit it.
        if self.groups.iter().any(|group| group.class.is_real_time()) {
            come_before_all();
        }
        let started_ns = clock::now().as_ns();
        state.control.go()?;
        members.wait_until_over(self, &state, &ends)?;
        Ok(state.results(self, started_ns))
    }
}

/// Gives the player the highest real-time priority, so that its members cannot starve it. A refusal
/// is ignored: without the permission, the members have no real-time priority either.
fn come_before_all() {
    let first = SchedAttr {
        policy: libc::SCHED_FIFO.unsigned_abs(),
        priority: 99,
        ..SchedAttr::default()
    };
    drop(first.adopt());
}

/// The started processes and their names. Dropping it kills them.
struct MemberProcesses(Vec<(String, ForkedChild)>);

impl MemberProcesses {
    fn start(load: &Load, state: &LoadState) -> Result<Self, Error> {
        let mut members = Self(Vec::new());
        for (number, group) in load.groups.iter().enumerate() {
            let member = |index| Member {
                load,
                state,
                group: number,
                index,
            };
            match group.members {
                Members::Threads => {
                    let child = ForkedChild::fork(|| start_threads(group, state, member))?;
                    members.0.push((group.name.clone(), child));
                }
                Members::Processes => {
                    for index in 0..group.count {
                        let child = ForkedChild::fork(|| member(index).run())?;
                        members.0.push((group.name_of(index), child));
                    }
                }
            }
        }
        Ok(members)
    }

    fn wait_until_ready(&mut self, load: &Load, state: &LoadState) -> Result<(), Error> {
        let deadline = Instant::now() + LONGEST_START;
        while !state.control.all_are_ready(CHECK_INTERVAL)? {
            self.check(state)?;
            if Instant::now() > deadline {
                return Err(not_done(load, state, "did not start", LONGEST_START));
            }
        }
        Ok(())
    }

    fn wait_until_over(
        &mut self,
        load: &Load,
        state: &LoadState,
        ends: &ChildEnds,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + load.limit();
        while !state.control.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(not_done(load, state, "is not done", load.limit()));
            }
            ends.wait_for_one(left)?;
            if !state.control.is_over() {
                self.check(state)?;
            }
        }
        self.0
            .iter_mut()
            .try_for_each(|(_, child)| child.wait().map(drop))
    }

    /// Fails if a process has ended.
    fn check(&mut self, state: &LoadState) -> Result<(), Error> {
        for (name, child) in &mut self.0 {
            if let Some(status) = child.try_wait()? {
                return Err(match state.control.complaint() {
                    Some(why) => Error::Member(why),
                    None => Error::ProcessFailed {
                        name: name.clone(),
                        status,
                    },
                });
            }
        }
        Ok(())
    }
}

/// Runs in the process of a group of threads: starts the threads and waits for them.
fn start_threads<'a>(
    group: &Group,
    state: &LoadState,
    member: impl Fn(u32) -> Member<'a>,
) -> Result<(), Error> {
    process::set_own_name(group.name.as_bytes());
    thread::scope(|scope| {
        for index in 0..group.count {
            let member = member(index);
            // The other threads would wait for a failed member forever, so the process ends.
            let run = move || member.run().unwrap_or_else(|_| process::fail());
            let builder = thread::Builder::new().stack_size(STACK);
            if let Err(error) = builder.spawn_scoped(scope, run) {
                let error = Error::calling("clone")(error);
                state.control.complain(&format_args!(
                    "{}: {error} (after {index} threads)",
                    group.name_of(index)
                ));
                process::fail();
            }
        }
    });
    Ok(())
}

/// Stack of a thread in bytes: address space, of which little is touched.
const STACK: usize = 128 * 1024;
