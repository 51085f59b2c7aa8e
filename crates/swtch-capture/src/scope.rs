//! The scope of a recording. The kernel side filters; this finds the values that it compares with.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use swtch_core::{Pid, ProcessStat};

use crate::error::Error;
use crate::probe::{self, NamingHierarchy};

/// The tasks whose switches are recorded.
#[derive(Clone, Debug)]
pub enum RecordingScope {
    /// All tasks of the machine.
    All,
    /// These processes with all their threads.
    Processes {
        /// Ids of the processes (kernel: `tgid`).
        pids: Vec<Pid>,
        /// Tells whether their descendants are recorded, too.
        children: Children,
    },
    /// Tasks in these cgroups or below them, at least one.
    Cgroups(Vec<PathBuf>),
}

/// The choice whether the descendants of the recorded processes are recorded, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// They are recorded: existing ones and those that are started later.
    Recorded,
    /// They are left out, even if started later.
    LeftOut,
}

/// A process as the kernel side identifies it: an id may be reused, an id with a start time is
/// unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetProcess {
    pub(crate) pid: Pid,
    /// Start in 1/100 s since boot, field 22 of `/proc/PID/stat`.
    pub(crate) start_ticks: u64,
}

/// A cgroup as the kernel side identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CgroupTarget {
    id: u64,
    hierarchy: NamingHierarchy,
}

/// Cgroups of one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupTargets {
    pub ids: Vec<u64>,
    pub hierarchy: NamingHierarchy,
}

impl CgroupTargets {
    /// # Errors
    /// When one is none, and when they are of two hierarchies: a task has one cgroup here.
    pub fn find(paths: &[PathBuf]) -> Result<Option<Self>, Error> {
        let mut found: Option<Self> = None;
        for path in paths {
            let cgroup = cgroup_target(path)?;
            let all = found.get_or_insert(Self {
                ids: Vec::new(),
                hierarchy: cgroup.hierarchy,
            });
            if all.hierarchy != cgroup.hierarchy {
                let why = "it is of another hierarchy (v1 or v2) than the one named before it";
                return Err(Error::NotACgroup {
                    path: path.clone(),
                    why: why.to_owned(),
                });
            }
            all.ids.push(cgroup.id);
        }
        Ok(found)
    }
}

/// Magic numbers of file systems that `statfs` returns, `include/uapi/linux/magic.h`.
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;

/// `PROC_PID_INIT_INO`, `include/linux/proc_ns.h`: the process id namespace of the machine itself.
const INIT_PID_NAMESPACE: u64 = 0xefff_fffc;

impl TargetProcess {
    /// The process that has this id now.
    ///
    /// # Errors
    /// When there is none, and when the id is that of a thread which is not the first of its
    /// process.
    pub fn find(pid: Pid) -> Result<Self, Error> {
        if let Some(process) = process_of_thread(pid).filter(|process| *process != pid) {
            return Err(Error::IsThread {
                tid: pid.get(),
                pid: process.get(),
            });
        }
        let missing = |source| Error::NoProcess {
            pid: pid.get(),
            source,
        };
        let stat = fs::read(format!("/proc/{pid}/stat")).map_err(missing)?;
        let start_ticks = ProcessStat::parse(&stat).and_then(|stat| stat.start_ticks());
        let start_ticks = start_ticks.ok_or_else(|| {
            missing(io::Error::new(
                io::ErrorKind::InvalidData,
                "/proc/PID/stat has no start time",
            ))
        })?;
        Ok(Self { pid, start_ticks })
    }

    /// Returns true if the process has ended: its id is free, or belongs to a zombie or to another process.
    pub fn is_gone(self) -> bool {
        match fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => ProcessStat::parse(&stat)
                .is_none_or(|it| it.start_ticks() != Some(self.start_ticks) || it.is_dead()),
            Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
        }
    }
}

/// The process that a thread belongs to; `None` when there is no such thread. `/proc` lists only
/// processes, but opens the directory of any thread.
fn process_of_thread(tid: Pid) -> Option<Pid> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    // The name comes before it; its control characters are escaped, so it is one line.
    let status = String::from_utf8_lossy(&status);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok().map(Pid::new)
}

/// Checks that `/proc` is mounted: targets, maps and counts are read there.
///
/// # Errors
/// [`Error::NoProc`].
pub fn require_proc() -> Result<(), Error> {
    match fs::metadata("/proc/self/stat") {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NoProc),
    }
}

/// Checks that process ids here are the kernel's own.
///
/// # Errors
/// [`Error::PidNamespace`].
pub fn require_host_pids() -> Result<(), Error> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() != INIT_PID_NAMESPACE => Err(Error::PidNamespace),
        _ => Ok(()),
    }
}

/// The hierarchy that names the cgroups of a recording for which none is chosen.
pub(crate) fn naming_hierarchy() -> NamingHierarchy {
    probe::cgroups().map_or(NamingHierarchy::V2, |cgroups| cgroups.naming())
}

fn cgroup_target(path: &Path) -> Result<CgroupTarget, Error> {
    let refused = |why: String| Error::NotACgroup {
        path: path.to_owned(),
        why,
    };
    let found = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if !found.is_dir() {
        return Err(refused("it is not a directory".to_owned()));
    }
    let hierarchy = match file_system_of(path).map_err(|error| refused(error.to_string()))? {
        CGROUP2_SUPER_MAGIC => NamingHierarchy::V2,
        CGROUP_SUPER_MAGIC if has_cpu_controller(path) => NamingHierarchy::V1,
        CGROUP_SUPER_MAGIC => return Err(refused("its hierarchy lacks the cpu controller".into())),
        _ => return Err(refused("it is not in a cgroup file system".to_owned())),
    };
    Ok(CgroupTarget {
        id: found.ino(),
        hierarchy,
    })
}

/// In cgroup v1, every directory of a hierarchy has the files of its controllers.
fn has_cpu_controller(path: &Path) -> bool {
    path.join("cpu.shares").exists()
}

fn file_system_of(path: &Path) -> io::Result<i64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut facts = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends in NUL and `facts` has room for the one struct that statfs fills.
    if unsafe { libc::statfs(path.as_ptr(), facts.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: statfs succeeded, so it filled the struct.
    let facts = unsafe { facts.assume_init() };
    #[allow(
        clippy::useless_conversion,
        reason = "the field's type differs by architecture"
    )]
    Ok(i64::from(facts.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_its_id_is_free_or_another_s() {
        let own = TargetProcess::find(Pid::new(std::process::id())).expect("it runs");
        assert!(!own.is_gone());
        let reused = TargetProcess {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(reused.is_gone());
        let free = TargetProcess {
            pid: Pid::new(u32::MAX),
            ..own
        };
        assert!(free.is_gone());
    }

    /// `/proc` accepts the id of a thread, but it would match no process on the kernel side.
    #[test]
    fn a_thread_is_refused_with_the_process_that_it_belongs_to() {
        let tid = std::thread::spawn(|| {
            // SAFETY: gettid has no memory effects.
            let tid = unsafe { libc::gettid() };
            let tid = Pid::new(u32::try_from(tid).expect("ids are positive"));
            TargetProcess::find(tid).expect_err("it is not the first thread")
        });
        let error = tid.join().expect("it did not panic");
        let own = std::process::id();
        assert!(
            matches!(error, Error::IsThread { pid, .. } if pid == own),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .ends_with(&format!("of process {own}: use -p {own}")),
            "{error}"
        );
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused() {
        let error = cgroup_target(Path::new("/tmp")).expect_err("it is no cgroup");
        assert!(error.to_string().contains("cgroup"), "{error}");
    }
}
