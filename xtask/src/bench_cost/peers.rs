//! Compares our hand-off with that of other programs, in the same minute on the same CPU.
//!
//! ```text
//! round 1   swtch  perf pipe  perf pipe -T  …     ratio of a peer = ours / its, within the round
//! round 2   perf pipe  perf pipe -T  …  swtch     reported: median (min–max) over the rounds
//! ```
//!
//! A peer divides by the number of switches that it believes it makes. The kernel's count is shown
//! beside it. For the peer and its children that is `getrusage(RUSAGE_CHILDREN)`, which adds
//! nothing to a switch, while `perf stat -e context-switches` adds 5 to 12 % (seen on Linux 6.18).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::command::{ProgramOutput, Runner};
use super::price::{ParsedPrice, ParsedPriceList};
use crate::bench_record::summary::Spread;
use crate::bench_record::table::{NOTHING, TextTable, spread};
use crate::bench_record::tool::installed;

/// Round trips of `perf bench sched pipe`, which take 0.2 to 0.6 s.
const PIPE_LOOPS: u64 = 100_000;

/// A program that measures hand-overs as `swtch cost` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `perf bench sched pipe`: two processes, an operation is a round trip.
    PerfPipe,
    /// `perf bench sched pipe -T`: two threads.
    PerfPipeThreads,
    /// `schbench -p`: threads that hand over by a private futex.
    Schbench,
    /// lmbench's `lat_ctx -s 0 2`: two processes and pipes, minus the cost of the calls alone.
    LatCtx,
}

/// The price of ours that a peer's number is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    kind: &'static str,
    members: &'static str,
    is_net: bool,
}

impl Peer {
    /// All peers, in the order of the table.
    pub const ALL: [Self; 4] = [
        Self::PerfPipe,
        Self::PerfPipeThreads,
        Self::Schbench,
        Self::LatCtx,
    ];

    /// The command that a reader types to repeat the measurement.
    pub const fn title(self) -> &'static str {
        match self {
            Self::PerfPipe => "perf bench sched pipe",
            Self::PerfPipeThreads => "perf bench sched pipe -T",
            Self::Schbench => "schbench -p 4",
            Self::LatCtx => "lat_ctx -s 0 2",
        }
    }

    /// The path of the program; `None` if it is not installed.
    fn program(self) -> Option<PathBuf> {
        match self {
            Self::PerfPipe | Self::PerfPipeThreads => installed("perf"),
            Self::Schbench => installed("schbench"),
            Self::LatCtx => installed("lat_ctx").or_else(lmbench),
        }
    }

    fn words(self, program: &Path, cpu: u32) -> Vec<String> {
        let arguments = match self {
            Self::PerfPipe => format!("bench sched pipe -l {PIPE_LOOPS}"),
            Self::PerfPipeThreads => format!("bench sched pipe -T -l {PIPE_LOOPS}"),
            Self::Schbench => "-p 4 -m 1 -t 1 -r 2".to_owned(),
            Self::LatCtx => "-s 0 2".to_owned(),
        };
        let line = format!("taskset -c {cpu} {} {arguments}", program.display());
        line.split(' ').map(str::to_owned).collect()
    }

    /// Nanoseconds per hop, as the peer itself reports them.
    fn hop_ns(self, answer: &ProgramOutput) -> Option<f64> {
        match self {
            // One operation is a round trip, which is two hops.
            Self::PerfPipe | Self::PerfPipeThreads => {
                Some(number_before(&answer.stdout, "usecs/op")? * 1e3 / 2.0)
            }
            Self::Schbench => Some(1e9 / schbench_rate(&answer.stderr)? / 2.0),
            Self::LatCtx => lat_ctx_us(&answer.stderr).map(|us| us * 1e3),
        }
    }

    /// Hops of a whole run; `None` if the command does not determine them.
    const fn hops(self) -> Option<u64> {
        match self {
            Self::PerfPipe | Self::PerfPipeThreads => Some(2 * PIPE_LOOPS),
            Self::Schbench | Self::LatCtx => None,
        }
    }

    /// The matching price of ours. Peers run under the default policy, so ours does too.
    const fn ours(self) -> Match {
        let (kind, members, is_net) = match self {
            Self::PerfPipe => ("pipe", "processes", false),
            Self::PerfPipeThreads => ("pipe", "threads", false),
            Self::Schbench => ("futex-private", "threads", false),
            Self::LatCtx => ("pipe", "processes", true),
        };
        Match {
            kind,
            members,
            is_net,
        }
    }
}

