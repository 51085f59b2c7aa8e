//! `swtch cost`: what each kind of switch costs on this machine.
//!
//! ```text
//! menu: what, how much ─▶ measure: trees of blocks ─▶ list: estimates ─▶ table | json | csv | file
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::ffi::OsStr;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use swtch_capture::signals::stop_on_signals;
use swtch_core::cost::PriceList;
use swtch_output::answer::{self, SheetAnswer, VerbAnswer};
use swtch_output::caller::Caller;
use swtch_output::destination::{self, beside, check_directory};
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::price_file;

mod compare;
mod empty_program;
pub mod export;
pub mod list;
mod machine;
pub mod measure;
pub mod menu;
pub mod noise;
pub mod of;
pub mod series;
mod share;
mod table;
mod tails;

pub use menu::Effort;

/// A request of `swtch cost`: what to measure, and where the answer goes.
#[derive(Clone, Debug)]
pub struct CostRequest {
    /// The amount of time that the session takes.
    pub effort: Effort,
    /// Kinds and sections; empty for all.
    pub kinds: Vec<String>,
    /// The CPU that is measured on; `None` for the last that may be used.
    pub cpu: Option<u32>,
    /// Measure how long single switches take instead (percentiles); of the kinds, primitives are.
    pub tails: bool,
    /// The format of the answer.
    pub format: Format,
    /// Keep it as this machine's list.
    pub save: bool,
    /// Files for the list, and for its figures; their endings choose the format.
    pub output: Vec<PathBuf>,
}

/// Exit code when an interval is too wide for an answer.
const UNRESOLVED: u8 = 1;

/// Exit code when a comparison finds that something became dearer.
const WORSE: u8 = 1;

/// Measures, writes the list, and returns the exit code.
///
/// # Errors
/// Nothing can be measured, or the list cannot be written.
pub fn run(request: &CostRequest) -> Result<u8> {
    if request.tails {
        return tails::run(request);
    }
    // Refuses files that cannot be written, before minutes are spent on measuring.
    for path in &request.output {
        PriceFileFormat::of(path)?;
        check_directory(path)?;
    }
    let place = request.save.then(price_file::place).transpose()?;
    let list = measured(request.effort, &request.kinds, request.cpu)?;
    // The answer comes first, and each place is tried even if another fails: one full disk must not
    // lose what took minutes.
    let told = answer::write(&CostAnswer(&list), request.format, &mut stdout());
    let files = request.output.iter().map(|path| write_file(&list, path));
    let written = files.fold(told, |so_far, written| so_far.and(written));
    let kept = place.map_or(Ok(()), |place| keep(&list, &place, &request.kinds));
    written.and(kept)?;
    if list.session.is_resolved {
        return Ok(0);
    }
    message!(
        "swtch: unresolved (exit code {UNRESOLVED}): measure again on a quieter machine, or with --thorough"
    );
    Ok(UNRESOLVED)
}

/// A price list before it has a format; CSV holds the prices alone.
struct CostAnswer<'a>(&'a PriceList);

impl VerbAnswer for CostAnswer<'_> {
    fn to_table(&self) -> String {
        table::table(self.0)
    }

    fn to_json(&self) -> Value {
        price_file::to_json(self.0)
    }

    fn to_csv(&self) -> Result<String> {
        Ok(export::to_csv(&export::prices_table(self.0)))
    }
}

/// Keeps the list as this machine's. A list that was ended early does not replace a complete one,
/// because every bill would be less exact.
fn keep(list: &PriceList, place: &Path, kinds: &[String]) -> Result<()> {
    let was_whole = || price_file::load(place).is_ok_and(|old| !old.session.was_interrupted);
    if !list.has_values() || list.session.was_interrupted && was_whole() {
        message!(
            "swtch: the price list is not kept, since measuring was ended early or brought nothing: {} stays as it was",
            place.display()
        );
        return Ok(());
    }
    price_file::save(list, place)?;
    message!("swtch: the price list is kept in {}", place.display());
    if !kinds.is_empty() {
        message!(
            "swtch: it holds only what was named; bills need all kinds: `swtch cost --save` measures them"
        );
    }
    Ok(())
}

/// The format in which a list is written to a file; the ending of the file's name chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PriceFileFormat {
    Json,
    Csv,
    Parquet,
    Figures,
}

impl PriceFileFormat {
    fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(OsStr::to_str) {
            Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            Some("svg" | "png") => Ok(Self::Figures),
            _ => bail!(
                "{}: the ending says the form: .json (all of it), .csv or .parquet (the prices), .svg or .png (the \
                 curves)",
                path.display()
            ),
        }
    }
}

