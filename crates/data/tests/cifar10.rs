//! The real CIFAR-10, where it is at hand: in the folder or archive that `EQUIPOISE_CIFAR10` names, or imported.
//!
//! Figures of two images were taken from the published files with Python.

use std::path::PathBuf;

use equipoise_data::acquire::catalog::data_root;
use equipoise_data::read::format::cifar::cifar10;
use equipoise_data::{Dataset, Split, fnv1a};

fn real() -> Option<Dataset> {
    let named = std::env::var_os("EQUIPOISE_CIFAR10").filter(|value| !value.is_empty()).map(PathBuf::from);
    let imported = || Some(data_root(None).join("cifar10")).filter(|place| place.exists());
    let Some(place) = named.or_else(imported) else {
        println!("left out: set EQUIPOISE_CIFAR10 to the folder or archive of CIFAR-10's binary version");
        return None;
    };
    Some(cifar10(&place).expect("CIFAR-10"))
}

/// What is known of an image.
struct Figures {
    class: &'static str,
    /// Of red, green, blue.
    sums: [u32; 3],
    /// Corners and middle: row, column, colour.
    pixels: [(usize, usize, [u8; 3]); 5],
    hash: u64,
}

fn check(set: &Dataset, part: &Split, want: &Figures) {
    assert_eq!(set.classes[part.labels[0] as usize], want.class);
    let image = part.images.pixels().expect("in memory").image(0);
    let sum = |channel: usize| image[1024 * channel..][..1024].iter().map(|b| u32::from(*b)).sum::<u32>();
    assert_eq!([0, 1, 2].map(sum), want.sums);
    for (row, column, colour) in want.pixels {
        assert_eq!([0, 1, 2].map(|channel| image[1024 * channel + 32 * row + column]), colour, "{row}, {column}");
    }
    assert_eq!(fnv1a(image), want.hash);
}

#[test]
fn the_first_images_are_those_that_were_published() {
    let Some(set) = real() else { return };
    assert_eq!((set.train.labels.len(), set.test.labels.len()), (50_000, 10_000));
    assert_eq!(set.counts().expect("labels"), [5000; 10]);
    let frog = Figures {
        class: "frog",
        sums: [144_594, 107_622, 65_574],
        pixels: [
            (0, 0, [59, 62, 63]),
            (0, 31, [148, 124, 103]),
            (16, 16, [245, 237, 226]),
            (31, 0, [177, 144, 116]),
            (31, 31, [123, 92, 72]),
        ],
        hash: 0x3ccb_c001_f7cd_29a5,
    };
    check(&set, &set.train, &frog);
    let cat = Figures {
        class: "cat",
        sums: [112_665, 113_426, 106_871],
        pixels: [
            (0, 0, [158, 112, 49]),
            (0, 31, [116, 85, 33]),
            (16, 16, [101, 101, 92]),
            (31, 0, [54, 107, 160]),
            (31, 31, [21, 67, 110]),
        ],
        hash: 0x3450_a15f_2755_ea25,
    };
    check(&set, &set.test, &cat);
}
