//! The file that describes a load (`docs/LOADS.md` has every word).
//!
//! ```text
//! text ─▶ LoadFile: head, variants ──parameters, calibration──▶ Load, or a LoadFileError
//!            └ TOML ─▶ parameter: $NAME replaced ─▶ entries: by serde ─▶ group ─┘
//! ```
//!
//! A file is read in two steps, because a load depends on what is typed: `$NAME` stands for a
//! parameter, and `work = "1s"` for as many iterations as this machine does in a second of CPU
//! time.

use std::io;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use swtch_bench::load::{Fault, Load, UsableCpus};
use swtch_output::caller::as_caller;
use swtch_store::input;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::calibration::Calibration;
use super::experiment::ExperimentHead;
use super::parameters::Parameters;

mod entries;
mod group;
mod parameter;
mod source;

use entries::{FileEntries, GroupEntry};
use group::GroupMaker;
use parameter::Replacements;
pub use source::LoadFileError;
use source::SourceText;

/// The largest file that is read, in bytes. The largest of the lab's own has 4 kB.
const MAX_BYTES: u64 = 1 << 20;

/// The most groups of a load. Each has threads or processes of its own, a row in every table and a
/// lane in every figure; 20,000 of them took more than half a minute to start and to end.
const MAX_GROUPS: usize = 1_000;

/// The most brackets that open in a file: ten for each step of the largest load that anybody would
/// write.
const MAX_BRACKETS: usize = 100_000;

/// Stack of the thread that parses, in bytes, without that for brackets.
const STACK_BYTES: usize = 2 << 20;

/// Stack for each opening bracket, in bytes: four times what was measured.
const STACK_BYTES_PER_BRACKET: usize = 1 << 10;

/// The most variants of a file. They are played one after the other.
const MAX_VARIANTS: usize = 1_000;

/// A file that describes a load, or several variants of one.
#[derive(Clone, Debug)]
pub struct LoadFile {
    source: SourceText,
    /// Title, description and parameters of the file.
    pub head: ExperimentHead,
    /// Its variants; a single one without a name when the file has groups only.
    pub variants: Vec<Variant>,
}

/// A variant of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name; empty when the file has no variants.
    pub name: String,
    /// What it is, in a line; may be empty.
    pub about: String,
}

impl LoadFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, is larger than 1 MiB, or is malformed.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        // A mistake in it is shown with its line, so it must be a file that the caller may read.
        let text = as_caller(|| Ok(input::read_text(path, MAX_BYTES)?));
        let text = text.with_context(|| format!("reading {name}"))?;
        Self::read(&name, &text)
    }

    /// Reads the text of a file; messages call the file `name`.
    ///
    /// # Errors
    /// It is not TOML, or its head or the list of variants is malformed.
    pub fn read(name: &str, text: &str) -> Result<Self> {
        let source = SourceText {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        // First, since a mistake in what is no TOML may take a large stack to read.
        drop(parse(&source)?);
        let head = ExperimentHead::read(text).map_err(|error| source.mistake_of_toml(&error))?;
        let mut file = Self {
            source,
            head,
            variants: Vec::new(),
        };
        let defaults = Parameters::chosen(&file.head.parameters, false, &[])?;
        let variants = file.entries(&defaults)?.1;
        file.variants = variants.into_iter().map(|(variant, _)| variant).collect();
        Ok(file)
    }

    /// The load of a variant ("" in a file without variants).
    ///
    /// # Errors
    /// There is no such variant, or it cannot be played here.
    pub fn load(
        &self,
        variant: &str,
        parameters: &Parameters,
        calibration: &Calibration,
    ) -> Result<Load> {
        let (file, variants) = self.entries(parameters)?;
        let Some((_, groups)) = variants.into_iter().find(|(one, _)| one.name == variant) else {
            bail!("{}: there is no variant `{variant}`", self.source.name);
        };
        let maker = GroupMaker {
            source: &self.source,
            usable_cpus: UsableCpus::here()?,
            calibration,
        };
        let made = groups.iter().map(|group| maker.group(group.get_ref()));
        let mut load = Load::of(made.collect::<Result<_, _>>()?);
        load.limit = file.limit.map_or(load.limit, |limit| limit.0);
        load.locks = file
            .locks
            .into_iter()
            .map(|(name, kind)| (name.0, kind))
            .collect();
        load.events = file
            .events
            .into_iter()
            .map(|(name, kind)| (name.0, kind))
            .collect();
        for (name, ring) in file.rings {
            load.rings.insert(name.0, maker.ring(&ring)?);
        }
        load.check()
            .map_err(|fault| self.mistake(&fault, &groups))?;
        Ok(load)
    }

    /// Everything but the head, and of that the variants.
    fn entries(&self, parameters: &Parameters) -> Result<(FileEntries, Variants)> {
        let replacements = Replacements::new(parameters);
        let mut table = parse(&self.source)?;
        for (word, value) in table.get_mut().iter_mut() {
            if !["title", "about", "parameters"].contains(&word.get_ref().as_ref()) {
                replacements.apply(&self.source, value)?;
            }
        }
        let entries = FileEntries::deserialize(Deserializer::from(table));
        let mut entries = entries.map_err(|error| self.source.mistake_of_toml(&error))?;
        let variants = variants(&self.source, &mut entries)?;
        Ok((entries, variants))
    }

    fn mistake(&self, fault: &Fault, groups: &[Spanned<GroupEntry>]) -> LoadFileError {
        let span = groups.get(fault.number).map_or(0..0, |group| {
            let part = group.get_ref().span_of(&fault.at);
            part.unwrap_or_else(|| group.span())
        });
        self.source.mistake(&span, fault.why.clone())
    }
}

