//! The words of `swtch top` and `swtch agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use swtch_capture::SpanChoice;
use swtch_core::Pid;
use swtch_live::agent::AgentRequest;
use swtch_live::top::TopRequest;
use swtch_output::format::Format;
use swtch_record::record::Target;
use swtch_report::report::live::LiveView;

use super::recording::{capture_with, running};
use super::values::{interval, live_view, pid, span_between_places};

/// Look at switches while they happen.
#[derive(Debug, Args)]
pub struct Top {
    /// Count the switches of these processes with all their threads, and of the processes below them.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', num_args = 1..,
          conflicts_with_all = ["all", "cgroup"], value_parser = pid)]
    pub pid: Vec<Pid>,
    /// Count the switches of the whole system, as without any of these.
    #[arg(short, long, conflicts_with = "cgroup", hide = true)]
    pub all: bool,
    /// Count the switches of the tasks of this cgroup and of those below it. May be given more than once.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Time between two frames (10ms or more; a number alone: seconds).
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval)]
    pub interval: Duration,
    /// Print N frames and stop.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print frames in this format, instead of showing them on the screen: json has one object a line,
    /// with all views [default off a terminal: table].
    #[arg(long, value_name = "FORMAT", value_parser = Format::parser())]
    pub format: Option<Format>,
    /// What a row stands for, in a table and in csv; on the screen, the first view.
    #[arg(long, value_name = "WHAT", default_value = "thread", value_parser = live_view())]
    pub by: LiveView,
    /// Print at most N rows of each view (default: 20 in a table, all elsewhere).
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Also count these spans, as for record: a frame tells how long they took, and how many switches there were to each.
    #[arg(long, value_name = "SPAN", value_parser = span_between_places)]
    pub span: Vec<SpanChoice>,
    /// Most groups of equal switches that are counted: thread, reason, system call, and who took the
    /// CPU; each takes 700 bytes of the kernel's memory. Who runs out of them is told of it [default: 8 for each
    /// thread, 16384 or more].
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub groups: Option<u32>,
    /// Keep the right to read what other users' processes have mapped: the page of a thread (Enter) then
    /// names their functions, too. Those of your own processes have names without it.
    #[arg(long)]
    pub stacks: bool,
    /// Treat a hook as missing (for tests of what older kernels give).
    #[arg(long, value_name = "HOOK", hide = true)]
    pub without_hook: Vec<String>,
}

impl Top {
    /// What is asked for.
    ///
    /// # Errors
    /// When a hook is not known.
    pub fn to_request(&self) -> anyhow::Result<TopRequest> {
        let target = running(&self.pid, false, &self.cgroup).unwrap_or(Target::All);
        Ok(TopRequest {
            capture: capture_with(target, &self.without_hook, &[])?,
            stacks: self.stacks,
            interval: self.interval,
            count: self.count,
            format: self.format,
            by: self.by,
            top: self.top,
            prices: None,
            groups: self.groups,
            spans: self.span.clone(),
        })
    }
}

/// Serve metrics.
#[derive(Debug, Args)]
pub struct Agent {
    /// Where metrics are served (HTTP, /metrics). An address that others can reach needs --token-file.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464")]
    pub listen: SocketAddr,
    /// Answer only who sends the token in the first line of this file (Authorization: Bearer).
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Count the switches of the tasks of this cgroup and of those below it [default: the whole system]. May
    /// be given more than once.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Most cgroups that have metrics of their own; the others are summed.
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub cgroups: u16,
    /// Price list to use (default: this machine's saved one).
    #[arg(long, value_name = "FILE.json")]
    pub prices: Option<PathBuf>,
    /// Most groups of equal switches that are counted, as for top [default: 8 for each thread, 16384 or more].
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub groups: Option<u32>,
}

impl Agent {
    /// What is asked for.
    ///
    /// # Errors
    /// When a hook is not known.
    pub fn to_request(&self) -> anyhow::Result<AgentRequest> {
        let target = running(&[], false, &self.cgroup).unwrap_or(Target::All);
        let top = TopRequest {
            capture: capture_with(target, &[], &[])?,
            stacks: false,
            interval: AgentRequest::READ_EVERY,
            count: None,
            format: Some(Format::Table),
            by: LiveView::Cgroup,
            top: None,
            prices: self.prices.clone(),
            groups: self.groups,
            spans: Vec::new(),
        };
        Ok(AgentRequest {
            top,
            listen: self.listen,
            token_file: self.token_file.clone(),
            most_cgroups: usize::from(self.cgroups),
        })
    }
}
