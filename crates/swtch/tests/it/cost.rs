//! `swtch cost` and bills with its prices: what is answered, refused, kept, and left behind.
//!
//! No test here asserts a time, nor that the machine was quiet: exit code 1 says that it was not. What
//! only asks how an answer looks shares a measurement with others.

mod ends;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machine::{alone, await_children, beside_others, wait_until};
use crate::recording::{Recording, SWTCH, report, stderr, stdout, swtch};

/// The exit code of a refusal.
const REFUSED: Option<i32> = Some(2);

/// A directory for the saved list, so that no user's own list is touched.
struct PriceListHome(TempDir);

impl PriceListHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A home in which this list is saved.
    fn with(list: &str) -> Self {
        let home = Self::new();
        fs::create_dir(home.path().join("swtch")).unwrap();
        fs::write(home.list(), list).unwrap();
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The file that `--save` writes.
    fn list(&self) -> PathBuf {
        self.path().join("swtch/prices.json")
    }

    fn swtch(&self, words: &[&str]) -> Command {
        let mut command = swtch(words);
        command
            .env("XDG_DATA_HOME", self.path())
            .current_dir(self.path());
        command
    }

    /// Runs `swtch cost` to its end.
    fn cost(&self, words: &[&str]) -> Output {
        self.swtch(&[&["cost"], words].concat()).output().unwrap()
    }
}

/// The result of a run of `swtch cost`.
struct CostRun {
    output: Output,
    /// The files in its home, with their bytes.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl CostRun {
    /// Runs this command, alone on the machine, in a home of its own.
    fn of(command: impl FnOnce(&PriceListHome) -> Command) -> Self {
        let _machine = alone();
        let home = PriceListHome::new();
        let output = command(&home).output().unwrap();
        let mut files = BTreeMap::new();
        for dir in [home.path(), &home.path().join("swtch")] {
            let entries = fs::read_dir(dir).into_iter().flatten();
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.is_file() {
                    let name = path.strip_prefix(home.path()).unwrap().to_owned();
                    files.insert(name, fs::read(path).unwrap());
                }
            }
        }
        Self { output, files }
    }

    fn files(&self) -> Vec<&str> {
        self.files
            .keys()
            .map(|name| name.to_str().unwrap())
            .collect()
    }
}

/// One kind, measured by a process that may use one CPU, kept and written to a file as JSON.
fn kept() -> &'static CostRun {
    static KEPT: OnceLock<CostRun> = OnceLock::new();
    KEPT.get_or_init(|| {
        let run = CostRun::of(|home| {
            let mut command = on_cpu(&a_cpu());
            command.env("XDG_DATA_HOME", home.path());
            command.current_dir(home.path()).arg(SWTCH);
            command.args(["cost", "futex-shared", "--quick", "--format", "json"]);
            command.args(["--save", "-o", "list.json"]);
            command
        });
        assert_measured(&run.output);
        run
    })
}

/// One kind as a table, where there is no curve for the figure and no place for the list that is to
/// be kept; written to a file as Parquet.
fn printed() -> &'static CostRun {
    static PRINTED: OnceLock<CostRun> = OnceLock::new();
    PRINTED.get_or_init(|| {
        CostRun::of(|home| {
            let mut command = home.swtch(&["cost", "yield", "--quick", "--save"]);
            command.args(["-o", "figure.svg", "-o", "list.parquet"]);
            command.env("XDG_DATA_HOME", "/proc");
            command
        })
    })
}

/// One kind as CSV, measured without any variable of the environment; written to a file as CSV.
fn as_csv() -> &'static CostRun {
    static AS_CSV: OnceLock<CostRun> = OnceLock::new();
    AS_CSV.get_or_init(|| {
        let run = CostRun::of(|home| {
            let words = [
                "cost", "yield", "--quick", "--format", "csv", "-o", "list.csv",
            ];
            let mut command = home.swtch(&words);
            command.env_clear();
            command
        });
        assert_measured(&run.output);
        run
    })
}

/// A measured list of one kind.
fn sample() -> &'static str {
    static SAMPLE: OnceLock<String> = OnceLock::new();
    SAMPLE.get_or_init(|| stdout(&kept().output))
}

