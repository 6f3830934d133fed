//! Datasets that allow no claims: classes of one size, and a handful of test images.

use super::Place;

const COMPARE: [&str; 8] = ["--criteria", "softmax,cwap", "--epochs", "1", "--batch-size", "8", "--model", "resnet8"];

fn compare(place: &Place, data: &str, run: &str) -> String {
    let (stdout, stderr) = place.succeeds(&[&["compare", data], &COMPARE[..], &["--output", run]].concat());
    format!("{stdout}{stderr}")
}

/// Among classes of one size none is rare.
#[test]
fn equal_classes_are_one_group() {
    let place = Place::new();
    place.tree("equal", &[("a", 30), ("b", 30), ("c", 30), ("d", 30), ("e", 29)], (12, 12));
    let (stdout, _) = place.succeeds(&["inspect", "equal"]);
    assert!(stdout.contains("All         5 classes: a, b, c, d, e"), "{stdout}");
    let said = compare(&place, "equal", "runs/equal");
    for group in ["Many", "Medium", "Few", "Rare"] {
        assert!(!stdout.contains(group) && !said.contains(group), "{group}: {stdout}{said}");
    }
    assert!(said.contains("overall; one seed cannot tell"), "{said}");
    assert!(!place.read("runs/equal/report.html").contains(">Rare<"));
}

/// A handful of test images proves nothing, and the verdict says so.
#[test]
fn a_handful_of_test_images() {
    let place = Place::new();
    place.tree("few", &[("a", 20), ("b", 10)], (12, 12));
    let said = compare(&place, "few", "runs/few");
    assert!(
        said.contains("cwap cannot be compared with softmax on 6 test images: one image is 16.7 points."),
        "{said}"
    );
    let (stdout, _) = place.succeeds(&["report", "runs/few/softmax-s0", "--plain"]);
    assert!(stdout.contains("% on 6 test images, too few for a claim; one run."), "{stdout}");
    // enough in all, too few of the small classes
    place.tree("some", &[("a", 100), ("b", 20)], (12, 12));
    let said = compare(&place, "some", "runs/some");
    assert!(said.contains("Too few for a claim: Few on 4 test images.") && !said.contains(" on Few"), "{said}");
}
