//! Weights of a run on other data: its network and image size, and its classes by name.

use super::{Place, text, write_tree};

#[test]
fn network_and_image_size_are_those_of_the_run() {
    let place = Place::new();
    write_tree(&place, "three", &["a", "b", "c"]);
    write_tree(&place, "two", &["c", "a"]);
    write_tree(&place, "four", &["a", "b", "c", "d"]);
    let train = |data: &str, output: &str, more: &[&str]| {
        let args = ["train", data, "--epochs", "1", "--output", output, "--threads", "2"];
        let out = place.run(&[&args[..], more].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let cosine = ["--set", "model.head=cosine", "--set", "model.learn_head_scale=true"];
    train("three", "first", &[&["--model", "resnet14", "--image-size", "12"], &cosine[..]].concat());
    // no --model, no --image-size, no head
    let said = train("two", "second", &["--weights", "first"]);
    let config = place.read("second/config.toml");
    for line in ["name = \"resnet14\"", "image_size = 12", "head = \"cosine\"", "learn_head_scale = true"] {
        assert!(config.contains(line), "{line}: {config}");
    }
    assert!(!said.contains("random weights"), "all classes are known: {said}");
    let said = train("four", "third", &["--weights", "first"]);
    assert!(said.contains("does not know these classes, which start from random weights: d\n"), "{said}");
    // options are stronger, and what does not fit is named
    let message = place.refused(&["train", "two", "--weights", "first", "--model", "resnet8", "--output", "x"]);
    assert!(message.contains("another network"), "{message}");
    assert!(place.refused(&["train", "two", "--weights", "nowhere"]).contains("nowhere"));
}

/// With a learning rate of almost 0, what the run knew is still known, in the order of the new classes.
#[test]
fn rows_of_the_head_follow_their_classes() {
    let place = Place::new();
    write_tree(&place, "abc", &["a", "b", "c"]);
    write_tree(&place, "bc", &["c", "b"]);
    let small =
        ["--epochs", "12", "--model", "resnet8", "--image-size", "8", "--threads", "2", "--quiet", "--batch-size", "4"];
    place.stdout(&[&["train", "abc", "--output", "first"], &small[..]].concat());
    let frozen = ["--epochs", "1", "--lr", "1e-12", "--freeze-backbone", "--quiet", "--threads", "2"];
    place.stdout(&[&["train", "bc", "--output", "second", "--weights", "first"], &frozen[..]].concat());
    let ratio = |run: &str| {
        let line = place.stdout(&["predict", run, "abc/test/b/0.ppm", "--json", "--top", "3"]);
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let all = line["predictions"].as_array().expect("predictions").clone();
        let of = |class: &str| all.iter().find(|p| p["label"] == class).expect("a class")["probability"].as_f64();
        (of("b").expect("a number") / of("c").expect("a number")).ln()
    };
    assert!((ratio("first") - ratio("second")).abs() < 1e-3, "{} {}", ratio("first"), ratio("second"));
    assert!(ratio("first").abs() > 1e-2);
}

/// Without a dataset, a run is trained on with its own data, split as it was; a file of weights does not know any.
#[test]
fn data_are_those_of_the_run() {
    let place = Place::new();
    write_tree(&place, "tree", &["a", "b"]);
    let short = ["--epochs", "1", "--threads", "2", "--quiet"];
    let first = ["--model", "resnet8", "--image-size", "12", "--test-fraction", "0.5", "--output", "first"];
    place.stdout(&[&["train", "tree/train", "--val-fraction", "0.25"], &first[..], &short].concat());
    place.train("subset", &["--quiet"]);
    for (run, weights, data) in [("a", "first", "tree/train"), ("b", "first/checkpoint.eqp", "tree/train")] {
        let out = place.run(&[&["train", "--weights", weights, "--output", run], &short[..]].concat());
        let said = text(&out.stderr);
        assert!(out.status.success(), "{said}");
        assert!(said.lines().next().is_some_and(|line| line.contains("the data are those of first")), "{said}");
        let config = place.read(&format!("{run}/config.toml"));
        for line in ["test_fraction = 0.5", "val_fraction = 0.25", &format!("{data}\"")] {
            assert!(config.contains(line), "{line}: {config}");
        }
    }
    let config = place.stdout(&["train", "--weights", "subset", "--print-config"]);
    assert!(config.contains("imbalance = 200.0") && config.contains("\"fashion-mini\""), "{config}");
    // a dataset that is named is read on its own terms, however it is named
    for named in [&["fashion-mini"][..], &["--set", "data.dataset=fashion-mini"]] {
        let config = place.stdout(&[&["train", "--weights", "subset", "--print-config"], named].concat());
        assert!(config.contains("# imbalance is not set"), "{config}");
    }
    place.stdout(&["export", "first", "-o", "first.safetensors"]);
    let message = place.refused(&["train", "--weights", "first.safetensors", "--model", "resnet8"]);
    assert!(message.contains("name the dataset"), "{message}");
}
