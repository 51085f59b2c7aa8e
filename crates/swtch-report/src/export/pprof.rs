//! A profile of the time that threads did not run, in pprof's format: `go tool pprof`, speedscope, Pyroscope, Parca and
//! others read it.
//!
//! A sample is a place at which a thread waited for one reason, with three times in ns: off-CPU time, and the blocked and
//! the run-queue time in it. Its labels are the process, the thread, the reason and the cgroup. The sum of all samples is
//! that of `swtch report` with the same filter.

pub mod message;

use std::io::Write;

use anyhow::Result;
use prost::Message as _;
use rustc_hash::FxHashMap;
use swtch_core::{Frame, Nanos, StackKind};
use swtch_output::text::escaped;
use swtch_store::Meta;

use super::rows::{ExportRows, ExportedStacks};
use super::wait_places;
use crate::report::{Names, Stacks, frame_words, is_of_tracing, lost_records};
use message::{Function, Label, Location, PprofLine, PprofSample, Profile, ValueType};

/// The function of a sample of which no stack is known.
const NO_STACK: &str = "(no stack)";

/// The keys of the labels.
#[derive(Clone, Copy, Debug)]
pub struct LabelKeys {
    pub process: &'static str,
    pub pid: &'static str,
    pub thread: &'static str,
    pub tid: &'static str,
    /// Why it did not run.
    pub reason: &'static str,
    pub cgroup: &'static str,
}

const KEYS: LabelKeys = LabelKeys {
    process: "process",
    pid: "pid",
    thread: "thread",
    tid: "tid",
    reason: "reason",
    cgroup: "cgroup",
};

/// Writes the profile.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let profile = profile(rows, KEYS)?;
    out.write_all(&profile.encode_to_vec())?;
    Ok(())
}

/// Makes the profile, with labels of these keys.
///
/// # Errors
/// When the trace cannot be read.
pub fn profile(rows: &mut ExportRows<'_>, keys: LabelKeys) -> Result<Profile> {
    let places = wait_places::sum(rows)?;
    let (names, cgroups) = (rows.names(), rows.cgroups()?);
    let mut profile = ProfileInMaking::of(rows.stacks()?);
    for ((task, reason, cgroup), divided) in places.by_group() {
        let path = cgroups.get(cgroup).map_or("", String::as_str);
        let labels = profile.labels(&keys, &names, *task, (reason, path));
        for (stacks, _, times) in divided.into_parts() {
            if times[0] > Nanos::ZERO {
                profile.add(stacks.unwrap_or_default(), times, labels.clone());
            }
        }
    }
    Ok(profile.finish(rows.meta()))
}

/// Texts, each with its number in the profile. The first is empty.
#[derive(Debug)]
struct TextTable {
    numbers: FxHashMap<String, i64>,
    texts: Vec<String>,
}

impl TextTable {
    fn new() -> Self {
        Self {
            numbers: FxHashMap::from_iter([(String::new(), 0)]),
            texts: vec![String::new()],
        }
    }

    /// The number of a text. What a terminal would obey is escaped: readers print texts as they are.
    fn number(&mut self, text: &str) -> i64 {
        let text = escaped(text);
        if let Some(number) = self.numbers.get(&*text) {
            return *number;
        }
        let number = in_i64(self.texts.len() as u64);
        self.texts.push(text.clone().into_owned());
        self.numbers.insert(text.into_owned(), number);
        number
    }
}

struct ProfileInMaking {
    stacks: ExportedStacks,
    texts: TextTable,
    /// The location of each frame; that of samples without a stack has the frame `None`.
    locations: FxHashMap<Option<u32>, u64>,
    /// Functions by name and file.
    functions: FxHashMap<(i64, i64), u64>,
    profile: Profile,
}

impl ProfileInMaking {
    fn of(stacks: ExportedStacks) -> Self {
        Self {
            stacks,
            texts: TextTable::new(),
            locations: FxHashMap::default(),
            functions: FxHashMap::default(),
            profile: Profile::default(),
        }
    }

