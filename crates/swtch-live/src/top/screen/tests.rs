//! Pages in sizes from 1×1 to 300×100, of a machine with 384 CPUs and 20,000 threads.

use std::time::Duration;

use nix::time::ClockId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::Color;
use ratatui::widgets::Paragraph;
use rustc_hash::FxHashMap;
use swtch_core::{
    Arch, Cause, CgroupId, Class, CpuCounters, Evidence, EvidenceBits, GroupCounts, GroupTotals,
    LengthHistogram, Nanos, Reason, SwitchGroup, TaskKey, WaitObject,
};
use swtch_fixtures::seen;
use swtch_report::report::live::{
    CgroupLimits, FrameNames, LiveCounts, LiveTasks, LiveView, RateFrame, RateHistory,
    UserLevelRates,
};

use super::state::ScreenState;
use super::terminal::Look;
use super::{Shown, page, rows};
use crate::top::session::{LimitsById, MadeFrame};
use crate::top::stacks::{PlaceRates, ThreadPlace, ThreadPlaces};

/// A machine, and one frame of it.
struct BusyMachine {
    counts: LiveCounts,
    tasks: LiveTasks,
    limits: LimitsById,
    user_level: UserLevelRates,
    history: RateHistory,
    made: MadeFrame,
}

/// Each switch ran for 10 µs and waited for 100 µs, 20 µs of it runnable.
fn totals(switches: u64) -> GroupTotals {
    let mut runq_lengths = LengthHistogram::default();
    runq_lengths.0[7] = switches;
    GroupTotals {
        counts: GroupCounts {
            switches,
            ran: Nanos::from_ns(10_000 * switches),
            waits: switches,
            off: Nanos::from_ns(100_000 * switches),
            split_waits: switches,
            split_off: Nanos::from_ns(100_000 * switches),
            runq: Nanos::from_ns(20_000 * switches),
            ..GroupCounts::default()
        },
        runq_lengths,
        ..GroupTotals::default()
    }
}

/// The task blocks in `read` of a pipe.
fn blocked(task: u32) -> SwitchGroup {
    SwitchGroup {
        task: TaskKey::new(task),
        next_task: Some(TaskKey::IDLE),
        futex: 0,
        evidence: Evidence {
            state: 1,
            bits: EvidenceBits::VOLUNTARY,
            syscall: Some(0),
            wait_object: WaitObject::Fifo,
            class: Class::Idle,
            next_class: Class::Idle,
            ..Evidence::RUNNABLE
        },
    }
}

/// The next task takes its CPU.
fn preempted(task: u32, next: u32) -> SwitchGroup {
    SwitchGroup {
        task: TaskKey::new(task),
        next_task: Some(TaskKey::new(next)),
        futex: 0,
        evidence: Evidence {
            cause: Cause::Wakeup,
            ..Evidence::RUNNABLE
        },
    }
}

impl BusyMachine {
    fn new(threads: u32, cpus: u64) -> Self {
        let mut tasks = LiveTasks::default();
        for thread in 1..=threads {
            let pid = 1_000 + (thread - 1) / 20 * 20;
            let name = format!("worker-{}", pid / 20 % 97);
            tasks.meet(&seen(thread, pid, 999 + thread, &name));
        }
        let limits = CgroupLimits {
            path: "/system.slice/db.service".to_owned(),
            quota_cpus: Some(0.5),
            quota_of: Some("/system.slice/db.service".to_owned()),
            throttled: Some(9),
            throttled_for: Some(Nanos::from_ns(250_000_000)),
        };
        let mut machine = Self {
            counts: LiveCounts::new(Arch::X86_64),
            tasks,
            limits: FxHashMap::from_iter([(CgroupId::new(1), limits)]),
            user_level: UserLevelRates::default(),
            history: RateHistory::default(),
            made: MadeFrame::default(),
        };
        for nth in 1..=3 {
            for thread in 1..=threads {
                let switches = nth * u64::from(1 + thread % 50);
                machine
                    .counts
                    .meet(2 * thread, &blocked(thread), &totals(10 * switches));
                let next = thread % threads + 1;
                let group = preempted(thread, next);
                machine
                    .counts
                    .meet(2 * thread + 1, &group, &totals(switches));
            }
            machine.counts.meet_cpus((0..cpus).map(|cpu| CpuCounters {
                seen: nth * (1_000 + cpu),
                idle: nth * 400,
                ..CpuCounters::default()
            }));
            machine.next_frame();
        }
        machine
    }

    fn next_frame(&mut self) {
        let second = Nanos::from_ns(1_000_000_000);
        let frame = RateFrame::of(&self.counts, &self.tasks, None, &LiveView::ALL, second);
        self.history.meet(&frame);
        self.counts.end_frame();
        self.made = MadeFrame {
            frame,
            own_cpu_pct: 0.21,
            kernel_ns_per_switch: Some(160.0),
            groups: (65_536, 40_000),
            ..MadeFrame::default()
        };
    }

