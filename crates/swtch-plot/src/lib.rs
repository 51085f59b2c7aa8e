//! Draws pictures: the curves of a price list, and what the experiments of the lab found.
//!
//! ```text
//! PriceList ──figures──▶ Picture ──layout──▶ chart, lanes or dots ──pen──▶ SVG (text stays text)
//! Findings ─────────────▶   │                                       └────▶ PNG (2 pixels a point)
//!                           └ words, axes, values: what is shown, without places and colours
//! ```
//!
//! Lines differ in colour and in shape ([`palette`]), and their names are at their ends (`spread`). The font is
//! embedded, because machines that measure often have none. A note on the picture names what cannot be drawn at
//! its value.
//!
//! What it does not do: measure, judge, or choose what is shown.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod chart;
pub mod content;
mod curves;
mod dots;
mod lanes;
mod layout;
mod legend;
#[cfg(test)]
mod made_up;
pub mod palette;
mod pen;
mod picture;
mod scale;
mod spread;

pub use content::Picture;
pub use curves::{figures, subtitle};
pub use pen::{FONT_FAMILY, PLOTTERS_FONT_SCALE, cut_to};
pub use picture::{check_path, write_pictures};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use swtch_fixtures::curves::{prices, worst_case};

    use super::made_up::pictures;
    use super::*;

    #[test]
    fn text_of_an_svg_stays_text_and_is_escaped() {
        let mut list = prices();
        list.curves[0].label = "<b>&\u{1b}".to_owned();
        let svg = figures(&list)[0].to_svg().unwrap();
        assert!(svg.contains("What a switch costs, by working set"));
        assert!(svg.contains("&lt;b&gt;&amp;\\x1b"), "hostile label");
        assert!(
            svg.starts_with(r#"<svg width="960" height="#),
            "{}",
            svg.get(..60).unwrap_or(&svg)
        );
    }

    #[test]
    fn the_title_of_an_svg_is_for_those_who_do_not_see_it() {
        let mut picture = figures(&prices()).remove(0);
        picture.title = "a < b & c\u{202e}".to_owned();
        let svg = picture.to_svg().unwrap();
        assert!(svg.contains("role=\"img\""));
        assert!(svg.contains("<title>a &lt; b &amp; c\\u{202e}</title>"));
        assert!(!svg.contains('\u{202e}'));
    }

    #[test]
    fn files_of_both_formats_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let lists = [prices(), worst_case()];
        let all = lists.iter().flat_map(figures).chain(pictures());
        for picture in all {
            for (end, magic) in [("svg", b"<svg".as_slice()), ("png", b"\x89PNG")] {
                let path = dir.path().join(format!("{}.{end}", picture.name));
                picture.write(&path).unwrap();
                assert!(std::fs::read(&path).unwrap().starts_with(magic));
            }
        }
    }

    /// A page holds some twenty of them.
    #[test]
    fn pictures_stay_small() {
        for picture in pictures() {
            let size = picture.to_svg().unwrap().len();
            assert!(size < 300_000, "{}: {size}", picture.name);
        }
    }

    /// For the eye: `SWTCH_PICTURES=DIR cargo test -p swtch-plot pictures_to_look_at`.
    #[test]
    fn pictures_to_look_at_are_left_where_the_environment_says() {
        let Some(dir) = std::env::var_os("SWTCH_PICTURES") else {
            swtch_test::skip!("SWTCH_PICTURES does not say where to leave pictures");
        };
        let lists = [
            ("good", figures(&prices())),
            ("worst", figures(&worst_case())),
            ("lab", pictures()),
        ];
        for (name, pictures) in lists {
            for picture in pictures {
                for end in ["png", "svg"] {
                    let file = format!("{name}-{}.{end}", picture.name);
                    picture.write(&Path::new(&dir).join(file)).unwrap();
                }
            }
        }
    }
}
