use super::*;
use crate::report::live::LiveCounts;
use crate::report::live::drawn_live::{CPUS, THREADS, large_machine, large_reading};
use std::time::{Duration, Instant};

const SECOND: Nanos = Nanos::from_ns(1_000_000_000);

#[test]
fn columns_of_a_view_have_different_keys_and_are_explained() {
    for view in LiveView::ALL {
        let columns = LiveColumn::of(view);
        for (place, column) in columns.iter().enumerate() {
            let same = columns.iter().filter(|other| other.key == column.key);
            assert_eq!(same.count(), 1, "{view:?} {place} {}", column.key);
            assert!(column.help.ends_with('.'), "{}", column.key);
        }
    }
}

#[test]
fn a_large_machine_has_a_row_for_each_thread_and_cpu() {
    let (counts, tasks) = large_machine();
    let frame = RateFrame::of(&counts, &tasks, None, &LiveView::ALL, SECOND);
    let cgroups = FxHashMap::default();
    let names = FrameNames {
        tasks: &tasks,
        cgroups: &cgroups,
        user_level: &UserLevelRates::default(),
    };
    let sheet = frame.sheet(LiveView::Thread, names);
    assert_eq!(sheet.rows.len(), THREADS as usize);
    assert_eq!(frame.sheet(LiveView::Cpu, names).rows.len() as u64, CPUS);
    let processes = frame.rows(LiveView::Process).len();
    assert_eq!(processes, THREADS as usize / 20);
    let rates: Vec<f64> = sheet
        .rows
        .iter()
        .map(|row| match row[2] {
            Cell::Rate(rate) => rate,
            _ => panic!("a rate"),
        })
        .collect();
    assert!(rates.is_sorted_by(|a, b| a >= b));
    assert!((rates[0] - 50.0 * 11.0).abs() < 1e-9);
}

/// A frame takes as long as what has changed in it, and not as what there is. Others only ever
/// make a frame longer: one that is short enough shows that it is.
#[test]
fn a_frame_in_which_little_happens_is_quick_on_a_large_machine() {
    let (mut counts, tasks) = large_machine();
    counts.end_frame();
    let took = |counts: &mut LiveCounts, nth, busy| {
        let begin = Instant::now();
        large_reading(counts, nth, busy);
        let frame = RateFrame::of(counts, &tasks, None, &LiveView::ALL, SECOND);
        counts.end_frame();
        (begin.elapsed(), frame.total.switches())
    };
    let all = [2, 3, 4].map(|nth| took(&mut counts, nth, THREADS));
    assert!(all.iter().all(|(_, switches)| *switches > 5_000_000));
    let all = all.map(|(took, _)| took).into_iter().min().unwrap();
    let (mut few, mut nth) = (Duration::MAX, 5);
    while few.saturating_mul(10) >= all && nth < 200 {
        few = few.min(took(&mut counts, nth, 100).0);
        nth += 1;
    }
    assert!(few * 10 < all, "{few:?} for 100 threads, {all:?} for all");
}
