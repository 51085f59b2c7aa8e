//! Table, sentences and figures of rings of locks.

use swtch_bench::cost::LockKind;
use swtch_core::cost::{Estimate, Policy};
use swtch_output::text;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Line, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::{ARTICLE_MAX_THREADS, CpuChoice, RingResult, group_name};
use crate::findings::FindingsTable;
use crate::timed::{WHISKERS, cells, dot, subtitle, time};

pub fn table(rows: &[RingResult]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "lock-ring",
        &[
            "lock",
            "policy",
            "place",
            "threads",
            "spare",
            "hand_over_ns",
            "hand_over_half_width_ns",
            "hand_over_low_ns",
            "hand_over_high_ns",
            "net_ns",
            "net_half_width_ns",
            "net_low_ns",
            "net_high_ns",
            "switches",
            "voluntary",
            "involuntary",
            "expected",
            "off_pct",
            "per_switch_ns",
            "per_switch_half_width_ns",
            "per_switch_low_ns",
            "per_switch_high_ns",
            "left_out",
        ],
    );
    sheet.not_in_tables = &[
        "hand_over_low_ns",
        "hand_over_high_ns",
        "net_low_ns",
        "net_high_ns",
        "voluntary",
        "involuntary",
        "per_switch_low_ns",
        "per_switch_high_ns",
    ];
    sheet.rows = rows.iter().map(cells_of).collect();
    FindingsTable {
        title: "Hand-overs of locks: all of it, net of the lock itself, and per switch that the kernel counted"
            .to_owned(),
        sheet,
    }
}

fn cells_of(row: &RingResult) -> Vec<Cell> {
    let is_counted = row.hand_over.is_some();
    let counted = |number| {
        if is_counted {
            Cell::Ratio(number)
        } else {
            Cell::Missing
        }
    };
    let mut all = vec![
        Cell::text(row.lock.as_str()),
        Cell::text(row.policy.as_str()),
        Cell::text(row.cpus.as_str()),
        Cell::Count(u64::from(row.size.threads)),
        Cell::Count(u64::from(row.size.spare)),
    ];
    all.extend(cells(row.hand_over.as_ref()));
    all.extend(cells(row.net.as_ref()));
    all.extend([row.counted(), row.switches.0, row.switches.1].map(counted));
    all.push(row.expected().map_or(Cell::Missing, Cell::Ratio));
    let off = row.expected().filter(|_| is_counted);
    all.push(off.map_or(Cell::Missing, |expected| {
        Cell::Percent((row.counted() / expected - 1.0) * 100.0)
    }));
    all.extend(cells(row.per_switch().as_ref()));
    all.push(Cell::Count(row.left_out as u64));
    all
}

/// A note on the rings of which every block was left out.
pub fn left_out(rows: &[RingResult]) -> Option<String> {
    let empty: Vec<String> = rows
        .iter()
        .filter(|row| row.hand_over.is_none() && row.left_out > 0)
        .map(|row| format!("{} threads, {} spare", row.size.threads, row.size.spare))
        .collect();
    (!empty.is_empty()).then(|| {
        format!(
            "other tasks had the CPU in every block of these rings, so that nothing is said of them: {}",
            empty.join("; ")
        )
    })
}

/// For each lock and setting, a sentence on the largest ring with each number of spare locks.
pub fn sentences(rows: &[RingResult]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut told: Vec<(LockKind, (Policy, CpuChoice))> = Vec::new();
    for row in rows {
        let key = (row.lock, row.setting());
        if told.contains(&key) {
            continue;
        }
        told.push(key);
        let like: Vec<&RingResult> = rows.iter().filter(|one| one.is_of(key.0, key.1)).collect();
        sentences.extend(sentence(&like));
    }
    sentences
}

