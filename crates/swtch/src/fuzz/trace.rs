//! Traces: a directory of files is damaged, then opened, scanned, reported, drawn, exported and
//! compared, with another trace and with a copy of itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use swtch_core::rules::all_rules;
use swtch_core::{
    CgroupId, CpuId, EvidenceBits, Frame, Gap, Level, Nanos, Open, Pid, Reason, Stack, StackKind,
    Switch, TaskEvent, TaskKey, Tid, Timestamp, UserSide,
};
use swtch_fixtures::{after, meta, prices, row, seen, woken_by};
use swtch_output::format::Format;
use swtch_report::export::{self, ExportFormat};
use swtch_report::report::{
    self, BillBy, By, DiffRequest, Extent, Filter, Moment, Per, ReportRequest,
};
use swtch_store::{
    Columns, CommandRow, Meta, RecordingState, SpanRow, Trace, UserCounts, WaitTypeRow,
    WaitingWorkersRow, Writer,
};
use swtch_view::{Loaded, page};

use super::archive::Archive;
use super::records::{RECORDS, header_length};
use super::{FuzzSubject, mutate};

const CHECKSUMS: &str = "checksums.csv";
const META: &str = "meta.json";

/// The size of the writer's chunks, each of which has a checksum that readers verify.
const CHUNK_BYTES: usize = 1 << 16;

/// Words of `meta.json` and of the columns that hold words, for the mutator.
const WORDS: [&str; 12] = [
    "recording",
    "finished",
    "stopped_early",
    "null",
    "true",
    "format_version",
    "start_ns",
    "end_ns",
    "command",
    "counts",
    "[]",
    "{}",
];

/// Traces of one state to draw inputs from, and the paths for the one under test.
#[derive(Debug)]
pub struct Traces {
    state: RecordingState,
    corpus: Vec<Archive>,
    pub path: PathBuf,
    output: PathBuf,
    /// An undamaged trace, and a copy of the one under test, to compare it with.
    whole: PathBuf,
    copy: PathBuf,
}

impl Traces {
    /// Traces as an interrupted recording leaves them: streams, not yet Parquet.
    pub fn recorded(directory: &Path) -> Self {
        Self::of(directory, RecordingState::Recording)
    }

    /// Finished traces, which hold Parquet files.
    pub fn finished(directory: &Path) -> Self {
        Self::of(directory, RecordingState::Finished)
    }

    fn of(directory: &Path, state: RecordingState) -> Self {
        let made = [("short", 24), ("long names", 40), ("many", 700)];
        let corpus = made.map(|(name, switches)| {
            let path = directory.join("corpus.swtch");
            write_trace(&path, state, switches, name == "long names");
            taken(&path)
        });
        let whole = directory.join("whole.swtch");
        write_trace(&whole, RecordingState::Finished, 300, false);
        Self {
            state,
            corpus: corpus.to_vec(),
            path: directory.join("t.swtch"),
            output: directory.join("output"),
            whole,
            copy: directory.join("copy.swtch"),
        }
    }
}

impl FuzzSubject for Traces {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        // A complete trace with odd values reaches the reports, which damaged bytes of compressed
        // pages seldom do.
        if random.u32(..3) == 0 {
            return self.write_odd_trace(random).to_bytes();
        }
        let mut archive = self.corpus[random.usize(..self.corpus.len())].clone();
        let most = if self.state == RecordingState::Recording {
            2
        } else {
            1
        };
        for _ in 0..random.u32(1..=most) {
            // Half of the damage goes to the table of switches, which holds most of the columns.
            let place = match random.bool() {
                true => archive
                    .files
                    .iter()
                    .position(|file| file.0.starts_with("switch.")),
                false => None,
            };
            let place = place.unwrap_or_else(|| random.usize(..archive.files.len()));
            let (name, bytes) = &mut archive.files[place];
            match name.as_str() {
                META => mutate::text(random, bytes, &WORDS),
                _ if self.state == RecordingState::Recording => mutate::bytes(random, bytes),
                // In compressed pages, damage at several places leaves nothing that can be read.
                _ => mutate::one_place(random, bytes),
            }
        }
        if random.u32(..20) == 0 {
            let mut list = checksums(&archive).into_bytes();
            mutate::text(random, &mut list, &["switch.arrows", "switch.parquet"]);
            archive.files.push((CHECKSUMS.to_owned(), list));
        }
        archive.to_bytes()
    }

    fn run(&mut self, input: &[u8]) {
        put(&Archive::from_bytes(input), &self.path);
        let Ok(trace) = Trace::open(&self.path) else {
            return;
        };
        // Returning an error is correct. What is asked follows from the input, so that a failure
        // can be repeated.
        let mut rows = 0_u64;
        let _ = trace.scan_levels(Columns::all(), None, &mut |_| rows += 1);
        let mut choice = Rng::with_seed(u64::from(crc32fast::hash(input)));
        self.look(&trace, &mut choice);
        self.look(&trace, &mut choice);
        if choice.u32(..4) == 0 {
            self.compare(Archive::from_bytes(input), &mut choice);
        }
    }
}

