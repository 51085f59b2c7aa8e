//! Cgroups for the members of a ring: what a switch between tasks of two groups costs on top.
//!
//! ```text
//! RingCgroups::One   root ── swtch-PID-0 ── all members
//! RingCgroups::Two   root ─┬─ swtch-PID-0 ── leader
//!                          └─ swtch-PID-1 ── peers
//! ```
//!
//! Both layouts have the same depth. The scheduler walks up and down the tree of groups, so the
//! depth of the user's own group is part of the price, and that group cannot be the baseline.
//!
//! The groups belong to a keeper, a process that waits for the end of all members and then removes
//! the groups. The members may end in any way: at the driver's request, by Ctrl-C (which the keeper
//! blocks), or killed.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::mem;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use swtch_core::cost::Members;

use crate::cpu_group::{CgroupHierarchy, CpuGroup};
use crate::error::Error;
use crate::process::ForkedChild;
use crate::signals_held::SignalsHeld;

/// The cgroups that the members of a ring are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingCgroups {
    /// In the group that they are started in.
    #[default]
    Inherited,
    /// All members in one new group.
    One,
    /// The leader in a new group, the peers in another.
    Two,
}

/// The files by which the members of one ring enter their groups. The groups are removed when all
/// members have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct CgroupFiles {
    /// `cgroup.procs` or `tasks` file for the leader and for the peers; `None` without own groups.
    files: Option<[PathBuf; 2]>,
}

impl RingCgroups {
    /// Creates the groups that are needed, and a keeper that removes them in the end.
    pub(super) fn open(self, members: Members) -> Result<CgroupFiles, Error> {
        if self == Self::Inherited {
            return Ok(CgroupFiles::default());
        }
        let hierarchy = CgroupHierarchy::find()
            .ok_or_else(|| Error::NotHere("cgroup controller `cpu` is not mounted".to_owned()))?;
        let door = match (&hierarchy, members) {
            // This file takes single threads; a single-threaded process may use it too.
            (CgroupHierarchy::V1(_), _) => "tasks",
            (CgroupHierarchy::V2(_), Members::Processes) => "cgroup.procs",
            (CgroupHierarchy::V2(_), Members::Threads) => {
                return Err(Error::NotHere(
                    "cgroup 2 keeps the threads of a process together".to_owned(),
                ));
            }
        };
        let names = [0, 1].map(|side| format!("swtch-{}-{side}", std::process::id()));
        let names = match self {
            Self::Two => names.to_vec(),
            _ => names[..1].to_vec(),
        };
        let made = keep(&hierarchy, &names)?;
        let file = |side: usize| made[side.min(made.len() - 1)].join(door);
        Ok(CgroupFiles {
            files: Some([file(0), file(1)]),
        })
    }
}

impl CgroupFiles {
    /// Moves the calling member into its group.
    pub(super) fn enter(&self, member: usize) -> Result<(), Error> {
        let Some(files) = &self.files else {
            return Ok(());
        };
        let path = &files[member.min(1)];
        // "0" means the writing task.
        fs::write(path, "0").map_err(|source| Error::File {
            path: path.clone(),
            source,
        })
    }
}

/// Starts a keeper that creates groups with these names. Returns their directories.
fn keep(hierarchy: &CgroupHierarchy, names: &[String]) -> Result<Vec<PathBuf>, Error> {
    let (mut answer, answering) = pipe().map_err(Error::calling("pipe2"))?;
    let (ends, lives) = pipe().map_err(Error::calling("pipe2"))?;
    let mut lives = Some(lives);
    let mut given = Some((answering, ends));
    let keeper = ForkedChild::fork_surviving(|| {
        drop(lives.take());
        let (answering, ends) = given.take().expect("invariant: the child runs this once");
        keeper_main(hierarchy, names, answering, ends)
    })?;
    drop(given);
    // The keeper lives until this process and all its children have ended: it waits until their
    // copies of `lives` are closed. The kernel closes them and reaps the keeper, whatever happens
    // here.
    mem::forget(keeper);
    let _open_until_the_end = lives.map(IntoRawFd::into_raw_fd);
    let mut said = String::new();
    answer
        .read_to_string(&mut said)
        .map_err(Error::calling("read"))?;
    match said.split_once('\n') {
        Some(("made", paths)) => Ok(paths.lines().map(PathBuf::from).collect()),
        _ => {
            // The group's name holds a process id. Without it, the message is the same for all
            // rings.
            let (CgroupHierarchy::V1(root) | CgroupHierarchy::V2(root)) = hierarchy;
            let why = said.trim().rsplit("swtch-").next().unwrap_or_default();
            let why = why.split_once(": ").map_or(said.trim(), |(_, why)| why);
            Err(Error::NotHere(format!(
                "no cgroup can be made in {}: {why}",
                root.display()
            )))
        }
    }
}

/// The keeper process: creates the groups, reports their paths, waits until all members have ended,
/// and removes the groups.
fn keeper_main(
    hierarchy: &CgroupHierarchy,
    names: &[String],
    mut answering: PipeWriter,
    mut ends: PipeReader,
) -> Result<(), Error> {
    let _held = SignalsHeld::hold()?;
    let made: Result<Vec<_>, _> = names
        .iter()
        .map(|name| CpuGroup::new(hierarchy, name))
        .collect();
    let said = match &made {
        Ok(groups) => groups.iter().fold("made\n".to_owned(), |said, group| {
            said + &format!("{}\n", group.path().display())
        }),
        Err(error) => error.to_string(),
    };
    answering
        .write_all(said.as_bytes())
        .map_err(Error::calling("write"))?;
    drop(answering);
    // Nothing is ever written: the read ends when the last member has ended.
    ends.read_to_end(&mut Vec::new())
        .map(drop)
        .map_err(Error::calling("read"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::shared::{Shared, SharedNumbers};

    /// Groups must be removed even when their members are killed.
    #[test]
    #[ignore = "needs root"]
    fn root_groups_are_removed_when_members_are_killed() {
        let Some(CgroupHierarchy::V1(root) | CgroupHierarchy::V2(root)) = CgroupHierarchy::find()
        else {
            swtch_test::skip!("no cgroup hierarchy with the cpu controller");
        };
        let ready = Shared::<SharedNumbers<1>>::new().unwrap();
        let mut member = ForkedChild::fork(|| {
            let cgroup_files = RingCgroups::Two.open(Members::Processes)?;
            cgroup_files.enter(1)?;
            ready.set([1]);
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        })
        .unwrap();
        let group = root.join(format!("swtch-{}-1", member.pid()));
        wait_until(|| ready.get() == [1]);
        let tasks = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert_eq!(tasks.trim(), member.pid().to_string());
        member.kill().unwrap();
        member.wait().unwrap();
        wait_until(|| !Path::new(&group).exists());
        assert!(!group.exists());
    }

    fn wait_until(mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
