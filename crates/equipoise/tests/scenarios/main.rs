//! What people do with the program, with the real binary in a folder of its own. One file per topic.

mod config;
mod decisions;
mod export;
mod features;
mod heads;
mod messages;
mod predict;
mod presets;
mod recommendation;
mod records;
mod resume;
mod retrain;
mod samples;
mod short_runs;
mod weights;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use equipoise_testing::TempFolder;

/// A folder to work in.
struct Place(TempFolder);

impl Place {
    fn new() -> Self {
        Self(TempFolder::new("scenarios"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
        command
            .args(args)
            .current_dir(self.path())
            .env("EQUIPOISE_DATA", self.path().join("data"))
            .stdin(Stdio::null());
        command
    }

    /// Runs the program.
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("it runs")
    }

    /// Runs the program, which must succeed. Returns what it printed.
    fn stdout(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    /// Runs the program, which must refuse the command line or its input. Returns the message.
    fn refused(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let message = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {message}");
        assert!(!message.contains("u64") && !message.contains("f64"), "{args:?}: {message}");
        message
    }

    /// Trains a tiny run in this folder. Returns what it said on standard error.
    fn train(&self, output: &str, more: &[&str]) -> String {
        let args = [&TINY[..], &["--output", output], more].concat();
        let out = self.run(&args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        text(&out.stderr)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("written");
    }

    /// The records of a run's epochs.
    fn epochs(&self, run: &str) -> Vec<serde_json::Value> {
        self.read(&format!("{run}/metrics.jsonl"))
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

/// A tiny run: some hundred images, a small network, two epochs.
const TINY: [&str; 12] = [
    "train",
    "fashion-mini",
    "--model",
    "resnet8",
    "--imbalance",
    "200",
    "--batch-size",
    "32",
    "--set",
    "epochs=2",
    "--threads",
    "2",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder per class with images that a network can tell apart, in `train/` and `test/`.
fn write_tree(place: &Place, name: &str, classes: &[&str]) {
    for (number, class) in classes.iter().enumerate() {
        for (split, images) in [("train", 8 >> number.min(2)), ("test", 2)] {
            for image in 0..images {
                let brightness = (40 + 50 * number + 7 * image + usize::from(split == "test")) as u8;
                place.write(&format!("{name}/{split}/{class}/{image}.ppm"), ppm(brightness));
            }
        }
    }
}

/// A PPM image of one brightness.
fn ppm(brightness: u8) -> Vec<u8> {
    [b"P6 6 4 255\n".to_vec(), vec![brightness; 72]].concat()
}
