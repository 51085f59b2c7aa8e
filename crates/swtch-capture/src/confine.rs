//! Limits what a recorder can do once it records.
//!
//! The recorder reads data that all processes of the machine wrote: names, paths, symbols. If a
//! fault in that made it run foreign code, the code must not regain what the recorder gave up. Two
//! things are set, and cannot be undone:
//!
//! - `no_new_privs`: executing a program gives no right that the process does not have, not even to
//!   root (`cap_bprm_creds_from_file`, `security/commoncap.c`, v6.18).
//! - a seccomp filter that refuses, with `EPERM`, the system calls that run other programs, reach into
//!   other processes, type into a terminal, take other identities, or change the kernel, the machine or what
//!   this process sees of them.
//!
//! The filter lists what is refused, not what is allowed: a list of all that the C library, Arrow
//! and blazesym may ever call would be wrong on the next version of any. Allowed is what a recorder
//! still needs:
//!
//! - Open maps are read and written, so the commands of `bpf(2)` for that stay allowed.
//! - Signals are passed on to the command, and stop and end helpers. A filter is written before it is known
//!   which ids these processes will have, so it cannot allow signals to them alone.
//! - Threads may change how they are scheduled, to leave the CPU to others. The caller has no `CAP_SYS_NICE`
//!   by then, so these calls reach no process of another user.
//! - `clone` and `clone3` start threads, and can make new namespaces, too. The C library starts its threads
//!   by `clone3`, whose flags lie in memory, where no filter can read them; and to refuse namespaces to
//!   `clone` alone would leave the same way open.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::error::Error;

/// Number of `open_tree_attr(2)` (Linux 6.15) on all architectures: `open_tree` and `mount_setattr` in one call.
const OPEN_TREE_ATTR: i64 = 467;

/// System calls that are refused whatever their arguments are.
const REFUSED: &[i64] = &[
    // Running other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Change of identities and rights.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Change of the view of the file system and of namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mknodat,
    // Change of the kernel and the machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

// Commands of `bpf(2)` (`enum bpf_cmd`, `include/uapi/linux/bpf.h`).
const BPF_MAP_LOOKUP_ELEM: u64 = 1;
const BPF_MAP_UPDATE_ELEM: u64 = 2;
const BPF_MAP_DELETE_ELEM: u64 = 3;
const BPF_MAP_GET_NEXT_KEY: u64 = 4;
const BPF_OBJ_GET_INFO_BY_FD: u64 = 15;
const BPF_MAP_LOOKUP_AND_DELETE_ELEM: u64 = 21;
const BPF_MAP_LOOKUP_BATCH: u64 = 24;
const BPF_MAP_LOOKUP_AND_DELETE_BATCH: u64 = 25;
const BPF_MAP_UPDATE_BATCH: u64 = 26;
const BPF_MAP_DELETE_BATCH: u64 = 27;
const BPF_ITER_CREATE: u64 = 33;

/// The commands of `bpf(2)` that a process which reads maps may use: look-ups and updates of elements in
/// open maps, single and in batches, and information about what is open, which tells how long our own
/// programs ran.
const BPF_FOR_MAPS: &[u64] = &[
    BPF_MAP_LOOKUP_ELEM,
    BPF_MAP_UPDATE_ELEM,
    BPF_MAP_DELETE_ELEM,
    BPF_MAP_GET_NEXT_KEY,
    BPF_OBJ_GET_INFO_BY_FD,
    BPF_MAP_LOOKUP_AND_DELETE_ELEM,
    BPF_MAP_LOOKUP_BATCH,
    BPF_MAP_LOOKUP_AND_DELETE_BATCH,
    BPF_MAP_UPDATE_BATCH,
    BPF_MAP_DELETE_BATCH,
];

/// The command of `bpf(2)` that a process which looks at tasks may use: it begins a walk by a program that
/// was handed over.
const BPF_FOR_LOOKS: &[u64] = &[BPF_ITER_CREATE];

/// What a confined process still asks `bpf(2)` for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfinedWork {
    /// Elements of maps that are open.
    ReadsMaps,
    /// Walks over all tasks ([`Looks`](crate::Looks)), and nothing else.
    LooksAtTasks,
}

impl ConfinedWork {
    const fn bpf_allowed(self) -> &'static [u64] {
        match self {
            Self::ReadsMaps => BPF_FOR_MAPS,
            Self::LooksAtTasks => BPF_FOR_LOOKS,
        }
    }
}

/// The flags of `perf_event_open(2)` that are allowed: none, and `PERF_FLAG_FD_CLOEXEC`. With another, the second
/// argument may be a cgroup in place of a thread.
const PERF_FLAGS: &[u64] = &[0, 1 << 3];

/// The commands of `ioctl(2)` that type into a terminal, so that its shell runs what is typed: `TIOCSTI`, and
/// `TIOCLINUX`, which pastes what is selected on a console (`include/uapi/asm-generic/ioctls.h`).
const TYPES_INTO_TERMINALS: [u64; 2] = [0x5412, 0x541c];

