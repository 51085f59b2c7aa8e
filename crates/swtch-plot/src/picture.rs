//! Writes pictures as SVG and PNG files.

use std::io::BufWriter;
use std::path::Path;

use anyhow::{Result, bail};
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::drawing::IntoDrawingArea;
use swtch_output::destination::{beside, tell_written, write_whole};
use swtch_output::text::escaped;

use super::content::Picture;
use super::layout::{Layout, WIDTH};
use super::pen::Pen;

/// Width of a picture in points, which are the pixels of a page.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number"
)]
const WIDTH_PX: u32 = WIDTH as u32;

/// Pixels a point in a PNG: for screens of high density and for print.
const PNG_SCALE: u32 = 2;
/// The bitmap backend smooths neither wide lines nor shapes, so pictures are drawn this much larger
/// and made smaller.
const OVERSAMPLING: u32 = 2;
/// Units a point inside an SVG, whose backend takes whole numbers.
const SVG_SCALE: u32 = 4;
/// Share of a text's size by which the bitmap backend writes it too high: it centres the text's
/// box, not its letters (plotters 0.3.7 with `ab_glyph`). Measured on pictures.
const BITMAP_TEXT_DROP: f64 = 0.15;
const CHANNELS: u32 = 3;

/// A file format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PictureFormat {
    Svg,
    Png,
}

impl PictureFormat {
    fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().map(|end| end.to_ascii_lowercase());
        match extension.as_ref().and_then(|end| end.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            Some(other) => bail!(
                "cannot draw {}: .{other} is not known, end it in .svg or .png",
                path.display()
            ),
            None => bail!(
                "cannot draw {}: its name must end in .svg or .png",
                path.display()
            ),
        }
    }
}

/// Checks that [`Picture::write`] knows the format that the name of `path` ends in, before minutes
/// are spent on measuring.
///
/// # Errors
/// The format is not known; the message says which are.
pub fn check_path(path: &Path) -> Result<()> {
    PictureFormat::of(path).map(|_| ())
}

impl Picture {
    /// Writes the picture as SVG or PNG, by the ending of the file's name.
    ///
    /// # Errors
    /// The name has another ending, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes = match PictureFormat::of(path)? {
            PictureFormat::Svg => self.to_svg()?.into_bytes(),
            PictureFormat::Png => self.to_png()?,
        };
        write_whole(path, &bytes)
    }

    /// The picture as an SVG document, whose title is read aloud to those who do not see it.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn to_svg(&self) -> Result<String> {
        let layout = Layout::of(self)?;
        let (width, height) = (WIDTH_PX * SVG_SCALE, layout.height * SVG_SCALE);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
            layout.draw(self, &Pen::new(&area, f64::from(SVG_SCALE)))?;
            area.present()?;
        }
        // The size shown is in pixels of the page, not in the finer units inside.
        let inner = format!(r#"<svg width="{width}" height="{height}""#);
        let shown = format!(
            r#"<svg width="{WIDTH_PX}" height="{}" role="img""#,
            layout.height
        );
        let title = format!(">\n<title>{}</title>", xml_escaped(&self.title));
        let svg = svg.replacen(&inner, &shown, 1).replacen('>', &title, 1);
        // The backend writes default attributes on every shape, a third of the bytes.
        let shorter = |line: &str| match line.starts_with('<') {
            true => line
                .replace(" opacity=\"1\"", "")
                .replace(" stroke=\"none\"", ""),
            // The words of a text stand in lines of their own.
            false => line.to_owned(),
        };
        Ok(svg.split_inclusive('\n').map(shorter).collect())
    }

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let layout = Layout::of(self)?;
        let scale = PNG_SCALE * OVERSAMPLING;
        let (width, height) = (WIDTH_PX * scale, layout.height * scale);
        let mut pixels = vec![0; (width * height * CHANNELS) as usize];
        {
            let area = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
            let pen = Pen::new(&area, f64::from(scale)).with_text_drop(BITMAP_TEXT_DROP);
            layout.draw(self, &pen)?;
            area.present()?;
        }
        let pixels = halved(&pixels, width as usize);
        let size = (WIDTH_PX * PNG_SCALE, layout.height * PNG_SCALE);
        encode(&pixels, size, self)
    }
}

fn xml_escaped(text: &str) -> String {
    let text = escaped(text);
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A picture of half the width and height: each pixel the mean of four.
fn halved(pixels: &[u8], width: usize) -> Vec<u8> {
    let row = width * CHANNELS as usize;
    let mut smaller = Vec::with_capacity(pixels.len() / 4);
    for rows in pixels.chunks_exact(2 * row) {
        let (upper, lower) = rows.split_at(row);
        let columns = 2 * CHANNELS as usize;
        for (upper, lower) in upper.chunks_exact(columns).zip(lower.chunks_exact(columns)) {
            for channel in 0..CHANNELS as usize {
                let next = channel + CHANNELS as usize;
                let four = [upper[channel], upper[next], lower[channel], lower[next]];
                let sum: u16 = four.into_iter().map(u16::from).sum();
                smaller.push(u8::try_from((sum + 2) / 4).unwrap_or(u8::MAX));
            }
        }
    }
    smaller
}

fn encode(pixels: &[u8], (width, height): (u32, u32), picture: &Picture) -> Result<Vec<u8>> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(BufWriter::new(&mut file), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_itxt_chunk("Title".to_owned(), escaped(&picture.title).into_owned())?;
    encoder.add_itxt_chunk(
        "Description".to_owned(),
        escaped(&picture.subtitle).into_owned(),
    )?;
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(file)
}

/// Writes pictures: one to the file itself, several each to a file of its own beside it. Reports
/// each file that was written.
///
/// # Errors
/// If one cannot be drawn or written.
pub fn write_pictures(pictures: &[Picture], path: &Path) -> Result<()> {
    for picture in pictures {
        let place = match pictures {
            [_] => path.to_owned(),
            _ => beside(path, &picture.name),
        };
        picture.write(&place)?;
        tell_written(&place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_told_by_the_end_of_the_name() {
        let kind = |path: &str| PictureFormat::of(Path::new(path));
        assert_eq!(kind("a/b.svg").unwrap(), PictureFormat::Svg);
        assert_eq!(kind("b.PNG").unwrap(), PictureFormat::Png);
        let refusal = kind("b.pdf").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "cannot draw b.pdf: .pdf is not known, end it in .svg or .png"
        );
        assert!(check_path(Path::new("figure")).is_err());
    }

    #[test]
    fn four_pixels_become_their_mean() {
        let black_and_white = [
            [0, 0, 0, 255, 255, 255].as_slice(),
            &[255, 255, 255, 0, 0, 0],
        ]
        .concat();
        assert_eq!(halved(&black_and_white, 2), [128, 128, 128]);
    }
}