fn sentence(rows: &[&RingResult]) -> Option<String> {
    let first = rows.first()?;
    // The largest ring of all has one spare lock only.
    let spare = rows.iter().map(|row| row.size.spare).max()?;
    let with_all = rows.iter().filter(|row| row.size.spare == spare);
    let largest = with_all.map(|row| row.size.threads).max()?;
    let of_spare: Vec<String> = rows
        .iter()
        .filter(|row| row.size.threads == largest && row.hand_over.is_some())
        .map(|row| {
            let expected = row
                .expected()
                .map_or_else(String::new, |expected| format!(" (expected {expected:.4})"));
            let net = row
                .net
                .as_ref()
                .map_or_else(String::new, |net| format!(", {} net", time(net)));
            format!(
                "{} spare: {:.4} switches a hand-over{expected}{net}",
                row.size.spare,
                row.counted()
            )
        })
        .collect();
    (!of_spare.is_empty()).then(|| {
        format!(
            "{} threads, {}: {}.",
            text::grouped(u64::from(largest)),
            group_name(first.lock, first.setting()),
            of_spare.join("; ")
        )
    })
}

/// Figures of the first kind of lock: what a hand-over costs by threads, for each policy and choice
/// of CPUs, and by spare locks.
pub fn pictures(rows: &[RingResult]) -> Vec<Picture> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let of_lock: Vec<&RingResult> = rows.iter().filter(|row| row.lock == first.lock).collect();
    let mut pictures = Vec::new();
    for setting in settings(&of_lock) {
        let all = of_lock.iter().copied();
        let rows: Vec<&RingResult> = all.filter(|row| row.setting() == setting).collect();
        pictures.extend(by_threads(&rows, &group_name(first.lock, setting)));
    }
    pictures.push(by_spare_locks(&of_lock, first.lock));
    pictures
}

/// Figures of one policy and choice of CPUs: per hand-over, and per switch where its count is
/// exact.
fn by_threads(rows: &[&RingResult], what: &str) -> Vec<Picture> {
    const THREADS: &str = "threads in the ring";
    let by_spare = |row: &RingResult| text::counted(u64::from(row.size.spare), "spare lock");
    let threads = |row: &RingResult| f64::from(row.size.threads);
    let words = what.to_lowercase().replace(", ", "-").replace(' ', "-");
    let hand_over = picture(
        &format!("lock-ring-{words}"),
        format!("What handing on a lock costs ({what})"),
        THREADS,
        lines(rows, by_spare, threads, |row| row.net),
    );
    let is_exact = rows.iter().all(|row| row.expected().is_some());
    let switch = || {
        picture(
            &format!("lock-ring-{words}-switch"),
            format!("What a switch of threads that hand on locks costs ({what})"),
            THREADS,
            lines(rows, by_spare, threads, RingResult::per_switch),
        )
    };
    [Some(hand_over), is_exact.then(switch)]
        .into_iter()
        .flatten()
        .collect()
}

/// The figure by spare locks, of rings of as many threads as the article's largest, or of the next
/// smaller number that was measured.
fn by_spare_locks(rows: &[&RingResult], lock: LockKind) -> Picture {
    let threads = rows.iter().map(|row| row.size.threads);
    let largest = threads
        .filter(|threads| *threads <= ARTICLE_MAX_THREADS)
        .max();
    let of_size = rows.iter().copied();
    let of_size: Vec<&RingResult> = of_size
        .filter(|row| Some(row.size.threads) == largest)
        .collect();
    let by_setting = |row: &RingResult| format!("{}, {}", row.policy, row.cpus.as_str());
    let spare = |row: &RingResult| f64::from(row.size.spare);
    picture(
        "lock-ring-spare",
        format!(
            "What handing on a lock costs ({lock}, {} threads)",
            largest.unwrap_or_default()
        ),
        "spare locks",
        lines(&of_size, by_setting, spare, |row| row.net),
    )
}

/// The policies and choices of CPUs that were measured, each pair once.
fn settings(rows: &[&RingResult]) -> Vec<(Policy, CpuChoice)> {
    let mut settings = Vec::new();
    for row in rows {
        if !settings.contains(&row.setting()) {
            settings.push(row.setting());
        }
    }
    settings
}

