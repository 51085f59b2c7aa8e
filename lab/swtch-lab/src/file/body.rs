//! The body of a group: its steps, and where each is in the text.

use swtch_bench::load::{ChainOperation, Step};
use swtch_core::Nanos;
use toml::de::DeValue;

use super::entries::{Entries, Item};
use super::source::{LoadFileError, Span};
use crate::calibration::Calibration;

/// Where a step is in the text, with the steps in it.
#[derive(Clone, Debug)]
pub struct StepSpan {
    /// The bytes of the step in the text.
    pub span: Span,
    /// The steps that it repeats; empty for all other steps.
    pub body: Vec<Self>,
}

/// The words that name a step, but for the bare word `yield`.
pub const STEPS: [&str; 13] = [
    "spin", "work", "repeat", "lock", "unlock", "wait", "signal", "take", "pass", "sleep", "watch",
    "read", "touch",
];

/// Step of `touch` in bytes when the file gives none: a cache line.
const STRIDE: u64 = 64;

/// Reads a list of steps.
///
/// # Errors
/// A step is malformed.
pub fn body(
    list: Item<'_>,
    calibration: &Calibration,
) -> Result<(Vec<Step>, Vec<StepSpan>), LoadFileError> {
    let steps = list.elements()?;
    let steps = steps.into_iter().map(|item| step(item, calibration));
    let steps: Vec<_> = steps.collect::<Result<_, _>>()?;
    Ok(steps.into_iter().unzip())
}

fn step(item: Item<'_>, calibration: &Calibration) -> Result<(Step, StepSpan), LoadFileError> {
    let leaf = |step| {
        let span = StepSpan {
            span: item.span(),
            body: Vec::new(),
        };
        (step, span)
    };
    if let DeValue::String(word) = item.raw() {
        return match &**word {
            "yield" => Ok(leaf(Step::Yield)),
            word => Err(item.mistake(format!(
                "`{word}` is no step: \"yield\" is the only bare word"
            ))),
        };
    }
    let mut entries = item.entries()?;
    let words = entries.all().map(|(word, _)| word);
    let named: Vec<&str> = words.filter(|word| STEPS.contains(word)).collect();
    let &[word] = named.as_slice() else {
        return Err(item.mistake(format!(
            "a step is \"yield\", or has one of: {}",
            STEPS.join(", ")
        )));
    };
    let read = match word {
        "repeat" => {
            let times = entries.need("repeat")?.count()?;
            let (body, spans) = body(entries.need("body")?, calibration)?;
            let span = StepSpan {
                span: item.span(),
                body: spans,
            };
            (Step::Repeat { times, body }, span)
        }
        word => leaf(plain_step(word, &mut entries, calibration)?),
    };
    entries.finish()?;
    Ok(read)
}

fn plain_step(
    word: &str,
    entries: &mut Entries<'_>,
    calibration: &Calibration,
) -> Result<Step, LoadFileError> {
    Ok(match word {
        "spin" => {
            let iterations = entries.need("spin")?.count()?;
            let kernel = kernel(entries)?;
            Step::Spin { kernel, iterations }
        }
        "work" => {
            let work = entries.need("work")?;
            let kernel = kernel(entries)?;
            if !kernel.is_supported() {
                let why = format!("this CPU cannot run the kernel {}", kernel.as_str());
                return Err(work.mistake(why));
            }
            let iterations = calibration.iterations(kernel, work.time()?);
            Step::Spin { kernel, iterations }
        }
        "lock" => Step::Lock(entries.need("lock")?.word()?),
        "unlock" => Step::Unlock(entries.need("unlock")?.word()?),
        "wait" => Step::Wait(entries.need("wait")?.word()?),
        "signal" => Step::Signal(entries.need("signal")?.word()?),
        "take" => Step::Take(entries.need("take")?.word()?),
        "pass" => Step::Pass(entries.need("pass")?.word()?),
        "sleep" => Step::Sleep(nanos(entries.need("sleep")?)?),
        "watch" => Step::Watch(nanos(entries.need("watch")?)?),
        "read" => Step::Read {
            path: entries.need("read")?.word()?.into(),
            bytes: entries.need("bytes")?.size()?,
        },
        "touch" => Step::Touch {
            bytes: entries.need("touch")?.size()?,
            stride: match entries.find("stride") {
                Some(stride) => stride.size()?,
                None => STRIDE,
            },
        },
        word => unreachable!("the words of steps are all here: {word}"),
    })
}

fn kernel(entries: &mut Entries<'_>) -> Result<ChainOperation, LoadFileError> {
    let known: Vec<_> = ChainOperation::ALL
        .iter()
        .map(|one| (one.as_str(), *one))
        .collect();
    match entries.find("kernel") {
        Some(word) => word.one_of(&known),
        None => Ok(ChainOperation::Add),
    }
}

/// A length of time in ns.
///
/// # Errors
/// It is not a length of time, or too long.
pub fn nanos(item: Item<'_>) -> Result<Nanos, LoadFileError> {
    let time = item.time()?;
    let ns = u64::try_from(time.as_nanos()).map_err(|_| item.mistake("this is too long"))?;
    Ok(Nanos::from_ns(ns))
}
