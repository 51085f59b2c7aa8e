//! What is recorded, in the form that the kernel side compares tasks with.

use super::shared;
use crate::error::Error;
use crate::probe::NamingHierarchy;
use crate::scope::{
    CgroupTargets, Children, RecordingScope, TargetProcess, naming_hierarchy, require_host_pids,
};
use crate::settings::Settings;
use crate::skeleton::recorder::SwtchSkel;
use crate::tree::RecordedTree;

/// The scope in the form that the kernel side compares tasks with.
pub struct ScopePlan {
    pub all: bool,
    pub targets: Vec<TargetProcess>,
    pub children: Children,
    pub cgroups: Option<CgroupTargets>,
    /// The hierarchy that names the cgroups of tasks.
    pub naming: NamingHierarchy,
}

impl ScopePlan {
    /// Space in the map `targets` for children of processes that end while the tree is taken.
    const ORPHANS: usize = 4096;

    pub fn new(scope: &RecordingScope) -> Result<Self, Error> {
        let nothing = Self {
            all: false,
            targets: Vec::new(),
            children: Children::LeftOut,
            cgroups: None,
            naming: naming_hierarchy(),
        };
        match scope {
            RecordingScope::All => Ok(Self {
                all: true,
                ..nothing
            }),
            RecordingScope::Cgroups(paths) => {
                let cgroups = CgroupTargets::find(paths)?;
                let naming = cgroups.as_ref().map(|cgroups| cgroups.hierarchy);
                Ok(Self {
                    naming: naming.unwrap_or(nothing.naming),
                    cgroups,
                    ..nothing
                })
            }
            RecordingScope::Processes { pids, children } => {
                require_host_pids()?;
                let targets = pids
                    .iter()
                    .map(|pid| TargetProcess::find(*pid))
                    .collect::<Result<_, _>>()?;
                Ok(Self {
                    targets,
                    children: *children,
                    ..nothing
                })
            }
        }
    }

    /// Number of cgroups for which the map `scope_cgroups` must have space: a map has one place at least.
    pub fn most_cgroups(&self) -> u32 {
        let wanted = self.cgroups.as_ref().map_or(1, |cgroups| cgroups.ids.len());
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// Number of processes for which the map `targets` must have space.
    pub fn most_targets(&self) -> u32 {
        let orphans = match self.children {
            Children::Recorded => Self::ORPHANS,
            Children::LeftOut => 1,
        };
        u32::try_from(self.targets.len() + orphans).unwrap_or(u32::MAX)
    }

    /// Takes the tree of the processes that were asked for, once the probes are attached; `None`
    /// for a scope that is not made of processes.
    pub fn take_tree(
        &self,
        skel: &mut SwtchSkel<'static>,
        settings: &Settings,
    ) -> Result<Option<RecordedTree>, Error> {
        if self.targets.is_empty() {
            return Ok(None);
        }
        let link = skel
            .progs
            .walk_tasks
            .attach()
            .map_err(|source| Error::Attach {
                program: "walk_tasks".to_owned(),
                source,
            })?;
        let tree = RecordedTree::take(
            &link,
            shared(skel),
            self.children,
            settings.before_walk.as_ref(),
        )?;
        match self.targets.iter().find(|target| target.is_gone()) {
            Some(gone) => Err(Error::EndedBefore {
                pid: gone.pid.get(),
            }),
            None => Ok(Some(tree)),
        }
    }
}
