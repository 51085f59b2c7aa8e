//! `swtch report -o FILE.html`: one page to send. It opens from a disk, needs no network, and runs no
//! script. `swtch diff -o FILE.html` writes another one, of traces that are compared ([`comparison`]).
//!
//! ```text
//! trace ─┬▶ report::parts ─▶ head, verdict, tables ─┐
//!        └▶ view's timeline ─▶ pictures ────────────┴▶ page (at most 5 MB)
//! ```
//!
//! Its numbers are those of `swtch report` for the same trace and filter, made by the same code.

pub mod comparison;
mod flames;
mod pictures;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use maud::{Markup, PreEscaped, html};
use swtch_core::Nanos;
use swtch_core::cost::PriceList;
use swtch_output::destination::{check_directory, tell_written};
use swtch_output::message;
use swtch_plot::Picture;
use swtch_plot::write_pictures;
use swtch_report::export::{ExportEncoding, Packing, Sink};
use swtch_report::html::{self, shown, table};
use swtch_report::report::{BESIDES, ExplainPageParts, Filter, FindingText, parts};

use crate::Loaded;

/// Rows that each table shows at most.
const ROWS: usize = 30;

/// Mail servers refuse larger pages, and nobody reads them.
const MOST_BYTES: usize = 5_000_000;

/// A drawing with more bytes is embedded as an image, whose size does not grow with its contents.
const MOST_DRAWN_BYTES: usize = 1_200_000;

/// Writes the page of a trace, unless `stop` is set meanwhile.
///
/// # Errors
/// If the trace cannot be read, or the file cannot be written.
pub fn write(
    trace: &Path,
    filter: &Filter,
    prices: Option<&PriceList>,
    file: &Path,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    check_directory(file)?;
    let loaded = Loaded::read(trace, 1)?;
    let parts = parts(&loaded.trace, filter, prices)?;
    let name = trace.file_name().unwrap_or(trace.as_os_str());
    let text = page(
        &name.to_string_lossy(),
        &parts,
        &pictures::of(&loaded, filter),
    )?;
    save(&text, "--since, --until, --pid", file, stop)
}

/// Writes a page whole or not at all. `smaller` names the options that make a page smaller.
fn save(text: &str, smaller: &str, file: &Path, stop: Arc<AtomicBool>) -> Result<()> {
    if text.len() > MOST_BYTES {
        bail!(
            "the page would have {} bytes, more than can be sent: take less of the trace ({smaller})",
            text.len()
        );
    }
    let mut sink = Sink::open(Some(file), ExportEncoding::Text, Packing::None, stop)?;
    sink.write_all(text.as_bytes())
        .and_then(|()| sink.flush())
        .with_context(|| format!("writing {}", file.display()))?;
    sink.finish()?;
    tell_written(file);
    Ok(())
}

/// Draws the pictures of a trace to files named `FILE-timeline.svg` and so on.
///
/// # Errors
/// If the trace cannot be read, or a file cannot be written.
pub fn plot(trace: &Path, filter: &Filter, file: &Path) -> Result<()> {
    ensure!(
        swtch_plot::check_path(file).is_ok(),
        "{}: the name of a page ends in .html, that of pictures in .svg or .png",
        file.display()
    );
    check_directory(file)?;
    let loaded = Loaded::read(trace, 1)?;
    filter.check_span(Some(Nanos::from_ns(loaded.duration_ns())))?;
    let pictures = pictures::of(&loaded, filter);
    if pictures.is_empty() {
        message!("swtch: nothing was drawn: no switch is counted here");
    }
    write_pictures(&pictures, file)
}

fn page(name: &str, parts: &ExplainPageParts, pictures: &[Picture]) -> Result<String> {
    let figures = pictures
        .iter()
        .map(|picture| figure(picture, MOST_DRAWN_BYTES))
        .collect::<Result<Vec<_>>>()?;
    let body = html! {
        header {
            h1 { "Context switches of " (shown(name)) }
            @for line in &parts.head { p.machine { (shown(line)) } }
            p.machine { "balance: " (shown(&parts.balance)) }
            (contents(parts))
        }
        main {
            (verdict(parts))
            section #pictures {
                h2 { "Over time" }
                @for figure in &figures { (figure) }
            }
            @for (place, (title, sheet)) in parts.tables.iter().enumerate() {
                section id={ "table-" (place) } {
                    h2 { (capital(title)) }
                    (table(title, sheet, ROWS))
                }
            }
        }
        (footer("swtch report -o"))
    };
    Ok(html::page(&format!("Context switches of {name}"), &body))
}

