//! `swtch explain`: record, keep the trace, and say why it switched. Where recording is not
//! possible, the kernel's own counters give a first answer, marked as such.

use std::io::stdout;

use anyhow::{Context as _, Result};
use swtch_capture::probe::Probe;
use swtch_store::Trace;

use crate::format::Format;
use crate::record::{self, Recorded, Request, Target};
use crate::report::{self, By, Filter};
use crate::{counters, doctor};

/// Records and explains; the command's exit code.
///
/// # Errors
/// When neither a recording nor a first answer can be had.
pub fn run(request: &Request, format: Format) -> Result<u8> {
    match record::run(request) {
        Ok(recorded) => explain(&recorded, format),
        Err(error) if is_refused(&error) && can_be_counted(&request.target) => {
            eprintln!("swtch: no recording here: {error:#}");
            count(request, format)
        }
        Err(error) => Err(error),
    }
}

fn explain(recorded: &Recorded, format: Format) -> Result<u8> {
    let trace = Trace::open(&recorded.path)
        .with_context(|| format!("reading {}", recorded.path.display()))?;
    let request = report::Request {
        by: By::Reason,
        format,
        filter: Filter::default(),
        top: None,
    };
    report::explain(&trace, &request, &mut stdout())?;
    recorded.tell_path();
    Ok(recorded.exit_code())
}

/// Whether the kernel refused to record, rather than the request being wrong.
fn is_refused(error: &anyhow::Error) -> bool {
    use swtch_capture::Error;
    matches!(
        error.downcast_ref::<Error>(),
        Some(
            Error::NotPermitted(_)
                | Error::NoBtf(_)
                | Error::MissingHook(_)
                | Error::KernelTooOld(_)
                | Error::Load(_)
                | Error::PidNamespace
        )
    )
}

const fn can_be_counted(target: &Target) -> bool {
    matches!(target, Target::Command(_) | Target::Processes(_))
}

fn count(request: &Request, format: Format) -> Result<u8> {
    let obstacles = doctor::obstacles(&Probe::take());
    match &request.target {
        Target::Command(words) => {
            counters::explain_command(words, format, &obstacles, &mut stdout())
        }
        Target::Processes(pids) => {
            let limit = request.duration;
            counters::explain_processes(pids, limit, format, &obstacles, &mut stdout())?;
            Ok(0)
        }
        Target::Cgroup(_) | Target::All => unreachable!("only tasks have counters of their own"),
    }
}
