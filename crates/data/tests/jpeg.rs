//! Decoded JPEG files against libjpeg-turbo; `tools/make_jpegs.py` makes the files and the expected pixels.

use equipoise_data::read::decode::{DecodeLimits, decode};
use serde_json::Value;

fn bytes(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().expect("digits").as_bytes();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.as_chunks::<2>().0.iter().map(byte).collect()
}

/// The pixels are libjpeg-turbo's to the bit: its inverse transform, its interpolation of colors and its conversion to RGB.
#[test]
fn pixels_are_those_of_libjpeg_turbo() {
    let golden: Value = serde_json::from_str(include_str!("golden/jpegs.json")).expect("JSON");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 6);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let image = decode(&bytes(&case["file"]), DecodeLimits::default()).expect(name);
        assert!(image.bytes == bytes(&case["pixels"]), "{name}");
    }
}
