//! The real binary on other people's data: trees, lists and photographs as they come.

mod augmentation;
mod broken;
mod evaluation;
mod few_images;
mod image_size;
mod layouts;
mod lists;
mod messy;
mod splits;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use equipoise_testing::TempFolder;

/// A folder of its own for a test, and the binary in it.
struct Place(TempFolder);

impl Place {
    fn new() -> Self {
        Self(TempFolder::new("input"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
        command.current_dir(self.0.path()).env("EQUIPOISE_DATA", self.path("data")).stdin(Stdio::null());
        command.args(args).output().expect("it runs")
    }

    /// Runs a command that succeeds. Returns what it prints on standard output, then on standard error.
    fn succeeds(&self, args: &[&str]) -> (String, String) {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        (text(&out.stdout), text(&out.stderr))
    }

    /// Runs a command that refuses its input in one line. Returns that line.
    fn refuses(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        said.lines().last().unwrap_or_default().to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, contents).expect(name);
    }

    /// Writes an image; `seed` decides its pixels.
    fn image(&self, name: &str, (width, height): (u32, u32), seed: u32) {
        self.write(name, ppm(width, height, seed));
    }

    /// A folder per class with so many images of this size in each.
    fn tree(&self, name: &str, classes: &[(&str, u32)], size: (u32, u32)) {
        for (label, (class, images)) in (0..).zip(classes) {
            for i in 0..*images {
                self.image(&format!("{name}/{class}/{i:03}.ppm"), size, 1000 * label + i);
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An image whose pixels all differ from those of other seeds.
fn ppm(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut bytes = format!("P6 {width} {height} 255\n").into_bytes();
    for i in 0..width * height {
        let (x, y) = (i % width, i / width);
        bytes.extend([
            (7 * x + 31 * seed) as u8,
            (5 * y + 13 * seed) as u8,
            (3 * x * y + seed + 101 * (seed / 256)) as u8,
        ]);
    }
    bytes
}

/// The bytes of a run that do not depend on time.
fn records(run: &Path) -> Vec<u8> {
    ["metrics.jsonl", "checkpoint.eqp"].iter().flat_map(|name| fs::read(run.join(name)).expect(name)).collect()
}

/// The first line that `train` prints about the run.
fn introduction(stderr: &str) -> &str {
    stderr.lines().find(|line| line.contains(" classes; ")).expect("a line about the run")
}
