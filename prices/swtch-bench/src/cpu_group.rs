//! A cgroup of the CPU controller, version 1 or 2, with or without a quota. It is removed when its
//! guard is dropped.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::error::Error;

/// The hierarchy in which groups of the CPU controller can be made.
#[derive(Clone, Debug)]
pub(crate) enum CgroupHierarchy {
    /// Mount point of the cgroup version 1 hierarchy with the controller `cpu`.
    V1(PathBuf),
    /// Mount point of cgroup version 2.
    V2(PathBuf),
}

impl CgroupHierarchy {
    /// The hierarchy that has the controller; `None` if none is mounted.
    pub(crate) fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        mounts.lines().find_map(Self::in_mount)
    }

    fn in_mount(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(1);
        let (path, kind, options) = (
            PathBuf::from(fields.next()?),
            fields.next()?,
            fields.next()?,
        );
        let has_cpu =
            |words: &str, separator| words.split(separator).any(|word| word.trim() == "cpu");
        match kind {
            "cgroup" => has_cpu(options, ',').then_some(Self::V1(path)),
            "cgroup2" => {
                let controllers = fs::read_to_string(path.join("cgroup.controllers")).ok()?;
                has_cpu(&controllers, ' ').then_some(Self::V2(path))
            }
            _ => None,
        }
    }
}

/// A group of tasks that the scheduler sees as one.
#[derive(Debug)]
pub(crate) struct CpuGroup {
    path: PathBuf,
    /// Version 2 only: the file in which the controller was enabled for children, to undo that.
    enabled_in: Option<PathBuf>,
}

impl CpuGroup {
    /// Makes a group below the root, without a limit of CPU time.
    pub(crate) fn new(hierarchy: &CgroupHierarchy, name: &str) -> Result<Self, Error> {
        let (CgroupHierarchy::V1(root) | CgroupHierarchy::V2(root)) = hierarchy;
        let mut group = Self {
            path: root.join(name),
            enabled_in: None,
        };
        if let CgroupHierarchy::V2(root) = hierarchy {
            group.enable_for_children_of(root)?;
        }
        group.make()?;
        Ok(group)
    }

    /// Makes a group whose tasks may use `quota` of CPU time in every `period`.
    pub(crate) fn with_quota(
        hierarchy: &CgroupHierarchy,
        quota: Duration,
        period: Duration,
    ) -> Result<Self, Error> {
        let group = Self::new(hierarchy, &format!("swtch-{}", std::process::id()))?;
        let (quota, period) = (quota.as_micros(), period.as_micros());
        match hierarchy {
            CgroupHierarchy::V1(_) => {
                write(&group.path.join("cpu.cfs_period_us"), &period.to_string())?;
                write(&group.path.join("cpu.cfs_quota_us"), &quota.to_string())?;
            }
            CgroupHierarchy::V2(_) => {
                write(&group.path.join("cpu.max"), &format!("{quota} {period}"))?;
            }
        }
        Ok(group)
    }

    /// Moves the process `pid` into the group.
    pub(crate) fn admit(&self, pid: u32) -> Result<(), Error> {
        write(&self.path.join("cgroup.procs"), &pid.to_string())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of periods in which its tasks ran out of quota.
    pub(crate) fn throttled_periods(&self) -> Result<u64, Error> {
        let path = self.path.join("cpu.stat");
        let stat = fs::read_to_string(&path).map_err(in_file(&path))?;
        let field = stat
            .lines()
            .find_map(|line| line.strip_prefix("nr_throttled "));
        Ok(field
            .and_then(|value| value.trim().parse().ok())
            .expect("invariant: cpu.stat of a group with a quota counts throttled periods"))
    }

    fn make(&self) -> Result<(), Error> {
        fs::create_dir(&self.path).map_err(in_file(&self.path))
    }

    fn enable_for_children_of(&mut self, root: &Path) -> Result<(), Error> {
        let control = root.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&control).map_err(in_file(&control))?;
        if !enabled.split_whitespace().any(|word| word == "cpu") {
            write(&control, "+cpu")?;
            self.enabled_in = Some(control);
        }
        Ok(())
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // A process that was just reaped may keep the group busy for a moment longer.
        let mut removed = fs::remove_dir(&self.path);
        for _ in 0..50 {
            match &removed {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    thread::sleep(Duration::from_millis(2));
                    removed = fs::remove_dir(&self.path);
                }
                _ => break,
            }
        }
        if let Some(control) = &self.enabled_in {
            removed = removed.and(fs::write(control, "-cpu"));
        }
        // A group that could not be made does not exist.
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            // A closed stderr must not cause a panic here.
            let _ = writeln!(
                io::stderr(),
                "warning: {} is left behind: {error}",
                self.path.display()
            );
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(in_file(path))
}

fn in_file(path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_found_by_its_mount_option() {
        let line = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0";
        let found = CgroupHierarchy::in_mount(line);
        assert!(matches!(found, Some(CgroupHierarchy::V1(path)) if path.ends_with("cpu,cpuacct")));
    }

    /// `cpuset` and `cpuacct` begin with the same letters.
    #[test]
    fn other_controllers_are_not_taken_for_it() {
        for line in [
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0",
            "cgroup /sys/fs/cgroup/cpuacct cgroup rw,relatime,cpuacct 0 0",
            "/dev/vda / ext4 rw,relatime 0 0",
        ] {
            assert!(CgroupHierarchy::in_mount(line).is_none(), "{line}");
        }
    }
}