/// The sample with a change, as JSON text.
fn changed(change: impl FnOnce(&mut Value)) -> String {
    let mut list: Value = serde_json::from_str(sample()).unwrap();
    change(&mut list);
    list.to_string()
}

/// Checks that it answered, whether the machine was quiet or not.
fn assert_measured(output: &Output) {
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{:?}: {}",
        output.status,
        stderr(output)
    );
    assert!(!output.stdout.is_empty(), "{}", stderr(output));
}

fn assert_refused(output: &Output, why: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), REFUSED, "{said}");
    assert!(said.contains(why), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// The answer is one object that names its schema, and each hop that is billed as a switch is one
/// by the kernel's count.
#[test]
fn json_is_one_object_whose_switches_are_counted() {
    let list: Value = serde_json::from_str(sample()).unwrap();
    assert_eq!(list["schema"], "swtch.prices/1");
    let prices = list["prices"].as_array().unwrap();
    let switches = prices.iter().filter(|price| price["section"] == "switch");
    let mut members = BTreeSet::new();
    for price in switches.filter(|price| price["policy"] == "batch") {
        assert_eq!(price["per"]["per"], "switch", "{price}");
        let counted = ["voluntary_per_op", "involuntary_per_op"].map(|key| price[key].as_f64());
        let counted: f64 = counted.into_iter().flatten().sum();
        assert!((0.995..=1.005).contains(&counted), "{price}");
        let net = price["net_ns"]["point"].as_f64().unwrap();
        assert!(
            net < price["hand_off_ns"]["point"].as_f64().unwrap(),
            "{price}"
        );
        members.insert(price["members"].as_str().unwrap());
    }
    assert_eq!(members, BTreeSet::from(["processes", "threads"]));
}

/// The page names host, kind and units, and holds no control sequence.
#[test]
fn the_table_says_what_was_measured_and_where() {
    let output = &printed().output;
    let page = stdout(output);
    for words in [
        "host   ",
        "prices quick effort",
        "yield",
        "net",
        "switches/hop",
        "± ",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'), "{page}");
    assert!(
        !stderr(output).contains("measuring"),
        "a progress line is for terminals"
    );
}

/// csv: the header names each column once, and every record has as many fields.
#[test]
fn csv_is_as_wide_as_its_header() {
    let text = stdout(&as_csv().output);
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for column in ["kind", "net_ns", "net_ns_low", "voluntary_per_op"] {
        assert!(names.contains(&column), "{column}");
    }
    let records: Vec<&str> = text
        .lines()
        .skip(1)
        .filter(|line| !line.contains('"'))
        .collect();
    assert!(
        records
            .iter()
            .any(|record| record.starts_with("switch,yield,threads,2"))
    );
    assert!(
        records
            .iter()
            .all(|record| record.split(',').count() == names.len())
    );
}

/// All that a limit forbids is named together with the limit, and the rest is measured.
#[test]
fn a_kind_that_a_limit_forbids_is_missing_and_the_limit_is_named() {
    let _machine = alone();
    let limited = format!("ulimit -n 9; exec {SWTCH} cost pipe --quick");
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    assert_measured(&output);
    let page = stdout(&output);
    assert!(page.contains("not here: pipe (threads"), "{page}");
    assert!(page.contains("RLIMIT_NOFILE"), "{page}");
    assert!(page.contains("system-call"), "{page}");
}

/// The number of a CPU that this process may use.
fn a_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let allowed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.unwrap().trim().split(['-', ',']).next();
    first.unwrap().to_owned()
}

/// A command that may use this CPU only.
fn on_cpu(cpu: &str) -> Command {
    // Part of util-linux, as setpriv is.
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]);
    command
}

/// A process that may use one CPU measures there.
#[test]
fn a_single_cpu_is_enough() {
    let list: Value = serde_json::from_str(sample()).unwrap();
    assert_eq!(list["session"]["cpu"].to_string(), a_cpu());
}