    fn labels(
        &mut self,
        keys: &LabelKeys,
        names: &Names,
        task: usize,
        (reason, cgroup): (&str, &str),
    ) -> Vec<Label> {
        let (thread, process) = (names.thread(task), names.process_of(task));
        let text = |texts: &mut TextTable, key, text: &str| Label {
            key: texts.number(key),
            str: texts.number(text),
            num: 0,
        };
        let number = |texts: &mut TextTable, key, number| Label {
            key: texts.number(key),
            str: 0,
            num: i64::from(number),
        };
        let texts = &mut self.texts;
        // An empty text would be read as the number 0: a program may take its threads' names away.
        let told = [
            (keys.process, &*process.comm),
            (keys.thread, &*thread.comm),
            (keys.reason, reason),
            (keys.cgroup, cgroup),
        ];
        let told = told.into_iter().filter(|(_, told)| !told.is_empty());
        let mut labels: Vec<_> = told.map(|(key, told)| text(texts, key, told)).collect();
        labels.extend(process.pid.map(|pid| number(texts, keys.pid, pid.get())));
        labels.extend(thread.tid.map(|tid| number(texts, keys.tid, tid.get())));
        labels
    }

    fn add(&mut self, (user, kernel): Stacks, times: [Nanos; 3], label: Vec<Label>) {
        let mut frames: Vec<Option<u32>> = Vec::new();
        for (kind, stack) in [(StackKind::Kernel, kernel), (StackKind::User, user)] {
            let numbers = stack.and_then(|stack| self.stacks.stacks.get(&(kind, stack)));
            frames.extend(numbers.into_iter().flatten().copied().map(Some));
        }
        let locations = frames.into_iter().filter_map(|frame| self.location(frame));
        let mut location_id: Vec<u64> = locations.collect();
        if location_id.is_empty() {
            location_id.extend(self.location(None));
        }
        self.profile.sample.push(PprofSample {
            location_id,
            value: times.map(|time| in_i64(time.as_ns())).to_vec(),
            label,
        });
    }

    /// The location of a frame; `None` for those of tracing itself.
    fn location(&mut self, number: Option<u32>) -> Option<u64> {
        if let Some(known) = self.locations.get(&number) {
            return Some(*known);
        }
        let frame = number.and_then(|number| self.stacks.frames.get(&number).cloned());
        let unknown = if number.is_some() {
            "(frame lost)"
        } else {
            NO_STACK
        };
        let name = frame.as_ref().map_or_else(|| unknown.to_owned(), name_of);
        if is_of_tracing(&name) {
            return None;
        }
        let file = frame.as_ref().and_then(|frame| frame.file.as_deref());
        let key = (
            self.texts.number(&name),
            self.texts.number(file.unwrap_or_default()),
        );
        let function_id = self.function(key);
        let id = self.profile.location.len() as u64 + 1;
        self.locations.insert(number, id);
        self.profile.location.push(Location {
            id,
            address: frame
                .as_ref()
                .map_or(0, |frame| frame.file_address.unwrap_or(frame.address)),
            line: vec![PprofLine {
                function_id,
                line: frame.and_then(|frame| frame.line).map_or(0, i64::from),
            }],
        });
        Some(id)
    }

