//! Sums up what the agent has counted since it was started.

use std::time::Instant;

use swtch_capture::{probe, process_cpu_ns};
use swtch_host::hierarchy::CgroupTree;
use swtch_report::report::live::{LiveView, RowSums};

use super::AgentRequest;
use super::host::HostCounters;
use super::named_cgroups::{CountedCgroups, NamedCgroups};
use crate::top::{MadeFrame, TopSession};
use swtch_record::record::{Target, facts};

/// The sums of all frames so far.
#[derive(Debug)]
pub struct AgentTotals {
    /// Number of frames so far: the text of the metrics is made anew when it has changed.
    pub frames: u64,
    /// The moment of the last one, or at which the agent was started.
    pub read: Instant,
    /// Switches of all tasks that were asked for.
    pub total: RowSums,
    /// Threads that switched in the last frame.
    pub threads: usize,
    /// A task came onto a CPU that had nothing to do.
    pub from_idle: u64,
    /// Switches that found no room in the kernel's table.
    pub lost: u64,
    /// Switches that the kernel's tracepoint did not report.
    pub untraced: u64,
    /// Records of tasks that were lost.
    pub lost_names: u64,
    /// Room in the kernel's table, and how much is in use, in groups.
    pub groups: (u32, usize),
    /// The cgroups.
    pub cgroups: NamedCgroups,
    /// The counters that the kernel keeps anyway.
    pub host: HostCounters,
    /// Mean time of a switch in the kernel side's programs; `None` while it is not known.
    pub kernel_ns_per_switch: Option<f64>,
    /// CPU time of this process, in seconds.
    pub own_cpu_s: f64,
    /// Memory of this process, in bytes.
    pub own_memory_bytes: u64,
    /// True if switches have a price.
    pub has_prices: bool,
    /// Hooks that are missing: reasons that need them are inferred.
    pub absent_hooks: Vec<String>,
    /// Release of the kernel.
    pub kernel_release: String,
    /// Number of times that the metrics were read.
    pub scrapes: u64,
    /// The cgroups whose switches are counted.
    counted: CountedCgroups,
    /// What this machine lacks for switches to be counted; `None` if they are.
    no_switches: Option<&'static str>,
}

impl AgentTotals {
    /// Nothing is counted yet. Without a session there is what this machine lacks.
    pub fn new(request: &AgentRequest, session: Result<&TopSession, &'static str>) -> Self {
        let host = facts::host();
        let tree = match &session {
            Ok(session) => session.cgroup_tree().cloned(),
            Err(_) => probe::cgroups()
                .ok()
                .and_then(|cgroups| CgroupTree::of(cgroups.naming())),
        };
        Self {
            frames: 0,
            read: Instant::now(),
            total: RowSums::default(),
            threads: 0,
            from_idle: 0,
            lost: 0,
            untraced: 0,
            lost_names: 0,
            groups: (0, 0),
            cgroups: NamedCgroups::new(request.most_cgroups, tree),
            host: HostCounters::read(),
            kernel_ns_per_switch: None,
            own_cpu_s: 0.0,
            own_memory_bytes: 0,
            has_prices: session.is_ok_and(TopSession::has_prices),
            absent_hooks: session
                .as_ref()
                .map_or_else(|_| Vec::new(), |session| session.absent_hooks()),
            kernel_release: host.kernel_release,
            scrapes: 0,
            counted: match request.top.capture.target {
                Target::All => CountedCgroups::All,
                _ => CountedCgroups::Chosen,
            },
            no_switches: session.err(),
        }
    }

    /// Returns true if switches are counted.
    pub const fn counts_switches(&self) -> bool {
        self.no_switches.is_none()
    }

    /// The layers, each with what it lacks, in a word.
    pub fn layers(&self) -> [(&'static str, Option<&'static str>); 3] {
        let no_prices = (!self.has_prices).then_some("price_list");
        [
            ("host", None),
            ("switches", self.no_switches),
            (
                "prices",
                self.no_switches.and(Some("switches")).or(no_prices),
            ),
        ]
    }

    /// Adds a frame.
    pub fn add(&mut self, made: &MadeFrame, lost_names: u64) {
        let frame = &made.frame;
        self.total.add(&frame.total);
        self.threads = frame.threads;
        self.from_idle += frame.from_idle;
        self.lost += frame.lost;
        self.untraced += frame.untraced;
        self.lost_names = lost_names;
        self.groups = made.groups;
        self.cgroups.add(frame.rows(LiveView::Cgroup), self.counted);
        self.kernel_ns_per_switch = made.kernel_ns_per_switch;
        self.look_at_host();
    }

    /// Adds what the kernel has counted anyway, where it is all that there is.
    pub fn add_without_switches(&mut self) {
        self.cgroups.add_from_hierarchy();
        self.look_at_host();
    }

    fn look_at_host(&mut self) {
        self.frames += 1;
        self.read = Instant::now();
        self.host = HostCounters::read();
        self.own_cpu_s = process_cpu_ns() as f64 / 1e9;
        self.own_memory_bytes = memory_bytes();
    }
}

/// Memory of this process that is resident (`VmRSS`); 0 if it cannot be read.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
