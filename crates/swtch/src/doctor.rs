//! `swtch doctor`: what swtch can do on this machine, what stands in the way, and the remedy.
//!
//! ```text
//!   Probe ─┬▶ swtch_host::ability ─▶ what swtch can do here         yes or no, why not, the remedy
//!          └▶ swtch_host::kernel ──▶ what this kernel offers        hooks and settings
//!   swtch_host::facts ─────────────▶ facts that change the answers  value, why it matters, source
//! ```
//!
//! It needs no privilege and judges for the process that asks: run it with `sudo` to learn what
//! root may do. The judgement is a pure function of a [`Probe`], so that tests can judge machines
//! that we do not have.

use std::io::Write;

use anyhow::{Result, anyhow};
use serde::Serialize;
use serde_json::Value;
use swtch_capture::probe::{ForeignProgram, HookPresence, Probe};
use swtch_host::ability;
use swtch_host::ability::Ability;
use swtch_host::{Fact, Host, kernel};
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::format::Format;
use swtch_output::text::{counted, escaped};

/// Everything that `swtch doctor` found; as JSON, the whole answer.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    schema: &'static str,
    host: Host,
    can_record: bool,
    abilities: Vec<Ability>,
    hooks: Vec<HookRow>,
    /// `None` where this process may not list programs.
    foreign_programs: Option<Vec<ForeignProgram>>,
    kernel: Vec<Fact>,
    facts: Vec<Fact>,
}

/// One hook of the kernel, as a row of the answer.
#[derive(Debug, Serialize)]
struct HookRow {
    hook: &'static str,
    need: &'static str,
    /// `None` if the kernel does not describe its types (no BTF).
    present: Option<bool>,
    /// True if the hook is attached only on demand, because eBPF on it can crash this kernel.
    can_crash: bool,
    /// The part that is missing from answers if the hook is not used.
    without: &'static str,
}

impl HookRow {
    fn new(seen: &HookPresence) -> Self {
        Self {
            hook: seen.hook.name,
            need: seen.hook.need.word(),
            present: seen.present,
            can_crash: seen.can_crash,
            without: seen.hook.without,
        }
    }
}

/// The amount that the table shows; JSON holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorExtent {
    /// Only what swtch can do here, and what stands in the way of more.
    Main,
    /// All hooks, settings and facts as well.
    All,
}

/// Examines this machine and writes what it found. Returns whether switches can be recorded here,
/// from which the exit code follows.
///
/// # Errors
///
/// If `out` cannot be written, or if the format is CSV: three tables do not fit one.
pub fn run(format: Format, extent: DoctorExtent, out: &mut dyn Write) -> Result<bool> {
    if format == Format::Csv {
        return Err(no_csv());
    }
    let diagnosis = Diagnosis::of(&Probe::take());
    let can_record = diagnosis.can_record;
    answer::write(&DoctorAnswer { diagnosis, extent }, format, out)?;
    Ok(can_record)
}

impl Diagnosis {
    fn of(probe: &Probe) -> Self {
        Self {
            schema: "swtch.doctor/1",
            host: Host::read(),
            can_record: probe.can_record(),
            abilities: ability::abilities(probe),
            hooks: probe.hooks.iter().map(HookRow::new).collect(),
            foreign_programs: probe.foreign_programs.clone(),
            kernel: kernel::facts(probe),
            facts: swtch_host::facts(),
        }
    }

    fn to_text(&self, extent: DoctorExtent) -> String {
        let host = format!("host {}", self.host.words().to_list());
        let mut page = format!("{}\n\nWhat swtch can do here\n\n", escaped(&host));
        page.extend(self.abilities.iter().map(ability_text));
        page += &foreign_programs_text(self.foreign_programs.as_deref().unwrap_or_default());
        if extent == DoctorExtent::Main {
            return page + &self.rest();
        }
        page += "\nWhat this kernel offers\n\n";
        page += &hooks_text(&self.hooks.iter().collect::<Vec<_>>());
        page.push('\n');
        page += &facts_text(&self.kernel);
        page += "\nFacts of this host that change the answers\n\n";
        page + &facts_text(&self.facts)
    }

