//! The words of `swtch cost --of`: a program, and how it may be measured.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use swtch_core::Pid;
use swtch_cost::of::{MeasuredProgram, ProgramCostRequest};
use swtch_output::format::Format;

use super::values::{duration, percent, pid, span_of_unit};

/// What is measured for, unless another time is asked for.
const DURATION: &str = "40s";

/// The most by which a program may be slowed: the budget is kept by drawing moments at random, which takes gaps between
/// them.
const MOST_BUDGET_PCT: f64 = 20.0;

/// Measure what a switch costs a program.
#[derive(Debug, Args)]
pub struct ProgramCost {
    /// Measure what a switch costs one program, which is started (-- CMD) or runs already (-p): at random moments its CPU
    /// is interrupted, or taken by a task that touches memory. Takes root.
    #[arg(long, requires = "program",
          conflicts_with_all = ["kinds", "quick", "thorough", "save", "output", "compare", "cpu"])]
    pub of: bool,
    /// Measure this process, and those below it.
    #[arg(short, long, value_name = "PID", group = "program", requires = "of", value_parser = pid)]
    pub pid: Option<Pid>,
    /// Slow the program by this share of its CPU time at most; recording it comes on top.
    #[arg(long, value_name = "PERCENT", default_value = "1%", requires = "of", value_parser = percent)]
    pub budget: f64,
    /// Measure for so long (10s, 5m; a number alone: seconds).
    #[arg(short = 'd', long, value_name = "TIME", default_value = DURATION, requires = "of", value_parser = duration)]
    pub duration: Duration,
    /// What the program's units of work are, as record --span takes it: `FILE:FUNCTION`, `postgres`, … [default: what a
    /// thread does from one block to the next].
    #[arg(long, value_name = "SPAN", requires = "of", value_parser = span_of_unit)]
    pub span: Vec<String>,
    /// The command to start and measure.
    #[arg(last = true, value_name = "CMD", group = "program", requires = "of")]
    pub command: Vec<OsString>,
}

impl ProgramCost {
    /// What is asked for; `None` if no program is to be measured.
    ///
    /// # Errors
    /// When the budget makes no sense.
    pub fn to_request(&self, format: Format) -> Result<Option<ProgramCostRequest>> {
        if !self.of {
            return Ok(None);
        }
        ensure!(
            (0.01..=MOST_BUDGET_PCT).contains(&self.budget),
            "--budget {}%: give 0.01% to {MOST_BUDGET_PCT}%",
            self.budget
        );
        Ok(Some(ProgramCostRequest {
            program: match self.pid {
                Some(pid) => MeasuredProgram::Process(pid),
                None => MeasuredProgram::Command(self.command.clone()),
            },
            budget_pct: self.budget,
            duration: self.duration,
            spans: self.span.clone(),
            format,
        }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Verb};
    use super::*;

    fn asked(words: &[&str]) -> Result<Option<ProgramCostRequest>, String> {
        let words = [&["swtch", "cost"], words].concat();
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Verb::Cost(cost) = cli.verb else {
            panic!("{:?}", cli.verb)
        };
        let request = cost.program.to_request(cost.format);
        request.map_err(|error| error.to_string())
    }

    #[test]
    fn a_program_is_one_that_runs_or_one_that_is_started() {
        let request = asked(&["--of", "-p", "7", "--budget", "2%", "-d", "5"]).unwrap();
        let request = request.expect("a program");
        assert!(matches!(request.program, MeasuredProgram::Process(pid) if pid == Pid::new(7)));
        assert_eq!(request.duration, Duration::from_secs(5));
        let request = asked(&["--of", "--", "ls", "-p"]).unwrap();
        let MeasuredProgram::Command(words) = request.expect("a program").program else {
            panic!("a command")
        };
        assert_eq!(words, ["ls", "-p"]);
        assert!(asked(&["pipe"]).unwrap().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &["--of"][..],
            &["--of", "--quick", "-p", "7"],
            &["--of", "-p", "7", "--", "ls"],
            &["-p", "7"],
            &["--of", "-p", "7", "--budget", "0"],
            &["--of", "-p", "7", "--budget", "50%"],
        ] {
            assert!(asked(words).is_err(), "{words:?}");
        }
    }
}
