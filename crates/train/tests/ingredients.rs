//! Runs with every ingredient of training: the same bits with any number of threads, and when they are stopped and resumed anywhere.

use std::path::Path;
use std::sync::OnceLock;

use equipoise_data::Dataset;
use equipoise_data::acquire::embedded;
use equipoise_nn::Cpu;
use equipoise_pool::Pool;
use equipoise_record::names::{CHECKPOINT, METRICS};
use equipoise_record::{EpochRecord, GradientNorms, RunFolder};
use equipoise_testing::TempFolder;
use equipoise_train::checkpoint::{Checkpoint, files};
use equipoise_train::prepare::RunData;
use equipoise_train::run::build;
use equipoise_train::settings::Settings;
use equipoise_train::trainer::{Directive, Observer, RateRange, RunEnd, StepProgress, Trainer};
use equipoise_train::workers::SingleProcess;

/// Settings of a run of a few dozen small steps, with these changes.
fn settings(changes: &[(&str, &str)]) -> Settings {
    let small = [("model.name", "resnet8"), ("epochs", "3"), ("batch_size", "24"), ("criterion.method", "cwap")];
    let mut settings = Settings::default();
    for (key, value) in small.iter().chain(changes) {
        settings = settings.with_value(key, value).expect("a setting");
    }
    settings
}

/// 96 images of the embedded dataset.
fn dataset() -> Dataset {
    static DATASET: OnceLock<Dataset> = OnceLock::new();
    let make = || {
        let mut dataset = embedded::fashion_mini().expect("embedded");
        let spread = |length: usize, number: u32| (0..number).map(|i| i * length as u32 / number).collect::<Vec<u32>>();
        dataset.train = dataset.train.subset(&spread(dataset.train.labels.len(), 96));
        dataset.test = dataset.test.subset(&spread(dataset.test.labels.len(), 40));
        dataset
    };
    DATASET.get_or_init(make).clone()
}

/// A trainer on a few images.
fn trainer(settings: &Settings, threads: usize) -> Trainer<Cpu, SingleProcess> {
    let pool = Pool::new(threads).expect("threads");
    let data = RunData::new(dataset(), settings, None, &pool, &|_, _| {}).expect("it fits");
    let network = build::network(settings, &data).expect("it fits");
    let engine = build::engine(network, settings.batch_size, settings.seed, settings.precision, &pool).expect("valid");
    Trainer::new(settings.clone(), data, engine, SingleProcess, pool).expect("it fits")
}

/// Stops a run after a step, and once in an evaluation.
struct StopAt {
    step: Option<u64>,
    evaluation: bool,
    steps: u64,
}

impl Observer for StopAt {
    fn step(&mut self, _: &StepProgress) -> Directive {
        self.steps += 1;
        if Some(self.steps) == self.step { Directive::Stop } else { Directive::Continue }
    }
    fn evaluating(&mut self, _: usize, _: usize) -> Directive {
        if std::mem::take(&mut self.evaluation) { Directive::Stop } else { Directive::Continue }
    }
    fn epoch(&mut self, _: &EpochRecord, _: &GradientNorms) {}
}

/// The files of a run that must always be the same.
fn files_of(folder: &Path) -> [Vec<u8>; 2] {
    [CHECKPOINT, METRICS].map(|name| std::fs::read(folder.join(name)).expect(name))
}

/// A run from start to end.
fn whole(settings: &Settings, threads: usize) -> [Vec<u8>; 2] {
    let temp = TempFolder::new("ingredients");
    let folder = RunFolder::create(temp.path()).expect("an empty folder");
    let observer = &mut StopAt { step: None, evaluation: false, steps: 0 };
    assert_eq!(trainer(settings, threads).run(&folder, observer).expect("it runs"), RunEnd::Finished);
    files_of(temp.path())
}

/// A run that is stopped after this step, and in its next evaluation, and resumed with another number of threads.
fn resumed(settings: &Settings, step: u64) -> [Vec<u8>; 2] {
    let temp = TempFolder::new("ingredients");
    let folder = RunFolder::create(temp.path()).expect("an empty folder");
    let observer = &mut StopAt { step: Some(step), evaluation: false, steps: 0 };
    assert_eq!(trainer(settings, 2).run(&folder, observer).expect("it runs"), RunEnd::Interrupted);
    for (threads, evaluation, end) in [(1, true, RunEnd::Interrupted), (3, false, RunEnd::Finished)] {
        let raw = files::read(&temp.path().join(CHECKPOINT)).expect("saved");
        let mut trainer = trainer(settings, threads);
        trainer.restore(&Checkpoint::new(raw).expect("it fits")).expect("the same run");
        let observer = &mut StopAt { step: None, evaluation, steps: 0 };
        assert_eq!(trainer.run(&folder, observer).expect("it runs"), end);
    }
    files_of(temp.path())
}

