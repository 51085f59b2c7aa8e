//! The first lines of every `swtch fiber` answer: the machine, the process, and since when the
//! counters count.

use std::fs;

use serde_json::{Value, json};
use swtch_core::{Nanos, cost};
use swtch_observe::{Mode, Snapshot};
use swtch_output::answer::SheetAnswer;
use swtch_output::host::HostWords;
use swtch_output::sheet::Sheet;
use swtch_output::text::{self, counted, escaped};

/// The facts that an answer states once, before its rows.
#[derive(Clone, Debug)]
pub struct FiberHead {
    origin: cost::Origin,
    target: Option<SchedulerProcess>,
}

/// A process that has user-mode schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SchedulerProcess {
    pid: u32,
    name: String,
    has_ended: bool,
    taken_monotonic_ns: u64,
    /// Age of the oldest scheduler that is shown: the counters began then.
    counted_for: Nanos,
    schedulers: u64,
    /// The number of `schedulers` that belong to a runtime that has ended.
    ended: u64,
}

impl FiberHead {
    /// The head of an answer about the whole machine.
    pub fn of_machine() -> Self {
        Self {
            origin: swtch_host::origin(),
            target: None,
        }
    }

    /// The head of an answer about one process.
    pub fn of(pid: u32, name: &str, snapshot: &Snapshot) -> Self {
        let schedulers = &snapshot.schedulers;
        let ended = schedulers.iter().filter(|row| row.mode == Mode::Ended);
        let oldest = schedulers.iter().map(|row| row.age_ns).max();
        Self {
            target: Some(SchedulerProcess {
                pid,
                name: name.to_owned(),
                has_ended: snapshot.has_ended,
                taken_monotonic_ns: snapshot.taken_monotonic_ns,
                counted_for: Nanos::from_ns(oldest.unwrap_or(0)),
                schedulers: schedulers.len() as u64,
                ended: ended.count() as u64,
            }),
            ..Self::of_machine()
        }
    }

    /// The lines for people, and an empty one.
    pub fn to_text(&self) -> String {
        let host = HostWords {
            cpu_model: None,
            ..HostWords::of_origin(&self.origin)
        };
        let mut lines = format!("host    {}\n", escaped(&host.to_line()));
        if let Some(target) = &self.target {
            lines += &format!("target  {}\n", escaped(&target.words()));
        }
        lines + "\n"
    }

    /// This head above `sheet`.
    pub fn above<'a>(&self, sheet: &'a Sheet) -> SheetAnswer<'a> {
        SheetAnswer {
            head: self.to_text(),
            members: self.to_json(sheet.name),
            sheet,
        }
    }

    /// The members of the JSON object before its rows.
    fn to_json(&self, name: &str) -> Value {
        let target = self.target.as_ref().map(SchedulerProcess::json);
        json!({
            "schema": format!("swtch.fiber.{name}/1"),
            "host": {
                "hostname": self.origin.hostname,
                "kernel_release": self.origin.kernel_release,
                "machine": self.origin.machine,
                "cpus": self.origin.cpus,
            },
            "target": target,
        })
    }
}

impl SchedulerProcess {
    fn words(&self) -> String {
        let ended = match self.ended {
            0 => String::new(),
            ended => format!(" ({ended} ended)"),
        };
        let since = if self.has_ended {
            "the process has ended, and these counters are final".to_owned()
        } else {
            format!("counted since they started, {} ago", self.counted_for)
        };
        format!(
            "process {} ({}) · {}{ended} · {since}",
            self.pid,
            self.name,
            counted(self.schedulers, "scheduler"),
        )
    }

    fn json(&self) -> Value {
        json!({
            "pid": self.pid,
            "comm": self.name,
            "has_ended": self.has_ended,
            "taken_monotonic_ns": self.taken_monotonic_ns,
            "counted_for_ns": self.counted_for.as_ns(),
            "schedulers": self.schedulers,
            "schedulers_ended": self.ended,
        })
    }
}

/// The name of a process, from `/proc/PID/comm`.
pub fn name(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    match name.trim_ascii_end() {
        b"" => "?".to_owned(),
        name => text::from_bytes(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_output::answer;
    use swtch_output::format::Format;

    fn target() -> SchedulerProcess {
        SchedulerProcess {
            pid: 4711,
            name: "evil\u{1b}[2J".to_owned(),
            has_ended: true,
            taken_monotonic_ns: 1,
            counted_for: Nanos::from_ns(2_500_000_000),
            schedulers: 2,
            ended: 1,
        }
    }

    /// Without this word, counters that stand still would look like a scheduler that does nothing.
    #[test]
    fn a_process_that_has_ended_is_said_to_be_final() {
        let words = target().words();
        assert!(words.contains("2 schedulers (1 ended)"), "{words}");
        assert!(words.ends_with("these counters are final"), "{words}");
        assert_eq!(target().json()["has_ended"], true);
    }

    #[test]
    fn a_name_cannot_reach_the_terminal() {
        let head = FiberHead {
            target: Some(target()),
            ..FiberHead::of_machine()
        };
        let sheet = Sheet::new("tasks", &[]);
        for format in [Format::Table, Format::Json] {
            let text = answer::written(&head.above(&sheet), format).unwrap();
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }
}