/// Writes the list to a file; a table of prices has those of curves and contrasts beside it.
fn write_file(list: &PriceList, path: &Path) -> Result<()> {
    let form = PriceFileFormat::of(path)?;
    match form {
        PriceFileFormat::Json => return price_file::write(list, path),
        PriceFileFormat::Figures => return write_plots(list, path),
        PriceFileFormat::Csv | PriceFileFormat::Parquet => {}
    }
    let tables = [
        (path.to_owned(), export::prices_table(list)),
        (beside(path, "curves"), export::curves_table(list)),
        (beside(path, "contrasts"), export::contrasts_table(list)),
    ];
    for (path, table) in tables {
        let bytes = match form {
            PriceFileFormat::Csv => export::to_csv(&table).into_bytes(),
            _ => table.write_parquet(Vec::new(), &path)?,
        };
        destination::write_whole(&path, &bytes)?;
    }
    Ok(())
}

/// Writes the figures, or says that there are none.
fn write_plots(list: &PriceList, path: &Path) -> Result<()> {
    let figures = swtch_plot::figures(list);
    if figures.is_empty() {
        message!(
            "swtch: no curve was measured, so there is no figure: name working-set, tlb or branches"
        );
    }
    swtch_plot::write_pictures(&figures, path)
}

/// Compares two saved lists, prints the result, and returns the exit code.
///
/// # Errors
/// A list cannot be read, or the two cannot be compared.
pub fn run_compare(before: &Path, after: &Path, format: Format) -> Result<u8> {
    let comparison = compare::compare(&price_file::load(before)?, &price_file::load(after)?)?;
    let answer = SheetAnswer {
        head: String::new(),
        members: json!({ "schema": "swtch.report.cost-compare/1" }),
        sheet: &comparison.sheet,
    };
    answer::write(&answer, format, &mut stdout())?;
    Ok(if comparison.is_worse { WORSE } else { 0 })
}

/// The saved prices. `explain` looks for them before it records, because the recorder gives up the
/// rights of root.
#[derive(Debug)]
pub struct FoundPrices {
    /// The saved list of root, when there is one and this user called sudo.
    of_root: Option<Result<PriceList>>,
    /// Path of the user's list, which may not exist yet.
    place: Result<PathBuf>,
}

impl FoundPrices {
    /// True if no prices are saved yet.
    pub fn must_be_measured(&self) -> bool {
        let is_saved = |place: &PathBuf| place.exists();
        self.of_root.is_none() && !self.place.as_ref().is_ok_and(is_saved)
    }
}

/// Looks for saved prices. Under sudo, root's list is preferred to that of the caller.
pub fn find_prices(caller: Option<&Caller>) -> FoundPrices {
    let place = price_file::place();
    let Some(caller) = caller else {
        return FoundPrices {
            of_root: None,
            place,
        };
    };
    let of_root = place.ok().filter(|place| place.exists());
    let home = caller.home();
    let home = home.context("the user who called sudo has no home directory");
    FoundPrices {
        of_root: of_root.map(|place| load_saved(&place)),
        place: home.map(|home| price_file::place_in_home(&home)),
    }
}

fn load_saved(place: &Path) -> Result<PriceList> {
    price_file::load(place)
        .context("the saved prices cannot be used (`swtch cost --save` measures them anew)")
}

/// The prices for the page of `explain`: the saved ones, else measured now in ten seconds and
/// saved. `None`, with the reason on stderr, when they cannot be had; the page has no bill then.
///
/// # Errors
/// A saved list cannot be read.
pub fn prices_for_explain(found: FoundPrices) -> Result<Option<PriceList>> {
    if let Some(list) = found.of_root {
        return list.map(Some);
    }
    let place = match found.place {
        Ok(place) if place.exists() => return load_saved(&place).map(Some),
        place => place,
    };
    let kept = place.as_ref().map_or_else(
        |why| format!("not kept: {why:#}"),
        |place| format!("kept in {}", place.display()),
    );
    message!(
        "swtch: measuring what switches cost here, once, for about ten seconds ({kept}; --no-bill does without)"
    );
    let list = match measured(Effort::Quick, &[], None) {
        Ok(list) if list.session.was_interrupted => {
            message!("swtch: no bill, since measuring was ended early");
            return Ok(None);
        }
        Ok(list) => list,
        Err(error) => {
            message!("swtch: no bill: {}", escaped(&format!("{error:#}")));
            return Ok(None);
        }
    };
    if let Ok(place) = place
        && let Err(error) = price_file::save(&list, &place)
    {
        message!(
            "swtch: the prices are not kept: {}",
            escaped(&format!("{error:#}"))
        );
    }
    Ok(Some(list))
}

/// Measures the kinds that are asked for, and makes the list.
fn measured(effort: Effort, kinds: &[String], cpu: Option<u32>) -> Result<PriceList> {
    let stop = stop_on_signals()?;
    let menu = menu::Menu::new(effort, kinds, cpu)?;
    let mut measurements = measure::measure(&menu, effort.budget(), &stop, list::is_resolved)?;
    let share = share::measure(&menu, &mut measurements, &stop)?;
    let empty_program = empty_program::measure(&menu, &mut measurements, &stop)?;
    let was_interrupted = stop.load(Ordering::Relaxed);
    let mut list = list::list(&menu, effort, &measurements, was_interrupted);
    share.enter(&mut list);
    empty_program.enter(&mut list);
    list.session.is_resolved &= list.has_values();
    Ok(list)
}