/// The bit that is set in the numbers of the x32 ABI's system calls (`arch/x86/include/uapi/asm/unistd.h`).
/// A filter compares whole numbers, so one that names a call only without the bit lets the same call
/// with it pass.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Calls that have numbers of their own in the x32 ABI (`arch/x86/entry/syscalls/syscall_64.tbl`):
/// `ioctl`, `execve`, `ptrace`, `kexec_load`, `move_pages`, `process_vm_readv`, `process_vm_writev`, `execveat`.
#[cfg(target_arch = "x86_64")]
const X32_REFUSED: &[i64] = &[514, 520, 521, 528, 533, 539, 540, 545];

/// Makes sure that no program which the calling thread, or a thread that it starts, executes from
/// here on gets a right that the thread does not have.
///
/// # Errors
/// When the kernel refuses.
pub fn forbid_new_privileges() -> Result<(), Error> {
    // SAFETY: this prctl takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::Privileges(io::Error::last_os_error()));
    }
    Ok(())
}

/// Sets the filter for all threads of this process, and `no_new_privs` with it; neither can be undone. On a
/// kernel without seccomp filters, and on an architecture that seccompiler does not know, it sets
/// neither, so call [`forbid_new_privileges`] as well.
///
/// # Errors
/// When the kernel refuses.
pub fn refuse_system_calls(work: ConfinedWork) -> Result<(), Error> {
    // SAFETY: this prctl takes numbers only. It fails with EINVAL where there are no filters.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) } < 0 {
        return Ok(());
    }
    let Some(program) = filter(work).map_err(Error::Filter)? else {
        return Ok(());
    };
    match seccompiler::apply_filter_all_threads(&program) {
        // CONFIG_SECCOMP without CONFIG_SECCOMP_FILTER.
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
        {
            Ok(())
        }
        applied => applied.map_err(Error::Filter),
    }
}

/// The filter; `None` on an architecture that seccompiler does not know.
fn filter(work: ConfinedWork) -> Result<Option<BpfProgram>, seccompiler::Error> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(None);
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in REFUSED {
        rules.insert(*call, Vec::new());
    }
    rules.insert(
        libc::SYS_bpf,
        vec![all_but_of_argument(0, work.bpf_allowed())?],
    );
    // Measuring the own thread stays allowed: prices count their instructions by it.
    rules.insert(
        libc::SYS_perf_event_open,
        vec![
            all_but_of_argument(1, &[0])?,
            all_but_of_argument(4, PERF_FLAGS)?,
        ],
    );
    let typing = TYPES_INTO_TERMINALS.map(|command| argument_is(1, command));
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    #[cfg(target_arch = "x86_64")]
    {
        let refused: Vec<i64> = rules.keys().copied().collect();
        for call in refused.iter().chain(X32_REFUSED) {
            rules.insert(call | X32, Vec::new());
        }
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch);
    let program = filter.and_then(BpfProgram::try_from);
    program.map(Some).map_err(seccompiler::Error::Backend)
}

/// A rule that matches when the argument has none of these values.
fn all_but_of_argument(index: u8, values: &[u64]) -> Result<SeccompRule, seccompiler::Error> {
    let conditions = values.iter().map(|value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value)
    });
    let conditions = conditions.collect::<Result<Vec<_>, _>>();
    let rule = conditions.and_then(SeccompRule::new);
    rule.map_err(seccompiler::Error::Backend)
}

