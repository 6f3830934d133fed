//! Fabricated run folders.

#![allow(dead_code, reason = "each test file uses only some of it")]

use std::fs;
use std::path::{Path, PathBuf};

use equipoise_record::names::{CALIBRATION, CONFIG, DETAILS, METRICS, NORMS, RESULT, TIMES};
use equipoise_record::{
    BeforeAndAfter, Calibration, CalibrationImages, ClassCounts, ClassProbabilities, ConfusedPair, CorrectImages,
    Decisions, EpochMetrics, EpochRecord, EpochTime, EvaluationDetails, GradientNorms, GroupAccuracy, GroupMembers,
    HardExample, Metrics, NormRegions, NormView, ProbabilityFigures, RejectionCounts, ReliabilityBin, RunResult,
    SetCounts, SweepPoint, TemperatureFit,
};
use serde_json::json;

/// The smallest PNG file: one pixel.
pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";

/// A folder that is removed at the end of its test.
pub(crate) struct Folder(PathBuf);

impl std::ops::Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An empty folder for one test.
pub(crate) fn folder(test: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("equipoise-report-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder for the test");
    Folder(path)
}

/// A fabricated run.
#[derive(Clone)]
pub(crate) struct FakeRun {
    pub(crate) dataset: String,
    pub(crate) criterion: &'static str,
    pub(crate) params: &'static str,
    pub(crate) seed: u64,
    /// Names of classes; their numbers of images follow from their order.
    pub(crate) classes: Vec<String>,
    pub(crate) groups: Vec<(String, usize)>,
    pub(crate) epochs: u64,
    /// Number of epochs trained so far.
    pub(crate) done: u64,
    /// Points added to the accuracy of small classes.
    pub(crate) gain: u64,
    /// Whether it has gradient norms, times and details.
    pub(crate) has_details: bool,
    pub(crate) chosen_on_test: bool,
}

impl FakeRun {
    pub(crate) fn new(criterion: &'static str, seed: u64, classes: Vec<String>, groups: &[(&str, usize)]) -> Self {
        Self {
            dataset: "made-up".to_owned(),
            criterion,
            params: "",
            seed,
            classes,
            groups: groups.iter().map(|(name, classes)| ((*name).to_owned(), *classes)).collect(),
            epochs: 12,
            done: 12,
            gain: 0,
            has_details: true,
            chosen_on_test: false,
        }
    }

