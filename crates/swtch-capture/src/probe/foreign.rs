//! Lists the eBPF programs of other tools on the tracepoints that the recorder attaches to.
//!
//! They matter because the kernel calls the only program of a tracepoint directly, and goes through
//! a list when there are several: then each call is dearer, also those of our programs.
//!
//! The programs are found by the kernel's list of links, which only processes with `CAP_SYS_ADMIN`
//! may read. That list lacks what perf and ftrace attach without eBPF, and programs that are
//! attached by the older `PERF_EVENT_IOC_SET_BPF`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{LinkInfo, LinkTypeInfo, PerfEventType, ProgInfoIter};
use serde::Serialize;

use super::hook::HOOKS;
use super::trial::own;

/// All foreign programs that have the same name and are attached to the same tracepoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignProgram {
    /// Name of the tracepoint, one of [`HOOKS`].
    pub tracepoint: &'static str,
    /// Name of the program, of which the kernel keeps 15 bytes, or `id N` if it has none. Others
    /// chose it, so it must be escaped before it is shown.
    pub program: String,
    /// Number of programs with this name on the tracepoint.
    pub count: u64,
}

/// Lists the programs that are attached now; `None` if this process may not list them.
///
/// Our own programs cannot be told from those of others, so none of them may be attached during the
/// call.
pub(super) fn foreign_programs() -> Option<Vec<ForeignProgram>> {
    let links = links_to_hooks()?;
    if links.is_empty() {
        return Some(Vec::new());
    }
    let programs = ProgInfoIter::default();
    let names = programs.map(|program| (program.id, program.name.to_string_lossy().into_owned()));
    Some(counted_by_name(&links, &names.collect()))
}

/// Returns the tracepoint and the id of the program of each link to one of [`HOOKS`]; `None` if this
/// process may not list links.
fn links_to_hooks() -> Option<Vec<(&'static str, u32)>> {
    let mut links = Vec::new();
    let mut id = 0;
    loop {
        // SAFETY: `id` is a live local variable, and the kernel writes to it only during the call.
        match unsafe { libbpf_sys::bpf_link_get_next_id(id, &raw mut id) } {
            0 => links.extend(link_to_hook(id)),
            // No link has a higher id.
            error if error == -libc::ENOENT => return Some(links),
            _ => return None,
        }
    }
}

/// Returns the tracepoint and the id of the program of a link; `None` if the link is to something
/// else, or has been removed since it was listed.
fn link_to_hook(id: u32) -> Option<(&'static str, u32)> {
    // SAFETY: the call takes a number and no pointer, and returns a descriptor or an error.
    let descriptor = own(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }).ok()?;
    let link = LinkInfo::from_fd(descriptor.as_fd()).ok()?;
    let tracepoint = match &link.info {
        LinkTypeInfo::RawTracepoint(link) => OsStr::new(&link.name),
        LinkTypeInfo::PerfEvent(link) => match &link.event_type {
            PerfEventType::Tracepoint { name, .. } => name.as_deref()?,
            _ => return None,
        },
        _ => return None,
    };
    Some((hook_called(tracepoint)?, link.prog_id))
}

/// Returns the name as it stands in [`HOOKS`]; `None` if the recorder does not use this tracepoint.
fn hook_called(tracepoint: &OsStr) -> Option<&'static str> {
    let mut names = HOOKS.iter().map(|hook| hook.name);
    names.find(|&name| tracepoint == name)
}

/// Counts the links of each tracepoint by the name of their program. `names` has the names by the
/// programs' ids.
fn counted_by_name(
    links: &[(&'static str, u32)],
    names: &HashMap<u32, String>,
) -> Vec<ForeignProgram> {
    let mut counts = BTreeMap::new();
    for (tracepoint, program) in links {
        // A program may have been unloaded since its link was read, and need not have a name.
        let name = names.get(program).filter(|name| !name.is_empty());
        let name = name.cloned().unwrap_or_else(|| format!("id {program}"));
        *counts.entry((*tracepoint, name)).or_default() += 1;
    }
    let row = |((tracepoint, program), count)| ForeignProgram {
        tracepoint,
        program,
        count,
    };
    counts.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::Btf;

    use super::super::VMLINUX_BTF;
    use super::super::hook::typedef_of;
    use super::super::trial::{attach, load_return_zero};
    use super::*;

    /// The test looks only for a name of its own, because others may record meanwhile.
    #[test]
    #[ignore = "needs root"]
    fn root_a_program_is_listed_while_it_is_attached() {
        let count = || {
            let mut rows = foreign_programs().expect("root may").into_iter();
            rows.find(|row| row.program == "a_test_of_swtch")
                .map(|row| (row.tracepoint, row.count))
        };
        let btf = Btf::from_path(VMLINUX_BTF).unwrap();
        let tracepoint = typedef_of(&btf, "sched_wakeup").unwrap();
        let program = load_return_zero(tracepoint, c"a_test_of_swtch").unwrap();
        assert_eq!(
            count(),
            None,
            "a program that is not attached costs nothing"
        );
        let links = [attach(&program).unwrap(), attach(&program).unwrap()];
        assert_eq!(count(), Some(("sched_wakeup", 2)));
        drop(links);
        assert_eq!(count(), None);
    }

    #[test]
    fn programs_are_counted_by_tracepoint_and_name() {
        let links = [
            ("sched_waking", 3),
            ("sched_switch", 1),
            ("sched_switch", 2),
            ("sched_switch", 9),
        ];
        let names = HashMap::from([(1, "a".to_owned()), (2, "a".to_owned()), (3, String::new())]);
        let rows: Vec<_> = counted_by_name(&links, &names)
            .into_iter()
            .map(|row| (row.tracepoint, row.program, row.count))
            .collect();
        let row = |tracepoint, program: &str, count| (tracepoint, program.to_owned(), count);
        let expected = [
            row("sched_switch", "a", 2),
            row("sched_switch", "id 9", 1),
            row("sched_waking", "id 3", 1),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn other_tracepoints_do_not_count() {
        assert_eq!(
            hook_called(OsStr::new("sched_switch")),
            Some("sched_switch")
        );
        assert_eq!(hook_called(OsStr::new("sys_enter")), None);
    }
}