impl Traces {
    /// A complete trace in which some values are at the limits of their columns.
    fn write_odd_trace(&self, random: &mut Rng) -> Archive {
        let path = self.path.with_extension("odd");
        let (meta, mut writer) = begin(&path, self.state, 30, random.bool());
        for number in 0..30 {
            let mut row = switch(meta.start_ns, number);
            while random.u32(..3) == 0 {
                make_odd(random, &mut row);
            }
            writer.push_switch(&row).expect("a scratch file");
        }
        end(writer, &meta, self.state);
        taken(&path)
    }

    /// Compares the trace with another one, and with a copy of itself, which must raise no alarm. The
    /// copy has begun at another time: the same recording on both sides is refused.
    fn compare(&self, mut copied: Archive, choice: &mut Rng) {
        let request = |a: &[&PathBuf], b: &[&PathBuf], choice: &mut Rng| DiffRequest {
            a: a.iter().copied().cloned().collect(),
            b: b.iter().copied().cloned().collect(),
            filter: filter(choice),
            per: Per::ALL.get(choice.usize(..=Per::ALL.len())).copied(),
            prices: choice.bool().then(prices),
            fail_over_pct: Some(0.0),
            format: Format::ALL[choice.usize(..Format::ALL.len())],
            shows_all: choice.bool(),
        };
        for sides in [[&self.path, &self.whole], [&self.whole, &self.path]] {
            if let Ok(answer) = report::compare(&request(&[sides[0]], &[sides[1]], choice)) {
                let _ = answer.write(&mut io::sink());
                let _ = answer.page_parts();
            }
        }
        let meta = copied.files.iter_mut().find(|file| file.0 == META);
        let Some((mut words, bytes)) = meta.and_then(|(_, bytes)| {
            Some((
                serde_json::from_slice::<serde_json::Value>(bytes).ok()?,
                bytes,
            ))
        }) else {
            return;
        };
        words["clock"]["realtime_ns"] = 1.into();
        *bytes = words.to_string().into_bytes();
        copied.files.retain(|file| file.0 != CHECKSUMS);
        put(&copied, &self.copy);
        let mut request = request(&[&self.path], &[&self.copy], choice);
        request.format = Format::Json;
        let mut said = Vec::new();
        let Ok(()) = report::compare(&request).and_then(|answer| answer.write(&mut said)) else {
            return;
        };
        let answer: serde_json::Value = serde_json::from_slice(&said).expect("JSON was asked for");
        for row in answer["rows"].as_array().expect("a list") {
            let is_quiet = ["no sure change", "not judged"]
                .map(Into::into)
                .contains(&row["verdict"]);
            assert!(is_quiet, "a trace beside its copy: {row}");
        }
    }

