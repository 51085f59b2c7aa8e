//! The life of a member, from its start to its end.
//!
//! ```text
//! name ─▶ files, memory, locks of rings ─▶ CPU, class ─▶ barrier ─▶ clock │ body │ clock
//!      ─▶ slot ─▶ barrier
//! ```

use super::control::ResultSlot;
use super::place;
use super::program::Program;
use super::state::LoadState;
use super::{Group, Load};
use crate::error::Error;
use crate::workers::own_switches;
use crate::{clock, process};

/// One member, and the load that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) load: &'a Load,
    pub(super) state: &'a LoadState,
    /// Index of its group in the load.
    pub(super) group: usize,
    /// Its number within the group, from 0.
    pub(super) index: u32,
}

impl Member<'_> {
    fn group(&self) -> &Group {
        &self.load.groups[self.group]
    }

    fn slot(&self) -> &ResultSlot {
        self.state.slot(self.group, self.index)
    }

    /// Runs the member. If it fails, the reason is stored in the shared memory.
    pub(super) fn run(self) -> Result<(), Error> {
        let name = self.group().name_of(self.index);
        self.run_body().inspect_err(|error| {
            self.state
                .control
                .complain(&format_args!("{name}: {error}"))
        })
    }

    fn run_body(self) -> Result<(), Error> {
        let Self { load, state, .. } = self;
        let (group, slot) = (self.group(), self.slot());
        process::set_own_name(group.name_of(self.index).as_bytes());
        slot.claim();
        let positions = |ring: &str| state.resources.position(ring, self.group, self.index);
        let mut program = Program::new(&group.body, &state.resources, &positions)?;
        place::adopt_cpu_and_class(group, self.index, load.limit(), slot)?;
        state.control.meet()?;
        let began = clock::now();
        let (cpu_before, before) = (clock::cpu_time(), own_switches()?);
        program.run(&slot.at)?;
        let (after, cpu_after) = (own_switches()?, clock::cpu_time());
        let ended = clock::now();
        let cpu = cpu_after - cpu_before;
        slot.gaps.store(program.gaps());
        slot.store(began.as_ns(), ended.as_ns(), cpu, after.since(before));
        state.control.part()
    }
}
