//! A hog in a cgroup that may use 20 ms of every 100 ms.
//!
//! ```text
//! period    │ 20 ms run │ throttled 80 ms │ 20 ms run │ throttled …
//! ```

use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::clock;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::cpu_group::{CgroupHierarchy, CpuGroup};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::signals_held::SignalsHeld;
use crate::workers::start_process;

const QUOTA: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_millis(100);

pub(super) const QUOTA_USED: Workload = Workload {
    name: "quota",
    about: "a hog uses up its cgroup's CPU quota in every period",
    needs: Needs::CpuController,
    default_count: 10,
    count_is: "periods of 100 ms",
    run,
};

fn run(periods: u64) -> Result<WorkloadOutcome, Error> {
    let hierarchy = CgroupHierarchy::find().ok_or(Error::Missing {
        workload: QUOTA_USED.name,
        needs: QUOTA_USED.needs,
    })?;
    let _held = SignalsHeld::hold()?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Other)?;
    let group = CpuGroup::with_quota(&hierarchy, QUOTA, PERIOD)?;
    let length = PERIOD * u32::try_from(periods).unwrap_or(u32::MAX);
    let hog = start_process("hog-on-quota", || {
        clock::spin(length);
        Ok([])
    })?;
    group.admit(hog.pid())?;
    let hog = hog.finish()?;
    let throttled = group.throttled_periods()?;
    // The kernel counts a period at its end, so the period in which the hog ends may be missing.
    let throttles = Expect::between(
        Reason::Throttle,
        throttled.saturating_sub(1),
        throttled + 1,
        "the kernel counted that many periods without quota left (nr_throttled)",
    );
    Ok(WorkloadOutcome {
        threads: vec![hog.expecting(vec![throttles])],
    })
}