/// Reads the text as TOML, on a thread with a stack that is large enough for it.
///
/// After a mistake, the parser (`toml_parser` 1.1) goes one call deeper for every bracket that
/// opens, without its own limit of depth, and takes some 280 bytes of stack for each: 30,000
/// brackets are more than 8 MB.
fn parse(source: &SourceText) -> Result<Spanned<DeTable<'_>>> {
    let brackets = source.text.bytes().filter(|byte| b"[{".contains(byte));
    let brackets = brackets.count();
    if brackets > MAX_BRACKETS {
        bail!(
            "{}: it has {brackets} opening brackets, and {MAX_BRACKETS} is the limit",
            source.name
        );
    }
    let stack_bytes = STACK_BYTES + brackets * STACK_BYTES_PER_BRACKET;
    let parsed = thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(stack_bytes);
        let parser = builder.spawn_scoped(scope, || DeTable::parse(&source.text))?;
        Ok::<_, io::Error>(parser.join().expect("the parser does not panic"))
    });
    let parsed = parsed.context("starting a thread")?;
    Ok(parsed.map_err(|error| source.mistake_of_toml(&error))?)
}

/// The variants with their groups.
type Variants = Vec<(Variant, Vec<Spanned<GroupEntry>>)>;

/// Takes the variants out of the entries of a file.
fn variants(source: &SourceText, entries: &mut FileEntries) -> Result<Variants, LoadFileError> {
    let mut variants: Variants = Vec::new();
    match (entries.group.take(), entries.variant.take()) {
        (Some(groups), None) => {
            let unnamed = Variant {
                name: String::new(),
                about: String::new(),
            };
            variants.push((unnamed, few(source, groups, MAX_GROUPS, "groups")?));
        }
        (None, Some(list)) => {
            for variant in few(source, list, MAX_VARIANTS, "variants")? {
                let (span, entry) = (variant.span(), variant.into_inner());
                let name = entry.name.0;
                if variants.iter().any(|(other, _)| other.name == name) {
                    return Err(
                        source.mistake(&span, format!("there is a variant `{name}` already"))
                    );
                }
                let about = entry.about;
                let groups = few(source, entry.group, MAX_GROUPS, "groups")?;
                variants.push((Variant { name, about }, groups));
            }
        }
        (Some(_), Some(list)) => {
            let why = "a file has groups or variants with groups, not both";
            return Err(source.mistake(&list.span(), why));
        }
        (None, None) => {
            let why = "there is nothing to play: no [[group]] and no [[variant]] (experiments that time, and play no \
                       load, are made by their name: swtch lab NAME)";
            return Err(source.mistake(&(0..0), why));
        }
    }
    Ok(variants)
}

/// The elements of a list that may not be longer than `most`.
fn few<T>(
    source: &SourceText,
    list: Spanned<Vec<T>>,
    most: usize,
    what: &str,
) -> Result<Vec<T>, LoadFileError> {
    let (span, count) = (list.span(), list.get_ref().len());
    match count <= most {
        true => Ok(list.into_inner()),
        false => Err(source.mistake(
            &span,
            format!("there are {count} {what}, and {most} is the limit (`count` gives a group many members)"),
        )),
    }
}

/// Reads every variant of a file as is done before it is played, and plays nothing: for fuzzing.
///
/// # Errors
/// The file cannot be read, or what it describes cannot be run.
pub fn read_every_variant(path: &Path) -> Result<()> {
    let file = LoadFile::open(path)?;
    let parameters = Parameters::chosen(&file.head.parameters, false, &[])?;
    let calibration = Calibration::of_ns(1.0);
    for variant in &file.variants {
        file.load(&variant.name, &parameters, &calibration)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
