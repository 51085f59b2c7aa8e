//! The parts that all HTML pages share. Such a page is a file to send: it fetches nothing and runs
//! no script.
//!
//! Text is escaped by the templates; figures are our own SVG. A page may show names that others
//! chose, so its policy allows no script and no network, even if markup got through the escaping.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use swtch_output::text::{CellAlignment, escaped};

use crate::report::{RenderedTable, Sheet};

/// The style sheet of every page.
const STYLE: &str = include_str!("html.css");

/// The content security policy of every page: only inline styles and embedded images.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A whole page: the head that every page needs, around its own body.
pub fn page(title: &str, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (shown(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    markup.into_string()
}

/// Text that may come from others, with control and invisible characters made visible.
pub fn shown(text: &str) -> String {
    escaped(text).into_owned()
}

/// A table of the first `most` rows of a sheet, with its notes.
pub fn table(title: &str, sheet: &Sheet, most: usize) -> Markup {
    let title = shown(title);
    html! {
        @if sheet.rows.is_empty() { p { (title) ": no rows" } }
        @else { @for part in sheet.shown(most) {
            div.wide tabindex="0" role="region" aria-label=(title) {
                table { (cells(&title, &part)) }
            }
        } }
        @if sheet.rows.len() > most { p.aside { (sheet.rows.len() - most) " more rows are not shown" } }
        @for note in &sheet.notes { p.aside { (shown(note)) } }
    }
}

fn cells(title: &str, part: &RenderedTable) -> Markup {
    let class = |column: usize| match part.head[column].1 {
        CellAlignment::Left => None,
        CellAlignment::Right => Some("number"),
    };
    let row = |cells: &[String]| {
        html! {
            tr { @for (column, cell) in cells.iter().enumerate() {
                td class=[class(column)] { (cell) }
            } }
        }
    };
    html! {
        caption { (title) @if !part.title.is_empty() { ": " (part.title) } }
        thead { tr { @for (column, (name, _)) in part.head.iter().enumerate() {
            th scope="col" class=[class(column)] { (name) }
        } } }
        tbody { @for cells in &part.rows { (row(cells)) } }
        @if let Some(total) = &part.total { tfoot { (row(total)) } }
    }
}

/// Notes that a reader must know about; nothing if there are none.
pub fn notes(notes: &[String]) -> Markup {
    html! {
        @if !notes.is_empty() {
            div.notes {
                h3 { "To be known when reading" }
                ul { @for note in notes { li { (shown(note)) } } }
            }
        }
    }
}
