use super::*;
use crate::lanes::{LaneId, Window};
use crate::{Loaded, Span, chain, curves, lanes, states};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use swtch_core::{Level, Nanos, Switch};
use swtch_fixtures::{after, meta, row, seen, woken_by};
use swtch_store::Writer;
use tempfile::TempDir;

const START: u64 = 1_000_000_000;

/// Threads that take turns on three CPUs, with waits of every kind, some of them longer than a
/// word holds, and workers of a user-mode scheduler on one of them.
fn drawn(dir: &Path, rows: u64, seed: u64) -> PathBuf {
    let path = dir.join("t.swtch");
    let _ = fs::remove_dir_all(&path);
    let mut meta = meta();
    meta.end_ns = 0;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    let reasons = [Reason::Futex, Reason::Pipe, Reason::Slice, Reason::Sleep];
    for cpu in 0..3_u16 {
        let (mut now, mut left) = (START, [None; 5]);
        for number in 0..rows / 3 {
            let place = random.usize(0..5);
            let task = u32::from(cpu) * 5 + u32::try_from(place).unwrap() + 1;
            let pause = random.u64(0..3_000);
            let ran = match number % 400 {
                7 => 5_000_000_000,
                _ => random.u64(1_000..40_000),
            };
            now += pause + ran;
            let reason = reasons[random.usize(0..reasons.len())];
            let mut this = match left[place].replace((now, reason)) {
                None => row(task, reason),
                Some((since, reason_before)) => {
                    let off = now - ran - since;
                    let runq = random.u64(0..=off);
                    after(row(task, reason), reason_before, off - runq, runq)
                }
            };
            if random.bool() {
                this = woken_by(this, random.u32(1..16));
            }
            this.ran = (number % 50 != 3).then_some(Nanos::from_ns(ran));
            this.ts = Timestamp::from_ns(now);
            this.cpu = CpuId::new(cpu * 2);
            let is_worker = cpu == 0 && place == 0;
            all.extend(is_worker.then_some(Switch {
                level: Level::User,
                user_task: Some(number),
                ..this
            }));
            all.push(this);
        }
    }
    all.sort_by_key(|row| row.ts);
    let workers = all.iter().filter(|row| row.level == Level::User).count();
    meta.user = Some(swtch_store::UserCounts {
        stored: workers as u64,
        ..Default::default()
    });
    let mut writer = Writer::create(&path, &meta).unwrap();
    for task in 1..16 {
        writer
            .push_task(&seen(task, 10, 10 + task, "server"))
            .unwrap();
    }
    all.iter().for_each(|row| writer.push_switch(row).unwrap());
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    path
}

/// Returns the answers to what the page can ask: pictures near and far of every lane, numbers, chains.
fn answers(loaded: &Loaded) -> (Vec<Vec<u8>>, Vec<Value>) {
    let whole = loaded.duration_ns() + 1;
    let mut lanes: Vec<LaneId> = (1..16)
        .map(|task| LaneId::Thread(TaskKey::new(task)))
        .collect();
    lanes.push(LaneId::Workers(TaskKey::new(1)));
    lanes.extend([0, 2, 3, 4].map(|cpu| LaneId::Cpu(CpuId::new(cpu))));
    let spans = [
        (0, whole),
        (whole / 3, whole / 2),
        (whole / 2, whole / 2 + 3_000_000),
        (whole - 5_000_000, whole + 10),
    ];
    let spans = spans.map(|(from_ns, to_ns)| Span { from_ns, to_ns });
    let mut pictures = Vec::new();
    let mut numbers = vec![loaded.threads().clone(), loaded.facts().unwrap().clone()];
    for span in spans {
        for px in [3, 100, 1300] {
            pictures.push(lanes::answer(loaded, &Window { span, px }, &lanes));
        }
        numbers.push(curves::rate(loaded, span, 77));
        for of in ["ran", "off", "blocked", "runq"] {
            numbers.push(curves::distribution(loaded, span, of, None).unwrap());
        }
        for task in [1, 7, 15] {
            let task = TaskKey::new(task);
            numbers.push(states::states(loaded, task, span));
            numbers.push(chain::critical(loaded, task, span));
        }
    }
    let rows = loaded.levels.os.rows().len();
    for row in [0, 1, rows / 2, rows - 1] {
        numbers.push(chain::chain(loaded, row));
        let detail = crate::detail::of_row(loaded, Level::Os, row, None);
        numbers.push(detail.unwrap());
    }
    numbers.push(json!(loaded.levels.end_ns));
    (pictures, numbers)
}

fn opened(path: &Path) -> Loaded {
    let loaded = Loaded::read_with(path, 1, 10).unwrap();
    if let Some(unnamed) = &loaded.unnamed {
        unnamed.keep().unwrap();
    }
    loaded
}

fn is_reused(path: &Path) -> bool {
    match opened(path).source {
        RowsSource::Kept(_) => true,
        RowsSource::Made(_, Some(_)) => false,
        other => panic!("it is large enough for a file that is kept: {other:?}"),
    }
}

