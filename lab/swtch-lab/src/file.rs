//! The file that describes a load (`docs/LOADS.md` has every word).
//!
//! ```text
//! text ─▶ LoadFile: head, variants ──parameters, calibration──▶ Load, or a LoadFileError
//! ```
//!
//! A file is read in two steps, because a load depends on what is typed: `$NAME` stands for a
//! parameter, and `work = "1s"` for as many iterations as this machine does in a second of CPU
//! time.

use std::io;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, bail};
use swtch_bench::load::{EventKind, Fault, Load, LoadLockKind, LoadRingSpec, RingKind, UsableCpus};
use swtch_output::caller::as_caller;
use swtch_store::input;
use toml::Spanned;
use toml::de::DeTable;

use super::calibration::Calibration;
use super::experiment::ExperimentHead;
use super::parameters::Parameters;

mod body;
mod entries;
mod group;
mod source;

use entries::{Context as EntryContext, Entries, Item};
use group::{GroupSpans, group};
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
        let table = parse(&source)?;
        let head =
            ExperimentHead::read(text).map_err(|error| mistake_of_head(&source, &table, &error))?;
        let none = Parameters::default();
        let variants = variants(&source, &table, &none)?;
        let names = variants
            .iter()
            .map(|(variant, _)| variant.clone())
            .collect();
        drop(variants);
        drop(table);
        Ok(Self {
            source,
            head,
            variants: names,
        })
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
        let table = parse(&self.source)?;
        let variants = variants(&self.source, &table, parameters)?;
        let Some((_, groups)) = variants.into_iter().find(|(one, _)| one.name == variant) else {
            bail!("{}: there is no variant `{variant}`", self.source.name);
        };
        let usable_cpus = UsableCpus::here()?;
        let read = groups
            .into_iter()
            .map(|item| group(item.entries()?, &usable_cpus, calibration));
        let (groups, spans): (Vec<_>, Vec<_>) =
            read.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let mut load = Load::of(groups);
        read_common(&mut top_level(&self.source, &table, parameters), &mut load)?;
        load.check().map_err(|fault| self.mistake(&fault, &spans))?;
        Ok(load)
    }

    fn mistake(&self, fault: &Fault, spans: &[GroupSpans]) -> LoadFileError {
        let span = spans
            .get(fault.number)
            .map_or(0..0, |group| group.of(&fault.at));
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
    Ok(parsed.map_err(|error| {
        let span = error.span().unwrap_or_default();
        source.mistake(&span, error.message().replace('\n', ", "))
    })?)
}

/// Where in the text an error of [`ExperimentHead::read`] is: at the place that TOML gives, or at
/// the parameter that it names.
fn mistake_of_head(
    source: &SourceText,
    table: &Spanned<DeTable<'_>>,
    error: &anyhow::Error,
) -> LoadFileError {
    let of_toml = error.downcast_ref::<toml::de::Error>();
    if let Some((error, span)) = of_toml.and_then(|error| Some((error, error.span()?))) {
        return source.mistake(&span, error.message());
    }
    let parameters = table.get_ref().get("parameters");
    let parameters = parameters.and_then(|table| table.get_ref().as_table());
    let span = parameters
        .into_iter()
        .flatten()
        .find(|(name, _)| error.to_string() == format!("[parameters.{}]", name.get_ref()))
        .map_or(0..0, |(name, _)| name.span());
    let why: Vec<_> = error
        .chain()
        .skip(1)
        .map(|cause| cause.to_string())
        .collect();
    source.mistake(&span, why.join(": ").trim_end().replace('\n', ", "))
}

fn top_level<'a>(
    source: &'a SourceText,
    table: &'a Spanned<DeTable<'a>>,
    parameters: &'a Parameters,
) -> Entries<'a> {
    Entries::new(EntryContext { source, parameters }, table.get_ref(), 0..0)
}

