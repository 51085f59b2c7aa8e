//! A parent that waits for its children: for their end, and (after `posix_spawn`) until they
//! execute a program and so leave the shared address space.

use std::process::Command;
use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::clock;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::process::ForkedChild;
use crate::workers::{fork_locks, start, start_process};

const CHILD_WORK: Duration = Duration::from_millis(1);

pub(super) const WAIT: Workload = Workload {
    name: "wait4",
    about: "a process waits for children that each work for 1 ms",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "children",
    run: wait,
};

pub(super) const SPAWN: Workload = Workload {
    name: "spawn",
    about: "a thread starts `true` by posix_spawn (vfork) and waits for it",
    needs: Needs::Nothing,
    default_count: 100,
    count_is: "children",
    run: spawn,
};

fn wait(children: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let parent = start_process("parent", || {
        for _ in 0..children {
            let mut child = ForkedChild::fork(|| {
                clock::spin(CHILD_WORK);
                Ok(())
            })?;
            child.wait()?;
        }
        Ok([])
    })?;
    let parent = parent.finish()?;
    // The child runs on the same CPU, so it can only end before the wait if the parent was
    // preempted.
    let spared = parent.counted.involuntary;
    let because = "one wait a child, less those that a preemption of the parent spares";
    let waits = Expect::blocks(Reason::Child, children, spared, because);
    Ok(WorkloadOutcome {
        threads: vec![parent.expecting(vec![waits, fork_locks(children)])],
    })
}

fn spawn(children: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let parent = start(scope, "spawner", || {
            for _ in 0..children {
                let status = Command::new("true")
                    .status()
                    .map_err(Error::calling("posix_spawn"))?;
                if !status.success() {
                    let name = "true".to_owned();
                    return Err(Error::ProcessFailed {
                        name,
                        status: status.code().unwrap_or(-1),
                    });
                }
            }
            Ok(())
        })?;
        let parent = parent.finish()?;
        let spared = parent.counted.involuntary;
        let waits = Expect::between(
            Reason::Child,
            children.saturating_sub(spared),
            2 * children,
            "a vfork waits until the child executes, and a child that still runs is waited for",
        );
        Ok(WorkloadOutcome {
            threads: vec![parent.expecting(vec![waits, fork_locks(children)])],
        })
    })
}