fn drawn_dir() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = drawn(dir.path(), 9_000, 3);
    let file = dir.path().canonicalize().unwrap().join("t.swtch.view");
    (dir, path, file)
}

/// Wherever the rows lie, every answer has the same bytes.
#[test]
fn rows_in_a_file_give_the_answers_of_rows_in_memory() {
    let (_dir, path, file) = drawn_dir();
    let memory = Loaded::read(&path, 1).unwrap();
    assert_eq!(memory.source, RowsSource::Memory);
    assert!(
        !memory
            .levels
            .os
            .rows()
            .long()
            .iter()
            .all(|long| long.is_empty())
    );
    let expected = answers(&memory);
    let made = opened(&path);
    assert!(matches!(made.source, RowsSource::Made(_, Some(_))));
    assert!(answers(&made) == expected, "made");
    let kept = opened(&path);
    assert_eq!(kept.source, RowsSource::Kept(file));
    assert!(answers(&kept) == expected, "kept");
}

/// A trace of the same name and length that holds something else.
#[test]
fn what_was_kept_of_another_trace_is_dropped() {
    let (dir, path, _) = drawn_dir();
    assert!(!is_reused(&path));
    assert!(is_reused(&path));
    drawn(dir.path(), 9_000, 4);
    assert!(!is_reused(&path));
    let memory = Loaded::read(&path, 1).unwrap();
    assert!(answers(&opened(&path)) == answers(&memory));
}

#[test]
fn a_damaged_file_is_made_again() {
    let (_dir, path, file) = drawn_dir();
    assert!(!is_reused(&path));
    let whole = fs::read(&file).unwrap();
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 9].to_vec();
    let turned = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - 100;
        bytes[at] ^= 1;
        bytes
    };
    for damaged in [cut(&whole), turned(&whole), Vec::new(), vec![0; 40]] {
        fs::write(&file, damaged).unwrap();
        assert!(!is_reused(&path));
        assert!(is_reused(&path));
    }
}

/// Others must not be able to choose what is shown.
#[test]
fn a_file_that_others_can_write_is_not_believed() {
    let (dir, path, file) = drawn_dir();
    assert!(!is_reused(&path));
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is as private as it can be");
    fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap();
    assert!(!is_reused(&path));
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(!is_reused(&path));
    assert!(is_reused(&path), "the link was replaced");
}

/// Two viewers of one trace prepare it at the same time, and each keeps its own: neither takes what the
/// other is about to rename.
#[test]
fn what_another_viewer_is_about_to_keep_is_left_to_it() {
    let (dir, path, file) = drawn_dir();
    let [one, other] = [(); 2].map(|()| Loaded::read_with(&path, 1, 10).unwrap());
    let of_another = file.with_file_name("t.swtch.view.new");
    fs::write(&of_another, "of another").unwrap();
    for loaded in [&one, &other] {
        loaded.unnamed.as_ref().unwrap().keep().unwrap();
    }
    assert_eq!(fs::read(&of_another).unwrap(), b"of another");
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 3, "the trace, what was kept, and what is another's");
    assert!(is_reused(&path));
    assert!(answers(&one) == answers(&other));
}

/// Whoever may rename the directory could put another one, or a link, where it was.
#[test]
fn a_file_is_kept_in_the_directory_in_which_the_trace_was() {
    let above = tempfile::tempdir().unwrap();
    let at = |name: &str| above.path().join(name);
    for dir in ["here", "there"] {
        fs::create_dir(at(dir)).unwrap();
    }
    let path = drawn(&at("here"), 9_000, 3);
    for name in ["t.swtch.view", "t.swtch.view.new"] {
        fs::write(at("there").join(name), "mine").unwrap();
    }
    let loaded = Loaded::read_with(&path, 1, 10).unwrap();
    fs::rename(at("here"), at("moved")).unwrap();
    symlink("there", at("here")).unwrap();
    loaded.unnamed.as_ref().unwrap().keep().unwrap();
    assert!(at("moved/t.swtch.view").is_file());
    for name in ["t.swtch.view", "t.swtch.view.new"] {
        assert_eq!(fs::read(at("there").join(name)).unwrap(), b"mine");
    }
}

#[test]
#[ignore = "needs root"]
fn root_keeps_and_believes_nothing_in_a_directory_of_somebody_else() {
    let (dir, path, file) = drawn_dir();
    assert!(!is_reused(&path));
    let kept = fs::read(&file).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), None).unwrap();
    let loaded = Loaded::read_with(&path, 1, 10).unwrap();
    assert!(matches!(loaded.source, RowsSource::Made(_, None)));
    assert!(loaded.unnamed.is_none());
    assert_eq!(fs::read(&file).unwrap(), kept, "it is left as it is");
}

/// Nothing is left beside the trace when it is not kept.
#[test]
fn a_file_that_is_not_kept_leaves_nothing() {
    let (dir, path, _) = drawn_dir();
    drop(Loaded::read_with(&path, 1, 10).unwrap());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
