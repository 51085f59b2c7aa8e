//! Reads the text of ftrace: the files `trace` and `trace_pipe`, and what `trace-cmd report` or `perf script` print of
//! tracepoints. The three differ in the columns before the event, and trace-cmd writes switches in a form of its own.
//!
//! ```text
//!   <...>-1234  (-----) [001] d..2. 1234.567890: sched_switch: prev_comm=… prev_pid=… ==> next_comm=…
//!   sleep-1234          [001]       1234.567890: sched_switch: sleep:1234 [120] S ==> swapper/1:0 [120]
//!   sleep  1234         [001]       1234.567890: sched:sched_switch: prev_comm=… prev_pid=… ==> next_comm=…
//! ```
//!
//! Times are in µs, unless a program prints more digits.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use anyhow::{Result, ensure};
use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Timestamp};
use swtch_store::Meta;

use super::scheduler::{EventContext, IN_INTERRUPT, IN_SOFT_INTERRUPT, SwitchSide};
use super::{ImportPipeline, ImportSource, meta_of};

/// The command that records enough.
const RECORD_ENOUGH: &str = "trace-cmd record -e sched_switch -e sched_waking";

/// The longest line that is read; ftrace's are at most some hundred bytes.
const MOST_LINE_BYTES: u64 = 16 << 10;

/// A text, opened.
#[derive(Debug)]
pub struct TextSource {
    file: File,
    meta: Meta,
}

impl TextSource {
    /// The text in this file.
    pub fn new(file: File, path: &Path) -> Self {
        let meta = meta_of("text of ftrace", path, &["sched_switch"]);
        Self { file, meta }
    }
}

impl ImportSource for TextSource {
    fn to_meta(&self) -> Meta {
        self.meta.clone()
    }

    fn command(&self) -> &'static str {
        RECORD_ENOUGH
    }

    fn read(&mut self, pipeline: &mut ImportPipeline) -> Result<()> {
        let mut reader = BufReader::new(&mut self.file);
        let mut bytes = Vec::new();
        let mut lanes = FxHashMap::<CpuId, Timestamp>::default();
        loop {
            bytes.clear();
            (&mut reader)
                .take(MOST_LINE_BYTES)
                .read_until(b'\n', &mut bytes)?;
            if bytes.is_empty() {
                return Ok(());
            }
            ensure!(
                bytes.ends_with(b"\n") || bytes.len() as u64 == MOST_LINE_BYTES,
                "it is cut short, in the middle of a line"
            );
            let line = String::from_utf8_lossy(&bytes);
            if let Some(event) = TextEvent::parse(line.trim_end()) {
                // What a CPU did cannot be earlier than what it did before.
                let last = lanes.entry(event.at.cpu).or_default();
                let is_in_order = event.at.ts >= *last;
                *last = event.at.ts.max(*last);
                let is_taken = is_in_order && event.hand_on(pipeline).is_some();
                pipeline.odd += u64::from(!is_taken);
            } else if let Some((cpu, lost)) = losses(&line) {
                let ts = pipeline.last;
                let gap = pipeline.scheduler.lose(ts, Some(cpu), lost);
                pipeline.keep_gap(gap)?;
            }
            pipeline.hand_on()?;
        }
    }
}

/// A line with an event.
#[derive(Clone, Copy, Debug)]
pub struct TextEvent<'l> {
    at: EventContext,
    name: &'l str,
    fields: &'l str,
}

impl<'l> TextEvent<'l> {
    /// The event of a line; `None` if it has none. A task's name may have brackets as the number of its CPU has.
    pub fn parse(line: &'l str) -> Option<Self> {
        let mut brackets = line.match_indices(" [");
        brackets.find_map(|(at, _)| Self::parse_around(line.get(..at)?, line.get(at + 2..)?))
    }