fn lines(
    rows: &[&RingResult],
    label: impl Fn(&RingResult) -> String,
    x: impl Fn(&RingResult) -> f64,
    y: impl Fn(&RingResult) -> Option<Estimate>,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(y) = y(row) else { continue };
        let label = label(row);
        let index = lines
            .iter()
            .position(|line| line.label == label)
            .unwrap_or_else(|| {
                lines.push(Line {
                    label,
                    style: Style::Measured,
                    colour: None,
                    points: Vec::new(),
                });
                lines.len() - 1
            });
        lines[index].points.push(dot(x(row), &y));
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    lines
}

fn picture(name: &str, title: String, x: &str, lines: Vec<Line>) -> Picture {
    let axis = |name: &str, measure| Axis {
        name: name.to_owned(),
        measure,
        scale: Scale::Logarithmic,
    };
    Picture {
        name: name.to_owned(),
        title,
        subtitle: subtitle(),
        explanation: format!("Net of the same lock taken and given back by one thread. {WHISKERS}"),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: axis(x, Measure::Count),
            y: axis("net time", Measure::Time),
            lines,
            marks: Vec::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::RingSize;
    use super::*;

    fn row(threads: u32, spare: u32, ns: f64) -> RingResult {
        let trees = [ns; 6].map(|ns| vec![ns]);
        RingResult {
            lock: LockKind::Mutex,
            policy: Policy::Batch,
            cpus: CpuChoice::One,
            size: RingSize { threads, spare },
            hand_over: Estimate::of_trees(&trees),
            net: Estimate::of_trees(&trees),
            switches: (1.0 / f64::from(spare), 0.0),
            left_out: 0,
        }
    }

    /// 100 ns a hand-over and a switch every second one: 200 ns a switch.
    #[test]
    fn a_switch_has_the_time_of_the_hand_overs_that_it_serves() {
        let per_switch = row(8, 2, 100.0).per_switch().unwrap();
        assert_eq!(per_switch.point, 200.0);
        let without = RingResult {
            switches: (0.0, 0.0),
            ..row(8, 2, 100.0)
        };
        assert_eq!(without.per_switch(), None);
    }

    /// The largest ring of all has one spare lock only, and is not what the sentence is about.
    #[test]
    fn a_sentence_is_of_the_largest_ring_with_every_number_of_spare_locks() {
        let rows = [
            row(2, 1, 500.0),
            row(8, 1, 600.0),
            row(8, 2, 300.0),
            row(64, 1, 900.0),
        ];
        let said = sentences(&rows);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with(
                "8 threads, mutex, batch, one CPU: 1 spare: 1.0000 switches a hand-over"
            ),
            "{said:?}"
        );
        assert!(said[0].contains("2 spare: 0.5000 switches a hand-over (expected 0.5000)"));
    }

    #[test]
    fn a_ring_that_others_disturbed_in_every_block_is_named() {
        let spoiled = RingResult {
            hand_over: None,
            left_out: 30,
            ..row(1024, 16, 1.0)
        };
        let note = left_out(&[row(2, 1, 500.0), spoiled]).unwrap();
        assert!(note.ends_with(": 1024 threads, 16 spare"), "{note}");
        assert_eq!(left_out(&[row(2, 1, 500.0)]), None);
    }

    /// What is not known has no cell, so that no table shows it as 0.
    #[test]
    fn a_row_has_a_cell_for_every_column() {
        let table = table(&[
            row(2, 1, 500.0),
            RingResult {
                hand_over: None,
                net: None,
                ..row(2, 2, 1.0)
            },
        ]);
        for row in &table.sheet.rows {
            assert_eq!(row.len(), table.sheet.columns.len());
        }
        let switches = table
            .sheet
            .columns
            .iter()
            .position(|one| *one == "switches")
            .unwrap();
        assert_eq!(table.sheet.rows[1][switches], Cell::Missing);
    }
}
