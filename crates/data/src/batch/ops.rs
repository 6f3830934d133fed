//! Changes of one 8-bit image in place: colours, and where pixels lie.
//!
//! Values are Pillow's, and so torchvision's for Pillow images: a changed value is cut off, not rounded, and grey is ITU-R 601
//! in 16 bits. Hue is the exception: Pillow goes through a hue of 8 bits, so there torchvision's arithmetic on tensors is
//! followed, with rounding to the nearest level.
//!
//! Rotation, shear and translation take the nearest pixel, with coordinates in 1/65536 of a pixel, and black from outside.
//! Rotation is about the middle of the image, shear about its upper left corner, both as torchvision's RandAugment has them.
//!
//! What torchvision makes of tensors differs from that of Pillow images, and so from ours, by a level at most; a rotation may
//! take another pixel where the nearest is a close call.

/// What can be done to an image.
///
/// A factor of 1 leaves the image as it is, 0 leaves nothing of what the change speaks of, and more than 1 exaggerates it. Of
/// a grey image, saturation and hue change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Nothing.
    Identity,
    /// By a factor, from black.
    Brightness(f32),
    /// By a factor, from the mean grey of the image.
    Contrast(f32),
    /// By a factor, from the grey of each pixel.
    Saturation(f32),
    /// By a part of the full turn: 0.5 and -0.5 give the complementary colours.
    Hue(f32),
    /// By a factor, from the image smoothed by the 3 x 3 neighbours (5 in the middle); the edge stays.
    Sharpness(f32),
    /// Only so many of the upper bits stay; 8 and more: nothing changes.
    Posterize(u8),
    /// Values from this on are inverted; 256: none, 0: all.
    Solarize(u16),
    /// Each channel is stretched to 0..=255.
    AutoContrast,
    /// Each channel's values become as evenly distributed as their order allows.
    Equalize,
    /// Counter-clockwise by so many degrees.
    Rotate(f32),
    /// Every row to the left by this times its distance from the top.
    ShearX(f32),
    /// Every column upwards by this times its distance from the left.
    ShearY(f32),
    /// To the right by so many pixels.
    TranslateX(i32),
    /// Downwards by so many pixels.
    TranslateY(i32),
}

/// Changes images of one size; keeps the room that changes need between calls.
#[derive(Clone, Debug)]
pub struct Changer {
    height: usize,
    width: usize,
    /// The image before the change.
    before: Vec<u8>,
    /// Where the pixels of one row come from; outside of the image: beyond its end.
    sources: Vec<usize>,
}

impl Changer {
    /// For images of this size.
    #[must_use]
    pub fn new(height: usize, width: usize) -> Self {
        Self { height, width, before: Vec::new(), sources: Vec::new() }
    }

    /// Changes an image.
    ///
    /// # Shapes
    /// `image` is channels x height x width, with 1 channel (grey) or 3 (red, green, blue).
    ///
    /// # Panics
    /// If it has another size.
    pub fn apply(&mut self, change: Change, image: &mut [u8]) {
        let plane = self.height * self.width;
        assert!(image.len() == plane || image.len() == 3 * plane, "one or three channels of the size");
        if plane == 0 {
            return;
        }
        match change {
            Change::Identity => {}
            Change::Brightness(factor) => image.iter_mut().for_each(|x| *x = blend(0, *x, factor)),
            Change::Contrast(factor) => {
                let mean = mean(image, plane);
                image.iter_mut().for_each(|x| *x = blend(mean, *x, factor));
            }
            Change::Saturation(factor) => each_colour(image, plane, |[r, g, b]| {
                let grey = grey(r, g, b);
                [blend(grey, r, factor), blend(grey, g, factor), blend(grey, b, factor)]
            }),
            Change::Hue(turn) => {
                let sectors = 6.0 * turn.rem_euclid(1.0);
                each_colour(image, plane, |colour| turned(colour, sectors));
            }
            Change::Sharpness(factor) => self.sharpen(image, factor),
            Change::Posterize(bits) => {
                let gone = 255u8.checked_shr(bits.into()).unwrap_or(0);
                image.iter_mut().for_each(|x| *x &= !gone);
            }
            Change::Solarize(threshold) => {
                image.iter_mut().for_each(|x| *x = if u16::from(*x) >= threshold { 255 - *x } else { *x });
            }
            Change::AutoContrast => image.chunks_exact_mut(plane).for_each(stretch),
            Change::Equalize => image.chunks_exact_mut(plane).for_each(equalize),
            Change::Rotate(degrees) => {
                let (sin, cos) = f64::from(degrees).to_radians().sin_cos();
                let (x, y) = (self.width as f64 / 2.0, self.height as f64 / 2.0);
                self.warp(image, [cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]);
            }
            Change::ShearX(level) => self.warp(image, [1.0, level.into(), 0.0], [0.0, 1.0, 0.0]),
            Change::ShearY(level) => self.warp(image, [1.0, 0.0, 0.0], [level.into(), 1.0, 0.0]),
            Change::TranslateX(pixels) => self.warp(image, [1.0, 0.0, -f64::from(pixels)], [0.0, 1.0, 0.0]),
            Change::TranslateY(pixels) => self.warp(image, [1.0, 0.0, 0.0], [0.0, 1.0, -f64::from(pixels)]),
        }
    }