    /// Asks one question about a trace, such as a report or an export.
    pub fn look(&self, trace: &Trace, choice: &mut Rng) {
        let filter = filter(choice);
        let format = Format::ALL[choice.usize(..Format::ALL.len())];
        let request = |by| ReportRequest {
            by,
            format,
            filter: filter.clone(),
            top: None,
        };
        let out = &mut io::sink();
        match choice.u32(..64) {
            0..=35 => {
                let by = By::ALL[choice.usize(..By::ALL.len())];
                let _ = report::report(trace, &request(by), out);
            }
            36..=43 => {
                let extent = match choice.bool() {
                    true => Extent::Screen(choice.usize(..200)),
                    false => Extent::Full,
                };
                let _ = report::explain(trace, &request(By::Reason), Some(&prices()), extent, out);
            }
            44..=47 => {
                let by = BillBy::ALL[choice.usize(..BillBy::ALL.len())];
                let _ = report::bill(trace, by, &request(By::Reason), &prices(), out);
            }
            48..=58 => {
                let request = export::ExportRequest {
                    trace: self.path.clone(),
                    to: ExportFormat::ALL[choice.usize(..ExportFormat::ALL.len())],
                    output: Some(self.output.clone()),
                    filter,
                };
                let _ = export::run(&request, || Ok(Arc::default()));
            }
            59..=62 => drop(Loaded::read(&self.path, 1)),
            _ => {
                let _ = page::write(&self.path, &filter, None, &self.output, Arc::default());
            }
        }
    }
}

/// A filter that most often lets the whole trace through.
fn filter(choice: &mut Rng) -> Filter {
    let moment = |ns: u64| Some(Moment(Nanos::from_ns(ns)));
    match choice.u32(..8) {
        0 => Filter {
            since: moment(choice.u64(..1 << 20)),
            until: moment(choice.u64(1 << 20..1 << 40)),
            ..Filter::default()
        },
        1 => Filter {
            comms: vec!["server".to_owned()],
            ..Filter::default()
        },
        2 => Filter {
            pids: vec![Pid::new(10)],
            reasons: vec![Reason::Futex],
            ..Filter::default()
        },
        _ => Filter::default(),
    }
}

/// Writes the archive as the trace at `path`. If it has no list of checksums, one is made that
/// matches the damaged bytes.
pub fn put(archive: &Archive, path: &Path) {
    let _ = fs::remove_dir_all(path);
    fs::create_dir(path).expect("a scratch directory");
    for (name, bytes) in &archive.files {
        fs::write(path.join(name), bytes).expect("a scratch file");
    }
    if !archive.files.iter().any(|file| file.0 == CHECKSUMS) {
        fs::write(path.join(CHECKSUMS), checksums(archive)).expect("a scratch file");
    }
}

/// The list of checksums that matches these files.
fn checksums(archive: &Archive) -> String {
    let mut list = "file,offset,length,crc32\n".to_owned();
    for (name, bytes) in &archive.files {
        let mut offset = 0;
        let (first, size) = match name.as_str() {
            META => (0, bytes.len().max(1)),
            RECORDS => (header_length(bytes), bytes.len().max(1)),
            _ => (0, CHUNK_BYTES),
        };
        let (header, rest) = bytes.split_at(first);
        for chunk in header.chunks(first.max(1)).chain(rest.chunks(size)) {
            let (length, crc32) = (chunk.len(), crc32fast::hash(chunk));
            list += &format!("{name},{offset},{length},{crc32:08x}\n");
            offset += length;
        }
    }
    list
}

/// Reads the files of a trace into an archive, and removes the trace.
pub fn taken(path: &Path) -> Archive {
    let archive = read_archive(path);
    fs::remove_dir_all(path).expect("what was made can be removed");
    archive
}

/// Gives one field of a row a value that no kernel would write.
fn make_odd(random: &mut Rng, row: &mut Switch) {
    let number = mutate::number(random);
    #[expect(clippy::cast_possible_truncation, reason = "any number will do")]
    let (short, word, small) = (number as u16, number as u32, number as i16);
    let (nanos, task) = (Nanos::from_ns(number), TaskKey::new(word));
    match random.u32(..26) {
        0 | 1 => row.ts = Timestamp::from_ns(number),
        2 => row.cpu = CpuId::new(short),
        3 => row.task = task,
        4 | 5 => row.ran = Some(nanos),
        6 => row.irq = nanos,
        7 => row.stolen = nanos,
        8 => row.evidence.state = word,
        9 => row.evidence.bits = EvidenceBits(word),
        10 => row.evidence.nominator = Some(task),
        11 => row.evidence.need_resched_delay = Some(nanos),
        12 => row.evidence.syscall = Some(word),
        13 => row.evidence.args[random.usize(..3)] = number,
        14 => row.evidence.wait_key = Some(number),
        15 => row.evidence.prio = small,
        16 => row.next_task = Some(task),
        17 => row.user_task = Some(number),
        18 => row.cgroup = CgroupId::new(number),
        19 => row.wait.off = Some(nanos),
        20 => row.wait.runq = Some(nanos),
        21 => row.wait.wakeup.waker = Some(task),
        22 => row.wait.wakeup.cpu = Some(CpuId::new(short)),
        23 => row.wait.moved = Some(nanos),
        24 => row.wait.stacks.user = Some(word),
        _ => row.wait.stacks.kernel = Some(word),
    }
}

