//! A contact sheet: groups of small images with labels, as one PNG file.

use std::io::Cursor;

use font8x8::{BASIC_FONTS, GREEK_FONTS, LATIN_FONTS, UnicodeFonts};
use image::imageops::{self, FilterType};
use image::{ImageFormat, Rgb, RgbImage};

use crate::dataset::Pixels;
use crate::error::DataError;

/// A group of images with a title.
pub struct SheetGroup {
    /// Text above the images.
    pub title: String,
    /// Images side by side.
    pub columns: Vec<SheetColumn>,
}

/// Images one below the other.
pub struct SheetColumn {
    /// Text above the images.
    pub title: String,
    /// The images.
    pub tiles: Vec<Tile>,
}

/// An image of a contact sheet.
pub struct Tile {
    /// The image; others after the first are not shown.
    pub pixels: Pixels,
    /// Text below the image.
    pub caption: String,
}

/// Height and width of a tile.
const TILE: u32 = 112;
/// Height and width of a character.
const LETTER: u32 = 8;
/// Space between tiles, and around the sheet.
const GAP: u32 = 8;
/// Height of a line of text with the space below it.
const LINE: u32 = LETTER + 4;
/// Height of a group's title with the space around it.
const TITLE: u32 = 2 * LETTER + 2 * GAP;

const WHITE: Rgb<u8> = Rgb([255; 3]);
const BLACK: Rgb<u8> = Rgb([0; 3]);

/// Draws a contact sheet, as the bytes of a PNG file.
///
/// # Errors
/// If an image has no pixels, or the sheet is too large for a PNG file.
pub fn contact_sheet(groups: &[SheetGroup]) -> Result<Vec<u8>, DataError> {
    let columns = groups.iter().map(|group| group.columns.len()).max().unwrap_or(0).max(1) as u32;
    let height = 2 * GAP + groups.iter().map(group_height).sum::<u32>();
    let mut sheet = RgbImage::from_pixel(GAP + columns * (TILE + GAP), height, WHITE);
    let mut top = GAP;
    for group in groups {
        write(&mut sheet, [GAP, top + GAP], &group.title, 2, columns * (TILE + GAP));
        for (number, column) in (0u32..).zip(&group.columns) {
            let left = GAP + number * (TILE + GAP);
            write(&mut sheet, [left, top + TITLE], &column.title, 1, TILE);
            for (row, tile) in (0u32..).zip(&column.tiles) {
                let top = top + TITLE + LINE + row * (TILE + LINE + GAP / 2);
                draw(&mut sheet, [left, top], &tile.pixels)?;
                write(&mut sheet, [left, top + TILE + 2], &tile.caption, 1, TILE);
            }
        }
        top += group_height(group);
    }
    let mut bytes = Cursor::new(Vec::new());
    let failed = |error: image::ImageError| DataError::Sheet { what: error.to_string() };
    sheet.write_to(&mut bytes, ImageFormat::Png).map_err(failed)?;
    Ok(bytes.into_inner())
}

fn group_height(group: &SheetGroup) -> u32 {
    let rows = group.columns.iter().map(|column| column.tiles.len()).max().unwrap_or(0) as u32;
    TITLE + LINE + rows * (TILE + LINE + GAP / 2)
}

/// Draws an image into a square, as large as it fits. Small images keep hard pixels.
fn draw(sheet: &mut RgbImage, [left, top]: [u32; 2], pixels: &Pixels) -> Result<(), DataError> {
    let image = in_color(pixels)?;
    let longest = image.width().max(image.height());
    let scaled = |side: u32| (u64::from(side) * u64::from(TILE) / u64::from(longest)).max(1) as u32;
    let filter = if longest < TILE { FilterType::Nearest } else { FilterType::Triangle };
    let image = imageops::resize(&image, scaled(image.width()), scaled(image.height()), filter);
    let middle = |side: u32| (TILE - side) / 2;
    let (x, y) = (left + middle(image.width()), top + middle(image.height()));
    imageops::replace(sheet, &image, x.into(), y.into());
    Ok(())
}

/// The first of these images, in color.
pub(super) fn in_color(pixels: &Pixels) -> Result<RgbImage, DataError> {
    let (plane, gray) = (pixels.height * pixels.width, pixels.channels == 1);
    if plane == 0 || pixels.is_empty() {
        return Err(DataError::Sheet { what: "an image without pixels".to_owned() });
    }
    let values = pixels.image(0);
    Ok(RgbImage::from_fn(pixels.width as u32, pixels.height as u32, |x, y| {
        let at = y as usize * pixels.width + x as usize;
        Rgb([0, 1, 2].map(|channel| values[if gray { at } else { channel * plane + at }]))
    }))
}

