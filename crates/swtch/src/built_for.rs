//! Makes what `swtch --version` says besides the number: the kernels and the machine that this program was built for,
//! and what it has inside. `swtch doctor` says what holds on this machine.

use swtch_capture::EBPF_ORIGIN;
use swtch_capture::probe::{HOOKS, Need, OLDEST_KERNEL};
use swtch_output::built;
use swtch_view::assets;

/// The version, and below it a line for each part.
pub fn long_version() -> String {
    let linked = match cfg!(target_feature = "crt-static") {
        true => "linked statically",
        false => "linked dynamically",
    };
    let page = match assets::IS_BUILT {
        true => "is inside",
        false => "is not inside: it was built without web/dist",
    };
    format!(
        "{version} ({arch}, {linked})\n\
         kernels: Linux {OLDEST_KERNEL} and later with BTF; causes of preemption are exact where the kernel has {exact}\n\
         eBPF programs: {EBPF_ORIGIN}\n\
         the viewer's page: {page}",
        version = built::VERSION,
        arch = std::env::consts::ARCH,
        exact = exact_hooks().join(", "),
    )
}

/// The tracepoints of this architecture that tell causes of preemption.
fn exact_hooks() -> Vec<&'static str> {
    HOOKS
        .iter()
        .filter(|hook| hook.need == Need::ExactCause && hook.is_of_this_architecture())
        .map(|hook| hook.name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_tells_what_the_program_was_built_for() {
        let said = long_version();
        assert!(said.starts_with(env!("CARGO_PKG_VERSION")), "{said}");
        assert!(said.contains("Linux 5.15 and later"), "{said}");
        assert!(said.contains("sched_set_need_resched_tp"), "{said}");
        assert!(said.contains("compiled by clang "), "{said}");
        assert_eq!(said.lines().count(), 4, "{said}");
    }
}