    /// Keeps the image as it is before a change.
    fn remember(&mut self, image: &[u8]) {
        self.before.clear();
        self.before.extend_from_slice(image);
    }

    /// Away from the smoothed image, or towards it.
    fn sharpen(&mut self, image: &mut [u8], factor: f32) {
        let (height, width) = (self.height, self.width);
        if height < 3 || width < 3 {
            return;
        }
        self.remember(image);
        let planes = self.before.chunks_exact(height * width).zip(image.chunks_exact_mut(height * width));
        for (from, to) in planes {
            for y in 1..height - 1 {
                let row = |y: usize| from[y * width..][..width].array_windows::<3>();
                let rows = row(y - 1).zip(row(y)).zip(row(y + 1));
                for (to, ((above, here), below)) in to[y * width + 1..].iter_mut().zip(rows) {
                    let three = |[a, b, c]: [u8; 3]| u16::from(a) + u16::from(b) + u16::from(c);
                    let sum = three(*above) + three(*here) + three(*below) + 4 * u16::from(here[1]);
                    // a thirteenth, to the nearest
                    *to = blend(((2 * sum + 13) / 26) as u8, here[1], factor);
                }
            }
        }
    }

    /// Takes every pixel from where (column, row, 1) times these two rows of a matrix lies.
    fn warp(&mut self, image: &mut [u8], column: [f64; 3], row: [f64; 3]) {
        // far beyond any image, and small enough to be multiplied by a side
        const FAR: f64 = (1u64 << 40) as f64;
        let fixed = |x: f64| (x * 65536.0 + 0.5).floor().clamp(-FAR, FAR) as i64;
        // at the middle of the first pixel, one pixel to the right, one down
        let steps = |m: [f64; 3]| (fixed(m[2] + (m[0] + m[1]) / 2.0), fixed(m[0]), fixed(m[1]));
        let (columns, rows) = (steps(column), steps(row));
        let (height, width) = (self.height, self.width);
        self.remember(image);
        for y in 0..height {
            let (mut column, mut row) = (columns.0 + y as i64 * columns.2, rows.0 + y as i64 * rows.2);
            self.sources.clear();
            self.sources.extend((0..width).map(|_| {
                // what is negative is beyond every side
                let (x, y) = ((column >> 16) as usize, (row >> 16) as usize);
                column += columns.1;
                row += rows.1;
                if x < width && y < height { y * width + x } else { usize::MAX }
            }));
            let planes = self.before.chunks_exact(height * width).zip(image.chunks_exact_mut(height * width));
            for (from, to) in planes {
                for (to, source) in to[y * width..][..width].iter_mut().zip(&self.sources) {
                    *to = from.get(*source).copied().unwrap_or(0);
                }
            }
        }
    }
}

/// `from` where the factor is 0, `to` where it is 1, on the line through them elsewhere.
#[inline(always)]
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let from = f32::from(from);
    level(from + factor * (f32::from(to) - from))
}