impl Match {
    fn price(self, list: &ParsedPriceList) -> Option<&ParsedPrice> {
        list.prices.iter().find(|price| {
            price.kind == self.kind
                && price.members.as_deref() == Some(self.members)
                && price.policy.as_deref() == Some("default")
                && price.place.as_deref() == Some("same-cpu")
        })
    }

    fn title(self) -> String {
        let number = if self.is_net { "net" } else { "hand-off" };
        format!("{}, {}, {number}", self.kind, self.members)
    }
}

/// lmbench installs its programs outside of `PATH`, in a directory for each architecture.
fn lmbench() -> Option<PathBuf> {
    let machines = fs::read_dir("/usr/lib/lmbench/bin").ok()?.flatten();
    let mut programs = machines.map(|machine| machine.path().join("lat_ctx"));
    programs.find(|program| program.is_file())
}

/// The first number in the line that ends with this unit.
fn number_before(text: &str, unit: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.trim_end().ends_with(unit))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Round trips per second, in the line `avg worker transfer`.
fn schbench_rate(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("avg worker transfer:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The µs in the line for 2 processes. lmbench prints none when its subtraction gives 0 or less.
fn lat_ctx_us(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("2 "))?;
    line.trim().parse().ok()
}

/// The numbers of one peer and ours in one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    peer: Peer,
    /// `None` if the peer printed no number.
    peer_ns: Option<f64>,
    peer_switches_per_hop: Option<f64>,
    ours_ns: f64,
    ours_switches_per_hop: f64,
}

impl Round {
    /// The round as an entry of `peers` in the JSON file.
    pub fn to_json(self) -> Value {
        json!({
            "peer": self.peer.title(),
            "peer_ns": self.peer_ns,
            "peer_switches_per_hop": self.peer_switches_per_hop,
            "ours_ns": self.ours_ns,
            "ours_switches_per_hop": self.ours_switches_per_hop,
        })
    }
}

/// The peers that are installed, each with its program, and those that are not.
pub fn present() -> (Vec<(Peer, PathBuf)>, Vec<Peer>) {
    let mut here = Vec::new();
    let mut missing = Vec::new();
    for peer in Peer::ALL {
        match peer.program() {
            Some(program) => here.push((peer, program)),
            None => missing.push(peer),
        }
    }
    (here, missing)
}

/// Measures `rounds` rounds of all installed peers.
///
/// # Errors
/// When a program fails or prints nothing that can be read, or on Ctrl-C.
pub fn measure(runner: &Runner<'_>, swtch: &Path, cpu: u32, rounds: usize) -> Result<Vec<Round>> {
    let (peers, _) = present();
    let mut measured = Vec::new();
    for round in 0..rounds {
        eprintln!("peers: round {}/{rounds}", round + 1);
        // Every arm has every position in the order once in as many rounds as there are arms.
        let mut order: Vec<Option<&(Peer, PathBuf)>> = peers.iter().map(Some).collect();
        order.insert(0, None);
        let places = round % order.len();
        order.rotate_left(places);
        let mut ours = None;
        let mut theirs = Vec::new();
        for arm in order {
            match arm {
                None => ours = Some(measure_ours(runner, swtch, cpu, &peers)?),
                Some((peer, program)) => {
                    let answer = runner.run(&peer.words(program, cpu))?.expecting(&[0])?;
                    theirs.push((*peer, answer));
                }
            }
        }
        let ours = ours.context("swtch is one of the arms")?;
        for (peer, answer) in theirs {
            measured.push(judged(peer, &answer, &ours)?);
        }
    }
    Ok(measured)
}

fn measure_ours(
    runner: &Runner<'_>,
    swtch: &Path,
    cpu: u32,
    peers: &[(Peer, PathBuf)],
) -> Result<ParsedPriceList> {
    let mut words = vec![swtch.to_string_lossy().into_owned(), "cost".to_owned()];
    for (peer, _) in peers {
        let kind = peer.ours().kind;
        if !words.iter().any(|word| word == kind) {
            words.push(kind.to_owned());
        }
    }
    words.extend(["--cpu".to_owned(), cpu.to_string()]);
    words.extend(["--format", "json"].map(str::to_owned));
    ParsedPriceList::measured_by(runner, &words)
}