    /// A reproducible pseudo-random number below `below`.
    fn pseudo_random(&self, key: u64, below: u64) -> u64 {
        let mut x = (self.seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (key + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= self.criterion.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
        x = (x ^ (x >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x >> 33) % below
    }

    pub(crate) fn train(&self, class: usize) -> u64 {
        1 + (5000.0 * 0.01f64.powf(class as f64 / self.classes.len() as f64)) as u64
    }

    /// Evaluation after an epoch.
    pub(crate) fn metrics(&self, epoch: u64) -> Metrics {
        let number = self.classes.len() as u64;
        let class = |(at, name): (usize, &String)| {
            let rank = at as u64 * 100 / number;
            let hits = (95 - rank * 7 / 10 + self.gain * rank / 100)
                .saturating_sub(self.pseudo_random(epoch * 100_003 + at as u64, 20));
            let hits = (hits * (epoch + 4) / (self.epochs + 4)).min(100);
            ClassCounts { name: name.clone(), train: self.train(at), test: 100, hits, predicted: hits + 5 }
        };
        let per_class: Vec<ClassCounts> = self.classes.iter().enumerate().map(class).collect();
        let mut rest = per_class.as_slice();
        let mut groups = Vec::new();
        for (name, classes) in &self.groups {
            let (own, others) = rest.split_at(*classes);
            let mean = own.iter().map(|class| class.hits as f64).sum::<f64>() / own.len() as f64;
            groups.push(GroupAccuracy {
                name: name.clone(),
                classes: *classes,
                accuracy: (!own.is_empty()).then_some(mean),
            });
            rest = others;
        }
        let top1 = per_class.iter().map(|class| class.hits as f64).sum::<f64>() / number as f64;
        let (top5, balanced, macro_f1) = (Some(99.0), Some(top1), Some(50.0));
        Metrics {
            top1: Some(top1),
            top5,
            balanced,
            macro_f1,
            calibration: Some(7.5),
            loss: Some(1.0),
            unusable: 0,
            groups,
            per_class,
        }
    }

    pub(crate) fn epoch(&self, epoch: u64) -> EpochRecord {
        let test = (epoch.is_multiple_of(3) || epoch == self.epochs).then(|| self.metrics(epoch));
        let loss = 3.0 / epoch as f64 + self.pseudo_random(epoch, 100) as f64 / 1000.0;
        EpochRecord {
            epoch,
            learning_rate: if epoch > 9 { 0.001 } else { 0.1 },
            loss,
            val: None,
            test,
            augment_levels: Vec::new(),
        }
    }

    pub(crate) fn norms(&self, epoch: u64) -> GradientNorms {
        let last = self.classes.len() - 1;
        let view = |class: Option<usize>| {
            let counts: Vec<u64> =
                (0..120).map(|bin| self.pseudo_random(epoch * 1000 + bin, 50) / (1 + bin * epoch / 40)).collect();
            let regions = (self.criterion == "cwap" && class.is_some()).then(|| NormRegions {
                size: 10.0,
                widths: vec![1.0 / 30.0; 30],
                densities: (0..30).map(|at| f64::from(at) * 1.5).collect(),
                weights: (0..30).map(|at| 0.2 + f64::from(at) * 0.1).collect(),
            });
            let weights = counts.iter().map(|n| (*n > 0).then_some(1.0)).collect();
            NormView { class: class.map(|class| class as u32), counts, weights, regions }
        };
        let views = vec![view(Some(0)), view(Some(last / 2)), view(Some(last)), view(None)];
        let margin =
            |row: i32, column: i32| if row < column { -f64::from(column - row) - epoch as f64 / 100.0 } else { 0.0 };
        let margins = (0..3).map(|row| (0..3).map(|column| margin(row, column)).collect()).collect();
        GradientNorms { epoch, views, margins: if self.criterion == "cwap" { margins } else { Vec::new() } }
    }

    pub(crate) fn details(&self) -> EvaluationDetails {
        let mut at = 0;
        let mut groups = Vec::new();
        for (name, classes) in &self.groups {
            groups.push(GroupMembers { name: name.clone(), classes: (at..at + classes).collect() });
            at += classes;
        }
        let number = groups.len() as u64;
        let row = |row: u64| {
            (0..number)
                .map(|column| if row == column { 80 } else { self.pseudo_random(row * 7 + column, 20) })
                .collect()
        };
        let last = self.classes.len() as u32 - 1;
        let hard = |thumbnail: &str| HardExample {
            name: format!("test/{}", self.classes[last as usize]),
            class: last,
            predicted: 0,
            confidence: 0.9,
            true_probability: 0.01,
            thumbnail: Some(thumbnail.to_owned()),
        };
        EvaluationDetails {
            epoch: self.epochs,
            groups,
            confusion: (0..number).map(row).collect(),
            confused: vec![
                ConfusedPair { class: last, predicted: 0, images: 30 },
                ConfusedPair { class: 0, predicted: last, images: 3 },
            ],
            reliability: (0..number)
                .map(|_| vec![ReliabilityBin::default(), ReliabilityBin { images: 40, hits: 20, confidence: 0.6 }])
                .collect(),
            hardest: vec![hard(PIXEL), hard("\"/><script>alert(1)</script>")],
            correct: self.metrics(self.epochs).per_class.iter().map(Self::easiest_correct).collect(),
            sweep: self.sweep(number as usize),
        }
    }

    /// The more rare classes are favored, the worse the first group and the better the last.
    fn sweep(&self, groups: usize) -> Vec<SweepPoint> {
        let point = |strength: f64| SweepPoint {
            strength,
            groups: (0..groups).map(|group| Some(60.0 + strength * (group as f64 - 1.0) * 10.0)).collect(),
            top1: Some(61.25),
            balanced: Some(62.5),
        };
        [0.0, 0.5, 1.0].map(point).to_vec()
    }

    /// Probabilities of validation images, and of test images before and after.
    pub(crate) fn calibration(&self) -> Calibration {
        let (classes, groups) = (self.classes.len(), self.groups.len());
        let figures = |confidence: f64, loss: f64| ProbabilityFigures {
            loss: Some(loss),
            balanced_loss: Some(loss + 0.5),
            calibration: Some(100.0 * (confidence - 0.5)),
            reliability: vec![vec![ReliabilityBin { images: 10, hits: 5, confidence }]; groups],
            classes: vec![ClassProbabilities { images: 10, hits: 5, confidence, loss }; classes],
        };
        Calibration {
            epoch: self.epochs,
            steps: 77,
            source: "validation images".to_owned(),
            temperature: 1.625,
            fit: TemperatureFit::Fitted,
            images: CalibrationImages::default(),
            test: Some(BeforeAndAfter { before: figures(0.8, 1.75), after: figures(0.55, 1.125) }),
            decisions: Decisions {
                sets: Some(SetCounts { alpha: 0.1, classes: vec![[10, 9, 15]; classes] }),
                rejections: Some(RejectionCounts { rate: 0.05, classes: vec![[8, 1, 2, 1]; classes] }),
            },
        }
    }

    /// The images of a class in order of difficulty: all runs get the first ones right.
    fn easiest_correct(class: &ClassCounts) -> CorrectImages {
        CorrectImages::new(&(0..class.test).map(|image| image < class.hits).collect::<Vec<_>>())
    }

    pub(crate) fn result(&self) -> RunResult {
        let evaluation = |epoch: u64| EpochMetrics { epoch, metrics: self.metrics(epoch), val_balanced: None };
        RunResult {
            dataset: self.dataset.clone(),
            imbalance: None,
            criterion: self.criterion.to_owned(),
            params: json!({}),
            drw: None,
            logit_adjustment: 0.0,
            model: "resnet8".to_owned(),
            precision: None,
            seed: self.seed,
            subset_seed: 0,
            epochs: self.epochs,
            schedule: json!({ "name": "multi-step", "warmup_epochs": 1, "milestones": [{ "epoch": 10, "factor": 0.01 }] }),
            train_counts: (0..self.classes.len()).map(|class| self.train(class)).collect(),
            last: Some(evaluation(self.epochs)),
            best: self.chosen_on_test.then(|| evaluation(9)),
            best_selected_on: self.chosen_on_test.then_some(equipoise_record::SelectionSplit::Test),
            stopped_early: false,
            warnings: Vec::new(),
            images_per_second: 2737.7,
            seconds: 17.4,
            peak_mb: Some(47),
            machine: None,
            version: "0.1.0".to_owned(),
            commit: "0301df1".to_owned(),
        }
    }

    /// Writes the run into a subfolder.
    pub(crate) fn write(&self, root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir_all(&path).expect("a folder");
        let put = |file: &str, text: String| fs::write(path.join(file), text).expect("written");
        let dataset = toml::Value::String(self.dataset.clone());
        let (seed, epochs, criterion, params) = (self.seed, self.epochs, self.criterion, self.params);
        put(
            CONFIG,
            format!(
                "seed = {seed}\nepochs = {epochs}\nbatch_size = 32\nprecision = \"bf16\"\n[data]\ndataset = {dataset}\nsubset_seed = 0\n[model]\nname = \"resnet8\"\n\
                 [augment]\ncutout = 16\nmixup_alpha = 0.0\n[optimizer]\nnesterov = true\n[optimizer.sam]\nrho = 0.1\n[criterion]\nmethod = \"{criterion}\"\n[criterion.params]\n{params}\n"
            ),
        );
        put(METRICS, lines((1..=self.done).map(|epoch| self.epoch(epoch))));
        if self.has_details {
            put(NORMS, lines((1..=self.done).map(|epoch| self.norms(epoch))));
            let time =
                |epoch| EpochTime { epoch, seconds: 0.5, images_per_second: 2000.0 + epoch as f64, ended_at: 1e9 };
            put(TIMES, lines((1..=self.done).map(time)));
        }
        if self.done == self.epochs {
            put(RESULT, serde_json::to_string(&self.result()).expect("JSON"));
            if self.has_details {
                put(DETAILS, serde_json::to_string(&self.details()).expect("JSON"));
                put(CALIBRATION, serde_json::to_string(&self.calibration()).expect("JSON"));
            }
        }
        path
    }
}

fn lines<T: serde::Serialize>(values: impl Iterator<Item = T>) -> String {
    values.map(|value| serde_json::to_string(&value).expect("JSON") + "\n").collect()
}

/// Names for a number of classes.
pub(crate) fn names(number: usize) -> Vec<String> {
    (0..number).map(|class| format!("class {class}")).collect()
}

/// Three criteria with three seeds each on ten classes.
pub(crate) fn nine(root: &Path) -> Vec<Vec<FakeRun>> {
    let mut all = Vec::new();
    for (criterion, gain) in [("softmax", 0), ("seesaw", 20), ("cwap", 45)] {
        let mut runs = Vec::new();
        for seed in 0..3 {
            let mut run = FakeRun::new(criterion, seed, names(10), &[("Many", 3), ("Medium", 4), ("Few", 3)]);
            run.gain = gain;
            run.write(root, &format!("{criterion}-s{seed}"));
            runs.push(run);
        }
        all.push(runs);
    }
    all
}
