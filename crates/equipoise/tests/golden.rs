//! Every golden case through the real binary.
//!
//! `golden/more_*.json` are made by `tools/make_golden.py`; the others are the first set, and `tools/reference.py --check`
//! confirms them all.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Expected numbers must agree to 1e-5 relative or 1e-6 absolute.
fn compare(path: &str, got: &Value, want: &Value) {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => {
            for (key, want) in want {
                compare(&format!("{path}.{key}"), got.get(key).unwrap_or(&Value::Null), want);
            }
        }
        (Value::Array(got), Value::Array(want)) => {
            assert_eq!(got.len(), want.len(), "{path}: length");
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                compare(&format!("{path}[{i}]"), got, want);
            }
        }
        (Value::Number(got), Value::Number(want)) => {
            let (got, want) = (got.as_f64().expect("a number"), want.as_f64().expect("a number"));
            assert!((got - want).abs() <= 1e-6 + 1e-5 * want.abs(), "{path}: {got}, not {want}");
        }
        _ => assert_eq!(got, want, "{path}"),
    }
}

#[test]
fn every_golden_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut cases: Vec<_> = folder.read_dir().expect("golden cases").map(|e| e.expect("an entry").path()).collect();
    cases.sort();
    assert!(cases.len() >= 100, "only {} cases", cases.len());
    for case in cases {
        let name = case.file_name().expect("a name").to_string_lossy().into_owned();
        let out = Command::new(env!("CARGO_BIN_EXE_equipoise")).arg("loss").arg(&case).output().expect("runs");
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
        let got: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let case: Value = serde_json::from_slice(&std::fs::read(&case).expect("a case")).expect("JSON");
        compare(&name, &got["steps"], &case["expected"]);
    }
}
