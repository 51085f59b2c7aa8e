//! `swtch lab run FILE`: plays each variant of the load in a file, and shows for each member when
//! it began, how long it took and how often it switched.

use anyhow::{Context as _, Result, bail};

use super::command::RunWords;
use super::context::{ExperimentContext, RecordingChoice};
use super::evidence::LoadRuns;
use super::file::{LoadFile, Variant};
use super::findings::{Findings, FindingsTable};
use super::outcome::check_files;
use super::outcome_with;
use super::parameters::Parameters;

mod members;
mod timeline;
mod variants;

use members::Members;
use timeline::timeline;
use variants::Variants;

/// Plays the load of the file, prints the result, and returns the exit code.
///
/// # Errors
/// The file is malformed, or cannot be played.
pub fn run(words: &RunWords) -> Result<u8> {
    let file = LoadFile::open(&words.file)?;
    let given = words.set.iter().map(|pair| assignment(pair));
    let given: Vec<_> = given.collect::<Result<_>>()?;
    let parameters = Parameters::chosen(&file.head.parameters, words.words.quick, &given)?;
    let chosen = chosen(&file, words.variant.as_deref())?;
    check_files(&words.words)?;
    let mut context = ExperimentContext::open(words.words.quick, words.words.recording())?;
    let play = |context: &mut ExperimentContext| play(&file, &chosen, &parameters, context);
    outcome_with("run", file.head.clone(), &parameters, &mut context, play)?.write(&words.words)
}

/// Plays the variants one after the other. When told to stop, it keeps what is done.
fn play(
    file: &LoadFile,
    variants: &[&Variant],
    parameters: &Parameters,
    context: &ExperimentContext,
) -> Result<Findings> {
    // All are read before the first is played: a mistake in the last must not waste the others.
    let loads = variants
        .iter()
        .map(|variant| file.load(&variant.name, parameters, &context.calibration));
    let loads: Vec<_> = loads.collect::<Result<_>>()?;
    let (mut members, mut sums) = (Members::default(), Variants::default());
    let mut findings = Findings::default();
    for (variant, load) in variants.iter().zip(&loads) {
        context.progress(format!("playing {}", variant.name).trim_end());
        let Some(play) = context.play(load, RecordingChoice::Wanted)? else {
            findings.was_interrupted = true;
            break;
        };
        let evidence = play.trace.as_ref();
        let evidence = evidence.map(|trace| LoadRuns::read(trace, &play.played.members));
        let evidence = evidence.transpose()?;
        members.add(&variant.name, load, &play.played, evidence.as_ref());
        findings.pictures.extend(
            evidence.map(|evidence| timeline(&variant.name, load, &play.played, &evidence)),
        );
        sums.add(&variant.name, &play.played);
        let of_variant = match variant.name.as_str() {
            "" => String::new(),
            name => format!("{name}: "),
        };
        let notes = play.notes().into_iter();
        findings
            .notes
            .extend(notes.map(|note| format!("{of_variant}{note}")));
    }
    let table = FindingsTable::new("what each member did", members.sheet());
    findings.tables.push(table);
    if loads.len() > 1 {
        let table = FindingsTable::new("all members of a variant together", sums.sheet());
        findings.tables.push(table);
    }
    Ok(findings)
}

fn chosen<'a>(file: &'a LoadFile, name: Option<&str>) -> Result<Vec<&'a Variant>> {
    let Some(name) = name else {
        return Ok(file.variants.iter().collect());
    };
    let found: Vec<_> = file
        .variants
        .iter()
        .filter(|one| one.name == name)
        .collect();
    if found.is_empty() {
        let names: Vec<_> = file.variants.iter().map(|one| one.name.as_str()).collect();
        bail!(
            "there is no variant `{name}`; there are: {}",
            names.join(", ")
        );
    }
    Ok(found)
}

fn assignment(pair: &str) -> Result<(String, String)> {
    let (name, value) = pair
        .split_once('=')
        .with_context(|| format!("`{pair}` sets nothing: write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}