    /// Which hooks are not used, and how to see the rest.
    fn rest(&self) -> String {
        let is_used = |row: &&HookRow| row.present == Some(true) && !row.can_crash;
        let missing: Vec<_> = self.hooks.iter().filter(|row| !is_used(row)).collect();
        let mut lines = String::new();
        if !missing.is_empty() {
            lines += "\nHooks of the kernel that are not used here\n\n";
            lines += &hooks_text(&missing);
        }
        let facts = counted((self.kernel.len() + self.facts.len()) as u64, "fact");
        lines
            + &format!(
                "\n{facts} of this kernel and host that change the answers: swtch doctor --full\n"
            )
    }
}

/// The findings, before they have a format.
struct DoctorAnswer {
    diagnosis: Diagnosis,
    extent: DoctorExtent,
}

impl VerbAnswer for DoctorAnswer {
    fn to_table(&self) -> String {
        self.diagnosis.to_text(self.extent)
    }

    fn to_json(&self) -> Value {
        serde_json::to_value(&self.diagnosis).expect("plain data has a JSON form")
    }

    fn to_csv(&self) -> Result<String> {
        Err(no_csv())
    }
}

fn no_csv() -> anyhow::Error {
    anyhow!("swtch doctor writes a table or json, not csv")
}

fn hooks_text(rows: &[&HookRow]) -> String {
    let width = rows.iter().map(|row| row.hook.len()).max().unwrap_or(0);
    let head = format!(
        "  {:width$}  {:11}  {:7}  without it\n",
        "hook", "need", "here"
    );
    let line = |row: &&HookRow| {
        let HookRow {
            hook,
            need,
            present,
            can_crash,
            without,
        } = row;
        let here = match present {
            None => "unknown",
            Some(false) => "missing",
            Some(true) if *can_crash => "unused",
            Some(true) => "present",
        };
        format!("  {hook:width$}  {need:11}  {here:7}  {without}\n")
    };
    head + &rows.iter().map(line).collect::<String>()
}

/// How many names of programs the text has for each tracepoint.
const NAMED_PROGRAMS: usize = 8;

/// Says nothing where there are no such programs.
fn foreign_programs_text(rows: &[ForeignProgram]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = rows.iter().map(|row| row.tracepoint.len()).max();
    let width = width.unwrap_or(0);
    let count = counted(rows.iter().map(|row| row.count).sum(), "eBPF program");
    let mut lines = format!("\n{count} of others on the tracepoints that swtch attaches to\n\n");
    let name = |row: &ForeignProgram| match row.count {
        1 => escaped(&row.program).to_string(),
        count => format!("{} ({count} times)", escaped(&row.program)),
    };
    for of_one in rows.chunk_by(|one, next| one.tracepoint == next.tracepoint) {
        let mut names: Vec<_> = of_one.iter().take(NAMED_PROGRAMS).map(name).collect();
        if let Some(left_out @ 1..) = of_one.len().checked_sub(NAMED_PROGRAMS) {
            names.push(format!("and {left_out} more (--format json has all)"));
        }
        lines += &format!("  {:width$}  {}\n", of_one[0].tracepoint, names.join(", "));
    }
    lines
        + "  The kernel calls the only program of a tracepoint directly. From the second on it goes \
           through a list,\n  and each program becomes dearer: those of others, and ours while we \
           record.\n  `bpftool link show` says which process holds each.\n"
}

fn ability_text(ability: &Ability) -> String {
    let word = if ability.possible { "yes" } else { "no" };
    let mut lines = format!("  {word:3}  {}\n", ability.what);
    for line in &ability.why {
        lines += &format!("         {}\n", escaped(line));
    }
    for remedy in &ability.remedies {
        lines += &format!("       > {}\n", escaped(remedy));
    }
    lines
}

