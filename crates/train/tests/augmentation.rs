//! Augmentation that has a state or needs other images: the same bits when a run is stopped after any step and resumed.

use equipoise_criterion::{Config, Id, Preset};
use equipoise_data::acquire::embedded;
use equipoise_data::batch::augmentation::{Augmentation, Policy};
use equipoise_data::batch::random_ops::RandAugment;
use equipoise_nn::{Cpu, Network};
use equipoise_pool::Pool;
use equipoise_record::{EpochRecord, GradientNorms, RunFolder};
use equipoise_testing::TempFolder;
use equipoise_train::checkpoint::{Checkpoint, RawCheckpoint};
use equipoise_train::prepare::RunData;
use equipoise_train::settings::{Architecture, Settings};
use equipoise_train::trainer::{Directive, NoObserver, Observer, RunEnd, StepProgress, Trainer};
use equipoise_train::workers::SingleProcess;

/// Five steps an epoch; the shortest run with CMO has seven epochs.
fn trainer(augment: Augmentation, epochs: u64) -> Trainer<Cpu, SingleProcess> {
    let mut settings = Settings { epochs, batch_size: 16, evaluate_every: epochs, augment, ..Settings::default() };
    settings.model.name = Some(Architecture::ResNet8);
    settings.criterion = Config::from(Id::BalancedSoftmax.preset(Preset::Recommended));
    let pool = Pool::single();
    let mut dataset = embedded::fashion_mini().expect("embedded");
    let spread: Vec<u32> = (0..80).map(|i| i * (dataset.train.labels.len() as u32 / 80)).collect();
    dataset.train = dataset.train.subset(&spread);
    dataset.test = dataset.test.subset(&(0..50).collect::<Vec<u32>>());
    let data = RunData::new(dataset, &settings, None, &pool, &|_, _| {}).expect("it fits");
    let network = Network::new(Architecture::ResNet8, 1, [28, 28], 10).expect("known");
    let engine = Cpu::new(network, settings.batch_size, settings.seed, pool.clone()).expect("valid");
    Trainer::new(settings, data, engine, SingleProcess, pool).expect("it fits")
}

/// Stops after some steps.
struct StopAfter(u32);

impl Observer for StopAfter {
    fn step(&mut self, _: &StepProgress) -> Directive {
        self.0 -= 1;
        if self.0 == 0 { Directive::Stop } else { Directive::Continue }
    }

    fn evaluating(&mut self, _: usize, _: usize) -> Directive {
        Directive::Continue
    }

    fn epoch(&mut self, _: &EpochRecord, _: &GradientNorms) {}
}

fn run(trainer: &mut Trainer<Cpu, SingleProcess>, observer: &mut dyn Observer) -> RunEnd {
    let temp = TempFolder::new("augmentation");
    let folder = RunFolder::create(temp.path()).expect("an empty folder");
    trainer.run(&folder, observer).expect("it runs")
}

/// A run that is stopped and resumed every four steps.
fn in_parts(augment: Augmentation, epochs: u64) -> RawCheckpoint {
    let mut current = trainer(augment, epochs);
    while run(&mut current, &mut StopAfter(4)) == RunEnd::Interrupted {
        let checkpoint = Checkpoint::new(current.checkpoint().expect("its weights")).expect("its own");
        current = trainer(augment, epochs);
        current.restore(&checkpoint).expect("the same run");
    }
    current.checkpoint().expect("its weights")
}

#[test]
fn runs_resume_after_any_step() {
    let difficulty = RandAugment::by_difficulty(2).ok();
    let usual = Augmentation::default();
    let mut weights = Vec::new();
    for (augment, epochs) in [
        (usual, 2),
        (Augmentation { policy: Some(Policy::TrivialAugment), ..usual }, 2),
        (Augmentation { policy: Some(Policy::AutoAugmentCifar10), cutmix: Some(0.5), ..usual }, 2),
        (Augmentation { randaugment: difficulty, ..usual }, 4),
        (Augmentation { randaugment: difficulty, cmo: Some(0.5), ..usual }, 7),
    ] {
        let mut whole = trainer(augment, epochs);
        assert_eq!(run(&mut whole, &mut NoObserver), RunEnd::Finished);
        assert!(in_parts(augment, epochs) == whole.checkpoint().expect("its weights"), "{augment:?}");
        // every one of them changes something
        let tensors = whole.checkpoint().expect("its weights").tensors;
        assert!(!weights.contains(&tensors), "{augment:?}");
        weights.push(tensors);
    }
}

/// Levels are recorded by class and epoch, start at 0, move by one, and a network that learns makes them rise.
#[test]
fn levels_follow_the_difficulty() {
    let mut trainer =
        trainer(Augmentation { randaugment: RandAugment::by_difficulty(1).ok(), ..Augmentation::NONE }, 12);
    let temp = TempFolder::new("augmentation");
    let folder = RunFolder::create(temp.path()).expect("an empty folder");
    trainer.run(&folder, &mut NoObserver).expect("it runs");
    let metrics = std::fs::read_to_string(temp.path().join("metrics.jsonl")).expect("it is there");
    let levels: Vec<Vec<i64>> = metrics
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["augment_levels"].clone())
        .map(|levels| serde_json::from_value(levels).expect("a level for each class"))
        .collect();
    assert_eq!((levels.len(), levels[0].clone()), (12, vec![0; 10]));
    for pair in levels.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(a, b)| (a - b).abs() <= 1 && (0..=10).contains(b)), "{pair:?}");
    }
    assert!(levels[11].iter().any(|level| *level >= 2), "{levels:?}");
}

/// The levels in a checkpoint must be those of the run.
#[test]
fn a_checkpoint_of_another_augmentation_is_refused() {
    let usual = Augmentation::default();
    let by_difficulty = Augmentation { randaugment: RandAugment::by_difficulty(2).ok(), ..usual };
    let checkpoint = Checkpoint::new(trainer(by_difficulty, 2).checkpoint().expect("its weights")).expect("its own");
    let error = trainer(usual, 2).restore(&checkpoint).expect_err("another run").to_string();
    assert!(error.contains("it belongs to a run with another `augment.randaugment`"), "{error}");
    let mut damaged = checkpoint.clone();
    let text = serde_json::to_string(&checkpoint.header).expect("JSON").replace("\"levels\":[0,", "\"levels\":[");
    damaged.header = serde_json::from_str(&text).expect("a header");
    let error = trainer(by_difficulty, 2).restore(&damaged).expect_err("nine levels").to_string();
    assert!(error.contains("its levels of augmentation are not those of the classes"), "{error}");
}