    fn shown(&self) -> Shown<'_> {
        Shown {
            made: &self.made,
            names: FrameNames {
                tasks: &self.tasks,
                cgroups: &self.limits,
                user_level: &self.user_level,
            },
            history: &self.history,
            heading: "whole system on db1",
            absent_hooks: &[],
        }
    }

    /// Draws what a terminal of this size shows.
    fn drawn(&self, state: &ScreenState, look: Look, wide: u16, high: u16) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(wide, high)).unwrap();
        let drawn = terminal.draw(|frame| {
            let lines = page::lines(state, &self.shown(), look, wide, high);
            assert!(lines.len() <= usize::from(high), "{wide}×{high}");
            for line in &lines {
                assert!(line.width() <= usize::from(wide), "{wide}×{high}: {line}");
            }
            frame.render_widget(Paragraph::new(lines), frame.area());
        });
        drawn.unwrap().buffer.clone()
    }

    fn text(&self, state: &ScreenState, wide: u16, high: u16) -> String {
        text_of(&self.drawn(state, Look::Plain, wide, high))
    }

    fn press(&self, state: &mut ScreenState, codes: &[KeyCode]) {
        for code in codes {
            let keys: Vec<_> = rows::chosen(state, &self.shown())
                .iter()
                .map(|row| row.row.key)
                .collect();
            state.press(KeyEvent::from(*code), &keys);
        }
    }
}