/// A rule that matches when the argument has this value.
fn argument_is(index: u8, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    rule.map_err(seccompiler::Error::Backend)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// A system call, by its number, with its first arguments; the others are 0.
    type Call = (i64, &'static [i64]);

    const BPF_MAP_CREATE: u64 = 0;
    const BPF_PROG_LOAD: u64 = 5;

    /// Makes a system call; returns its error number, 0 for none.
    fn error_of((call, arguments): Call) -> i32 {
        let argument = |place: usize| arguments.get(place).copied().unwrap_or(0);
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(argument);
        // SAFETY: each call of these tests either is refused or fails by its arguments.
        let done = unsafe { libc::syscall(call, a, b, c, d, e) };
        if done < 0 {
            return io::Error::last_os_error().raw_os_error().unwrap();
        }
        0
    }

    /// Runs `act` under the filter in a thread of its own. The filter cannot be removed, so here it
    /// is applied to this thread alone, and the other tests go on without it.
    fn confined<T: Send + 'static>(
        work: ConfinedWork,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let act = move || {
            forbid_new_privileges().unwrap();
            let program = filter(work)
                .unwrap()
                .expect("an architecture that is known");
            seccompiler::apply_filter(&program).unwrap();
            act()
        };
        thread::spawn(act).join().unwrap()
    }

    /// Checks that of these calls the filter leaves some and refuses the others. All of them fail by their arguments
    /// where there is no filter. The test must end with this: where the kernel itself refuses one of them to this
    /// user, the filter cannot be told from that, and the test is skipped.
    fn check(work: ConfinedWork, left: &'static [Call], refused: &'static [Call]) {
        let [left_before, refused_before] = [left, refused].map(errors_of);
        let mut before = left_before.iter().chain(&refused_before);
        if before.any(|error| *error == libc::EPERM) {
            swtch_test::skip!("the kernel refuses some of these calls to this user");
        }
        assert!(!refused_before.contains(&0), "{refused_before:?}");
        let [left_after, refused_after] = confined(work, move || [left, refused].map(errors_of));
        assert_eq!(left_after, left_before);
        assert_eq!(refused_after, vec![libc::EPERM; refused.len()]);
    }

    fn errors_of(calls: &[Call]) -> Vec<i32> {
        calls.iter().map(|call| error_of(*call)).collect()
    }

    #[test]
    fn no_program_is_executed_and_no_identity_taken() {
        let errors = confined(ConfinedWork::ReadsMaps, || {
            let started = Command::new("true").status();
            let started = started.map_err(|error| error.raw_os_error());
            // SAFETY: this takes nothing and cannot fail.
            let unchanged = unsafe { libc::getuid() };
            // SAFETY: if this is not refused, the user of this thread stays the same.
            let done = unsafe { libc::syscall(libc::SYS_setuid, unchanged) };
            (started, done, io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(errors.0.unwrap_err(), Some(libc::EPERM));
        assert_eq!((errors.1, errors.2), (-1, Some(libc::EPERM)));
    }

    #[test]
    fn pages_of_other_processes_and_quotas_are_left_alone() {
        check(
            ConfinedWork::ReadsMaps,
            &[],
            &[
                (libc::SYS_move_pages, &[-1]),
                (libc::SYS_migrate_pages, &[-1]),
                (libc::SYS_quotactl_fd, &[-1]),
            ],
        );
    }

    /// Kernels before 6.15 do not know `open_tree_attr`, whose number is refused all the same.
    #[test]
    fn no_file_system_is_set_up() {
        check(
            ConfinedWork::ReadsMaps,
            &[],
            &[(libc::SYS_fsconfig, &[-1]), (OPEN_TREE_ATTR, &[-1])],
        );
    }

    /// No file is open as descriptor -1.
    #[test]
    fn nothing_is_typed_into_a_terminal() {
        check(
            ConfinedWork::ReadsMaps,
            &[(libc::SYS_ioctl, &[-1, 0x5413])],
            &[
                (libc::SYS_ioctl, &[-1, 0x5412]),
                (libc::SYS_ioctl, &[-1, 0x541c]),
            ],
        );
    }

    /// An element of a map may be requested (here without a map), but no program may be loaded. An event of the own
    /// thread may be opened (here without attributes), but none of another process, nor of a cgroup.
    #[test]
    fn a_confined_reader_may_use_maps_but_load_no_program() {
        check(
            ConfinedWork::ReadsMaps,
            &[
                (libc::SYS_bpf, &[BPF_MAP_LOOKUP_ELEM as i64]),
                (libc::SYS_perf_event_open, &[0, 0]),
                (libc::SYS_perf_event_open, &[0, 0, 0, 0, 8]),
            ],
            &[
                (libc::SYS_bpf, &[BPF_PROG_LOAD as i64]),
                (libc::SYS_bpf, &[BPF_MAP_CREATE as i64]),
                (libc::SYS_perf_event_open, &[0, 1]),
                (libc::SYS_perf_event_open, &[0, 0, 0, 0, 4]),
            ],
        );
    }

    #[test]
    fn a_confined_process_that_looks_at_tasks_may_use_no_map() {
        check(
            ConfinedWork::LooksAtTasks,
            &[(libc::SYS_bpf, &[BPF_ITER_CREATE as i64])],
            &[
                (libc::SYS_bpf, &[BPF_MAP_LOOKUP_ELEM as i64]),
                (libc::SYS_bpf, &[BPF_PROG_LOAD as i64]),
            ],
        );
    }

    /// Calls that making a report needs.
    #[test]
    fn threads_processes_and_files_are_left() {
        confined(ConfinedWork::ReadsMaps, || {
            thread::spawn(|| ()).join().unwrap();
            std::fs::read("/proc/self/status").unwrap();
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0);
            // SAFETY: no status is asked for.
            let ended = unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            assert_eq!(ended, child);
        });
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_other_abi_is_no_way_round() {
        let errors = confined(ConfinedWork::ReadsMaps, || {
            [
                error_of((X32 | 520, &[])),
                error_of((X32 | libc::SYS_bpf, &[1])),
            ]
        });
        assert_eq!(errors, [libc::EPERM; 2]);
    }
}