/// Writes text that is cut off after a width. Characters that the font lacks become question marks.
fn write(sheet: &mut RgbImage, [left, top]: [u32; 2], text: &str, scale: u32, width: u32) {
    let fitting = (width / (LETTER * scale)) as usize;
    let mut letters: Vec<char> = text.chars().collect();
    if letters.len() > fitting {
        letters.truncate(fitting.saturating_sub(2));
        letters.extend("..".chars());
    }
    for (number, letter) in (0u32..).zip(letters) {
        let glyph = [BASIC_FONTS.get(letter), LATIN_FONTS.get(letter), GREEK_FONTS.get(letter), BASIC_FONTS.get('?')];
        let rows = glyph.into_iter().flatten().next().unwrap_or_default();
        for (y, x) in (0..LETTER * scale).flat_map(|y| (0..LETTER * scale).map(move |x| (y, x))) {
            let is_set = rows[(y / scale) as usize] >> (x / scale) & 1 == 1;
            let at = (left + number * LETTER * scale + x, top + y);
            if let (true, Some(pixel)) = (is_set, sheet.get_pixel_mut_checked(at.0, at.1)) {
                *pixel = BLACK;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::decode::{DecodeLimits, decode};

    fn tile(channels: usize, side: usize, value: u8) -> Tile {
        let bytes = vec![value; channels * side * side].into();
        Tile { pixels: Pixels { channels, height: side, width: side, bytes }, caption: "caption".to_owned() }
    }

    fn sheet(title: &str) -> Vec<SheetGroup> {
        let column = |title: &str, tiles| SheetColumn { title: title.to_owned(), tiles };
        let columns = vec![column("a", vec![tile(1, 28, 100), tile(3, 224, 200)]), column("b", vec![tile(3, 32, 50)])];
        vec![SheetGroup { title: title.to_owned(), columns }]
    }

    #[test]
    fn images_are_at_their_places() {
        let png = contact_sheet(&sheet("Many")).expect("it fits");
        let image = decode(&png, DecodeLimits::default()).expect("a PNG file");
        assert_eq!((image.width, image.height), (8 + 2 * 120, 16 + 32 + 12 + 2 * 128));
        let at = |x: u32, y: u32| image.bytes[3 * (y * image.width + x) as usize..][..3].to_vec();
        // the center of each tile, and the empty place of a fourth
        let (left, top) = (8 + 56, 8 + 32 + 12 + 56);
        assert_eq!(at(left, top), [100; 3]);
        assert_eq!(at(left, top + 128), [200; 3]);
        assert_eq!(at(left + 120, top), [50; 3]);
        assert_eq!(at(left + 120, top + 128), [255; 3]);
    }

    #[test]
    fn letters_can_be_read_back() {
        let mut page = RgbImage::from_pixel(40, 8, WHITE);
        write(&mut page, [0, 0], "L\u{e9}\u{4e00}", 1, 40);
        let letter = |number: u32| -> Vec<String> {
            let row = |y| (0..7).map(|x| if page.get_pixel(8 * number + x, y) == &BLACK { '#' } else { '.' }).collect();
            (0..7).map(row).collect()
        };
        let want = ["####...", ".##....", ".##....", ".##....", ".##...#", ".##..##", "#######"];
        assert_eq!(letter(0), want);
        let mut question = RgbImage::from_pixel(8, 8, WHITE);
        write(&mut question, [0, 0], "?", 1, 8);
        let third = imageops::crop_imm(&page, 16, 0, 8, 8).to_image();
        assert_eq!(third, question, "a letter that the font lacks");
        assert_ne!(imageops::crop_imm(&page, 8, 0, 8, 8).to_image(), question, "an accent");
    }

    #[test]
    fn long_texts_are_cut_off() {
        let written = |text: &str| {
            let mut page = RgbImage::from_pixel(80, 8, WHITE);
            write(&mut page, [0, 0], text, 1, 40);
            page
        };
        assert_eq!(written("airplanes"), written("air.."));
        assert_ne!(written("plane"), written("pla.."));
    }

    #[test]
    fn an_image_without_pixels_is_refused() {
        let mut groups = sheet("Many");
        groups[0].columns[0].tiles[0] = tile(3, 0, 0);
        let error = contact_sheet(&groups).expect_err("nothing to draw").to_string();
        assert_eq!(error, "the sheet of images cannot be drawn: an image without pixels");
    }
}
