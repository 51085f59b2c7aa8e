//! The state that exists before any member starts, and the results that are read from it at the
//! end.

use std::sync::atomic::Ordering;

use swtch_core::{Nanos, Pid, Tid};

use super::control::{LoadControl, ResultSlot};
use super::resources::Resources;
use super::{Class, Group, Load, LoadResults, PlayedMember};
use crate::error::Error;

/// Everything that members share, created before any of them starts.
pub(super) struct LoadState {
    pub(super) control: LoadControl,
    pub(super) resources: Resources,
    /// Index of the first member of each group.
    firsts: Vec<usize>,
}

impl LoadState {
    pub(super) fn build(load: &Load) -> Result<Self, Error> {
        let mut members = 0;
        let firsts = load.groups.iter().map(|group| {
            let first = members;
            members += group.count as usize;
            first
        });
        let firsts = firsts.collect();
        Ok(Self {
            control: LoadControl::new(members)?,
            resources: Resources::make(load)?,
            firsts,
        })
    }

    pub(super) fn slot(&self, group: usize, index: u32) -> &ResultSlot {
        &self.control.slots()[self.firsts[group] + index as usize]
    }

    pub(super) fn results(&self, load: &Load, started_ns: u64) -> LoadResults {
        let groups = load.groups.iter().enumerate();
        let members = groups.clone().flat_map(|(number, group)| {
            (0..group.count).map(move |index| self.result_of_member(number, group, index))
        });
        LoadResults {
            started_ns,
            members: members.collect(),
            notes: groups
                .flat_map(|(number, group)| self.notes(number, group))
                .collect(),
        }
    }

    fn result_of_member(&self, number: usize, group: &Group, index: u32) -> PlayedMember {
        let done = self.slot(number, index).done();
        PlayedMember {
            group: number,
            index,
            pid: Pid::new(done.pid),
            tid: Tid::new(done.tid),
            cpu: group.cpus.of(index),
            began_ns: done.began_ns,
            ended_ns: done.ended_ns,
            cpu_time: Nanos::from_ns(done.cpu_ns),
            voluntary: done.counted.voluntary,
            involuntary: done.counted.involuntary,
            gaps: self.slot(number, index).gaps.gaps(),
        }
    }

    /// Requests of a group that were not granted. All members of a group request the same.
    fn notes(&self, number: usize, group: &Group) -> Vec<String> {
        let slot = self.slot(number, 0);
        let mut notes = Vec::new();
        if slot.class_refused.load(Ordering::Relaxed) != 0 {
            let limit = match group.class {
                Class::Other { .. } | Class::Batch { .. } | Class::Idle => {
                    "RLIMIT_NICE (ulimit -e)"
                }
                Class::Fifo { .. } | Class::RoundRobin { .. } => "RLIMIT_RTPRIO (ulimit -r)",
            };
            notes.push(format!(
                "group {} ran without {}: not permitted; the limit is {limit}",
                group.name, group.class
            ));
        }
        if let Some(asked) = group.slice {
            match slot.slice_ns.load(Ordering::Relaxed) {
                0 => notes.push(format!(
                    "group {} ran with the kernel's own slice: this kernel takes no slices (Linux 6.12 does)",
                    group.name
                )),
                given if given != asked.as_ns() => notes.push(format!(
                    "group {} asked for a slice of {asked} and got {}",
                    group.name,
                    Nanos::from_ns(given)
                )),
                _ => {}
            }
        }
        notes
    }
}
