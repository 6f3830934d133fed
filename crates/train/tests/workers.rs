//! Several workers in one process, through the trait that torch and clusters implement.

mod crew;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_criterion::{Config, Id, Preset};
use equipoise_data::acquire::embedded;
use equipoise_data::batch::random_ops::RandAugment;
use equipoise_nn::{Cpu, Network};
use equipoise_pool::Pool;
use equipoise_record::names::CHECKPOINT;
use equipoise_record::{Calibration, EpochRecord, GradientNorms, RunFolder};
use equipoise_testing::TempFolder;
use equipoise_train::TrainError;
use equipoise_train::checkpoint::{Checkpoint, RawCheckpoint, files};
use equipoise_train::prepare::RunData;
use equipoise_train::same_files::{LabeledFile, check_files};
use equipoise_train::settings::{Architecture, SelectBest, Settings};
use equipoise_train::trainer::same_run::check_same_run;
use equipoise_train::trainer::{Directive, NoObserver, Observer, Position, RunEnd, StepProgress, Trainer};
use equipoise_train::workers::{SingleProcess, Workers};

use crate::crew::{Crew, FailingEngine, FailsIn, crew};

/// Batches of 16; 83 images make five batches and one of three rows, in which some of four workers have none.
fn settings(frozen: bool) -> Settings {
    let mut settings = Settings { epochs: 2, batch_size: 16, ..Settings::default() };
    settings.model.name = Some(Architecture::ResNet8);
    settings.model.freeze_backbone = frozen;
    // a frozen backbone comes from weights; those of the engine are as good
    settings.model.weights = frozen.then(|| "weights".to_owned());
    settings.augment.randaugment = RandAugment::by_difficulty(2).ok();
    settings.augment.cutmix = Some(0.5);
    settings.optimizer.ema_decay = 0.9;
    settings.optimizer.ema_bn_images = if frozen { 0 } else { 20 };
    settings.criterion = Config::from(Id::Cwap.preset(Preset::Recommended));
    settings
}

fn trainer<W: Workers>(settings: Settings, workers: W, fails: FailsIn) -> Trainer<FailingEngine, W> {
    let pool = Pool::single();
    let mut dataset = embedded::fashion_mini().expect("embedded");
    let spread = |images: u32, of: usize| (0..images).map(|i| i * (of as u32 / images)).collect::<Vec<u32>>();
    dataset.train = dataset.train.subset(&spread(83, dataset.train.labels.len()));
    dataset.test = dataset.test.subset(&spread(45, dataset.test.labels.len()));
    let data = RunData::new(dataset, &settings, None, &pool, &|_, _| {}).expect("it fits");
    let network = Network::new(Architecture::ResNet8, 1, [28, 28], 10).expect("known");
    let rows = settings.batch_size.div_ceil(workers.shard().size());
    let engine = Cpu::new(network, rows, settings.seed, pool.clone()).expect("valid");
    Trainer::new(settings, data, FailingEngine::new(engine, fails), workers, pool).expect("it fits")
}

/// What a worker ends with.
struct Ended {
    end: Result<RunEnd, TrainError>,
    checkpoint: RawCheckpoint,
    steps: u64,
    history: Vec<EpochRecord>,
    details: Option<String>,
    calibration: Option<Calibration>,
}