    fn function(&mut self, (name, filename): (i64, i64)) -> u64 {
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(Function {
                id,
                name,
                system_name: name,
                filename,
            });
        }
        id
    }

    fn finish(mut self, meta: &Meta) -> Profile {
        let unit = self.texts.number("nanoseconds");
        for kind in ["off_cpu", "blocked", "run_queue"] {
            let r#type = self.texts.number(kind);
            self.profile.sample_type.push(ValueType { r#type, unit });
        }
        let began = meta.clock.realtime_ns.saturating_add(meta.start_ns);
        let lost = lost_records(meta, meta.counts.lost);
        let comment = format!("swtch {}: {lost} lost", meta.swtch_version);
        Profile {
            time_nanos: in_i64(began.saturating_sub(meta.clock.monotonic_ns)),
            duration_nanos: in_i64(meta.end_ns.saturating_sub(meta.start_ns)),
            comment: vec![self.texts.number(&comment)],
            default_sample_type: self.texts.number("off_cpu"),
            string_table: self.texts.texts,
            ..self.profile
        }
    }
}

/// The function of a frame; its address in the file where nothing more is known.
fn name_of(frame: &Frame) -> String {
    let symbol = frame.symbol.clone();
    symbol.unwrap_or_else(|| frame_words(frame))
}

/// What a signed number cannot hold is as large as one can be.
fn in_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::TaskKey;

    fn frame(id: u32, symbol: Option<&str>) -> Frame {
        Frame {
            id,
            address: 0x1000 + u64::from(id),
            symbol: symbol.map(str::to_owned),
            module: Some("/usr/bin/server".to_owned()),
            file_address: Some(u64::from(id)),
            build_id: None,
            offset: Some(1),
            file: Some("server.c".to_owned()).filter(|_| symbol.is_some()),
            line: Some(7),
        }
    }

    /// A label of which neither text nor number is there would be read as the number 0.
    #[test]
    fn a_thread_without_a_name_has_no_label_of_it() {
        let task = TaskKey::new(1);
        let names = Names::new(&[swtch_fixtures::seen(1, 10, 11, "")]);
        let mut profile = ProfileInMaking::of(ExportedStacks {
            stacks: FxHashMap::default(),
            frames: FxHashMap::default(),
        });
        let labels = profile.labels(&KEYS, &names, names.index(task), ("futex", ""));
        let keys = labels.iter().map(|label| usize::try_from(label.key));
        let keys: Vec<_> = keys
            .map(|key| profile.texts.texts[key.unwrap()].as_str())
            .collect();
        assert_eq!(keys, ["reason", "pid", "tid"]);
        assert!(
            labels
                .iter()
                .all(|label| (label.str == 0) != (label.num == 0))
        );
    }

    #[test]
    fn a_sample_goes_from_the_kernel_to_the_outermost_function() {
        let frames = [
            frame(1, Some("main")),
            frame(2, Some("read_\u{1b}[2J")),
            frame(3, None),
            frame(4, Some("__traceiter_sched_switch")),
            frame(5, Some("schedule")),
        ];
        let mut profile = ProfileInMaking::of(ExportedStacks {
            stacks: FxHashMap::from_iter([
                ((StackKind::User, 1), vec![3, 2, 1]),
                ((StackKind::Kernel, 1), vec![4, 5]),
                ((StackKind::Kernel, 2), vec![4]),
            ]),
            frames: frames.into_iter().map(|frame| (frame.id, frame)).collect(),
        });
        let times = [3, 2, 1].map(Nanos::from_ns);
        profile.add((Some(1), Some(1)), times, Vec::new());
        profile.add((Some(1), None), times, Vec::new());
        profile.add((None, Some(2)), times, Vec::new());
        let made = profile.finish(&Meta::default());
        let read = Profile::decode(made.encode_to_vec().as_slice()).unwrap();
        let functions = |sample: &PprofSample| -> Vec<_> {
            let text = |number: i64| read.string_table[usize::try_from(number).unwrap()].clone();
            let names = sample.location_id.iter().map(|id| {
                let at = |location: &&Location| location.id == *id;
                let location = read.location.iter().find(at).unwrap();
                let function = |function: &&Function| function.id == location.line[0].function_id;
                let function = read.function.iter().find(function).unwrap();
                format!("{} {}", text(function.name), text(function.filename))
            });
            names.collect()
        };
        let user = ["0x3 [server] ", "read_\\x1b[2J server.c", "main server.c"];
        let whole = [&["schedule server.c"], &user[..]].concat();
        assert_eq!(functions(&read.sample[0]), whole);
        assert_eq!(functions(&read.sample[1]), user);
        assert_eq!(functions(&read.sample[2]), ["(no stack) "]);
        assert_eq!(read.sample[0].value, [3, 2, 1]);
        assert_eq!(
            (read.location.len(), read.string_table[0].as_str()),
            (5, "")
        );
    }
}