fn text_of(buffer: &Buffer) -> String {
    let wide = usize::from(buffer.area.width);
    let mut text = String::new();
    for row in buffer.content.chunks(wide) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

const SIZES: [(u16, u16); 9] = [
    (1, 1),
    (20, 5),
    (20, 40),
    (40, 12),
    (80, 24),
    (120, 40),
    (200, 50),
    (300, 100),
    (300, 3),
];

#[test]
fn a_page_of_three_threads_can_be_read() {
    let machine = BusyMachine::new(3, 2);
    let mut state = ScreenState::new(LiveView::Thread);
    machine.press(&mut state, &[KeyCode::Char('>'), KeyCode::Char('<')]);
    let expected = "\
swtch top · whole system on db1
99 switches/s: 90 voluntary, 9.0 not · 800 from idle · 3 threads  ███
what they cost is not known: swtch cost --save measures it
 1 process [2 thread] 3 cgroup  4 reason  5 who took whose CPU  6 CPU  7 lock
thread      tid  switch/s▼     trend  reason  runq p99  blocked%  blocked on
worker-50  1002         44       ███  pipe     32.8 µs       0.4  pipe
worker-50  1001         33       ███  pipe     32.8 µs       0.3  pipe
worker-50  1000         22       ███  pipe     32.8 µs       0.2  pipe



swtch uses 0.21 % of one CPU, in the kernel 160 ns a switch (0.01 %)
? help · 1-7 view · ←→ sort · / filter · Enter open · space freeze · q quit
";
    assert_eq!(machine.text(&state, 80, 13), expected);
}

/// The same state is drawn in each size after each other, as when a window is resized.
#[test]
fn every_view_is_drawn_in_every_size() {
    let machine = BusyMachine::new(200, 384);
    for view in LiveView::ALL {
        let mut state = ScreenState::new(view);
        for codes in [
            vec![],
            vec![KeyCode::Char('t')],
            vec![KeyCode::End],
            vec![KeyCode::Char('?')],
            vec![KeyCode::Esc, KeyCode::Enter, KeyCode::Down],
            vec![KeyCode::Enter],
        ] {
            machine.press(&mut state, &codes);
            for (wide, high) in SIZES {
                machine.text(&state, wide, high);
            }
        }
    }
}

#[test]
fn a_small_terminal_shows_the_rate_and_the_first_rows() {
    let machine = BusyMachine::new(20_000, 384);
    let state = ScreenState::new(LiveView::Thread);
    let text = machine.text(&state, 20, 5);
    assert!(text.contains("switches/s"), "{text}");
    assert!(
        text.contains("work") && text.contains("switch/s▼"),
        "{text}"
    );
    let large = machine.text(&state, 300, 100);
    for head in ["own/s", "group/s", "foreign/s", "vol/s", "process"] {
        assert!(large.contains(head), "{head}: {large}");
    }
    assert!(large.lines().count() == 100 && large.matches("worker-").count() > 90);
    let cpus = machine.text(&ScreenState::new(LiveView::Cpu), 80, 24);
    assert!(cpus.contains("383"), "the CPU with most switches: {cpus}");
}

#[test]
fn without_colours_there_are_none() {
    let machine = BusyMachine::new(50, 4);
    for view in LiveView::ALL {
        let state = ScreenState::new(view);
        let plain = machine.drawn(&state, Look::Plain, 120, 40);
        let has_colour =
            |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        assert!(!plain.content.iter().any(has_colour), "{view:?}");
    }
    let coloured = machine.drawn(&ScreenState::new(LiveView::Cgroup), Look::Coloured, 120, 40);
    assert!(coloured.content.iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn a_quota_stands_beside_its_throttling() {
    let machine = BusyMachine::new(50, 4);
    let text = machine.text(&ScreenState::new(LiveView::Cgroup), 120, 20);
    for words in [
        "/system.slice/db.service",
        "quota",
        "0.500",
        "throttled%",
        "25.0",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// With very many threads only one view is made: another one must not look as if nothing happened.
#[test]
fn a_view_that_was_not_made_says_so() {
    let mut machine = BusyMachine::new(3, 2);
    machine.made.frame = RateFrame::of(
        &machine.counts,
        &machine.tasks,
        None,
        &[LiveView::Thread],
        Nanos::from_ns(1_000_000_000),
    );
    let text = |view| machine.text(&ScreenState::new(view), 80, 24);
    assert!(text(LiveView::Reason).contains("comes with the next frame"));
    assert!(text(LiveView::Thread).contains("nothing switched"));
}

/// A process may choose any name.
#[test]
fn hostile_names_are_shown_by_number() {
    let mut machine = BusyMachine::new(3, 2);
    machine
        .tasks
        .meet(&seen(2, 1_000, 1_001, "a\u{1b}[2J\u{202e}b"));
    let mut state = ScreenState::new(LiveView::Thread);
    let text = machine.text(&state, 120, 24);
    assert!(text.contains("a\\x1b[2J\\u{202e}b"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    machine.press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    let page = machine.text(&state, 120, 24);
    assert!(page.contains("thread a\\x1b[2J"), "{page}");
}

#[test]
fn rows_are_filtered_sorted_and_opened() {
    let machine = BusyMachine::new(60, 2);
    let mut state = ScreenState::new(LiveView::Process);
    machine.press(&mut state, &[KeyCode::Char('/')]);
    machine.press(
        &mut state,
        &"1020".chars().map(KeyCode::Char).collect::<Vec<_>>(),
    );
    machine.press(&mut state, &[KeyCode::Enter]);
    let shown = machine.shown();
    assert_eq!(rows::chosen(&state, &shown).len(), 1);
    // The filter holds for the threads, too, until it is taken away.
    machine.press(&mut state, &[KeyCode::Enter]);
    state.filter.clear();
    let threads = rows::chosen(&state, &shown);
    assert_eq!(threads.len(), 20);
    let rates: Vec<u64> = threads.iter().map(|row| row.row.sums.switches()).collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    machine.press(&mut state, &[KeyCode::Char('r')]);
    let threads = rows::chosen(&state, &shown);
    let rates: Vec<u64> = threads.iter().map(|row| row.row.sums.switches()).collect();
    assert!(rates.is_sorted(), "{rates:?}");
}

#[test]
fn processes_stand_below_their_parents() {
    let mut machine = BusyMachine::new(60, 2);
    // 1020 is a child of 1000, and 1040 of 1020; 1000 claims to be a child of 1040.
    for (key, pid, parent) in [(1, 1_000, 1_040), (21, 1_020, 1_000), (41, 1_040, 1_020)] {
        machine.tasks.meet(&swtch_core::TaskEvent {
            parent_pid: swtch_core::Pid::new(parent),
            ..seen(key, pid, pid, "tree")
        });
    }
    let mut state = ScreenState::new(LiveView::Process);
    state.is_tree = true;
    assert_eq!(rows::chosen(&state, &machine.shown()).len(), 3, "a ring");
    machine.tasks.meet(&seen(1, 1_000, 1_000, "root"));
    let depths: Vec<usize> = rows::chosen(&state, &machine.shown())
        .iter()
        .map(|row| row.depth)
        .collect();
    assert_eq!(depths, [0, 1, 2]);
    let text = machine.text(&state, 80, 24);
    assert!(
        text.contains("└ tree") && text.contains("  └ tree"),
        "{text}"
    );
}

#[test]
fn help_explains_every_column() {
    let machine = BusyMachine::new(3, 2);
    for view in LiveView::ALL {
        let mut state = ScreenState::new(view);
        state.help = Some(0);
        let text = machine.text(&state, 100, 200);
        for column in swtch_report::report::live::LiveColumn::of(view) {
            assert!(text.contains(column.head), "{view:?} {}", column.key);
        }
    }
}

/// Most of a page is made of the rows that are shown; the others are only sorted.
#[test]
fn a_page_of_a_large_machine_is_quick() {
    let machine = BusyMachine::new(20_000, 384);
    let state = ScreenState::new(LiveView::Thread);
    let cpu_time = || Duration::from(ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap());
    let best = (0..5).map(|_| {
        let begin = cpu_time();
        machine.text(&state, 200, 50);
        cpu_time() - begin
    });
    let best = best.min().unwrap();
    assert!(best < Duration::from_millis(200), "{best:?}");
}

fn place(user: &[&str], kernel: &[&str]) -> ThreadPlace {
    let owned = |frames: &[&str]| frames.iter().map(|frame| (*frame).to_owned()).collect();
    ThreadPlace {
        user: owned(user),
        kernel: owned(kernel),
        functions: None,
    }
}

fn rates_of(reason: Reason, switches: u64, blocked_ms: u64, place: &ThreadPlace) -> PlaceRates {
    PlaceRates {
        reason,
        switches,
        blocked: Nanos::from_ns(blocked_ms * 1_000_000),
        place: place.clone(),
    }
}

/// In ten seconds it waited for a lock at two call sites of one function, and read a pipe.
fn places(now: Option<ThreadPlace>) -> ThreadPlaces {
    let futex = [
        "__traceiter_sched_switch+0x3d [kernel]",
        "__schedule+0x1 [kernel]",
        "futex_wait+0x2 [kernel]",
    ];
    let lock = |offset: &str| {
        let user = [
            "syscall+0x1d [libc.so.6]".to_owned(),
            format!("take_lock+{offset} [db]"),
            "commit\u{1b}[2J+0x1 [db]".to_owned(),
        ];
        ThreadPlace {
            functions: Some("? < take_lock < commit\u{1b}[2J".into()),
            ..place(&user.each_ref().map(String::as_str), &futex)
        }
    };
    let read = place(
        &[],
        &["schedule+0x3 [kernel]", "anon_pipe_read+0x4 [kernel]"],
    );
    ThreadPlaces {
        task: TaskKey::new(1),
        watched: Nanos::from_ns(10_000_000_000),
        rates: vec![
            rates_of(Reason::Pipe, 1_000, 3_000, &read),
            rates_of(Reason::Futex, 500, 2_500, &lock("0x1")),
            rates_of(Reason::Futex, 700, 1_500, &lock("0x9")),
        ],
        now,
        has_names: true,
    }
}

/// Places that differ in addresses only are one; the frames of the scheduler, which all have, say
/// nothing; the function of the tracepoint is of the recorder, not of the thread.
#[test]
fn the_page_of_a_thread_says_where_it_left_its_cpu() {
    let mut machine = BusyMachine::new(3, 2);
    let mut state = ScreenState::new(LiveView::Thread);
    state.detail = Some(TaskKey::new(1));
    machine.made.places = Some(places(None));
    let text = machine.text(&state, 120, 60);
    let row = |words: &str| {
        let line = text.lines().find(|line| line.contains(words));
        let line = line.unwrap_or_else(|| panic!("{words}: {text}"));
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lock = row("take_lock < commit\\x1b[2J");
    assert_eq!(lock[..3], ["futex", "120", "40.0"]);
    assert_eq!(
        row("anon_pipe_read")[..4],
        ["pipe", "100", "30.0", "anon_pipe_read"]
    );
    assert!(text.contains("(of 10 s)"), "{text}");
    let of_lock = "first of these places\n  __schedule+0x1 [kernel]\n  futex_wait+0x2";
    assert!(text.contains(of_lock), "{text}");
    machine.made.places = Some(places(Some(place(&["main+0x1 [db]"], &[]))));
    let text = machine.text(&state, 120, 60);
    assert!(
        text.contains("stack of the wait that lasts\n  main+0x1 [db]"),
        "{text}"
    );
    // Another thread's places are not this one's.
    state.detail = Some(TaskKey::new(2));
    assert!(!machine.text(&state, 120, 60).contains("take_lock"));
}

/// All that does not fit can be reached, and the page cannot be scrolled away.
#[test]
fn the_page_of_a_thread_scrolls() {
    let mut machine = BusyMachine::new(3, 2);
    machine.made.places = Some(places(None));
    let mut state = ScreenState::new(LiveView::Thread);
    state.detail = Some(TaskKey::new(1));
    assert!(!machine.text(&state, 100, 20).contains("stack of the first"));
    machine.press(
        &mut state,
        &[KeyCode::PageDown, KeyCode::PageDown, KeyCode::PageDown],
    );
    let text = machine.text(&state, 100, 20);
    assert!(text.contains("take_lock+0x1 [db]"), "{text}");
    machine.press(&mut state, &[KeyCode::Home]);
    assert!(machine.text(&state, 100, 20).contains("of worker-"));
}
