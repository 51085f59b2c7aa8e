//! Made-up runs of one program, as a comparison of runs needs them: they differ as runs do.

use std::path::Path;

use fastrand::Rng;
use swtch_core::{Frame, Nanos, Pid, Reason, Stack, StackKind, TaskKey, Tid, Timestamp};
use swtch_store::{ClockSample, Meta, SpanRow, Writer};

use crate::{after, meta, row, seen, woken_by};

/// The number of the stack of all waits.
const STACK: u32 = 7;

/// A made-up run. `server` waits for a lock; now and then `hog` takes the CPU from it.
#[derive(Clone, Debug)]
pub struct MadeUpRun {
    /// The contents of `meta.json`; the run lasts as long as it says.
    pub meta: Meta,
    /// The number of times that `server` waits for the lock.
    pub waits: u64,
    /// The mean length of these waits.
    pub wait_ns: f64,
    /// The number of times that `hog` takes the CPU from it.
    pub preemptions: u64,
    /// The variation of the run's numbers by chance, as a part of themselves.
    pub noise: f64,
    /// True if waits have a user stack.
    pub has_stacks: bool,
    /// The functions of that stack, the innermost first. Without any, the stack is lost.
    pub functions: Vec<String>,
    /// The name of the thread that waits.
    pub comm: String,
    /// The number of messages that `server` takes instead.
    pub messages: u64,
    /// In how many of a hundred turns it waits for the disk a second time.
    pub second_reads_pct: u64,
    /// The length of the span `query` of each message; 0: there are no spans.
    pub span_ns: u64,
    /// Decides what varies by chance.
    pub seed: u64,
}

impl MadeUpRun {
    /// A run of two seconds that began in this second of some day.
    pub fn began(second: u64) -> Self {
        let mut meta = meta();
        meta.clock = ClockSample {
            monotonic_ns: meta.start_ns,
            boottime_ns: meta.start_ns,
            realtime_ns: (1_700_000_000 + second) * 1_000_000_000,
        };
        Self {
            meta,
            waits: 2000,
            wait_ns: 100_000.0,
            preemptions: 400,
            noise: 0.01,
            has_stacks: false,
            functions: Vec::new(),
            comm: "server".to_owned(),
            messages: 0,
            second_reads_pct: 0,
            span_ns: 0,
            seed: second,
        }
    }

    /// Writes the trace of the run.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the numbers are small and positive"
    )]
    pub fn write(&self, path: &Path) {
        let mut rng = Rng::with_seed(self.seed);
        let mut vary =
            |value: f64| value * (1.0 + self.noise * (rng.f64() + rng.f64() - 1.0) * 2.4);
        let waits = vary(self.waits as f64) as u64;
        let preemptions = vary(self.preemptions as f64) as u64;
        let wait_ns = vary(self.wait_ns);
        let mut writer = Writer::create(path, &self.meta).unwrap();
        writer.push_task(&seen(1, 10, 10, &self.comm)).unwrap();
        writer.push_task(&seen(3, 30, 30, "hog")).unwrap();
        self.write_stack(&mut writer);
        let length = self.meta.end_ns - self.meta.start_ns;
        let every = (waits / preemptions.max(1)).max(1);
        let waits = match self.messages {
            0 => waits,
            _ => {
                self.write_turns(&mut writer, &mut rng);
                if self.span_ns > 0 {
                    self.write_spans(&mut writer);
                }
                0
            }
        };
        for number in 0..waits {
            let is_preempted = preemptions > 0 && number % every == 0;
            let reason = if is_preempted {
                Reason::Wakeup
            } else {
                Reason::Futex
            };
            let mut row = row(1, reason);
            if is_preempted {
                row.next_task = Some(TaskKey::new(3));
            }
            // Waits spread evenly from half of their mean to one and a half of it.
            let blocked = wait_ns * (0.5 + rng.f64());
            row = after(row, Reason::Futex, blocked as u64, 5_000 + rng.u64(..1_000));
            row.wait.stacks.user = self.has_stacks.then_some(STACK);
            row.ran = Some(Nanos::from_ns(20_000));
            row.ts = Timestamp::from_ns(self.meta.start_ns + number * length / waits);
            writer.push_switch(&row).unwrap();
        }
        writer.finish(&self.meta, &mut |_, _| ()).unwrap();
    }

    /// Writes the turns of `server`: it takes a message from `hog`, reads from the disk, and waits for the next.
    fn write_turns(&self, writer: &mut Writer, rng: &mut Rng) {
        let every = (self.meta.end_ns - self.meta.start_ns) / self.messages;
        let mut now = self.meta.start_ns;
        let mut write = |reason, blocked_ns, leaves| {
            let ran_ns = 20_000;
            now += blocked_ns + ran_ns;
            let mut row = woken_by(after(row(1, leaves), reason, blocked_ns, 0), 3);
            row.ran = Some(Nanos::from_ns(ran_ns));
            row.ts = Timestamp::from_ns(now);
            row.evidence.wait_key = Some(7);
            writer.push_switch(&row).unwrap();
        };
        for _ in 0..self.messages {
            let has_second = rng.u64(..100) < self.second_reads_pct;
            let reads_ns = if has_second { 120_000 } else { 60_000 };
            let idle_ns = every - 40_000 - reads_ns;
            write(Reason::Net, idle_ns, Reason::Io);
            if has_second {
                write(Reason::Io, 40_000, Reason::Io);
            }
            write(Reason::Io, 40_000, Reason::Net);
        }
    }

    fn write_spans(&self, writer: &mut Writer) {
        let every = (self.meta.end_ns - self.meta.start_ns) / self.messages;
        for number in 0..self.messages {
            let begin = self.meta.start_ns + number * every;
            let span = SpanRow {
                begin: Timestamp::from_ns(begin),
                end: Timestamp::from_ns(begin + self.span_ns),
                pid: Pid::new(10),
                tid: Tid::new(10),
                name: "query".to_owned(),
                ..SpanRow::default()
            };
            writer.push_span(&span).unwrap();
        }
    }

    /// Writes the frames of the stack, at addresses that differ from run to run.
    fn write_stack(&self, writer: &mut Writer) {
        let mut frames = Vec::new();
        for (id, function) in (1..).zip(&self.functions) {
            frames.push(id);
            let frame = Frame {
                id,
                address: 0x1000 * self.seed + u64::from(id),
                symbol: Some(function.clone()),
                offset: Some(self.seed),
                ..Frame::default()
            };
            writer.push_frame(&frame).unwrap();
        }
        if !frames.is_empty() {
            let stack = Stack {
                id: STACK,
                kind: StackKind::User,
                pid: Some(Pid::new(10)),
                frames,
                end: None,
            };
            writer.push_stack(&stack).unwrap();
        }
    }
}
