//! Two workers in one process: the seam that a cluster will use.

use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};

use equipoise_criterion::{Config, Id, Preset, State};
use equipoise_data::embedded;
use equipoise_data::sampler::Shard;
use equipoise_nn::{Cpu, Network};
use equipoise_pool::Pool;
use equipoise_record::{EpochRecord, RunFolder};
use equipoise_train::prepare::RunData;
use equipoise_train::settings::Settings;
use equipoise_train::trainer::{NoObserver, RunEnd, Trainer};
use equipoise_train::workers::{SingleProcess, Workers};

/// What the two leave for each other.
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
    /// Leaves something, waits for the other, looks, and waits until the other has looked.
    fn exchange<T>(&self, leave: impl FnOnce(&mut Board), look: impl FnOnce(&Board) -> T) -> T {
        leave(&mut self.board.lock().expect("whole"));
        self.barrier.wait();
        let seen = look(&self.board.lock().expect("whole"));
        self.barrier.wait();
        seen
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
    let mut settings = Settings { epochs: 2, batch: 64, ..Settings::default() };
    settings.model.name = "resnet8".to_owned();
    settings.criterion = Config::from(Id::Cwap.preset(Preset::Recommended));
    settings
}

fn trainer<W: Workers>(workers: W) -> Trainer<Cpu, W> {
    let (settings, pool) = (settings(), Pool::single());
    let mut set = embedded::fashion_mini().expect("it is whole");
    // an even number, so that both make as many steps
    set.train = set.train.subset(&(0..1280).collect::<Vec<u32>>());
    let data = RunData::new(set, &settings, None, &pool, &|_, _| {}).expect("it fits");
    let network = Network::named("resnet8", 1, [28, 28], 10).expect("known");
    let engine = Cpu::new(network, settings.batch, settings.seed, pool.clone()).expect("valid");
    Trainer::new(settings, data, engine, workers, pool).expect("it fits")
}

fn folder(name: &str) -> (PathBuf, RunFolder) {
    let path = std::env::temp_dir().join(format!("equipoise-workers-{}-{name}", std::process::id()));
    let folder = RunFolder::create(&path).expect("a folder");
    (path, folder)
}

/// Both see half of every epoch and end with the same weights and the same counts; what they count is what one would have counted
/// of as many images.
#[test]
fn two_workers_stay_together() {
    let (board, barrier) = (Arc::new(Mutex::new(Board::default())), Arc::new(Barrier::new(2)));
    let run = |rank: usize| {
        let pair = Pair { rank, board: Arc::clone(&board), barrier: Arc::clone(&barrier) };
        move || {
            let mut trainer = trainer(pair);
            let (path, folder) = folder(&rank.to_string());
            let end = trainer.run(&folder, &mut NoObserver).expect("it runs");
            assert_eq!(end, RunEnd::Finished);
            drop(folder);
            std::fs::remove_dir_all(path).expect("a folder");
            (trainer.checkpoint(), trainer.steps(), trainer.history().to_vec())
        }
    };
    let (first, second) = (run(0), run(1));
    let second = std::thread::spawn(second);
    let first = first();
    let second = second.join().expect("it ends");
    assert_eq!(first.1, 20, "1280 images, 32 each");
    assert!(first.0.tensors == second.0.tensors, "the same weights, momentum and statistics");
    let state = |header: &str| serde_json::from_str::<serde_json::Value>(header).expect("JSON")["criterion"].clone();
    assert_eq!(state(&first.0.header), state(&second.0.header));
    assert_eq!(first.2, second.2, "the same record of every epoch");
    let (_, alone) = {
        let mut trainer = trainer(SingleProcess);
        let (path, folder) = folder("alone");
        trainer.run(&folder, &mut NoObserver).expect("it runs");
        drop(folder);
        std::fs::remove_dir_all(path).expect("a folder");
        (trainer.checkpoint(), trainer.history().to_vec())
    };
    // not the same run (batch norms see 32 images instead of 64), but one that learns alike
    let accuracy = |history: &[EpochRecord]| history[1].test.as_ref().and_then(|m| m.top1).expect("tested");
    assert!((accuracy(&first.2) - accuracy(&alone)).abs() < 30.0);
}