fn footer(command: &str) -> Markup {
    html! {
        footer { p { "Made by swtch " (env!("CARGO_PKG_VERSION")) " (" (command) ")." } }
    }
}

/// A picture as SVG, or as an image if its SVG would be too large.
fn figure(picture: &Picture, most_bytes: usize) -> Result<Markup> {
    let svg = picture.to_svg()?;
    if svg.len() <= most_bytes {
        return Ok(html! { figure { (PreEscaped(svg)) } });
    }
    let png = BASE64.encode(picture.to_png()?);
    let source = format!("data:image/png;base64,{png}");
    Ok(html! { figure { img src=(source) alt=(shown(&picture.title)); } })
}

fn contents(parts: &ExplainPageParts) -> Markup {
    html! {
        nav aria-label="Contents" {
            a href="#verdict" { "Verdict" } " · " a href="#pictures" { "Over time" }
            @for (place, (title, _)) in parts.tables.iter().enumerate() {
                " · " a href={ "#table-" (place) } { (capital(title)) }
            }
        }
    }
}

fn verdict(parts: &ExplainPageParts) -> Markup {
    let is_cause = |finding: &FindingText| finding.number.is_some();
    let (causes, besides) = parts
        .findings
        .split_at(parts.findings.iter().filter(|one| is_cause(one)).count());
    html! {
        section #verdict {
            h2 { "Verdict" }
            @for line in &parts.summary { p { (shown(line)) } }
            @if let Some(nothing) = &parts.without_findings { p { (shown(nothing)) } }
            @if !causes.is_empty() { ol { @for finding in causes { li { (told(finding)) } } } }
            @if !besides.is_empty() {
                p { (BESIDES) }
                ul { @for finding in besides { li { (told(finding)) } } }
            }
        }
    }
}

fn told(finding: &FindingText) -> Markup {
    html! {
        p { strong { (shown(&finding.seen)) } }
        @for place in &finding.places { p { (shown(place)) } }
        @if let Some(worth) = &finding.worth { p { "Worth: " (shown(worth)) } }
        @if let Some(advice) = &finding.advice {
            p { "To change it: " (shown(&advice.change)) " (unless " (advice.unless) ")" }
        }
    }
}

fn capital(title: &str) -> String {
    let mut letters = title.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use swtch_core::{Reason, Timestamp};
    use swtch_fixtures::{after, meta, row, seen};
    use swtch_store::Writer;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[2J";

    fn made(rows: u64) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let meta = meta();
        let mut writer = Writer::create(&path, &meta).unwrap();
        writer.push_task(&seen(1, 10, 10, "server")).unwrap();
        writer.push_task(&seen(2, 20, 20, HOSTILE)).unwrap();
        for number in 0..rows {
            let mut row = after(
                row(1 + u32::from(number % 2 == 1), Reason::Futex),
                Reason::Futex,
                20_000,
                5_000,
            );
            row.ts = Timestamp::from_ns(meta.start_ns + (number + 1) * 200_000);
            writer.push_switch(&row).unwrap();
        }
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        let file = dir.path().join("page.html");
        write(&path, &Filter::default(), None, &file, Arc::default()).unwrap();
        fs::read_to_string(file).unwrap()
    }

    /// The page fetches nothing and runs nothing, and names cannot become markup.
    #[test]
    fn the_page_is_alone_and_hostile_names_are_text() {
        let page = made(500);
        for word in [
            "<script", "src=", "@import", "url(", "<link", "<iframe", "<img",
        ] {
            let page = page.replace("&lt;img src=x", "");
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;\\u{202e}\\x1b[2J"));
        assert!(!page.contains(['\u{202e}', '\u{1b}']));
        assert!(page.matches("<svg ").count() >= 3);
        assert!(page.contains("500 context switches"));
    }

    /// However many switches a trace has, its page stays small enough to send.
    #[test]
    fn a_large_drawing_goes_in_as_an_image() {
        let picture = swtch_plot::figures(&swtch_fixtures::curves::prices()).swap_remove(0);
        let drawn = figure(&picture, usize::MAX).unwrap().into_string();
        assert!(drawn.contains("<svg ") && !drawn.contains("<img"));
        let image = figure(&picture, 1000).unwrap().into_string();
        assert!(
            image.contains("<img src=\"data:image/png;base64,iVBOR") && !image.contains("<svg")
        );
        assert!(image.contains(&format!("alt=\"{}\"", picture.title)));
    }

    /// A trace without switches has a page, too.
    #[test]
    fn an_empty_trace_has_a_page() {
        let page = made(0);
        assert!(page.contains("0 context switches"));
    }
}