/// Trains with several workers. Rank 0 has the folder, which is returned.
fn train(
    size: usize,
    settings: &Settings,
    resume: Option<&Checkpoint>,
    worker: impl Fn(usize) -> (FailsIn, Box<dyn Observer>) + Sync,
) -> (Vec<Ended>, TempFolder) {
    let temp = TempFolder::new("workers");
    let work = |workers: Crew| {
        let rank = workers.shard().rank();
        let (fails, mut observer) = worker(rank);
        let mut trainer = trainer(settings.clone(), workers, fails);
        if let Some(checkpoint) = resume {
            trainer.restore(checkpoint).expect("the same run");
        }
        let folder = (rank == 0).then(|| RunFolder::create(temp.path()).expect("an empty folder"));
        let end = trainer.run(folder.as_ref(), &mut *observer);
        let details = match end {
            Ok(RunEnd::Finished) => trainer.details(folder.as_ref(), &mut *observer).expect("it is evaluated"),
            _ => None,
        };
        let checkpoint = trainer.checkpoint().expect("its weights");
        let details = details.map(|details| serde_json::to_string(&details).expect("JSON"));
        let (history, calibration) = (trainer.history().to_vec(), trainer.calibration().cloned());
        Ended { end, checkpoint, steps: trainer.steps(), history, details, calibration }
    };
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = crew(size).into_iter().map(|one| scope.spawn(|| work(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    (ended, temp)
}

fn undisturbed(_: usize) -> (FailsIn, Box<dyn Observer>) {
    (FailsIn::Nothing, Box::new(NoObserver))
}

fn single(settings: &Settings) -> Ended {
    let temp = TempFolder::new("workers");
    let folder = RunFolder::create(temp.path()).expect("an empty folder");
    let mut trainer = trainer(settings.clone(), SingleProcess, FailsIn::Nothing);
    let end = trainer.run(&folder, &mut NoObserver);
    let details = trainer.details(&folder, &mut NoObserver).expect("it is evaluated");
    let details = details.map(|details| serde_json::to_string(&details).expect("JSON"));
    let checkpoint = trainer.checkpoint().expect("its weights");
    let (history, calibration) = (trainer.history().to_vec(), trainer.calibration().cloned());
    Ended { end, checkpoint, steps: trainer.steps(), history, details, calibration }
}

/// All workers end with the same weights, criterion state and records, and as many steps as one process makes.
#[test]
fn workers_stay_in_step() {
    for size in [2, 3, 4] {
        let (ended, temp) = train(size, &settings(false), None, undisturbed);
        let first = &ended[0];
        assert_eq!(first.steps, 6, "83 images in batches of 16");
        for other in &ended {
            assert_eq!(*other.end.as_ref().expect("it runs"), RunEnd::Finished);
            assert!(other.checkpoint == first.checkpoint, "the same weights, momentum, statistics and header");
            assert_eq!(other.history, first.history);
            assert_eq!(other.details, first.details);
        }
        assert_eq!(first.history.last().map(|epoch| epoch.augment_levels.len()), Some(10), "a level for every class");
        let test = first.history[1].test.as_ref().expect("tested");
        assert_eq!(test.per_class.iter().map(|class| class.test).sum::<u64>(), 45, "every image once");
        // rank 0 has written the state that all have
        assert!(files::read(&temp.path().join(CHECKPOINT)).expect("intact") == first.checkpoint);
    }
}

/// Without batch norms over the batch there is nothing that depends on the number of workers but the order of sums.
#[test]
fn a_frozen_backbone_trains_as_in_one_process() {
    let one = single(&settings(true));
    for size in [2, 4] {
        let (ended, _) = train(size, &settings(true), None, undisturbed);
        assert_eq!(ended[0].steps, one.steps);
        for (epoch, want) in ended[0].history.iter().zip(&one.history) {
            assert!((epoch.loss / want.loss - 1.0).abs() < 1e-5, "{} is not {}", epoch.loss, want.loss);
            let top1 = |epoch: &EpochRecord| epoch.test.as_ref().and_then(|metrics| metrics.top1);
            assert_eq!(top1(epoch), top1(want));
        }
        let weights = ended[0].checkpoint.tensors.iter().flatten().zip(one.checkpoint.tensors.iter().flatten());
        let largest = weights.map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
        assert!(largest < 1e-5, "a weight differs by {largest}");
    }
}

/// The same weights have the same details and the same calibration, whoever evaluates which images.
#[test]
fn a_calibration_does_not_depend_on_the_number_of_workers() {
    let mut settings = Settings { select_best: SelectBest::Last, ..settings(false) };
    settings.data.val_fraction = 0.3;
    let one = single(&settings);
    let calibration = one.calibration.as_ref().expect("there are validation images");
    assert!(calibration.images.number().is_some_and(|images| images > 10) && calibration.test.is_some());
    assert!(calibration.temperature > 0.0 && calibration.steps == 2 * one.steps);
    let trained = Checkpoint::new(one.checkpoint.clone()).expect("intact");
    for size in [2, 3] {
        let (ended, _) = train(size, &settings, Some(&trained), undisturbed);
        for other in &ended {
            assert_eq!(other.calibration.as_ref(), Some(calibration), "{size} workers");
            assert_eq!(other.details, one.details);
        }
    }
}

/// An error before the logits are gathered ends all workers with the same sentence.
#[test]
fn an_error_of_one_worker_ends_all() {
    for (fails, in_evaluation) in [(FailsIn::Forward(4), false), (FailsIn::Evaluation(2), true)] {
        for failing in [0, 1] {
            let worker = |rank| (if rank == failing { fails } else { FailsIn::Nothing }, Box::new(NoObserver) as _);
            let (ended, _) = train(3, &settings(false), None, worker);
            for (rank, other) in ended.iter().enumerate() {
                let error = other.end.as_ref().expect_err("one of them failed").to_string();
                match rank == 0 && failing == 0 {
                    true => assert_eq!(error, "the device is gone"),
                    false => assert_eq!(error, format!("rank {failing}: the device is gone")),
                }
                assert_eq!(other.history.len(), 0, "{in_evaluation}");
            }
        }
    }
}

/// A worker that fails while the others wait for its gradients leaves, and they find out.
#[test]
fn a_worker_that_leaves_is_missed() {
    let worker = |rank| (if rank == 1 { FailsIn::Backward(3) } else { FailsIn::Nothing }, Box::new(NoObserver) as _);
    let (ended, _) = train(3, &settings(false), None, worker);
    let errors: Vec<String> = ended.iter().map(|one| one.end.as_ref().expect_err("failed").to_string()).collect();
    assert_eq!(errors[1], "the device is gone");
    for rank in [0, 2] {
        assert!(errors[rank].starts_with("the other processes cannot be reached: "), "{}", errors[rank]);
    }
}

/// Stops, or saves, after some steps.
struct Directs(usize, Directive, Arc<AtomicUsize>);

impl Observer for Directs {
    fn step(&mut self, _: &StepProgress) -> Directive {
        self.2.fetch_add(1, Ordering::Relaxed);
        self.0 = self.0.wrapping_sub(1);
        if self.0 == 0 { self.1 } else { Directive::Continue }
    }

    fn evaluating(&mut self, _: usize, _: usize) -> Directive {
        self.0 = self.0.wrapping_sub(1);
        if self.0 == 0 { self.1 } else { Directive::Continue }
    }

    fn epoch(&mut self, _: &EpochRecord, _: &GradientNorms) {}
}

/// One worker is told to stop: all stop after the same step, rank 0 saves, and any number of workers goes on from there.
#[test]
fn a_stop_of_one_worker_stops_all() {
    // six steps, then the evaluation
    for (after, epoch) in [(4, 0), (7, 0), (9, 0), (10, 1)] {
        let steps = Arc::new(AtomicUsize::new(0));
        let worker = |rank| -> (FailsIn, Box<dyn Observer>) {
            match rank {
                1 => (FailsIn::Nothing, Box::new(Directs(after, Directive::Stop, Arc::clone(&steps)))),
                _ => undisturbed(rank),
            }
        };
        let (ended, temp) = train(3, &settings(false), None, worker);
        for other in &ended {
            assert_eq!(*other.end.as_ref().expect("no error"), RunEnd::Interrupted);
            assert!(other.checkpoint == ended[0].checkpoint);
        }
        let saved = files::read(&temp.path().join(CHECKPOINT)).expect("intact");
        assert!(saved == ended[0].checkpoint);
        let saved = Checkpoint::new(saved).expect("its own");
        assert_eq!(saved.header.position.epoch, epoch, "stopped after {after}");
        assert_eq!(saved.header.position.total_steps, steps.load(Ordering::Relaxed) as u64);
        let (resumed, _) = train(2, &settings(false), Some(&saved), undisturbed);
        assert_eq!(*resumed[1].end.as_ref().expect("it runs"), RunEnd::Finished);
        assert_eq!(resumed[1].history.len(), 2);
    }
}

/// A run that is stopped within an epoch and resumed by as many workers ends like one that never stopped, up to rounding: the
/// running statistics were averaged once more, and the CPU engine takes its sums around the running means.
#[test]
fn workers_resume_where_they_stopped() {
    // a criterion that counts, or levels that rise, could turn rounding into more
    let mut settings = settings(false);
    settings.criterion = Config::from(Id::Softmax.preset(Preset::Recommended));
    settings.augment.randaugment = None;
    let (whole, _) = train(2, &settings, None, undisturbed);
    let steps = Arc::new(AtomicUsize::new(0));
    let worker = |_| -> (FailsIn, Box<dyn Observer>) {
        (FailsIn::Nothing, Box::new(Directs(4, Directive::Stop, Arc::clone(&steps))))
    };
    let (stopped, _) = train(2, &settings, None, worker);
    let saved = Checkpoint::new(stopped[0].checkpoint.clone()).expect("its own");
    let (resumed, _) = train(2, &settings, Some(&saved), undisturbed);
    let values = |ended: &Ended| ended.checkpoint.tensors.concat();
    let pairs = values(&resumed[0]).into_iter().zip(values(&whole[0]));
    let largest = pairs.map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f32::max);
    assert!(largest < 1e-3, "{largest}");
    for (epoch, want) in resumed[0].history.iter().zip(&whole[0].history) {
        assert!((epoch.loss / want.loss - 1.0).abs() < 1e-4, "{} is not {}", epoch.loss, want.loss);
    }
}

/// A file that a worker lacks is named, even if other files have other classes because of it; then one that it cannot read, and one that differs.
#[test]
fn files_that_differ_are_named() {
    let temp = TempFolder::new("files");
    let file = |name: &str| temp.path().join(name);
    for name in ["a", "b", "c", "d", "other"] {
        std::fs::write(file(name), name).expect("room");
    }
    let full = [(file("a"), 0), (file("b"), 0), (file("c"), 1), (file("d"), 2)];
    let check = |lists: [Option<Vec<LabeledFile>>; 3], may_lack: bool| -> Vec<String> {
        let work = |(workers, files): (Crew, Option<Vec<LabeledFile>>)| {
            let mut workers = workers;
            let checked = check_files(files.as_deref(), may_lack, &mut workers);
            checked.err().map_or_else(String::new, |error| error.to_string())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = crew(3).into_iter().zip(lists).map(|one| scope.spawn(|| work(one))).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        })
    };
    let all = || Some(full.to_vec());
    let says = |other: Vec<LabeledFile>, may_lack: bool| check([all(), all(), Some(other)], may_lack);
    assert_eq!(says(full.to_vec(), false), [""; 3]);
    // who has no list says why later
    assert_eq!(check([all(), None, all()], false), [""; 3]);
    assert_eq!(check([None, all(), Some(Vec::new())], false), [""; 3]);
    let lacks = format!("rank 2 has other images than rank 0: it lacks {}", file("b").display());
    // without b, class 1 has number 0
    let relabeled = vec![full[0].clone(), (file("c"), 0), (file("d"), 1)];
    assert_eq!(says(relabeled.clone(), false), [&lacks[..]; 3]);
    let lacks = format!("rank 0 has other images than rank 1: it lacks {}", file("b").display());
    assert_eq!(check([Some(relabeled), all(), all()], false), [&lacks[..]; 3]);
    let lacks = format!("rank 2 has other images than rank 0: it lacks {} and 1 more", file("c").display());
    assert_eq!(says(full[..2].to_vec(), false), [&lacks[..]; 3]);
    let differ = format!("rank 2 has other images than rank 0: they differ in {}", file("d").display());
    assert_eq!(says([&full[..3], &[(file("d"), 1)]].concat(), false), [&differ[..]; 3]);
    // a file that one of them cannot read; here it is gone for both when the second looks
    let gone = (file("gone"), 0);
    assert_eq!(check([1, 2, 3].map(|_| Some(vec![gone.clone()])), false), [""; 3]);
}

/// A worker with other settings is refused.
#[test]
fn all_workers_train_the_same_run() {
    let work = |workers: Crew| {
        let mut settings = settings(false);
        settings.optimizer.learning_rate = Some(if workers.shard().rank() == 1 { 0.2 } else { 0.1 });
        let mut trainer = trainer(settings.clone(), workers, FailsIn::Nothing);
        let data =
            RunData::new(embedded::fashion_mini().expect("embedded"), &settings, None, &Pool::single(), &|_, _| {});
        check_same_run(&settings, &data.expect("it fits"), Position::default(), trainer.workers())
            .expect_err("they differ")
            .to_string()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = crew(2).into_iter().map(|one| scope.spawn(|| work(one))).collect();
        for thread in threads {
            let error = thread.join().expect("it ends");
            assert!(error.starts_with("rank 1 has other settings than rank 0"), "{error}");
        }
    });
}