/// The variants with their groups.
fn variants<'a>(
    source: &'a SourceText,
    table: &'a Spanned<DeTable<'a>>,
    parameters: &'a Parameters,
) -> Result<Vec<(Variant, Vec<Item<'a>>)>, LoadFileError> {
    let mut file = top_level(source, table, parameters);
    file.pass_over(&[
        "title",
        "about",
        "parameters",
        "limit",
        "locks",
        "events",
        "rings",
    ]);
    let (groups, variants) = (file.find("group"), file.find("variant"));
    file.finish()?;
    let unnamed = Variant {
        name: String::new(),
        about: String::new(),
    };
    match (groups, variants) {
        (Some(list), None) => Ok(vec![(unnamed, elements(list, MAX_GROUPS, "groups")?)]),
        (None, Some(variants)) => named_variants(variants),
        (Some(_), Some(variants)) => {
            Err(variants.mistake("a file has groups or variants with groups, not both"))
        }
        (None, None) => Err(source.mistake(
            &(0..0),
            "there is nothing to play: no [[group]] and no [[variant]] (experiments that time, and play no load, \
             are made by their name: swtch lab NAME)",
        )),
    }
}

fn named_variants(list: Item<'_>) -> Result<Vec<(Variant, Vec<Item<'_>>)>, LoadFileError> {
    let mut variants: Vec<(Variant, Vec<Item<'_>>)> = Vec::new();
    for item in elements(list, MAX_VARIANTS, "variants")? {
        let read = variant(item)?;
        if variants.iter().any(|(other, _)| other.name == read.0.name) {
            return Err(item.mistake(format!("there is a variant `{}` already", read.0.name)));
        }
        variants.push(read);
    }
    Ok(variants)
}

fn variant(item: Item<'_>) -> Result<(Variant, Vec<Item<'_>>), LoadFileError> {
    let mut entries = item.entries()?;
    let variant = Variant {
        name: entries.need("name")?.name()?,
        about: entries
            .find("about")
            .map_or(Ok(String::new()), |about| about.word())?,
    };
    let groups = elements(entries.need("group")?, MAX_GROUPS, "groups")?;
    entries.finish()?;
    Ok((variant, groups))
}

/// The elements of a list that may not be longer than `most`.
fn elements<'a>(list: Item<'a>, most: usize, what: &str) -> Result<Vec<Item<'a>>, LoadFileError> {
    let elements = list.elements()?;
    match elements.len() <= most {
        true => Ok(elements),
        false => Err(list.mistake(format!(
            "there are {} {what}, and {most} is the limit (`count` gives a group many members)",
            elements.len()
        ))),
    }
}

/// Reads what all variants have in common: limit, locks, events, rings.
fn read_common(file: &mut Entries<'_>, load: &mut Load) -> Result<(), LoadFileError> {
    if let Some(limit) = file.find("limit") {
        load.limit = body::nanos(limit)?;
    }
    if let Some(locks) = file.find("locks") {
        for (name, kind) in locks.entries()?.all() {
            kind.check_name(name)?;
            load.locks
                .insert(name.to_owned(), kind.one_of(&LoadLockKind::ALL)?);
        }
    }
    if let Some(events) = file.find("events") {
        for (name, kind) in events.entries()?.all() {
            kind.check_name(name)?;
            load.events
                .insert(name.to_owned(), kind.one_of(&EventKind::ALL)?);
        }
    }
    if let Some(rings) = file.find("rings") {
        for (name, ring) in rings.entries()?.all() {
            ring.check_name(name)?;
            load.rings.insert(name.to_owned(), to_ring(ring)?);
        }
    }
    Ok(())
}

/// Reads a ring: `{ tokens = 2, by = "futex" }` or `{ spare = 1, locks = "mutex" }`.
fn to_ring(item: Item<'_>) -> Result<LoadRingSpec, LoadFileError> {
    let mut entries = item.entries()?;
    let (by, locks) = (entries.find("by"), entries.find("locks"));
    let (tokens, spare) = (entries.find("tokens"), entries.find("spare"));
    entries.finish()?;
    let (kind, count) = match (by, locks) {
        (_, None) => {
            let kind = by.map_or(Ok(EventKind::Pipe), |by| by.one_of(&EventKind::ALL))?;
            if let Some(spare) = spare {
                return Err(spare.mistake("spare is for rings of locks"));
            }
            (RingKind::Tokens(kind), tokens)
        }
        (None, Some(locks)) => {
            if let Some(tokens) = tokens {
                return Err(tokens.mistake("in a ring of locks, spare ones are the tokens"));
            }
            (RingKind::Locks(locks.one_of(&LoadLockKind::ALL)?), spare)
        }
        (Some(by), Some(_)) => {
            return Err(by.mistake("a ring is of tokens (by) or of locks, not of both"));
        }
    };
    let tokens = count.map_or(Ok(1), |count| count.small_count())?;
    Ok(LoadRingSpec { kind, tokens })
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