    /// The event of what is before and behind the bracket of the CPU.
    fn parse_around(task: &'l str, rest: &'l str) -> Option<Self> {
        let (cpu, rest) = rest.split_once(']')?;
        let (columns, rest) = rest.split_once(": ")?;
        let mut columns = columns.split_ascii_whitespace();
        let time = columns.next_back()?;
        let flags = columns.next().unwrap_or_default();
        let (seconds, fraction) = time.split_once('.')?;
        let digits = u32::try_from(fraction.len())
            .ok()
            .filter(|digits| *digits <= 9)?;
        let fraction = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - digits);
        let seconds = seconds.parse::<u64>().ok()?;
        let (name, fields) = rest.trim_start().split_once(':')?;
        let (name, fields) = match name {
            "sched" => fields.split_once(':')?,
            other => (other, fields),
        };
        let (task, process) = match task.trim_end().strip_suffix(')') {
            Some(task) => task.rsplit_once('(')?,
            None => (task, ""),
        };
        let ids = task.trim_end().rsplit(['-', ' ']).next()?;
        let (process, tid) = ids.split_once('/').unwrap_or((process.trim(), ids));
        let tid = tid.parse().ok()?;
        Some(Self {
            at: EventContext {
                ts: Timestamp::from_ns(seconds.checked_mul(1_000_000_000)?.checked_add(fraction)?),
                cpu: CpuId::new(cpu.parse().ok()?),
                current: (process.parse().unwrap_or(tid), tid),
                flags: context_flags(flags),
            },
            name,
            fields: fields.trim(),
        })
    }

    /// `None` if its fields cannot be understood.
    fn hand_on(&self, pipeline: &mut ImportPipeline) -> Option<()> {
        pipeline.see(self.at.ts);
        match self.name {
            "sched_switch" => {
                let (prev, next) = sides(self.fields)?;
                let (prev, state) = side(prev, "prev_")?;
                let (next, _) = side(next, "next_")?;
                pipeline
                    .scheduler
                    .switch(self.at, prev, state_number(state)?, next);
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let (woken, rest) = side(self.fields, "")?;
                let mut rest = rest.split_ascii_whitespace();
                let target = rest.find_map(|word| {
                    let target = word.strip_prefix("target_cpu=");
                    target.or_else(|| word.strip_prefix("CPU:"))
                });
                let target = target.map_or(Some(self.at.cpu.get()), |cpu| cpu.parse().ok())?;
                pipeline.wake(self.name, self.at, woken, CpuId::new(target));
            }
            "sched_migrate_task" => {
                let (moved, _) = side(self.fields, "")?;
                pipeline.scheduler.migrate(self.at, moved.tid);
            }
            _ => {}
        }
        Some(())
    }
}

/// Who leaves, and who comes. A task may be named `a ==> b`.
fn sides(fields: &str) -> Option<(&str, &str)> {
    match fields.find(" ==> next_comm=") {
        Some(at) => Some((fields.get(..at)?, fields.get(at + 5..)?)),
        None => fields.rsplit_once(" ==> "),
    }
}

