//! Reports what each member is waiting for in a load that takes too long, so that a deadlock shows.

use std::sync::atomic::Ordering;
use std::time::Duration;

use swtch_core::Nanos;

use super::instructions::{UnboundInstruction, flat};
use super::state::LoadState;
use super::{Load, Step};
use crate::error::Error;

/// Number of members that an error names.
const NAMED: usize = 8;

/// The error of a load that has exceeded `limit`.
pub(super) fn not_done(load: &Load, state: &LoadState, what: &str, limit: Duration) -> Error {
    let mut said = Vec::new();
    let mut left = 0_usize;
    for (number, group) in load.groups.iter().enumerate() {
        let list = flat(&group.body);
        for index in 0..group.count {
            let slot = state.slot(number, index);
            if slot.is_done() {
                continue;
            }
            left += 1;
            if said.len() < NAMED {
                let at = slot.at.load(Ordering::Relaxed) as usize;
                let doing = list.get(at).map_or_else(String::new, words);
                said.push(format!("{} {doing}", group.name_of(index)));
            }
        }
    }
    if left > said.len() {
        said.push(format!("and {} more", left - said.len()));
    }
    let limit = Nanos::from_ns(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    Error::Member(format!(
        "the load {what} after {limit}: {}",
        said.join(", ")
    ))
}

fn words(instruction: &UnboundInstruction<'_>) -> String {
    match instruction {
        UnboundInstruction::Do(Step::Lock(name)) => format!("waits for lock {name}"),
        UnboundInstruction::Do(Step::Wait(name)) => format!("waits for event {name}"),
        UnboundInstruction::Do(Step::Take(name)) => format!("waits for a token of ring {name}"),
        UnboundInstruction::Do(Step::Pass(name)) => format!("hands a token of ring {name} on"),
        UnboundInstruction::Do(Step::Signal(name)) => format!("signals event {name}"),
        UnboundInstruction::Do(Step::Unlock(name)) => format!("gives lock {name} back"),
        UnboundInstruction::Do(Step::Spin { kernel, .. }) => format!("spins ({})", kernel.as_str()),
        UnboundInstruction::Do(Step::Sleep(length)) => format!("sleeps for {length}"),
        UnboundInstruction::Do(Step::Watch(_)) => "watches the clock".to_owned(),
        UnboundInstruction::Do(Step::Yield) => "yields".to_owned(),
        UnboundInstruction::Do(Step::Read { path, .. }) => format!("reads {}", path.display()),
        UnboundInstruction::Do(Step::Touch { .. }) => "touches memory".to_owned(),
        UnboundInstruction::Do(Step::Repeat { .. })
        | UnboundInstruction::Begin { .. }
        | UnboundInstruction::Again { .. } => "repeats".to_owned(),
    }
}