/// Two lines a fact: what it is, then why it matters and where it was read.
fn facts_text(facts: &[Fact]) -> String {
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    let lines = |fact: &Fact| {
        let Fact {
            name,
            value,
            source,
            note,
        } = fact;
        let (value, source) = (value.to_string(), escaped(source));
        let first = format!("  {name:width$}  {}\n", escaped(&value));
        first + &format!("  {:width$}    {note} [{source}]\n", "")
    };
    facts.iter().map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(format: Format) -> (bool, String) {
        let mut out = Vec::new();
        let can_record = run(format, DoctorExtent::All, &mut out).unwrap();
        (can_record, String::from_utf8(out).unwrap())
    }

    #[test]
    fn json_is_one_object_with_the_promised_keys() {
        let (can_record, text) = examined(Format::Json);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["schema"], "swtch.doctor/1");
        assert_eq!(json["can_record"], can_record);
        for list in ["abilities", "hooks", "kernel", "facts"] {
            assert!(!json[list].as_array().unwrap().is_empty(), "{list}");
        }
        assert!(json["host"]["kernel_release"].is_string());
    }

    #[test]
    fn the_table_has_its_three_sections() {
        let (_, text) = examined(Format::Table);
        for section in ["can do here", "this kernel offers", "change the answers"] {
            assert!(text.contains(section), "{section}");
        }
    }

    /// A list of ninety facts would hide the six that matter.
    #[test]
    fn what_matters_fits_on_a_screen() {
        let mut out = Vec::new();
        run(Format::Table, DoctorExtent::Main, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("can do here") && text.ends_with("swtch doctor --full\n"),
            "{text}"
        );
        assert!(text.lines().count() <= 50, "{text}");
    }

    #[test]
    fn programs_of_others_are_counted_and_named_and_none_are_not_mentioned() {
        assert_eq!(foreign_programs_text(&[]), "");
        let row = |program: &str, count| ForeignProgram {
            tracepoint: "sched_switch",
            program: program.to_owned(),
            count,
        };
        let text = foreign_programs_text(&[row("oncpu", 2), row("\u{1b}[2J", 1)]);
        assert!(text.starts_with("\n3 eBPF programs of others on"), "{text}");
        let names = "\n  sched_switch  oncpu (2 times), \\x1b[2J\n";
        assert!(text.contains(names), "{text}");
    }

    #[test]
    fn programs_of_others_do_not_fill_the_screen() {
        let row = |number| ForeignProgram {
            tracepoint: "sched_switch",
            program: format!("program_{number:03}"),
            count: 1,
        };
        let text = foreign_programs_text(&(0..500).map(row).collect::<Vec<_>>());
        assert!(
            text.starts_with("\n500 eBPF programs of others on"),
            "{text}"
        );
        assert!(
            text.contains("program_007, and 492 more (--format json has all)\n"),
            "{text}"
        );
        assert!(!text.contains("program_008"), "{text}");
        let text = foreign_programs_text(&(0..8).map(row).collect::<Vec<_>>());
        assert!(text.contains("program_007\n"), "{text}");
    }

    #[test]
    fn csv_is_refused_with_the_formats_that_there_are() {
        let refusal = run(Format::Csv, DoctorExtent::All, &mut Vec::new());
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("table or json"), "{refusal}");
    }

    #[test]
    fn a_fact_cannot_reach_the_terminal() {
        let fact = Fact {
            name: "product",
            value: swtch_host::FactValue::Known("\u{1b}[2Jevil".into()),
            source: "/sys/\nfile".into(),
            note: "note",
        };
        let text = facts_text(&[fact]);
        assert_eq!(
            text,
            "  product  \\x1b[2Jevil\n             note [/sys/\\x0afile]\n"
        );
    }
}