fn read_archive(path: &Path) -> Archive {
    let entries = fs::read_dir(path).expect("a scratch directory");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let files = paths.iter().filter(|path| name(path) != CHECKSUMS);
    Archive {
        files: files
            .map(|path| (name(path), fs::read(path).expect("a scratch file")))
            .collect(),
    }
}

/// Writes a trace with rows in every table, and every reason.
pub fn write_trace(path: &Path, state: RecordingState, switches: u64, has_long_names: bool) {
    let (meta, mut writer) = begin(path, state, switches, has_long_names);
    for number in 0..switches {
        let row = switch(meta.start_ns, number);
        writer.push_switch(&row).expect("a scratch file");
        if number % 16 == 15 {
            writer.flush().expect("a scratch file");
        }
    }
    end(writer, &meta, state);
}

/// Begins a trace, with rows in all tables but that of switches.
fn begin(
    path: &Path,
    state: RecordingState,
    switches: u64,
    has_long_names: bool,
) -> (Meta, Writer) {
    let long = |length: usize| match has_long_names {
        true => "n".repeat(length),
        false => "n".to_owned(),
    };
    let meta = Meta {
        state,
        command: vec!["server".to_owned(), long(3_000)],
        user: Some(UserCounts {
            processes: 1,
            written: switches / 5,
            stored: switches / 5,
            ..UserCounts::default()
        }),
        ..meta()
    };
    let mut writer = Writer::create(path, &meta).expect("a scratch directory");
    push_names(&mut writer, &long);
    (meta, writer)
}

/// Leaves a trace as a killed recorder would, or finishes it.
fn end(mut writer: Writer, meta: &Meta, state: RecordingState) {
    writer.flush().expect("a scratch file");
    match state {
        RecordingState::Recording => drop(writer),
        _ => writer.finish(meta, &mut |_, _| ()).expect("a scratch file"),
    }
}

