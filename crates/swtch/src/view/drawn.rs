//! A drawn trace for tests, and what the command line prints of it.

use serde_json::Value;
use swtch_core::{Reason, TaskEvent, Timestamp, Wait};
use swtch_store::Writer;
use tempfile::TempDir;

use super::Loaded;
use crate::format::Format;
use crate::report::drawn::{after, head, row, seen, woken_by};
use crate::report::{By, Filter, Moment, Request, report};

/// Threads that hand two words round, a switch a microsecond, 0.2 ms in all: two of one process, one
/// without a name, and one that the capture was not asked for.
pub fn handed_round() -> (Loaded, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let meta = head().meta;
    let mut writer = Writer::create(&path, &meta).unwrap();
    writer.push_task(&seen(1, 10, 10, "server")).unwrap();
    writer.push_task(&seen(2, 10, 11, "worker")).unwrap();
    let other = TaskEvent {
        in_scope: false,
        ..seen(3, 30, 30, "other")
    };
    writer.push_task(&other).unwrap();
    for number in 0..200_usize {
        // 77 is named nowhere.
        let task = [1, 2, 3, 77][number % 4];
        let blocked_ns = (number * 37 % 900) as u64;
        let mut row = after(row(task, Reason::Futex), Reason::Futex, blocked_ns, 50);
        row = woken_by(row, [2, 1, 2, 1][number % 4]);
        row.evidence.wait_key = Some([0xf00, 0xba0][number / 8 % 2]);
        row.ts = Timestamp::from_ns(meta.start_ns + number as u64 * 1000);
        row.wait.user_stack = (number % 3 > 0).then_some(7);
        if number < 4 {
            row.wait = Wait::default();
        }
        writer.push_switch(&row).unwrap();
    }
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    (Loaded::read(&path, 1).unwrap(), dir)
}

/// All of [`handed_round`], and parts of it.
pub fn filters() -> Vec<Filter> {
    let spans = [("0", "1"), ("30us", "1"), ("0", "90us"), ("150us", "157us")];
    let moment = |words: &str| words.parse::<Moment>().ok();
    let of_span = spans.iter().map(|(since, until)| Filter {
        since: moment(since),
        until: moment(until),
        ..Filter::default()
    });
    let of_server = Filter {
        comms: vec!["server".to_owned()],
        ..Filter::default()
    };
    of_span.chain([of_server, Filter::default()]).collect()
}

/// What `swtch report --format json` prints.
pub fn printed(loaded: &Loaded, by: By, filter: &Filter) -> Value {
    let request = Request {
        by,
        format: Format::Json,
        filter: filter.clone(),
        top: None,
    };
    let mut out = Vec::new();
    report(&loaded.trace, &request, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}