#[test]
fn every_ingredient_repeats_and_resumes() {
    let cases: [&[(&str, &str)]; 8] = [
        &[("precision", "bf16-amx"), ("optimizer.ema_epochs", "0.8")],
        &[("precision", "bf16"), ("optimizer.ema_epochs", "0.8"), ("optimizer.sam", "{ rho = 0.1, start = 0.5 }")],
        &[
            ("optimizer.ema_epochs", "0.8"),
            ("optimizer.ema_bn_images", "70"),
            ("optimizer.schedule", "{ name = \"cosine\", floor = 0.1 }"),
        ],
        &[("optimizer.nesterov", "true"), ("criterion", "{ method = \"softmax\", params = { smoothing = 0.1 } }")],
        &[
            ("optimizer.name", "adamw"),
            ("optimizer.learning_rate", "0.001"),
            ("optimizer.backbone_factor", "0.5"),
            ("optimizer.ema_decay", "0.9"),
        ],
        &[("model.head", "cosine"), ("model.learn_head_scale", "true"), ("optimizer.ema_epochs", "0.5")],
        // this trainer starts from the weights of its engine, whatever the setting says
        &[
            ("model.weights", "weights.safetensors"),
            ("model.freeze_epochs", "1"),
            ("model.freeze_batch_norm", "true"),
            ("optimizer.layer_decay", "0.8"),
            // batch norms that do not adapt to random weights diverge easily
            ("optimizer.learning_rate", "0.001"),
        ],
        &[("optimizer.sam", "{ rho = 0.1, start = 0.3 }"), ("optimizer.clip_grad_norm", "1.0")],
    ];
    let plain = whole(&settings(&[]), 2);
    for changes in cases {
        let settings = settings(changes);
        let want = whole(&settings, 2);
        assert!(want[1] != plain[1], "{changes:?} changes nothing");
        assert!(whole(&settings, 1) == want, "one thread: {changes:?}");
        for step in [2, 5] {
            assert!(resumed(&settings, step) == want, "stopped after step {step}: {changes:?}");
        }
    }
}

/// An ascent that is too short to change a weight leaves the losses as they are without SAM, also where the criterion counts a batch
/// before it is used: both passes see the same criterion. Only the sums of batch norms are taken around other means.
#[test]
fn a_vanishing_ascent_changes_nothing() {
    let losses = |changes: &[(&str, &str)]| -> Vec<f64> {
        let metrics = String::from_utf8(whole(&settings(changes), 2)[1].clone()).expect("text");
        let records = metrics.lines().map(|line| serde_json::from_str::<EpochRecord>(line).expect("a record"));
        records.map(|record| record.loss).collect()
    };
    let live = "{ method = \"cwap\", preset = \"reference\", params = { memory = \"live\", momentum = 0.7 } }";
    for criterion in [live, "{ method = \"seesaw\" }", "{ method = \"ghm\", params = { momentum = 0.5 } }"] {
        let plain = losses(&[("criterion", criterion)]);
        let ascending = losses(&[("criterion", criterion), ("optimizer.sam", "{ rho = 1e-30, start = 0.3 }")]);
        for (plain, ascending) in plain.iter().zip(&ascending) {
            assert!((plain / ascending - 1.0).abs() < 2e-3, "{criterion}: {ascending}, not {plain}");
        }
    }
}

/// What starts in a later epoch does not start in a range test, however many steps it has.
#[test]
fn a_range_test_stays_in_the_first_epoch() {
    let range = RateRange { from: 1e-3, to: 1e-1, steps: 11 };
    let points = |changes: &[(&str, &str)]| trainer(&settings(changes), 1).range_test(&range).expect("it runs");
    let plain = points(&[("criterion.method", "softmax")]);
    assert_eq!(plain.len(), 11, "there are 4 steps in an epoch");
    assert_eq!(plain, points(&[("criterion.method", "softmax"), ("optimizer.sam", "{ rho = 0.5, start = 0.4 }")]));
}

/// The tensors of a run's last checkpoint.
fn last(settings: &Settings) -> Checkpoint {
    Checkpoint::new(equipoise_train::checkpoint::RawCheckpoint::from_bytes(&whole(settings, 2)[0]).expect("intact"))
        .expect("fits")
}

/// Estimating the statistics of the EMA changes how the EMA is evaluated and nothing in training.
#[test]
fn estimated_statistics_do_not_touch_training() {
    let ema = ("optimizer.ema_decay", "0.9");
    let [plain, estimated] =
        [vec![ema], vec![ema, ("optimizer.ema_bn_images", "100")]].map(|changes| last(&settings(&changes)));
    let [trained, trained_too] = [&plain, &estimated].map(|checkpoint| {
        let mut trainer = trainer(&checkpoint.header.settings, 1);
        trainer.restore(checkpoint).expect("its own");
        let tensors = trainer.checkpoint().expect("its weights").tensors;
        let parameters = checkpoint.parameters.len();
        // parameters, momentum and statistics in training
        tensors[..2 * parameters + checkpoint.statistics.len()].to_vec()
    });
    assert!(trained == trained_too);
    assert!(plain.parameters == estimated.parameters, "the EMA of the parameters");
    assert!(plain.statistics != estimated.statistics, "the statistics of the EMA");
}
