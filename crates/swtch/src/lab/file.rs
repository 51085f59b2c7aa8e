//! The file that describes a load (`docs/LOADS.md` has every word).
//!
//! ```text
//! text ─▶ LoadFile: head, variants ──parameters, calibration──▶ Load   or a mistake, with line and column
//! ```
//!
//! A file is read in two steps, because a load depends on what is typed: `$NAME` stands for a parameter,
//! and `work = "1s"` for as many iterations as this machine does in a second of CPU time.

use anyhow::{Result, bail};
use swtch_bench::load::{EventKind, Fault, Load, LockKind, Places, RingKind, RingSpec};
use toml::Spanned;
use toml::de::DeTable;

use super::calibration::Calibration;
use super::experiment::Head;
use super::parameters::Parameters;

mod body;
mod entries;
mod group;
mod source;

use entries::{Context, Entries, Item};
use group::{GroupSpans, group};
pub use source::Mistake;
use source::Source;

/// A file that describes a load, or several variants of one.
#[derive(Clone, Debug)]
pub struct LoadFile {
    source: Source,
    /// Title and parameters.
    pub head: Head,
    /// Its variants; one without a name when the file has groups only.
    pub variants: Vec<Variant>,
}

/// A variant of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name; empty when the file has no variants.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
}

impl LoadFile {
    /// Reads a file of this name.
    ///
    /// # Errors
    /// It is no TOML, or its head or the list of variants is not as it should be.
    pub fn read(name: &str, text: &str) -> Result<Self> {
        let source = Source {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let table = parse(&source)?;
        let head = Head::read(text).map_err(|error| mistake_of_head(&source, &table, &error))?;
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
        let places = Places::here()?;
        let read = groups
            .into_iter()
            .map(|item| group(item.entries()?, &places, calibration));
        let (groups, spans): (Vec<_>, Vec<_>) =
            read.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let mut load = Load::of(groups);
        common(&mut whole(&self.source, &table, parameters), &mut load)?;
        load.check().map_err(|fault| self.mistake(&fault, &spans))?;
        Ok(load)
    }

    fn mistake(&self, fault: &Fault, spans: &[GroupSpans]) -> Mistake {
        let span = spans
            .get(fault.number)
            .map_or(0..0, |group| group.of(&fault.at));
        self.source.mistake(&span, fault.why.clone())
    }
}

fn parse(source: &Source) -> Result<Spanned<DeTable<'_>>, Mistake> {
    DeTable::parse(&source.text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        source.mistake(&span, error.message().replace('\n', ", "))
    })
}

/// The place of an error of [`Head::read`]: where TOML says, or the parameter that it names.
fn mistake_of_head(
    source: &Source,
    table: &Spanned<DeTable<'_>>,
    error: &anyhow::Error,
) -> Mistake {
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

fn whole<'a>(
    source: &'a Source,
    table: &'a Spanned<DeTable<'a>>,
    parameters: &'a Parameters,
) -> Entries<'a> {
    Entries::new(Context { source, parameters }, table.get_ref(), 0..0)
}

/// The variants with their groups.
fn variants<'a>(
    source: &'a Source,
    table: &'a Spanned<DeTable<'a>>,
    parameters: &'a Parameters,
) -> Result<Vec<(Variant, Vec<Item<'a>>)>, Mistake> {
    let mut file = whole(source, table, parameters);
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
        (Some(groups), None) => Ok(vec![(unnamed, groups.elements()?)]),
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

fn named_variants(list: Item<'_>) -> Result<Vec<(Variant, Vec<Item<'_>>)>, Mistake> {
    let mut variants: Vec<(Variant, Vec<Item<'_>>)> = Vec::new();
    for item in list.elements()? {
        let read = variant(item)?;
        if variants.iter().any(|(other, _)| other.name == read.0.name) {
            return Err(item.mistake(format!("there is a variant `{}` already", read.0.name)));
        }
        variants.push(read);
    }
    Ok(variants)
}

fn variant(item: Item<'_>) -> Result<(Variant, Vec<Item<'_>>), Mistake> {
    let mut entries = item.entries()?;
    let variant = Variant {
        name: entries.need("name")?.word()?,
        about: entries
            .find("about")
            .map_or(Ok(String::new()), |about| about.word())?,
    };
    let groups = entries.need("group")?.elements()?;
    entries.finish()?;
    Ok((variant, groups))
}

/// What all variants have in common: limit, locks, events, rings.
fn common(file: &mut Entries<'_>, load: &mut Load) -> Result<(), Mistake> {
    if let Some(limit) = file.find("limit") {
        load.limit = body::nanos(limit)?;
    }
    if let Some(locks) = file.find("locks") {
        for (name, kind) in locks.entries()?.all() {
            load.locks
                .insert(name.to_owned(), kind.one_of(&LockKind::ALL)?);
        }
    }
    if let Some(events) = file.find("events") {
        for (name, kind) in events.entries()?.all() {
            load.events
                .insert(name.to_owned(), kind.one_of(&EventKind::ALL)?);
        }
    }
    if let Some(rings) = file.find("rings") {
        for (name, ring) in rings.entries()?.all() {
            load.rings.insert(name.to_owned(), to_ring(ring)?);
        }
    }
    Ok(())
}

/// `{ tokens = 2, by = "futex" }` or `{ spare = 1, locks = "mutex" }`.
fn to_ring(item: Item<'_>) -> Result<RingSpec, Mistake> {
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
            (RingKind::Locks(locks.one_of(&LockKind::ALL)?), spare)
        }
        (Some(by), Some(_)) => {
            return Err(by.mistake("a ring is of tokens (by) or of locks, not of both"));
        }
    };
    let tokens = count.map_or(Ok(1), |count| count.small_count())?;
    Ok(RingSpec { kind, tokens })
}

#[cfg(test)]
mod tests;
