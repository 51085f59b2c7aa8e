//! Finds the function that answers a question, by the question's name.

use anyhow::{Context as _, Result};
use serde_json::Value;
use swtch_core::{Level, TaskKey};
use swtch_output::format::Format;
use swtch_report::report::{self, BillBy, By, Extent};

use super::loaded::Loaded;
use super::query::Query;
use super::server::ServerState;
use super::{chain, curves, detail, facts, flame, lanes, locks, search, states};

/// An answer, as it is sent.
#[derive(Debug)]
pub enum ResponseBody {
    Json(Vec<u8>),
    /// Numbers in the layout that the module `lanes` describes.
    Bytes(Vec<u8>),
}

/// Something that does not exist, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NotHere {
    pub what: String,
    /// Advice on what the person can do about it.
    pub advice: Option<String>,
}

/// Answers one question.
///
/// # Errors
/// [`super::query::QueryError`] when the question cannot be understood, [`NotHere`] when the thing
/// does not exist, and any error from reading the trace.
pub fn answer(state: &ServerState, name: &str, query: &Query) -> Result<ResponseBody> {
    let loaded = state.loaded();
    let value = match name {
        "lanes" => {
            let window = query.window(&loaded)?;
            return Ok(ResponseBody::Bytes(lanes::answer(
                &loaded,
                &window,
                &query.lanes()?,
            )));
        }
        "report" => return report_of(state, query),
        "bill" => return bill_of(state, query),
        "explain" => return explain_of(state, query),
        "trace" => facts::of_trace(&loaded, &state.name(), state.prices().is_ok())?,
        "threads" => return json(loaded.threads()),
        "detail" => {
            let level = query.level()?;
            let row = in_trace(&loaded, level, query.row()?)?;
            let prices = state.prices().ok();
            let billing = prices.as_ref().map(|prices| &prices.billing);
            detail::of_row(&loaded, level, row, billing)?
        }
        "chain" => chain::chain(&loaded, in_trace(&loaded, Level::Os, query.os_row()?)?),
        "critical" => {
            let task = known(&loaded, query.task()?)?;
            chain::critical(&loaded, task, query.span(&loaded)?)
        }
        "states" => {
            let task = known(&loaded, query.task()?)?;
            states::states(&loaded, task, query.span(&loaded)?)
        }
        "rate" => curves::rate(&loaded, query.span(&loaded)?, query.bins()?),
        "distribution" => {
            let of = query.of.as_deref().unwrap_or("ran");
            curves::distribution(&loaded, query.span(&loaded)?, of, query.reason()?)?
        }
        "flame" => flame::flame(&loaded, &query.filter()?)?,
        "locks" => locks::locks(&loaded, &query.filter()?, query.top.unwrap_or(20))?,
        "search" => search::search(&loaded, query.q.as_deref().unwrap_or_default())?,
        _ => return Err(not_here(format!("there is no answer `{name}`")).into()),
    };
    json(&value)
}

fn json(value: &Value) -> Result<ResponseBody> {
    Ok(ResponseBody::Json(
        serde_json::to_vec(value).context("writing JSON")?,
    ))
}

/// Returns what `swtch report --format json` prints.
fn report_of(state: &ServerState, query: &Query) -> Result<ResponseBody> {
    let word = query.by.as_deref().unwrap_or(By::Reason.as_str());
    let by = By::from_word(word).ok_or_else(|| no_report(word))?;
    let mut bytes = Vec::new();
    report::report(&state.loaded().trace, &request(by, query)?, &mut bytes)?;
    Ok(ResponseBody::Json(bytes))
}

/// Returns what `swtch report --bill --format json` prints.
fn bill_of(state: &ServerState, query: &Query) -> Result<ResponseBody> {
    let word = query.by.as_deref().unwrap_or(BillBy::Reason.as_str());
    let by = BillBy::from_word(word).ok_or_else(|| no_report(word))?;
    let prices = state.prices().map_err(|why| NotHere {
        what: "there are no prices to make a bill with".to_owned(),
        advice: Some(why),
    })?;
    let mut bytes = Vec::new();
    report::bill(
        &state.loaded().trace,
        by,
        &request(By::Reason, query)?,
        &prices.list,
        &mut bytes,
    )?;
    Ok(ResponseBody::Json(bytes))
}

/// Returns what `swtch explain --format json` prints. Without prices it leaves out what switches cost.
fn explain_of(state: &ServerState, query: &Query) -> Result<ResponseBody> {
    let prices = state.prices().ok();
    let mut bytes = Vec::new();
    report::explain(
        &state.loaded().trace,
        &request(By::Reason, query)?,
        prices.as_ref().map(|prices| &prices.list),
        Extent::Full,
        &mut bytes,
    )?;
    Ok(ResponseBody::Json(bytes))
}

fn no_report(word: &str) -> NotHere {
    not_here(format!("there is no report by `{word}`"))
}

/// Looks up a row; an error if it does not exist.
fn in_trace(loaded: &Loaded, level: Level, id: u32) -> Result<usize, NotHere> {
    let row = loaded.row(level, id);
    row.ok_or_else(|| not_here(format!("there is no row {id}")))
}

/// Checks that the trace has a row or an open wait of the task.
fn known(loaded: &Loaded, task: TaskKey) -> Result<TaskKey, NotHere> {
    match loaded.levels.os.track(task).is_some() || loaded.open(task).is_some() {
        true => Ok(task),
        false => Err(not_here(format!("nothing is known of a task {task}"))),
    }
}

const fn not_here(what: String) -> NotHere {
    NotHere { what, advice: None }
}

fn request(by: By, query: &Query) -> Result<report::ReportRequest> {
    Ok(report::ReportRequest {
        by,
        format: Format::Json,
        filter: query.filter()?,
        top: query.top,
    })
}
