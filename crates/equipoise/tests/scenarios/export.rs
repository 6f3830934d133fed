//! An exported file stands alone: what a program needs to use the weights is in it.

use serde_json::{Value, json};

use super::{Place, text, write_tree};

fn metadata(place: &Place, run: &str) -> Value {
    let file = format!("{}.safetensors", run.replace('/', "-"));
    place.stdout(&["export", run, "-o", &file]);
    let bytes = std::fs::read(place.path().join(file)).expect("a file");
    let length = u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    let metadata = header["__metadata__"].clone();
    // the format allows nothing but texts
    assert!(metadata.as_object().expect("an object").values().all(Value::is_string), "{metadata}");
    metadata
}

fn list(text: &Value) -> Value {
    serde_json::from_str(text.as_str().expect("a text")).expect("JSON")
}

#[test]
fn metadata_say_how_to_use_the_weights() {
    let place = Place::new();
    write_tree(&place, "tree", &["a", "b"]);
    let args = ["train", "tree", "--epochs", "1", "--threads", "2", "--quiet"];
    let out = place.run(&[&args[..], &["--model", "resnet8", "--image-size", "12", "--output", "small"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let small = metadata(&place, "small");
    let want = json!({
        "format": "pt", "network": "resnet8", "classes": "[\"a\",\"b\"]", "channels": "3", "height": "12", "width": "12",
        "resize": "12", "head": "linear", "head_scale": "1", "dataset": "tree", "epoch": "1",
    });
    for (name, value) in want.as_object().expect("an object") {
        assert_eq!(small[name], *value, "{name}");
    }
    let close = |got: &Value, want: &[f64]| {
        let got: Vec<f64> =
            list(got).as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect();
        assert!(got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{got:?}");
    };
    close(&small["mean"], &[0.485, 0.456, 0.406]);
    close(&small["std"], &[0.229, 0.224, 0.225]);
    assert!(small.get("logit_offsets").is_none());
    // photographs are resized to a larger side before the center crop
    place.stdout(&[&args[..], &["--model", "resnet18", "--image-size", "28", "--output", "photo"]].concat());
    let photo = metadata(&place, "photo");
    assert_eq!((&photo["resize"], &photo["height"]), (&json!("32"), &json!("28")));
    // a criterion's own scale and an adjustment after training are part of the output
    let more = ["--criterion", "ldam", "--set", "logit_adjustment=1", "--quiet"];
    place.train("ldam", &more);
    let ldam = metadata(&place, "ldam");
    assert_eq!((&ldam["head"], &ldam["head_scale"], &ldam["channels"]), (&json!("cosine"), &json!("30"), &json!("1")));
    let offsets = list(&ldam["logit_offsets"]);
    assert_eq!(offsets.as_array().map(Vec::len), Some(10));
    // and the weights are read back by the program itself
    place.stdout(&[&args[..], &["--weights", "small.safetensors", "--model", "resnet8", "--output", "again"]].concat());
}

/// The page that shows how to load a file names what is in it.
#[test]
fn the_page_describes_the_metadata() {
    let place = Place::new();
    place.train("run", &["--quiet", "--set", "logit_adjustment=1"]);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/export.md")).expect("the page");
    for name in metadata(&place, "run").as_object().expect("an object").keys().filter(|name| *name != "format") {
        assert!(page.contains(&format!("`{name}`")), "docs/export.md does not explain {name}");
    }
}

/// The format follows the extension; what contradicts it, or cannot be written, is refused.
#[test]
fn the_format_follows_the_extension() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    let start = |file: &str| std::fs::read(place.path().join(file)).expect("a file")[8..10].to_vec();
    let said = place.stdout(&["export", "run", "-o", "w.onnx"]);
    assert!(said.contains("bytes of ONNX in w.onnx"), "{said}");
    let said = place.stdout(&["export", "run", "-o", "w.safetensors"]);
    assert!(said.contains("bytes of safetensors in w.safetensors"), "{said}");
    assert!(start("w.safetensors") == b"{\"" && start("w.onnx") != b"{\"");
    place.stdout(&["export", "run", "-o", "weights.v2", "--format", "safetensors"]);
    assert_eq!(start("weights.v2"), b"{\"");
    for (args, want) in [
        (&["-o", "x.onnx", "--format", "safetensors"][..], "contradicts the extension .onnx"),
        (&["-o", "x.pt"], "name a .safetensors file, which PyTorch loads, or an .onnx file"),
        (&["-o", "x.pth", "--format", "safetensors"], ".pth files cannot be written"),
        (&["-o", "weights"], ".safetensors or .onnx"),
    ] {
        let message = place.refused(&[&["export", "run"], args].concat());
        assert!(message.contains(want), "{args:?}: {message}");
    }
    assert!(!place.path().join("x.pt").exists() && !place.path().join("x.onnx").exists());
}
