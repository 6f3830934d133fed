//! Classifier re-training in one command.

use super::{Place, text};

/// Tensors of an exported file, by name.
fn tensors(bytes: &[u8]) -> std::collections::BTreeMap<String, Vec<u8>> {
    let length = u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    let data = &bytes[8 + length..];
    let at = |entry: &serde_json::Value, i: usize| entry["data_offsets"][i].as_u64().expect("an offset") as usize;
    header
        .iter()
        .filter(|(name, _)| *name != "__metadata__" && !name.ends_with("num_batches_tracked"))
        .map(|(name, entry)| (name.clone(), data[at(entry, 0)..at(entry, 1)].to_vec()))
        .collect()
}

/// The line of the documentation, as it is written there.
#[test]
fn a_new_head_is_trained_on_the_frozen_network() {
    let place = Place::new();
    let more = [
        "--criterion",
        "softmax",
        "--seed",
        "3",
        "--set",
        "data.sampler=square-root",
        "--set",
        "optimizer.ema_decay=0.5",
    ];
    place.train("runs/first", &more);
    let out = place.run(&["train", "--from", "runs/first", "--retrain-head"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    let run = "runs/fashion-mini-if200-balanced-softmax-resnet8-retrained-s3";
    let line = said.lines().find(|line| line.contains("; balanced-softmax")).expect("a line about the run");
    assert!(line.ends_with(run), "{line}");
    let config = place.read(&format!("{run}/config.toml"));
    for line in [
        "epochs = 10",
        "seed = 3",
        "imbalance = 200.0",
        "batch_size = 32",
        "sampler = \"uniform\"",
        "name = \"cosine\"",
        "freeze_backbone = true",
        "reset_head = true",
        "method = \"balanced-softmax\"",
        "ema_decay = 0.0",
    ] {
        assert!(config.contains(line), "{line}: {config}");
    }
    // the body is that of the first run to the bit, batch norms included; the head is another
    for (run, file) in [("runs/first", "a.safetensors"), (run, "b.safetensors")] {
        place.stdout(&["export", run, "-o", file]);
    }
    let read = |file: &str| tensors(&std::fs::read(place.path().join(file)).expect("a file"));
    let (first, second) = (read("a.safetensors"), read("b.safetensors"));
    assert!(first.keys().eq(second.keys()) && first.len() > 20);
    for (name, bytes) in &first {
        assert_eq!(bytes == &second[name], !name.starts_with("linear."), "{name}");
    }
    // options are stronger, and a fresh head depends on the seed alone
    let args =
        ["train", "--from", "runs/first", "--retrain-head", "--epochs", "1", "--criterion", "softmax", "-o", "other"];
    place.stdout(&args);
    let config = place.read("other/config.toml");
    assert!(config.contains("epochs = 1\n") && config.contains("method = \"softmax\""), "{config}");
}

#[test]
fn one_option_without_the_other_is_refused() {
    let place = Place::new();
    assert!(place.refused(&["train", "--retrain-head"]).contains("--from"));
    assert!(place.refused(&["train", "--from", "x"]).contains("--retrain-head"));
    assert!(place.refused(&["train", "--from", "x", "--retrain-head"]).contains("config.toml"));
}
