//! Augmentation operations on one 8-bit image in place: colors and geometry.
//!
//! The values are Pillow's, and so torchvision's for Pillow images: values are truncated, not rounded, and gray is ITU-R 601 in
//! 16 bits. Hue is the exception: Pillow uses a hue of 8 bits, so hue follows torchvision's arithmetic on tensors, rounded to
//! the nearest level.
//!
//! Rotation, shear and translation take the nearest pixel, with coordinates in 1/65536 of a pixel; the outside is black. As in
//! torchvision's RandAugment, rotation is about the center of the image and shear about its upper left corner.
//!
//! On tensors, torchvision differs from Pillow, and so from this module, by at most one level; a rotation may take another pixel
//! where two are about equally near.

/// An operation on an image.
///
/// A factor of 1 leaves the image as it is, 0 removes the property completely, and more than 1 exaggerates it. Saturation and
/// hue do nothing to a gray image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AugmentOp {
    /// Does nothing.
    Identity,
    /// Brightness by a factor, relative to black.
    Brightness(f32),
    /// Contrast by a factor, relative to the mean gray of the image.
    Contrast(f32),
    /// Saturation by a factor, relative to the gray of each pixel.
    Saturation(f32),
    /// Shift of the hue as a fraction of a full turn: 0.5 and -0.5 give the complementary colors.
    Hue(f32),
    /// Sharpness by a factor, relative to the image smoothed over 3 x 3 pixels (weight 5 at the center); the edge stays.
    Sharpness(f32),
    /// Keeps this many upper bits; 8 and more: nothing changes.
    Posterize(u8),
    /// Inverts values from this one on; 256: none, 0: all.
    Solarize(u16),
    /// Stretches each channel to 0..=255.
    AutoContrast,
    /// Equalizes the histogram of each channel.
    Equalize,
    /// Rotates counterclockwise by this many degrees.
    Rotate(f32),
    /// Shifts every row to the left by this times its distance from the top.
    ShearX(f32),
    /// Shifts every column upwards by this times its distance from the left.
    ShearY(f32),
    /// Shifts to the right by this many pixels.
    TranslateX(i32),
    /// Shifts downwards by this many pixels.
    TranslateY(i32),
}

/// Applies operations to images of one size, and keeps the memory for them between calls.
#[derive(Clone, Debug)]
pub struct ImageOps {
    height: usize,
    width: usize,
    /// The image before the operation.
    before: Vec<u8>,
    /// Source index of each pixel of a row; `usize::MAX` for the outside.
    sources: Vec<usize>,
}

impl ImageOps {
    /// Operations on images of this size.
    #[must_use]
    pub fn new(height: usize, width: usize) -> Self {
        Self { height, width, before: Vec::new(), sources: Vec::new() }
    }