/// Cut off to a level; 0 if it is not a number. What `as u8` does too, but for many pixels at once.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` would leave what is not a number")]
fn level(x: f32) -> u8 {
    let inside = x.max(0.0).min(255.0);
    // SAFETY: `max` has made 0 of what is not a number, and the rest lies in 0..=255.
    let whole: i32 = unsafe { inside.to_int_unchecked() };
    whole as u8
}

/// The grey of a colour.
#[inline(always)]
fn grey(r: u8, g: u8, b: u8) -> u8 {
    ((19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// Red, green and blue of an image, unless it is grey.
fn colours(image: &mut [u8], plane: usize) -> Option<[&mut [u8]; 3]> {
    let (red, rest) = image.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut_checked(plane)?;
    Some([red, green, blue])
}

/// The mean grey, to the nearest level.
fn mean(image: &mut [u8], plane: usize) -> u8 {
    let sum: u64 = match colours(image, plane) {
        Some([red, green, blue]) => {
            red.iter().zip(green).zip(blue).map(|((r, g), b)| u64::from(grey(*r, *g, *b))).sum()
        }
        None => image.iter().map(|x| u64::from(*x)).sum(),
    };
    ((2 * sum + plane as u64) / (2 * plane as u64)) as u8
}

/// Changes every pixel of an image, unless it is grey.
#[inline(always)]
fn each_colour(image: &mut [u8], plane: usize, change: impl Fn([u8; 3]) -> [u8; 3]) {
    let Some([red, green, blue]) = colours(image, plane) else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        [*r, *g, *b] = change([*r, *g, *b]);
    }
}

/// A colour whose hue is turned by so many sixths of a turn, 0 to 6; lightest and darkest channel keep their values.
#[inline(always)]
fn turned(colour: [u8; 3], sectors: f32) -> [u8; 3] {
    let [r, g, b] = colour.map(f32::from);
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let span = most - least;
    // where the colour is on the way round, from red by green and blue back to red
    let (sector, rest) = if most == r {
        (0.0, g - b)
    } else if most == g {
        (2.0, b - r)
    } else {
        (4.0, r - g)
    };
    let hue = sector + rest / span.max(1.0) + sectors;
    [5.0, 3.0, 1.0].map(|offset| {
        // 0 to 16 before
        let k = hue + offset;
        let k = if k >= 12.0 { k - 12.0 } else { k };
        let k = if k >= 6.0 { k - 6.0 } else { k };
        level(most - span * k.min(4.0 - k).clamp(0.0, 1.0) + 0.5)
    })
}

/// Stretches a channel to 0..=255.
fn stretch(channel: &mut [u8]) {
    let (least, most) = channel.iter().fold((255, 0), |(least, most), x| (*x.min(&least), *x.max(&most)));
    if least >= most {
        return;
    }
    let scale = 255.0 / f64::from(most - least);
    let offset = -f64::from(least) * scale;
    let table: [u8; 256] = std::array::from_fn(|x| (x as f64 * scale + offset) as u8);
    channel.iter_mut().for_each(|x| *x = table[usize::from(*x)]);
}

/// Gives every level of a channel its place among all pixels; the lightest level has no say in how far apart they come.
fn equalize(channel: &mut [u8]) {
    let mut counts = [0usize; 256];
    channel.iter().for_each(|x| counts[usize::from(*x)] += 1);
    let lightest = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
    let step = (channel.len() - lightest) / 255;
    // too few pixels, or one level
    if step == 0 {
        return;
    }
    let mut below = step / 2;
    let table = counts.map(|count| {
        let level = (below / step).min(255) as u8;
        below += count;
        level
    });
    channel.iter_mut().for_each(|x| *x = table[usize::from(*x)]);
}

#[cfg(test)]
mod tests {
    use equipoise_random::Draws;

    use super::*;

    /// Random colours, 3 x 9 x 7.
    fn image() -> Vec<u8> {
        (0..189).map(|i| Draws::new(1, 2, 3).at(i) as u8).collect()
    }

    fn changed(change: Change, image: &[u8], height: usize, width: usize) -> Vec<u8> {
        let mut image = image.to_vec();
        Changer::new(height, width).apply(change, &mut image);
        image
    }

    #[test]
    fn changes_of_nothing_change_nothing() {
        use Change::{
            Brightness, Contrast, Hue, Identity, Posterize, Rotate, Saturation, Sharpness, ShearX, ShearY, Solarize,
            TranslateX, TranslateY,
        };
        let image = image();
        for change in [
            Identity,
            Brightness(1.0),
            Contrast(1.0),
            Saturation(1.0),
            Sharpness(1.0),
            Hue(0.0),
            Hue(1.0),
            Hue(-1.0),
            Posterize(8),
            Posterize(200),
            Solarize(256),
            Rotate(0.0),
            Rotate(360.0),
            ShearX(0.0),
            ShearY(0.0),
            TranslateX(0),
            TranslateY(0),
        ] {
            assert_eq!(changed(change, &image, 9, 7), image, "{change:?}");
        }
    }

    #[test]
    fn factors_of_zero_leave_black_grey_and_the_mean() {
        let image = image();
        assert!(changed(Change::Brightness(0.0), &image, 9, 7).iter().all(|x| *x == 0));
        let flat = changed(Change::Contrast(0.0), &image, 9, 7);
        assert!(flat.iter().all(|x| *x == flat[0]));
        let grey = changed(Change::Saturation(0.0), &image, 9, 7);
        assert!(grey[..63] == grey[63..126] && grey[..63] == grey[126..]);
        assert_ne!(grey[0], grey[1]);
        // a thirteenth of it, five in the middle
        let mut dot = [0u8; 25];
        dot[12] = 130;
        let mut want = [0u8; 25];
        [6, 7, 8, 11, 13, 16, 17, 18].iter().for_each(|i| want[*i] = 10);
        want[12] = 50;
        assert_eq!(changed(Change::Sharpness(0.0), &dot, 5, 5), want);
        let bright = changed(Change::Brightness(1e9), &image, 9, 7);
        assert!(bright.iter().zip(&image).all(|(to, from)| *to == if *from == 0 { 0 } else { 255 }));
    }

    #[test]
    fn levels() {
        let image = image();
        let inverted: Vec<u8> = image.iter().map(|x| 255 - x).collect();
        assert_eq!(changed(Change::Solarize(0), &image, 9, 7), inverted);
        assert_eq!(changed(Change::Solarize(100), &[99, 100, 101], 1, 1), [99, 155, 154]);
        assert_eq!(changed(Change::Posterize(1), &[127, 128, 255], 1, 1), [0, 128, 128]);
        assert_eq!(changed(Change::Posterize(0), &[127, 128, 255], 1, 1), [0, 0, 0]);
        assert_eq!(changed(Change::AutoContrast, &[50, 100, 150], 1, 3), [0, 127, 255]);
        assert_eq!(changed(Change::AutoContrast, &[50, 50, 50], 1, 3), [50, 50, 50]);
    }

    #[test]
    fn equalized_levels_are_evenly_spread() {
        // every level equally often: they are where they should be
        let flat: Vec<u8> = (0..=255).cycle().take(1024).collect();
        assert_eq!(changed(Change::Equalize, &flat, 32, 32), flat);
        // four levels, equally often
        let four: Vec<u8> = [10, 11, 12, 13].into_iter().cycle().take(1024).collect();
        let mut levels = changed(Change::Equalize, &four, 32, 32);
        levels.truncate(4);
        assert_eq!(levels, [0, 85, 171, 255]);
        // nothing to spread
        assert_eq!(changed(Change::Equalize, &[7; 1024], 32, 32), [7; 1024]);
        assert_eq!(changed(Change::Equalize, &[1, 2, 3], 1, 3), [1, 2, 3]);
    }

    #[test]
    fn hue_goes_round() {
        // red, green, blue and red again
        assert_eq!(changed(Change::Hue(1.0 / 3.0), &[200, 10, 10], 1, 1), [10, 200, 10]);
        assert_eq!(changed(Change::Hue(2.0 / 3.0), &[200, 10, 10], 1, 1), [10, 10, 200]);
        assert_eq!(changed(Change::Hue(-1.0 / 3.0), &[200, 10, 10], 1, 1), [10, 10, 200]);
        // cyan against red
        assert_eq!(changed(Change::Hue(0.5), &[200, 10, 10], 1, 1), [10, 200, 200]);
        assert_eq!(changed(Change::Hue(0.3), &[70, 70, 70], 1, 1), [70, 70, 70]);
        let image = image();
        let twice = changed(Change::Hue(0.5), &changed(Change::Hue(0.5), &image, 9, 7), 9, 7);
        assert!(twice.iter().zip(&image).all(|(a, b)| a.abs_diff(*b) <= 1));
    }

    /// The row and column that a pixel comes from.
    type Source = fn(i32, i32) -> (i32, i32);

    /// An image with every pixel from its source, by a plain loop.
    fn moved(image: &[u8], height: i32, width: i32, from: Source) -> Vec<u8> {
        let at = |i: i32| {
            let (c, y, x) = (i / (height * width), i / width % height, i % width);
            let (y, x) = from(y, x);
            let inside = (0..height).contains(&y) && (0..width).contains(&x);
            if inside { image[(c * height * width + y * width + x) as usize] } else { 0 }
        };
        (0..image.len() as i32).map(at).collect()
    }

    #[test]
    fn whole_turns_and_pixels_are_exact() {
        let image = image();
        let cases: [(Change, Source); 8] = [
            (Change::Rotate(180.0), |y, x| (8 - y, 6 - x)),
            (Change::Rotate(-180.0), |y, x| (8 - y, 6 - x)),
            (Change::TranslateX(2), |y, x| (y, x - 2)),
            (Change::TranslateX(-3), |y, x| (y, x + 3)),
            (Change::TranslateY(4), |y, x| (y - 4, x)),
            (Change::TranslateY(i32::MIN), |_, _| (-1, -1)),
            // the middle of a row lies half a pixel down, which is rounded up
            (Change::ShearX(1.0), |y, x| (y, x + y + 1)),
            (Change::ShearY(2.0), |y, x| (y + 2 * x + 1, x)),
        ];
        for (change, from) in cases {
            assert_eq!(changed(change, &image, 9, 7), moved(&image, 9, 7, from), "{change:?}");
        }
        let square = &image[..147];
        let quarters: [(f32, Source); 3] =
            [(90.0, |y, x| (x, 6 - y)), (-90.0, |y, x| (6 - x, y)), (270.0, |y, x| (6 - x, y))];
        for (degrees, from) in quarters {
            assert_eq!(changed(Change::Rotate(degrees), square, 7, 7), moved(square, 7, 7, from), "{degrees}");
        }
    }

    #[test]
    fn no_number_is_too_much() {
        let image = image();
        for x in [f32::NAN, f32::INFINITY, -f32::MAX, f32::MAX, 1e-40] {
            for change in [
                Change::Brightness(x),
                Change::Contrast(x),
                Change::Saturation(x),
                Change::Sharpness(x),
                Change::Hue(x),
                Change::Rotate(x),
                Change::ShearX(x),
                Change::ShearY(x),
            ] {
                changed(change, &image, 9, 7);
            }
        }
        for (height, width) in [(0, 0), (1, 1), (1, 5), (5, 1), (2, 2)] {
            for change in [Change::Sharpness(2.0), Change::Equalize, Change::Rotate(30.0), Change::Contrast(0.5)] {
                changed(change, &image[..height * width], height, width);
            }
        }
    }

    #[test]
    fn grey_images_have_no_colour_to_change() {
        let grey = &image()[..63];
        for change in [Change::Saturation(0.3), Change::Hue(0.3)] {
            assert_eq!(changed(change, grey, 9, 7), grey);
        }
        assert_eq!(changed(Change::Contrast(0.0), &[10, 21], 1, 2), [16, 16]);
    }

    #[test]
    #[should_panic(expected = "one or three channels")]
    fn another_size_is_a_bug() {
        Changer::new(2, 2).apply(Change::Identity, &mut [0; 8]);
    }
}
