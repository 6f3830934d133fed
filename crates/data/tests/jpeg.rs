//! Decoded JPEG files against libjpeg-turbo; `tools/make_jpegs.py` makes the files and the expected pixels.

use equipoise_data::read::decode::{DecodeLimits, decode};
use serde_json::Value;

fn bytes(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().expect("digits").as_bytes();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.as_chunks::<2>().0.iter().map(byte).collect()
}

/// Brightness agrees to a level. Colors agree to two levels where every pixel has its own, and to three where they are shared by
/// two or four pixels: the decoders round the interpolation between them differently. The last column and row of such images
/// differ more, because libjpeg-turbo repeats the last color of the image and our decoder reads on in the last block.
#[test]
fn pixels_are_nearly_those_of_libjpeg_turbo() {
    let golden: Value = serde_json::from_str(include_str!("golden/jpegs.json")).expect("JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 6);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let image = decode(&bytes(&case["file"]), DecodeLimits::default()).expect(name);
        let want = bytes(&case["pixels"]);
        assert_eq!(image.bytes.len(), want.len(), "{name}");
        let (width, height) = (image.width as usize, image.height as usize);
        let levels = match name {
            "gray" => 1,
            "4:4:4" => 2,
            _ => 3,
        };
        let mut sum = 0.0;
        for (i, (got, want)) in image.bytes.chunks(3).zip(want.chunks(3)).enumerate() {
            let difference: Vec<f64> =
                got.iter().zip(want).map(|(got, want)| f64::from(*got) - f64::from(*want)).collect();
            let brightness = 0.299 * difference[0] + 0.587 * difference[1] + 0.114 * difference[2];
            assert!(brightness.abs() < 1.5, "{name}, pixel {i}: brightness differs by {brightness}");
            sum += difference.iter().map(|level| level.abs()).sum::<f64>();
            if i % width < width - 1 && i / width < height - 1 {
                assert!(
                    difference.iter().all(|level| level.abs() <= f64::from(levels)),
                    "{name}, pixel {i}: {difference:?}"
                );
            }
        }
        let mean = sum / want.len() as f64;
        assert!(mean < 0.5, "{name}: the mean difference is {mean} levels");
    }
}