    /// Height and width of the images.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// Applies an operation to an image.
    ///
    /// # Shapes
    /// `image` is channels x height x width, with 1 channel (gray) or 3 (red, green, blue).
    ///
    /// # Panics
    /// If it has another size.
    pub fn apply(&mut self, op: AugmentOp, image: &mut [u8]) {
        let plane = self.height * self.width;
        assert!(
            image.len() == plane || image.len() == 3 * plane,
            "the image must have one or three channels of this size"
        );
        if plane == 0 {
            return;
        }
        match op {
            AugmentOp::Identity => {}
            AugmentOp::Brightness(factor) => image.iter_mut().for_each(|x| *x = blend(0, *x, factor)),
            AugmentOp::Contrast(factor) => {
                let mean = mean_gray(image, plane);
                image.iter_mut().for_each(|x| *x = blend(mean, *x, factor));
            }
            AugmentOp::Saturation(factor) => map_colors(image, plane, |[r, g, b]| {
                let gray = gray(r, g, b);
                [blend(gray, r, factor), blend(gray, g, factor), blend(gray, b, factor)]
            }),
            AugmentOp::Hue(turn) => {
                let sectors = 6.0 * turn.rem_euclid(1.0);
                map_colors(image, plane, |color| rotate_hue(color, sectors));
            }
            AugmentOp::Sharpness(factor) => self.sharpen(image, factor),
            AugmentOp::Posterize(bits) => {
                let gone = 255u8.checked_shr(bits.into()).unwrap_or(0);
                image.iter_mut().for_each(|x| *x &= !gone);
            }
            AugmentOp::Solarize(threshold) => {
                image.iter_mut().for_each(|x| *x = if u16::from(*x) >= threshold { 255 - *x } else { *x });
            }
            AugmentOp::AutoContrast => image.chunks_exact_mut(plane).for_each(stretch),
            AugmentOp::Equalize => image.chunks_exact_mut(plane).for_each(equalize),
            AugmentOp::Rotate(degrees) => {
                let (sin, cos) = f64::from(degrees).to_radians().sin_cos();
                let (x, y) = (self.width as f64 / 2.0, self.height as f64 / 2.0);
                self.warp(image, [cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]);
            }
            AugmentOp::ShearX(level) => self.warp(image, [1.0, level.into(), 0.0], [0.0, 1.0, 0.0]),
            AugmentOp::ShearY(level) => self.warp(image, [1.0, 0.0, 0.0], [level.into(), 1.0, 0.0]),
            AugmentOp::TranslateX(pixels) => self.warp(image, [1.0, 0.0, -f64::from(pixels)], [0.0, 1.0, 0.0]),
            AugmentOp::TranslateY(pixels) => self.warp(image, [1.0, 0.0, 0.0], [0.0, 1.0, -f64::from(pixels)]),
        }
    }

    /// Copies the image before an operation.
    fn remember(&mut self, image: &[u8]) {
        self.before.clear();
        self.before.extend_from_slice(image);
    }

