//! What cannot be done is said in one line; images of all kinds get their labels.

use equipoise_testing::TempFolder;

use super::{equipoise, succeeded, text, tiny, undisturbed};

/// What cannot be done is said in one line, with a code, and leaves nothing behind.
#[test]
fn bad_input() {
    let place = TempFolder::new("runs");
    let folder = place.path().join("tree");
    for (class, part, number) in [("a", "train", 3), ("b", "train", 2), ("a", "test", 1), ("b", "test", 1)] {
        std::fs::create_dir_all(folder.join(part).join(class)).expect("a folder");
        for i in 0..number {
            let image: Vec<u8> = [b"P6 4 4 255\n".to_vec(), vec![i * 40; 48]].concat();
            std::fs::write(folder.join(part).join(class).join(format!("{i}.ppm")), image).expect("written");
        }
    }
    for part in ["train", "test"] {
        let one = place.path().join("one").join(part).join("a");
        std::fs::create_dir_all(&one).expect("a folder");
        std::fs::write(one.join("x.ppm"), [b"P6 4 4 255\n".to_vec(), vec![9; 48]].concat()).expect("written");
    }
    undisturbed(&place);
    let before = std::fs::read_dir(place.path()).expect("a folder").count();
    for (args, code, part) in [
        (&["train", "no-such-set"][..], 2, "no-such-set"),
        (&["train", "--criterion", "sesaw"], 2, "seesaw"),
        (&["train", "--set", "data.imbalanse=3"], 2, "data.imbalance"),
        (&["train", "--epochs", "0"], 2, "epochs"),
        (&["train", "--model", "resnet9"], 2, "resnet9"),
        (&["train", "one"], 2, "class"),
        (&["train", "--resume", "tree"], 2, "config.toml"),
        (&["train", "--resume", "whole"], 0, "is finished"),
        (&["train", "--output", "whole"], 2, "whole"),
        (&["train", "--config", "nowhere.toml"], 2, "nowhere.toml"),
        (&["train", "--resume", "whole", "--epochs", "9"], 2, "--epochs"),
        (&["train", "--set", "select_best=val"], 2, "validation"),
        (&["evaluate", "tree"], 2, "not a run"),
        (&["evaluate", "whole", "tree"], 2, "classes"),
        (&["evaluate", "whole", "--tau-norm=-1"], 2, "--tau-norm"),
        (&["train", "--set", "logit_adjustment=-1"], 2, "logit_adjustment"),
        (&["predict", "whole", "no.png"], 2, "no.png"),
        (&["compare", "--criteria", "softmax,softmax"], 2, "twice"),
        (&["completions", "fishy"], 2, "fishy"),
    ] {
        let out = equipoise(&place, args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        println!("$ equipoise {}\n{}", args.join(" "), said.trim());
    }
    assert_eq!(std::fs::read_dir(place.path()).expect("a folder").count(), before, "nothing was made");
    // a class without training images is trained without, and named
    let out = equipoise(&place, &tiny(&["--output", "t"]));
    assert!(text(&out.stderr).contains("class 'ankle boot' has no training images"), "{}", text(&out.stderr));
    succeeded(&out);
    // a batch larger than the set is the whole set
    let out = equipoise(
        &place,
        &["train", "tree", "--model", "resnet8", "--epochs", "1", "--set", "data.image_size=8", "--output", "u"],
    );
    assert!(
        text(&out.stderr).contains("a batch of 128 is the whole training split of 5 images"),
        "{}",
        text(&out.stderr)
    );
    succeeded(&out);
}

/// Labels for images of all kinds, in every form of output.
#[test]
fn predictions() {
    let place = TempFolder::new("runs");
    undisturbed(&place);
    std::fs::write(place.path().join("a,b.ppm"), [b"P6 4 4 255\n".to_vec(), vec![90; 48]].concat()).expect("written");
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm", "--top", "3", "--json"]);
    succeeded(&out);
    let line: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let found = line["predictions"].as_array().expect("predictions");
    let sum: f64 = found.iter().map(|p| p["probability"].as_f64().expect("a number")).sum();
    assert!(found.len() == 3 && sum > 0.0 && sum <= 1.0 + 1e-9, "{line}");
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm", "--csv"]);
    assert!(text(&out.stdout).starts_with("path,label,probability\n\"a,b.ppm\","), "{}", text(&out.stdout));
    let out = equipoise(&place, &["predict", "whole", "a,b.ppm"]);
    assert!(text(&out.stdout).starts_with("a,b.ppm: "), "{}", text(&out.stdout));
}