fn judged(peer: Peer, answer: &ProgramOutput, list: &ParsedPriceList) -> Result<Round> {
    let ours = peer.ours();
    let price = ours
        .price(list)
        .with_context(|| format!("swtch cost gave no price of {}", ours.title()))?;
    let estimate = if ours.is_net {
        price.net_ns
    } else {
        Some(price.hand_off_ns)
    };
    Ok(Round {
        peer,
        peer_ns: peer.hop_ns(answer),
        peer_switches_per_hop: peer
            .hops()
            .map(|hops| as_f64(answer.switches) / as_f64(hops)),
        ours_ns: estimate.context("the price has no net part")?.point,
        ours_switches_per_hop: price.voluntary_per_op + price.involuntary_per_op,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2⁵³ are exact")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

/// The table, with one row for each peer.
pub fn table(rounds: &[Round]) -> TextTable {
    let mut table = TextTable::new(&[
        "peer",
        "swtch's number",
        "peer, ns a hop",
        "swtch, ns a hop",
        "swtch ÷ peer",
        "peer's switches a hop",
        "swtch's switches a hop",
        "rounds",
    ]);
    let (_, missing) = present();
    for peer in Peer::ALL {
        let of_peer = rounds.iter().filter(|round| round.peer == peer);
        let of_peer: Vec<Round> = of_peer.copied().collect();
        let mut row = vec![peer.title().to_owned(), peer.ours().title()];
        if missing.contains(&peer) {
            row.push("not installed".to_owned());
            row.resize(8, NOTHING.to_owned());
        } else {
            row.extend(numbers(&of_peer));
        }
        table.push(row);
    }
    table
}

fn numbers(rounds: &[Round]) -> [String; 6] {
    let over = |value: fn(&Round) -> Option<f64>, digits| {
        spread(Spread::of(rounds.iter().filter_map(value)), digits)
    };
    [
        over(|round| round.peer_ns, 0),
        over(|round| Some(round.ours_ns), 0),
        over(|round| Some(round.ours_ns / round.peer_ns?), 3),
        over(|round| round.peer_switches_per_hop, 3),
        over(|round| Some(round.ours_switches_per_hop), 3),
        rounds.len().to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of perf 6.1.
    const PIPE: &str = "# Running 'sched/pipe' benchmark:
# Executed 100000 pipe operations between two processes

     Total time: 0.299 [sec]

       2.994770 usecs/op
         333915 ops/sec
";

    fn answer(stdout: &str, stderr: &str, switches: u64) -> ProgramOutput {
        ProgramOutput {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            status: std::process::ExitStatus::default(),
            switches,
        }
    }

    #[test]
    fn an_operation_of_perf_is_two_hops() {
        let ns = Peer::PerfPipe.hop_ns(&answer(PIPE, "", 0)).unwrap();
        assert!((ns - 1497.385).abs() < 1e-6, "{ns}");
        assert_eq!(Peer::PerfPipe.hop_ns(&answer("", PIPE, 0)), None);
    }

    #[test]
    fn a_transfer_of_schbench_is_two_hops() {
        let said = "Wakeup Latencies percentiles (usec) runtime 2 (s)\n\
            avg worker transfer: 500000.00 ops/sec 1.91MB/s\n";
        let ns = Peer::Schbench.hop_ns(&answer("", said, 0)).unwrap();
        assert!((ns - 1000.0).abs() < 1e-9, "{ns}");
    }

    /// lmbench prints nothing if the difference is not above 0.
    #[test]
    fn lat_ctx_may_print_no_number() {
        let of = |said| Peer::LatCtx.hop_ns(&answer("", said, 0));
        assert_eq!(of("\n\"size=0k ovr=0.53\n2 0.87\n"), Some(870.0));
        assert_eq!(of("\n\"size=0k ovr=0.53\n"), None);
    }

    #[test]
    fn ours_is_the_price_of_the_same_members_under_the_default_policy() {
        let list = ParsedPriceList::parse(super::super::price::FIXTURE).unwrap();
        let round = judged(Peer::PerfPipe, &answer(PIPE, "", 200_002), &list).unwrap();
        assert_eq!(round.ours_ns, 1500.0);
        assert_eq!(round.ours_switches_per_hop, 1.0);
        assert_eq!(round.peer_switches_per_hop, Some(1.00001));
        assert!(judged(Peer::PerfPipeThreads, &answer(PIPE, "", 0), &list).is_err());
    }

    #[test]
    fn the_ratio_is_taken_within_a_round() {
        let round = |peer_ns, ours_ns| Round {
            peer: Peer::PerfPipe,
            peer_ns: Some(peer_ns),
            peer_switches_per_hop: Some(1.0),
            ours_ns,
            ours_switches_per_hop: 1.0,
        };
        // The machine was half as fast in the second round; the ratio within a round is not
        // affected.
        let row = numbers(&[round(1000.0, 900.0), round(2000.0, 1800.0)]);
        assert_eq!(row[2], "0.900 (0.900–0.900)");
    }
}