    /// Moves away from the smoothed image, or towards it.
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
                    // sum / 13, rounded to the nearest
                    *to = blend(((2 * sum + 13) / 26) as u8, here[1], factor);
                }
            }
        }
    }

    /// Affine transform: pixel (x, y) comes from (`column` . (x, y, 1), `row` . (x, y, 1)).
    fn warp(&mut self, image: &mut [u8], column: [f64; 3], row: [f64; 3]) {
        // far outside of any image, and small enough to be multiplied by its height
        const FAR: f64 = (1u64 << 40) as f64;
        let fixed = |x: f64| (x * 65536.0 + 0.5).floor().clamp(-FAR, FAR) as i64;
        // at the center of the first pixel, per pixel to the right, per pixel down
        let steps = |m: [f64; 3]| (fixed(m[2] + (m[0] + m[1]) / 2.0), fixed(m[0]), fixed(m[1]));
        let (columns, rows) = (steps(column), steps(row));
        let (height, width) = (self.height, self.width);
        self.remember(image);
        for y in 0..height {
            let (mut column, mut row) = (columns.0 + y as i64 * columns.2, rows.0 + y as i64 * rows.2);
            self.sources.clear();
            self.sources.extend((0..width).map(|_| {
                // a negative coordinate becomes a huge one
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

/// Linear interpolation: `from` for a factor of 0, `to` for 1; other factors extrapolate.
#[inline(always)]
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let from = f32::from(from);
    level(from + factor * (f32::from(to) - from))
}

/// Truncates to a level; NaN becomes 0. `as u8` does the same, but the compiler does not vectorize it.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` would keep NaN")]
fn level(x: f32) -> u8 {
    let clamped = x.max(0.0).min(255.0);
    // SAFETY: `max` turns NaN into 0, so `clamped` lies in 0..=255, which fits into an i32.
    let integer: i32 = unsafe { clamped.to_int_unchecked() };
    integer as u8
}

/// The gray of a color.
#[inline(always)]
fn gray(r: u8, g: u8, b: u8) -> u8 {
    ((19_595 * u32::from(r) + 38_470 * u32::from(g) + 7_471 * u32::from(b) + 0x8000) >> 16) as u8
}

/// Red, green and blue of an image, unless it is gray.
fn channels(image: &mut [u8], plane: usize) -> Option<[&mut [u8]; 3]> {
    let (red, rest) = image.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut_checked(plane)?;
    Some([red, green, blue])
}

/// The mean gray, rounded to the nearest level.
fn mean_gray(image: &mut [u8], plane: usize) -> u8 {
    let sum: u64 = match channels(image, plane) {
        Some([red, green, blue]) => {
            red.iter().zip(green).zip(blue).map(|((r, g), b)| u64::from(gray(*r, *g, *b))).sum()
        }
        None => image.iter().map(|x| u64::from(*x)).sum(),
    };
    ((2 * sum + plane as u64) / (2 * plane as u64)) as u8
}

/// Maps the color of every pixel, unless the image is gray.
#[inline(always)]
fn map_colors(image: &mut [u8], plane: usize, map: impl Fn([u8; 3]) -> [u8; 3]) {
    let Some([red, green, blue]) = channels(image, plane) else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        [*r, *g, *b] = map([*r, *g, *b]);
    }
}

/// Shifts the hue of a color by `sectors` sixths of a turn, 0 to 6. The lightest and darkest value stay.
#[inline(always)]
fn rotate_hue(color: [u8; 3], sectors: f32) -> [u8; 3] {
    let [r, g, b] = color.map(f32::from);
    let (largest, smallest) = (r.max(g).max(b), r.min(g).min(b));
    let span = largest - smallest;
    // the hue in sixths of a turn, from red through green and blue back to red
    let (sector, rest) = if largest == r {
        (0.0, g - b)
    } else if largest == g {
        (2.0, b - r)
    } else {
        (4.0, r - g)
    };
    let hue = sector + rest / span.max(1.0) + sectors;
    [5.0, 3.0, 1.0].map(|offset| {
        // in 0..16
        let k = hue + offset;
        let k = if k >= 12.0 { k - 12.0 } else { k };
        let k = if k >= 6.0 { k - 6.0 } else { k };
        level(largest - span * k.min(4.0 - k).clamp(0.0, 1.0) + 0.5)
    })
}

/// Stretches a channel to 0..=255.
fn stretch(channel: &mut [u8]) {
    let (low, high) = channel.iter().fold((255, 0), |(low, high), x| (*x.min(&low), *x.max(&high)));
    if low >= high {
        return;
    }
    let scale = 255.0 / f64::from(high - low);
    let offset = -f64::from(low) * scale;
    let table: [u8; 256] = std::array::from_fn(|x| (x as f64 * scale + offset) as u8);
    channel.iter_mut().for_each(|x| *x = table[usize::from(*x)]);
}

/// Equalizes the histogram of a channel. As in Pillow, the pixels of the lightest level do not count for the step.
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

    /// Random colors, 3 x 9 x 7.
    fn image() -> Vec<u8> {
        (0..189).map(|i| Draws::new(1, 2, 3).at(i) as u8).collect()
    }

    fn applied(op: AugmentOp, image: &[u8], height: usize, width: usize) -> Vec<u8> {
        let mut image = image.to_vec();
        ImageOps::new(height, width).apply(op, &mut image);
        image
    }

    #[test]
    fn neutral_ops_change_nothing() {
        use AugmentOp::{
            Brightness, Contrast, Hue, Identity, Posterize, Rotate, Saturation, Sharpness, ShearX, ShearY, Solarize,
            TranslateX, TranslateY,
        };
        let image = image();
        for op in [
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
            assert_eq!(applied(op, &image, 9, 7), image, "{op:?}");
        }
    }

    #[test]
    fn factors_of_zero_leave_black_gray_and_the_mean() {
        let image = image();
        assert!(applied(AugmentOp::Brightness(0.0), &image, 9, 7).iter().all(|x| *x == 0));
        let flat = applied(AugmentOp::Contrast(0.0), &image, 9, 7);
        assert!(flat.iter().all(|x| *x == flat[0]));
        let gray = applied(AugmentOp::Saturation(0.0), &image, 9, 7);
        assert!(gray[..63] == gray[63..126] && gray[..63] == gray[126..]);
        assert_ne!(gray[0], gray[1]);
        // weights of 1/13, and 5/13 at the center
        let mut dot = [0u8; 25];
        dot[12] = 130;
        let mut want = [0u8; 25];
        [6, 7, 8, 11, 13, 16, 17, 18].iter().for_each(|i| want[*i] = 10);
        want[12] = 50;
        assert_eq!(applied(AugmentOp::Sharpness(0.0), &dot, 5, 5), want);
        let bright = applied(AugmentOp::Brightness(1e9), &image, 9, 7);
        assert!(bright.iter().zip(&image).all(|(to, from)| *to == if *from == 0 { 0 } else { 255 }));
    }

    #[test]
    fn ops_on_levels() {
        let image = image();
        let inverted: Vec<u8> = image.iter().map(|x| 255 - x).collect();
        assert_eq!(applied(AugmentOp::Solarize(0), &image, 9, 7), inverted);
        assert_eq!(applied(AugmentOp::Solarize(100), &[99, 100, 101], 1, 1), [99, 155, 154]);
        assert_eq!(applied(AugmentOp::Posterize(1), &[127, 128, 255], 1, 1), [0, 128, 128]);
        assert_eq!(applied(AugmentOp::Posterize(0), &[127, 128, 255], 1, 1), [0, 0, 0]);
        assert_eq!(applied(AugmentOp::AutoContrast, &[50, 100, 150], 1, 3), [0, 127, 255]);
        assert_eq!(applied(AugmentOp::AutoContrast, &[50, 50, 50], 1, 3), [50, 50, 50]);
    }

    #[test]
    fn equalized_levels_are_evenly_spread() {
        // a flat histogram stays as it is
        let flat: Vec<u8> = (0..=255).cycle().take(1024).collect();
        assert_eq!(applied(AugmentOp::Equalize, &flat, 32, 32), flat);
        // four levels, equally often
        let four: Vec<u8> = [10, 11, 12, 13].into_iter().cycle().take(1024).collect();
        let mut levels = applied(AugmentOp::Equalize, &four, 32, 32);
        levels.truncate(4);
        assert_eq!(levels, [0, 85, 171, 255]);
        // one level, and too few pixels
        assert_eq!(applied(AugmentOp::Equalize, &[7; 1024], 32, 32), [7; 1024]);
        assert_eq!(applied(AugmentOp::Equalize, &[1, 2, 3], 1, 3), [1, 2, 3]);
    }

    #[test]
    fn hue_is_a_circle() {
        // red, green, blue and red again
        assert_eq!(applied(AugmentOp::Hue(1.0 / 3.0), &[200, 10, 10], 1, 1), [10, 200, 10]);
        assert_eq!(applied(AugmentOp::Hue(2.0 / 3.0), &[200, 10, 10], 1, 1), [10, 10, 200]);
        assert_eq!(applied(AugmentOp::Hue(-1.0 / 3.0), &[200, 10, 10], 1, 1), [10, 10, 200]);
        // cyan is the complement of red
        assert_eq!(applied(AugmentOp::Hue(0.5), &[200, 10, 10], 1, 1), [10, 200, 200]);
        assert_eq!(applied(AugmentOp::Hue(0.3), &[70, 70, 70], 1, 1), [70, 70, 70]);
        let image = image();
        let twice = applied(AugmentOp::Hue(0.5), &applied(AugmentOp::Hue(0.5), &image, 9, 7), 9, 7);
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
        let cases: [(AugmentOp, Source); 8] = [
            (AugmentOp::Rotate(180.0), |y, x| (8 - y, 6 - x)),
            (AugmentOp::Rotate(-180.0), |y, x| (8 - y, 6 - x)),
            (AugmentOp::TranslateX(2), |y, x| (y, x - 2)),
            (AugmentOp::TranslateX(-3), |y, x| (y, x + 3)),
            (AugmentOp::TranslateY(4), |y, x| (y - 4, x)),
            (AugmentOp::TranslateY(i32::MIN), |_, _| (-1, -1)),
            // the center of a row is half a pixel down, which is rounded up
            (AugmentOp::ShearX(1.0), |y, x| (y, x + y + 1)),
            (AugmentOp::ShearY(2.0), |y, x| (y + 2 * x + 1, x)),
        ];
        for (op, from) in cases {
            assert_eq!(applied(op, &image, 9, 7), moved(&image, 9, 7, from), "{op:?}");
        }
        let square = &image[..147];
        let quarters: [(f32, Source); 3] =
            [(90.0, |y, x| (x, 6 - y)), (-90.0, |y, x| (6 - x, y)), (270.0, |y, x| (6 - x, y))];
        for (degrees, from) in quarters {
            assert_eq!(applied(AugmentOp::Rotate(degrees), square, 7, 7), moved(square, 7, 7, from), "{degrees}");
        }
    }

    /// Brightness of any strength ends at black and white, and images too small for a filter stay as they are.
    #[test]
    fn extreme_strengths_and_tiny_images() {
        let image = image();
        let white = |p: &u8| if *p == 0 { 0 } else { 255 };
        assert_eq!(
            applied(AugmentOp::Brightness(f32::MAX), &image, 9, 7),
            image.iter().map(white).collect::<Vec<u8>>()
        );
        assert_eq!(applied(AugmentOp::Brightness(-f32::MAX), &image, 9, 7), vec![0; image.len()]);
        for (height, width) in [(0, 0), (1, 1), (1, 5), (5, 1), (2, 2)] {
            let tiny = &image[..height * width];
            assert_eq!(applied(AugmentOp::Sharpness(2.0), tiny, height, width), tiny, "{height} x {width}");
        }
        for op in [AugmentOp::Equalize, AugmentOp::Contrast(0.5)] {
            assert_eq!(applied(op, &[7], 1, 1), [7], "{op:?}");
        }
        // nothing panics, whatever the strength
        for x in [f32::NAN, f32::INFINITY, -f32::MAX, f32::MAX, 1e-40] {
            for op in [
                AugmentOp::Brightness(x),
                AugmentOp::Contrast(x),
                AugmentOp::Saturation(x),
                AugmentOp::Sharpness(x),
                AugmentOp::Hue(x),
                AugmentOp::Rotate(x),
                AugmentOp::ShearX(x),
                AugmentOp::ShearY(x),
            ] {
                applied(op, &image, 9, 7);
            }
        }
        for (height, width) in [(0, 0), (1, 5), (5, 1), (2, 2)] {
            for op in [AugmentOp::Equalize, AugmentOp::Rotate(30.0), AugmentOp::Contrast(0.5)] {
                applied(op, &image[..height * width], height, width);
            }
        }
    }

    #[test]
    fn gray_images_have_no_color_to_change() {
        let gray = &image()[..63];
        for op in [AugmentOp::Saturation(0.3), AugmentOp::Hue(0.3)] {
            assert_eq!(applied(op, gray, 9, 7), gray);
        }
        assert_eq!(applied(AugmentOp::Contrast(0.0), &[10, 21], 1, 2), [16, 16]);
    }

    #[test]
    #[should_panic(expected = "one or three channels")]
    fn another_size_is_a_bug() {
        ImageOps::new(2, 2).apply(AugmentOp::Identity, &mut [0; 8]);
    }
}
