//! The objects that members wait for: locks, events and rings, made before any member starts and
//! found by name.

use std::collections::BTreeMap;

use super::instructions::{UnboundInstruction, flat};
use super::ring::{LoadRingSpec, Ring};
use super::{Load, Step};
use crate::error::Error;
use crate::lock::Lock;
use crate::token::Token;

/// The locks, events and rings of a load, by name.
pub(super) struct Resources {
    locks: BTreeMap<String, Box<dyn Lock>>,
    events: BTreeMap<String, Box<dyn Token + Send>>,
    rings: BTreeMap<String, Ring>,
    /// For a ring and a group: the position in the ring of the group's first member.
    first_positions: BTreeMap<(String, usize), usize>,
}

impl Resources {
    pub(super) fn make(load: &Load) -> Result<Self, Error> {
        let mut resources = Self {
            locks: BTreeMap::new(),
            events: BTreeMap::new(),
            rings: BTreeMap::new(),
            first_positions: BTreeMap::new(),
        };
        let mut members_of_rings: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, group) in load.groups.iter().enumerate() {
            for step in flat(&group.body) {
                match step {
                    UnboundInstruction::Do(Step::Lock(name))
                        if !resources.locks.contains_key(name) =>
                    {
                        let kind = load.locks.get(name).copied().unwrap_or_default();
                        resources.locks.insert(name.clone(), kind.make()?);
                    }
                    UnboundInstruction::Do(Step::Wait(name) | Step::Signal(name))
                        if !resources.events.contains_key(name) =>
                    {
                        let kind = load.events.get(name).copied().unwrap_or_default();
                        resources.events.insert(name.clone(), kind.make()?);
                    }
                    UnboundInstruction::Do(Step::Take(name) | Step::Pass(name)) => {
                        let members = members_of_rings.entry(name).or_default();
                        resources
                            .first_positions
                            .entry((name.clone(), number))
                            .or_insert_with(|| {
                                let first = *members;
                                *members += group.count as usize;
                                first
                            });
                    }
                    _ => {}
                }
            }
        }
        for (name, members) in members_of_rings {
            let spec: LoadRingSpec = load.rings.get(name).copied().unwrap_or_default();
            resources
                .rings
                .insert(name.to_owned(), Ring::new(spec, members)?);
        }
        Ok(resources)
    }

    pub(super) fn lock(&self, name: &str) -> &dyn Lock {
        &*self.locks[name]
    }

    pub(super) fn event(&self, name: &str) -> &dyn Token {
        &*self.events[name]
    }

    pub(super) fn ring(&self, name: &str) -> &Ring {
        &self.rings[name]
    }

    /// The position of a member in a ring, from 0.
    pub(super) fn position(&self, ring: &str, group: usize, index: u32) -> usize {
        self.first_positions[&(ring.to_owned(), group)] + index as usize
    }
}