#[test]
fn words_that_name_no_kind_are_refused_with_those_that_do() {
    let home = PriceListHome::new();
    assert_refused(
        &home.cost(&["moon"]),
        "there is no kind `moon` here; kinds are: switch, pipe",
    );
    assert_refused(
        &home.cost(&["ibpb", "--quick"]),
        "no kind `ibpb` with --quick",
    );
    assert_refused(&home.cost(&["\u{1b}[2J\n"]), "\\x1b[2J\\x0a");
    assert_refused(
        &home.cost(&["tails", "yield"]),
        "there are no tails of `yield`",
    );
    for words in [
        ["--quick", "--thorough"],
        ["--compare", "one"],
        ["tails", "--save"],
    ] {
        assert_eq!(home.cost(&words).status.code(), REFUSED, "{words:?}");
    }
}

/// Numbers far above what a set of CPUs can hold are refused, too.
#[test]
fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
    let home = PriceListHome::new();
    for cpu in ["1023", "1024", "5000", "4294967295"] {
        assert_refused(
            &home.cost(&["pipe", "--cpu", cpu]),
            "cannot be used; usable: ",
        );
        assert_refused(
            &home.cost(&["tails", "--cpu", cpu]),
            "cannot be used; usable: ",
        );
    }
}

/// A measurement of minutes must not end in "cannot write".
#[test]
fn what_cannot_be_written_is_refused_before_it_is_measured() {
    let home = PriceListHome::new();
    assert_refused(&home.cost(&["-o", "list.txt"]), "the ending says the form");
    assert_refused(
        &home.cost(&["-o", "no/such/list.json"]),
        "no such directory",
    );
    assert_refused(&home.cost(&["-o", "figure.gif"]), ".svg or .png");
    let mut homeless = swtch(["cost", "--save"]);
    let output = homeless
        .env_remove("XDG_DATA_HOME")
        .env_remove("HOME")
        .output()
        .unwrap();
    assert_refused(&output, "neither XDG_DATA_HOME nor HOME is set");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

/// The file exists but cannot be written: the answer is printed nevertheless.
#[test]
fn an_answer_that_cannot_be_kept_is_told() {
    let output = &printed().output;
    assert_refused(output, "writing /proc/swtch/prices.json");
    assert!(stdout(output).contains("yield"), "{}", stdout(output));
}

/// Each format is written completely, with curves and contrasts beside the prices.
#[test]
fn every_form_of_file_is_written() {
    assert_eq!(kept().files(), ["list.json", "swtch/prices.json"]);
    for (run, ending) in [(as_csv(), "csv"), (printed(), "parquet")] {
        let names = ["list-contrasts", "list-curves", "list"];
        assert_eq!(run.files(), names.map(|name| format!("{name}.{ending}")));
    }
    for (run, name) in [
        (kept(), "list.json"),
        (as_csv(), "list.csv"),
        (printed(), "list.parquet"),
    ] {
        assert!(run.files[Path::new(name)].len() > 100, "{name}");
    }
}

#[test]
fn without_a_curve_there_is_no_figure_and_that_is_said() {
    let said = stderr(&printed().output);
    assert!(said.contains("no curve was measured"), "{said}");
    assert!(!printed().files().contains(&"figure.svg"));
}

/// A list of one kind is not enough for a bill, so saving one prints a note.
#[test]
fn a_list_of_named_kinds_is_kept_with_a_word_about_it() {
    let said = stderr(&kept().output);
    assert!(
        said.contains("is kept in") && said.contains("only what was named"),
        "{said}"
    );
    let list = &kept().files[Path::new("swtch/prices.json")];
    let list: Value = serde_json::from_slice(list).unwrap();
    assert_eq!(list["schema"], "swtch.prices/1");
}

/// No variable of the environment is needed.
#[test]
fn an_empty_environment_is_enough() {
    assert_measured(&as_csv().output);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let _machine = alone();
    let mut child = swtch(["cost", "yield", "--quick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // On a noisy machine the answer may be unresolved, which has its own wording and exit code.
    let said = stderr(&output);
    match output.status.code() {
        Some(0) => assert_eq!(said, ""),
        Some(1) => assert!(
            said.starts_with("swtch: unresolved") && said.lines().count() == 1,
            "{said}"
        ),
        _ => panic!("{}: {said}", output.status),
    }
}

/// Lengths of single hops, as percentiles.
#[test]
fn tails_are_percentiles_in_order() {
    let _machine = alone();
    let (cpu, words) = (
        a_cpu(),
        ["cost", "tails", "pipe", "--quick", "--format", "json"],
    );
    let output = on_cpu(&cpu).arg(SWTCH).args(words).output().unwrap();
    assert_measured(&output);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{answer}");
    for row in rows {
        let columns = ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "longest_ns"];
        let lengths = columns.map(|column| row[column].as_f64().unwrap());
        assert!(lengths.is_sorted() && lengths[0] > 0.0, "{row}");
    }
}

/// Compares two lists by their files.
fn compared(before: &str, after: &str, words: &[&str]) -> Output {
    let _machine = beside_others();
    let home = PriceListHome::new();
    fs::write(home.path().join("before.json"), before).unwrap();
    fs::write(home.path().join("after.json"), after).unwrap();
    home.cost(&[&["--compare", "before.json", "after.json"], words].concat())
}

#[test]
fn a_list_does_not_differ_from_itself() {
    for format in ["table", "json", "csv"] {
        let output = compared(sample(), sample(), &["--format", format]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("no change"), "{}", stdout(&output));
    }
}

/// A price list may come from anywhere, so its names of kinds and machine are not trusted.
#[test]
fn names_in_a_list_cannot_reach_the_terminal() {
    let name = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}b";
    let hostile = changed(|list| {
        list["origin"]["kernel_release"] = json!(name);
        for price in list["prices"].as_array_mut().unwrap() {
            price["kind"] = json!(format!("{name} {}", price["kind"].as_str().unwrap()));
        }
    });
    for format in ["table", "json", "csv"] {
        let output = compared(&hostile, &hostile, &["--format", format]);
        let answer = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(answer.contains("31m"), "{format}: {answer}");
        let is_hostile = |c: char| c != '\n' && c != '\r' && c.is_control() || c == '\u{202e}';
        assert!(!answer.contains(is_hostile), "{format}: {answer:?}");
        if format == "json" {
            // The value is exact.
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let kind = answer["rows"][0]["kind"].as_str().unwrap();
            assert!(kind.starts_with(name), "{kind:?}");
        }
    }
}

/// Prices are compared in multiples of the reference: both are three times as high as before.
#[test]
fn a_price_that_rose_is_found_and_fails_the_check() {
    let dearer = changed(|list| {
        for price in list["prices"].as_array_mut().unwrap() {
            for of in ["hand_off_ns", "relative"] {
                for end in ["point", "low", "high"] {
                    price[of][end] = json!(price[of][end].as_f64().unwrap() * 3.0);
                }
            }
        }
    });
    let output = compared(sample(), &dearer, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("dearer"), "{}", stdout(&output));
    let output = compared(&dearer, sample(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert!(stdout(&output).contains("cheaper"), "{}", stdout(&output));
}

/// Lists are compared to see the effect of another kernel, so the answer names it.
#[test]
fn a_comparison_names_another_kernel() {
    let older = changed(|list| list["origin"]["kernel_release"] = json!("5.4.0-old"));
    let output = compared(&older, sample(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("the kernel was 5.4.0-old"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn lists_that_cannot_be_compared_are_refused() {
    let refused = |after: &str, why| assert_refused(&compared(sample(), after, &[]), why);
    refused(
        &changed(|list| list["origin"]["cpu_model"] = json!("\u{1b}[2JOther")),
        "different processors",
    );
    refused(
        &changed(|list| list["session"]["reference"] = json!("another-loop")),
        "no reference arm in common",
    );
    refused(
        &changed(|list| list["prices"] = json!([])),
        "no price in common",
    );
    refused(&changed(|list| list["version"] = json!(99)), "update swtch");
    refused(
        &changed(|list| list["prices"][0]["hand_off_ns"]["low"] = json!(0.0)),
        "must be above 0",
    );
    refused(
        &changed(|list| list["prices"][0]["per"] = json!(7)),
        "no whole price list",
    );
    refused(&sample()[..sample().len() / 2], "this is no JSON");
    refused("", "this is no JSON");
    refused("[1]", "this is no price list");
    let output = PriceListHome::new().cost(&["--compare", "none.json", "none.json"]);
    assert_refused(&output, "reading none.json: No such file");
}
