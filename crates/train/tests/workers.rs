//! Two workers in one process, through the trait that a cluster will implement.

use std::sync::{Arc, Barrier, Mutex};

use equipoise_criterion::{Config, Id, Preset, State};
use equipoise_data::acquire::embedded;
use equipoise_data::batch::random_ops::RandAugment;
use equipoise_data::batch::sampler::Shard;
use equipoise_nn::{Cpu, Network};
use equipoise_pool::Pool;
use equipoise_record::{EpochRecord, RunFolder};
use equipoise_testing::TempFolder;
use equipoise_train::prepare::RunData;
use equipoise_train::settings::{Architecture, Settings};
use equipoise_train::trainer::{NoObserver, RunEnd, Trainer};
use equipoise_train::workers::{SingleProcess, Workers};

/// What the two workers exchange.
#[derive(Default)]
struct Board {
    gradients: [Vec<f32>; 2],
    counts: [Vec<u64>; 2],
    states: [Option<State>; 2],
    statistics: [Vec<Vec<f32>>; 2],
}

struct Pair {
    rank: usize,
    board: Arc<Mutex<Board>>,
    barrier: Arc<Barrier>,
}

impl Pair {
    /// Writes to the board, waits for the other worker, reads, and waits until the other has read.
    fn exchange<T>(&self, write: impl FnOnce(&mut Board), read: impl FnOnce(&Board) -> T) -> T {
        write(&mut self.board.lock().expect("not poisoned"));
        self.barrier.wait();
        let result = read(&self.board.lock().expect("not poisoned"));
        self.barrier.wait();
        result
    }
}

impl Workers for Pair {
    fn shard(&self) -> Shard {
        Shard::new(self.rank, 2).expect("one of two")
    }

    fn sum_gradients(&mut self, gradients: &mut [f32]) {
        let own = gradients.to_vec();
        let sum = self.exchange(
            |board| board.gradients[self.rank] = own,
            |board| board.gradients[0].iter().zip(&board.gradients[1]).map(|(a, b)| a + b).collect::<Vec<f32>>(),
        );
        gradients.copy_from_slice(&sum);
    }

    fn sum_counts(&mut self, counts: &mut [u64]) {
        let own = counts.to_vec();
        let sum = self.exchange(
            |board| board.counts[self.rank] = own,
            |board| board.counts[0].iter().zip(&board.counts[1]).map(|(a, b)| a + b).collect::<Vec<u64>>(),
        );
        counts.copy_from_slice(&sum);
    }

    fn other_states(&mut self, own: &State) -> Vec<State> {
        self.exchange(
            |board| board.states[self.rank] = Some(own.clone()),
            |board| board.states[1 - self.rank].iter().cloned().collect(),
        )
    }

    fn average_statistics(&mut self, statistics: &mut [Vec<f32>]) {
        let own = statistics.to_vec();
        let mean = self.exchange(
            |board| board.statistics[self.rank] = own,
            |board| {
                let [a, b] = &board.statistics;
                let mean = |(a, b): (&Vec<f32>, &Vec<f32>)| a.iter().zip(b).map(|(a, b)| (a + b) / 2.0).collect();
                a.iter().zip(b).map(mean).collect::<Vec<Vec<f32>>>()
            },
        );
        statistics.clone_from_slice(&mean);
    }
}

fn settings() -> Settings {
    let mut settings = Settings { epochs: 2, batch_size: 64, ..Settings::default() };
    settings.model.name = Some(Architecture::ResNet8);
    settings.augment.randaugment = RandAugment::by_difficulty(2).ok();
    settings.criterion = Config::from(Id::Cwap.preset(Preset::Recommended));
    settings
}

fn trainer<W: Workers>(workers: W) -> Trainer<Cpu, W> {
    let (settings, pool) = (settings(), Pool::single());
    let mut dataset = embedded::fashion_mini().expect("embedded");
    // a multiple of two batches, so that both workers make the same number of steps
    dataset.train = dataset.train.subset(&(0..1280).collect::<Vec<u32>>());
    let data = RunData::new(dataset, &settings, None, &pool, &|_, _| {}).expect("it fits");
    let network = Network::new(Architecture::ResNet8, 1, [28, 28], 10).expect("known");
    let engine = Cpu::new(network, settings.batch_size, settings.seed, pool.clone()).expect("valid");
    Trainer::new(settings, data, engine, workers, pool).expect("it fits")
}

/// Each worker trains on half of every epoch, and both end with the same weights, the same criterion state and the same records.
#[test]
fn two_workers_stay_in_step() {
    let (board, barrier) = (Arc::new(Mutex::new(Board::default())), Arc::new(Barrier::new(2)));
    let run = |rank: usize| {
        let pair = Pair { rank, board: Arc::clone(&board), barrier: Arc::clone(&barrier) };
        move || {
            let mut trainer = trainer(pair);
            let temp = TempFolder::new("workers");
            let folder = RunFolder::create(temp.path()).expect("an empty folder");
            let end = trainer.run(&folder, &mut NoObserver).expect("it runs");
            assert_eq!(end, RunEnd::Finished);
            (trainer.checkpoint(), trainer.steps(), trainer.history().to_vec())
        }
    };
    let (first, second) = (run(0), run(1));
    let second = std::thread::spawn(second);
    let first = first();
    let second = second.join().expect("it ends");
    assert_eq!(first.1, 20, "1280 images, 32 per worker and step");
    assert!(first.0.tensors == second.0.tensors, "the same weights, momentum and statistics");
    let state = |header: &str| serde_json::from_str::<serde_json::Value>(header).expect("JSON")["criterion"].clone();
    assert_eq!(state(&first.0.header), state(&second.0.header));
    assert_eq!(first.2, second.2, "the same record of every epoch");
    assert_eq!(first.2.last().map(|epoch| epoch.augment_levels.len()), Some(10), "a level for every class");
    let single = {
        let mut trainer = trainer(SingleProcess);
        let temp = TempFolder::new("workers");
        let folder = RunFolder::create(temp.path()).expect("an empty folder");
        trainer.run(&folder, &mut NoObserver).expect("it runs");
        trainer.history().to_vec()
    };
    // not the same run, as batch norms see 32 images instead of 64, but one that learns as well
    let accuracy = |history: &[EpochRecord]| history[1].test.as_ref().and_then(|m| m.top1).expect("tested");
    assert!((accuracy(&first.2) - accuracy(&single)).abs() < 30.0);
}