fn push_names(writer: &mut Writer, long: &impl Fn(usize) -> String) {
    let names = ["server", "worker", &long(200), "=1+1\u{1b}[2J"];
    for (key, name) in (1..).zip(names) {
        let task = TaskEvent {
            in_scope: key != 3,
            is_kthread: key == 4,
            ..seen(key, 10 * (key / 2 + 1), 10 + key, name)
        };
        writer.push_task(&task).expect("a scratch file");
    }
    let gap = Gap {
        cpu: CpuId::new(1),
        start: Timestamp::from_ns(1_000_020_000),
        end: Timestamp::from_ns(1_000_040_000),
        lost: 7,
        level: Level::Os,
    };
    writer.push_gap(&gap).expect("a scratch file");
    for reason in [Some(Reason::Futex), None] {
        let open = Open {
            task: TaskKey::new(1),
            reason,
            since: Timestamp::from_ns(1_000_050_000),
            lasted: Nanos::from_ns(5_000),
            runq: reason.map(|_| Nanos::from_ns(2_000)),
            cpu: reason.map(|_| CpuId::new(1)),
        };
        writer.push_open(&open).expect("a scratch file");
    }
    writer
        .push_cgroup(CgroupId::new(1), &format!("/a/{}", long(500)))
        .expect("a scratch file");
    let kinds = [
        (7, StackKind::User, Some(Pid::new(10))),
        (8, StackKind::Kernel, None),
    ];
    for (stack, kind, pid) in kinds {
        let row = Stack {
            id: stack,
            kind,
            pid,
            frames: vec![1, 2, 1, 99],
            end: None,
        };
        writer.push_stack(&row).expect("a scratch file");
    }
    for frame in [1, 2] {
        let row = Frame {
            id: frame,
            address: 0xffff_ffff_8100_0000,
            symbol: (frame == 1).then(|| long(5_000)),
            module: Some("vmlinux".to_owned()),
            offset: Some(12),
            file: Some("core.c".to_owned()),
            line: Some(6800),
            file_address: (frame == 1).then_some(u64::MAX),
            build_id: (frame == 1).then(|| long(5_000)),
        };
        writer.push_frame(&row).expect("a scratch file");
    }
    let wait_type = WaitTypeRow {
        wait_type: 3,
        name: "MUTEX".to_owned(),
    };
    writer.push_wait_type(&wait_type).expect("a scratch file");
    let command = CommandRow {
        ts: Timestamp::from_ns(1),
        pid: Pid::new(10),
        command: long(1_024),
    };
    writer.push_command(&command).expect("a scratch file");
    let workers = WaitingWorkersRow {
        ts: Timestamp::from_ns(1),
        pid: Pid::new(10),
        reason: Some(long(64)),
        stack: Some(1),
        thousandths: u64::MAX,
        between: Nanos::from_ns(u64::MAX),
    };
    writer.push_worker(&workers).expect("a scratch file");
    let span = SpanRow {
        begin: Timestamp::from_ns(1),
        end: Timestamp::from_ns(u64::MAX),
        pid: Pid::new(10),
        tid: Tid::new(10),
        name: long(64),
        trace_id: Some(long(32)),
        span_id: Some(long(16)),
    };
    writer.push_span(&span).expect("a scratch file");
}

fn switch(start_ns: u64, number: u64) -> Switch {
    let small = |most: u64| u32::try_from(number % most).expect("a small number");
    let rules: Vec<_> = all_rules().collect();
    let rule = rules[usize::try_from(number).expect("a small number") % rules.len()];
    let reason = Reason::ALL[usize::try_from(number * 7).expect("small") % Reason::ALL.len()];
    let mut row = after(
        row(1 + small(5), Reason::Futex),
        reason,
        number * 370 % 3_000,
        50,
    );
    row = woken_by(row, 1 + small(3));
    row.ts = Timestamp::from_ns(start_ns + number * 1_000);
    row.cpu = CpuId::new(u16::try_from(number % 2).expect("a small number"));
    row.rule = rule;
    row.ran = (!number.is_multiple_of(9)).then(|| Nanos::from_ns(600));
    row.irq = Nanos::from_ns(number % 3 * 10);
    row.next_task = (!number.is_multiple_of(4)).then(|| TaskKey::new(1 + small(4)));
    row.evidence.wait_key = Some(0xf00 + number % 2);
    row.evidence.syscall = Some(small(340));
    row.evidence.bits = EvidenceBits(u32::try_from(number * 77 % (1 << 20)).expect("small"));
    row.wait.stacks.user = (!number.is_multiple_of(3)).then_some(7);
    row.wait.stacks.kernel = (number % 3 > 1).then_some(8);
    if number % 5 == 4 {
        row.level = Level::User;
        row.user_task = Some(number % 3);
        row.user = UserSide {
            run: Some(small(100)),
            next_task: Some(number % 4),
            waker: Some(1),
            wait_type: Some(3),
            off_wait_type: Some(9),
        };
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace that is refused when it is opened tests nothing but the opening.
    #[test]
    fn enough_damaged_traces_can_still_be_read() {
        for state in [RecordingState::Recording, RecordingState::Finished] {
            let dir = tempfile::tempdir().unwrap();
            let mut traces = Traces::of(dir.path(), state);
            let mut read = 0;
            for seed in 0..200 {
                let input = traces.draw(&mut Rng::with_seed(seed));
                put(&Archive::from_bytes(&input), &traces.path);
                let mut rows = 0_u64;
                let opened = Trace::open(&traces.path);
                let scanned =
                    opened.and_then(|trace| trace.scan(Columns::all(), None, &mut |_| rows += 1));
                read += u32::from(scanned.is_ok() && rows > 0);
            }
            assert!(read > 20, "{state:?}: {read} of 200");
        }
    }
}
