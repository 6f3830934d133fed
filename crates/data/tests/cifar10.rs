//! The real CIFAR-10, if it is available: in the folder or archive that `EQUIPOISE_CIFAR10` names, or in the data folder.
//!
//! The expected values of two images were taken from the published files with Python.

use std::io::Write;
use std::path::PathBuf;

use equipoise_data::acquire::catalog::data_root;
use equipoise_data::read::format::cifar::cifar10;
use equipoise_data::{Dataset, Split};

fn cifar10_if_available() -> Option<Dataset> {
    let named = std::env::var_os("EQUIPOISE_CIFAR10").filter(|value| !value.is_empty()).map(PathBuf::from);
    let imported = || Some(data_root(None).join("cifar10")).filter(|path| path.exists());
    let Some(path) = named.or_else(imported) else {
        // written to the handle itself, because the test harness captures what `eprintln!` prints
        let message = "skipped: set EQUIPOISE_CIFAR10 to the folder or archive of CIFAR-10's binary version";
        writeln!(std::io::stderr(), "{message}").expect("standard error can be written");
        return None;
    };
    Some(cifar10(&path).expect("CIFAR-10"))
}

/// Expected values of an image.
struct Expected {
    class: &'static str,
    /// Sums of red, green and blue.
    sums: [u32; 3],
    /// Corners and center: row, column, color.
    pixels: [(usize, usize, [u8; 3]); 5],
    /// 64-bit FNV-1a.
    hash: u64,
}

fn check(dataset: &Dataset, split: &Split, want: &Expected) {
    assert_eq!(dataset.classes[split.labels[0] as usize], want.class);
    let image = split.images.pixels().expect("in memory").image(0);
    let sum = |channel: usize| image[1024 * channel..][..1024].iter().map(|b| u32::from(*b)).sum::<u32>();
    assert_eq!([0, 1, 2].map(sum), want.sums);
    for (row, column, color) in want.pixels {
        assert_eq!([0, 1, 2].map(|channel| image[1024 * channel + 32 * row + column]), color, "{row}, {column}");
    }
    let hash = image
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(hash, want.hash);
}

#[test]
fn the_first_images_are_the_published_ones() {
    let Some(dataset) = cifar10_if_available() else { return };
    assert_eq!((dataset.train.labels.len(), dataset.test.labels.len()), (50_000, 10_000));
    assert_eq!(dataset.counts().expect("labels"), [5000; 10]);
    let frog = Expected {
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
    check(&dataset, &dataset.train, &frog);
    let cat = Expected {
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
    check(&dataset, &dataset.test, &cat);
}