/// A task, and the text behind it: `prev_comm=NAME prev_pid=1 prev_prio=120 prev_state=S`, or `NAME:1 [120] S`. Names may
/// have spaces.
fn side<'l>(text: &'l str, prefix: &str) -> Option<(SwitchSide<'l>, &'l str)> {
    let text = text.trim();
    let (comm, tid, prio, rest) = match text
        .strip_prefix(prefix)
        .and_then(|t| t.strip_prefix("comm="))
    {
        Some(text) => {
            let (comm, rest) = text.rsplit_once(&format!(" {prefix}pid="))?;
            let (tid, rest) = rest.split_once(&format!(" {prefix}prio="))?;
            let (prio, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            (comm, tid, prio, rest)
        }
        None => {
            let (task, rest) = text.rsplit_once(" [")?;
            let (comm, tid) = task.rsplit_once(':')?;
            let (prio, rest) = rest.split_once(']')?;
            (comm, tid, prio, rest)
        }
    };
    let side = SwitchSide {
        tid: tid.trim().parse().ok()?,
        comm: comm.as_bytes(),
        prio: prio.trim().parse().ok()?,
    };
    Some((side, rest.trim()))
}

/// `prev_state` as the tracepoint has it. Letters are those of `print fmt` (`include/trace/events/sched.h`, v6.18).
fn state_number(text: &str) -> Option<i64> {
    let text = text.strip_prefix("prev_state=").unwrap_or(text);
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok();
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    text.chars().try_fold(0, |state, letter| {
        Some(
            state
                | match letter {
                    'R' | '|' => 0,
                    'S' => 0x1,
                    'D' => 0x2,
                    'T' => 0x4,
                    't' => 0x8,
                    'X' | 'x' => 0x10,
                    'Z' => 0x20,
                    'P' => 0x40,
                    'I' => 0x80,
                    '+' => 0x100,
                    _ => return None,
                },
        )
    })
}

/// The third of the letters before a time: `h` and `H` stand for an interrupt, `s` for a soft one.
fn context_flags(letters: &str) -> i64 {
    match letters.chars().nth(2) {
        Some('h' | 'H' | 'z' | 'Z') => IN_INTERRUPT,
        Some('s') => IN_SOFT_INTERRUPT,
        _ => 0,
    }
}

/// `CPU:1 [LOST 42 EVENTS]`, and trace-cmd's `CPU:1 [42 EVENTS DROPPED]`.
fn losses(line: &str) -> Option<(CpuId, u64)> {
    let (cpu, rest) = line.trim().strip_prefix("CPU:")?.split_once(" [")?;
    let rest = rest.strip_prefix("LOST ").unwrap_or(rest);
    let (count, rest) = rest.split_once(" EVENTS")?;
    rest.contains(']').then_some(())?;
    Some((CpuId::new(cpu.parse().ok()?), count.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first columns of the three programs lead to the same event.
    #[test]
    fn a_line_of_each_program_is_the_same_event() {
        let fields = "prev_comm=my app prev_pid=12 prev_prio=120 prev_state=D ==> next_comm=b next_pid=0 next_prio=120";
        for (line, process) in [
            (
                format!("   my app-12      [003] d.s2.  7.000123: sched_switch: {fields}"),
                12,
            ),
            (
                format!("   <...>-12   (   11) [003] d.s2.  7.000123: sched_switch: {fields}"),
                11,
            ),
            (
                format!("my app    12 [003]     7.000123000:       sched:sched_switch: {fields}"),
                12,
            ),
            (
                "my app-12 [003] 7.000123: sched_switch: my app:12 [120] D ==> b:0 [120]"
                    .to_owned(),
                12,
            ),
        ] {
            let event = TextEvent::parse(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(event.at.ts.as_ns(), 7_000_123_000, "{line}");
            assert_eq!(
                (event.at.cpu.get(), event.at.current),
                (3, (process, 12)),
                "{line}"
            );
            assert_eq!(event.name, "sched_switch");
            let (prev, state) = side(event.fields.split_once(" ==> ").unwrap().0, "prev_").unwrap();
            assert_eq!((prev.tid, prev.comm, prev.prio), (12, &b"my app"[..], 120));
            assert_eq!(state_number(state), Some(2));
        }
        assert!(
            TextEvent::parse("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION").is_none()
        );
    }

    /// Anybody can name a thread so.
    #[test]
    fn a_name_like_the_rest_of_the_line_is_a_name() {
        let name = "x:7 [1] S ==> y";
        for fields in [
            format!("{name}:12 [120] S ==> b:8 [120]"),
            format!(
                "prev_comm={name} prev_pid=12 prev_prio=120 prev_state=S ==> next_comm={name} next_pid=8 next_prio=120"
            ),
        ] {
            let line = format!("{name}-12 [003] 7.000123: sched_switch: {fields}");
            let event = TextEvent::parse(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((event.at.cpu.get(), event.at.current.1), (3, 12), "{line}");
            let (prev, next) = sides(event.fields).unwrap();
            let (prev, state) = side(prev, "prev_").unwrap();
            let (next, _) = side(next, "next_").unwrap();
            assert_eq!(
                (prev.tid, prev.comm, state_number(state)),
                (12, name.as_bytes(), Some(1))
            );
            assert_eq!(next.tid, 8);
        }
    }

    #[test]
    fn states_are_letters_or_numbers() {
        for (text, state) in [
            ("R+", 0x100),
            ("prev_state=I", 0x80),
            ("0x2", 2),
            ("1", 1),
            ("R", 0),
        ] {
            assert_eq!(state_number(text), Some(state), "{text}");
        }
        assert_eq!(state_number("?"), None);
    }

    #[test]
    fn losses_of_both_programs_are_read() {
        assert_eq!(
            losses("CPU:1 [LOST 42 EVENTS]\n"),
            Some((CpuId::new(1), 42))
        );
        assert_eq!(
            losses("CPU:1 [42 EVENTS DROPPED]"),
            Some((CpuId::new(1), 42))
        );
        assert_eq!(losses("cpus=2"), None);
    }
}
