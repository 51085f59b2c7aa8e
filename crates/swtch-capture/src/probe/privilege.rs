//! Privileges of this process, and those that `sudo` or file capabilities could add.
//!
//! Source: `capabilities(7)`, `proc_pid_status(5)`, `user_namespaces(7)`.

use super::{Unreadable, read};

/// Capabilities that a program needs for recording, as `setcap` takes them. Loading needs no
/// `cap_sys_resource`: since Linux 5.11 maps are charged to the cgroup and not to `RLIMIT_MEMLOCK`.
/// A program with a capability that the bounding set lacks could not even be executed (execve(2),
/// EPERM).
macro_rules! needed_capabilities {
    () => {
        "cap_bpf,cap_perfmon"
    };
}
pub(crate) use needed_capabilities;

/// Capabilities that a program needs for recording, as `setcap` takes them.
pub const NEEDED_CAPABILITIES: &str = needed_capabilities!();

/// One capability that matters to a recorder, by its number in `include/uapi/linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Tracing other users' processes, and reading where their code is mapped.
    SysPtrace = 19,
    /// Everything that no narrower capability covers.
    SysAdmin = 21,
    /// Raising priorities, also to real-time ones.
    SysNice = 23,
    /// Raising resource limits above the hard limit.
    SysResource = 24,
    /// Seeing the addresses of kernel functions.
    Syslog = 34,
    /// Performance monitoring, including tracing programs.
    Perfmon = 38,
    /// Loading programs and creating maps with `bpf(2)`.
    Bpf = 39,
}

impl Capability {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::SysPtrace,
        Self::SysAdmin,
        Self::SysNice,
        Self::SysResource,
        Self::Syslog,
        Self::Perfmon,
        Self::Bpf,
    ];

    /// The name as `setcap` and `capsh` take it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SysPtrace => "cap_sys_ptrace",
            Self::SysAdmin => "cap_sys_admin",
            Self::SysNice => "cap_sys_nice",
            Self::SysResource => "cap_sys_resource",
            Self::Syslog => "cap_syslog",
            Self::Perfmon => "cap_perfmon",
            Self::Bpf => "cap_bpf",
        }
    }
}

/// A set of capabilities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// The set with these bits, as `/proc/PID/status` shows them.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns true if `capability` is in the set.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & (1 << capability as u64) != 0
    }

    /// Returns true if tracing programs may be loaded with it: this takes `CAP_BPF` and `CAP_PERFMON`, or
    /// `CAP_SYS_ADMIN` in place of both (`bpf_capable`, `perfmon_capable`, `include/linux/capability.h`).
    pub const fn allows_tracing(self) -> bool {
        self.has(Capability::SysAdmin)
            || (self.has(Capability::Bpf) && self.has(Capability::Perfmon))
    }
}

/// Privileges of this process, and whether it can be given more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privilege {
    /// The capabilities that are in force.
    pub effective: Capabilities,
    /// The bounding set: the most that `sudo` or file capabilities can give.
    pub bounding: Capabilities,
    /// True if `no_new_privs` is set: neither `sudo` nor file capabilities have an effect then.
    pub no_new_privileges: bool,
    /// True if it is in a user namespace of its own: its capabilities do not count for tracing then.
    pub in_user_namespace: bool,
    /// True if a seccomp filter is set, which may refuse system calls such as `bpf(2)`.
    pub has_seccomp_filter: bool,
}

pub(super) fn privilege() -> Result<Privilege, Unreadable> {
    const STATUS: &str = "/proc/self/status";
    let status = read(STATUS)?;
    // The file is missing in a kernel without user namespaces: then there is only the first one.
    let uid_map = read("/proc/self/uid_map").unwrap_or_default();
    privilege_of(&status, &uid_map)
        .ok_or_else(|| Unreadable::new(STATUS, "has no line CapEff or CapBnd"))
}

fn privilege_of(status: &str, uid_map: &str) -> Option<Privilege> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let set = |name| {
        u64::from_str_radix(field(name)?, 16)
            .ok()
            .map(Capabilities::from_bits)
    };
    let mapped: Vec<_> = uid_map.split_whitespace().collect();
    Some(Privilege {
        effective: set("CapEff")?,
        bounding: set("CapBnd")?,
        no_new_privileges: field("NoNewPrivs") == Some("1"),
        has_seccomp_filter: field("Seccomp") == Some("2"),
        // The first namespace maps all ids onto themselves.
        in_user_namespace: !mapped.is_empty() && mapped != ["0", "0", "4294967295"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "CapInh:\t0000000000000000\nCapPrm:\t000001ffffffffff\n\
                        CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t0\n";

    #[test]
    fn root_of_the_first_namespace_may_trace() {
        let privilege = privilege_of(ROOT, "         0          0 4294967295").unwrap();
        assert!(privilege.effective.allows_tracing());
        assert!(!privilege.in_user_namespace && !privilege.no_new_privileges);
    }

    #[test]
    fn root_of_a_container_without_privilege_may_not() {
        let docker = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\n\
                      Seccomp:\t2\n";
        let privilege = privilege_of(docker, "0 100000 65536").unwrap();
        assert!(!privilege.effective.allows_tracing());
        assert!(!privilege.bounding.allows_tracing());
        assert!(privilege.in_user_namespace && privilege.no_new_privileges);
        assert!(privilege.has_seccomp_filter);
    }

    #[test]
    fn bpf_alone_is_not_enough_to_trace() {
        let only = |bit: u32| Capabilities::from_bits(1 << bit);
        assert!(!only(39).allows_tracing());
        assert!(!only(38).allows_tracing());
        assert!(Capabilities::from_bits(1 << 38 | 1 << 39).allows_tracing());
        assert!(only(21).allows_tracing());
    }

    #[test]
    fn a_status_without_capabilities_is_no_answer() {
        assert_eq!(privilege_of("Name:\tx\n", ""), None);
    }
}
