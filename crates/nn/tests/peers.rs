//! Several processes compute slices of one batch and get the bits of one process, whatever their number. The processes are
//! threads here, which exchange their sums through shared memory.

use std::collections::VecDeque;
use std::sync::{Arc, Barrier, Mutex};

use equipoise_nn::network::Head;
use equipoise_nn::{
    Architecture, Cpu, CpuOptions, Engine, Network, NnError, Optimizer, Parts, Peers, Precision, Slices, TensorKind,
    UpdateRule, sum_by_rank,
};
use equipoise_pool::Pool;
use equipoise_random::Draws;

/// What the threads share.
struct Room {
    barrier: Barrier,
    lists: Mutex<Vec<Vec<f64>>>,
    short_lists: Mutex<Vec<Vec<f32>>>,
}

/// One of the threads.
struct Thread {
    rank: usize,
    size: usize,
    room: Arc<Room>,
    started: VecDeque<Vec<f32>>,
    gathered: VecDeque<Vec<f32>>,
}

/// Puts a list where all see it, and adds up those of all threads.
fn sum<T: Copy + std::ops::Add<Output = T>>(
    rank: usize,
    barrier: &Barrier,
    lists: &Mutex<Vec<Vec<T>>>,
    values: &mut [T],
) {
    lists.lock().expect("no panic")[rank] = values.to_vec();
    barrier.wait();
    let mut all = lists.lock().expect("no panic").concat();
    let threads = all.len() / values.len();
    sum_by_rank(&mut all, threads);
    values.copy_from_slice(&all[..values.len()]);
    barrier.wait();
}

impl Peers for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), NnError> {
        sum(self.rank, &self.room.barrier, &self.room.lists, values);
        Ok(())
    }

    fn start_sum(&mut self, _: Parts, _: usize, values: &[f32]) -> Result<(), NnError> {
        self.started.push_back(values.to_vec());
        Ok(())
    }

    fn finish_sum(&mut self, parts: Parts, first: usize, values: &mut [f32]) -> Result<(), NnError> {
        let mut started = self.started.pop_front().expect("it was started");
        sum(self.rank, &self.room.barrier, &self.room.short_lists, &mut started);
        for (owner, part) in parts.cut(first..first + values.len(), self.size) {
            let part = part.start - first..part.end - first;
            match owner == self.rank {
                true => values[part.clone()].copy_from_slice(&started[part]),
                // nobody may use it
                false => values[part].fill(f32::NAN),
            }
        }
        Ok(())
    }

    fn start_gather(&mut self, parts: Parts, first: usize, values: &[f32]) -> Result<(), NnError> {
        let mut own = vec![0.0; values.len()];
        for (_, part) in parts.cut(first..first + values.len(), self.size).filter(|(owner, _)| *owner == self.rank) {
            let part = part.start - first..part.end - first;
            own[part.clone()].copy_from_slice(&values[part]);
        }
        self.gathered.push_back(own);
        Ok(())
    }

    fn finish_gather(&mut self, _: Parts, _: usize, values: &mut [f32]) -> Result<(), NnError> {
        let own = self.gathered.pop_front().expect("it was started");
        assert_eq!(own.len(), values.len());
        values.copy_from_slice(&own);
        sum(self.rank, &self.room.barrier, &self.room.short_lists, values);
        Ok(())
    }
}

/// What is trained: a network, the batch size, and the numbers of images of its batches.
#[derive(Clone)]
struct Case {
    network: Network,
    batch_size: usize,
    batches: Vec<usize>,
    frozen: bool,
    precision: Precision,
    optimizer: Optimizer,
    /// Radius of SAM, if it is used.
    rho: Option<f32>,
    has_ema: bool,
}

impl Case {
    fn new(network: Network, batch_size: usize, batches: Vec<usize>) -> Self {
        let optimizer = Optimizer::sgd(0.1, 0.9, 1e-4);
        Self {
            network,
            batch_size,
            batches,
            frozen: false,
            precision: Precision::F32,
            optimizer,
            rho: None,
            has_ema: false,
        }
    }

    /// Values of the images, or of the gradients of the logits, of a batch.
    fn values(&self, number: usize, batch: usize, per_row: usize) -> Vec<f32> {
        let draws = Draws::new(7, 0, number as u64);
        (0..batch * per_row).map(|i| draws.unit(i as u64) as f32 - 0.5).collect()
    }
}

/// Everything that an engine ends with, and the norms of its gradients and the logits of its rows in an evaluation.
type Ended = (Vec<Vec<Vec<f32>>>, Vec<f64>, Vec<f32>);

/// Trains as one of some processes.
fn train(case: &Case, mut engine: Cpu, rank: usize, size: usize) -> Ended {
    let Network { channels, size: [height, width], classes, .. } = case.network;
    let slices = Slices::new(case.batch_size, size);
    assert_eq!(engine.slices(), (size > 1).then_some(slices));
    engine.freeze_backbone(case.frozen).expect("it can be frozen");
    if case.has_ema {
        engine.start_ema().expect("no device");
    }
    let mut norms = Vec::new();
    for (number, batch) in case.batches.iter().enumerate() {
        let rows = slices.rows(*batch, rank, size);
        let (images, gradients) = (channels * height * width, classes);
        let of = |values: Vec<f32>, per_row: usize| values[rows.start * per_row..rows.end * per_row].to_vec();
        let images = of(case.values(2 * number, *batch, images), images);
        let gradients = of(case.values(2 * number + 1, *batch, gradients), gradients);
        let pass = |engine: &mut Cpu| {
            if rows.is_empty() {
                engine.forward_without_images().expect("all take part");
                engine.backward_without_images().expect("all take part");
            } else {
                engine.forward(&images, true).expect("it fits");
                engine.backward(&gradients).expect("it fits");
            }
        };
        pass(&mut engine);
        if let Some(rho) = case.rho {
            norms.push(engine.ascend(rho).expect("no device"));
            pass(&mut engine);
        }
        norms.push(engine.step(&case.optimizer).expect("no device"));
        if case.has_ema {
            engine.update_ema(0.75).expect("it was started");
        }
        if number == 0 {
            engine.estimate_statistics(&images, 0.25).expect("it fits");
        }
    }
    let images = case.values(99, 2, channels * height * width);
    let is_known = |engine: &Cpu, kind| engine.tensors(kind).is_ok();
    assert_eq!(is_known(&engine, TensorKind::Momentum), size == 1, "other processes have momentum that this one lacks");
    engine.gather_state().expect("all take part");
    let kinds = [
        TensorKind::Parameters,
        TensorKind::Momentum,
        TensorKind::SecondMoment,
        TensorKind::Statistics,
        TensorKind::EmaParameters,
        TensorKind::EmaStatistics,
    ];
    let tensors = kinds.map(|kind| engine.tensors(kind).expect("they were gathered")).to_vec();
    (tensors, norms, engine.forward(&images[..], false).expect("it fits").to_vec())
}

/// Trains as some processes with some threads each; all must end alike.
fn train_all(case: &Case, size: usize, threads: usize) -> Ended {
    let pool = || Pool::new(threads).expect("threads");
    if size == 1 {
        let options = CpuOptions { precision: case.precision, ..CpuOptions::default() };
        let engine = Cpu::with_options(case.network.clone(), case.batch_size, 7, pool(), options).expect("valid");
        return train(case, engine, 0, 1);
    }
    let room = Arc::new(Room {
        barrier: Barrier::new(size),
        lists: Mutex::new(vec![Vec::new(); size]),
        short_lists: Mutex::new(vec![Vec::new(); size]),
    });
    let work = |rank: usize| {
        let peers = Thread { rank, size, room: Arc::clone(&room), started: VecDeque::new(), gathered: VecDeque::new() };
        let options = CpuOptions { precision: case.precision, peers: Some(Box::new(peers)), ..CpuOptions::default() };
        let engine = Cpu::with_options(case.network.clone(), case.batch_size, 7, pool(), options).expect("valid");
        train(case, engine, rank, size)
    };
    let mut ended: Vec<Ended> = std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..size).map(|rank| scope.spawn(move || work(rank))).collect();
        running.into_iter().map(|one| one.join().expect("it ends")).collect()
    });
    let first = ended.swap_remove(0);
    assert!(ended.iter().all(|other| *other == first), "all processes end alike");
    first
}

fn network(architecture: Architecture, size: [usize; 2], head: Head) -> Network {
    Network::new(architecture, 3, size, 5).expect("known").with_head(head)
}

/// The bits of one process, for up to eight of them and any number of threads; batches of an odd size, and short ones in which
/// some processes have no images.
#[test]
fn the_number_of_processes_is_not_part_of_the_result() {
    let cosine = Head::Cosine { scale: 16.0, learned: true };
    let small = |head| Case::new(network(Architecture::ResNet8, [9, 11], head), 35, vec![35, 12, 1]);
    let photo = || Case::new(network(Architecture::ResNet18, [40, 40], Head::Linear), 16, vec![7, 16]);
    let [bf16, amx] = [Precision::Bf16, Precision::Bf16Amx].map(|precision| Case { precision, ..photo() });
    let frozen = Case { frozen: true, ..small(Head::Lws) };
    let nesterov = UpdateRule::Sgd { momentum: 0.9, nesterov: true };
    let optimizer = Optimizer { rule: nesterov, clip_grad_norm: Some(0.5), layer_decay: 0.7, ..frozen.optimizer };
    let clipped = Case { optimizer, rho: Some(0.05), has_ema: true, ..small(cosine) };
    let rule = UpdateRule::AdamW { betas: [0.9, 0.99], epsilon: 1e-8, step: 2 };
    let adamw = Case { optimizer: Optimizer { rule, ..optimizer }, has_ema: true, ..small(Head::Linear) };
    for case in [small(Head::Linear), small(cosine), small(Head::Lws), frozen, clipped, adamw, photo(), bf16, amx] {
        let one = train_all(&case, 1, 1);
        assert!(one.0.iter().flatten().flatten().all(|x| x.is_finite()));
        for (size, threads) in [(1, 2), (2, 2), (3, 1), (4, 1), (8, 1)] {
            let several = train_all(&case, size, threads);
            assert!(several == one, "{size} processes, {threads} threads, {:?}", case.network.head);
        }
    }
}

/// More than eight processes have slices of their own: they agree with each other, and with one process up to rounding.
#[test]
fn more_processes_have_more_slices() {
    let case = Case::new(network(Architecture::ResNet8, [9, 11], Head::Linear), 35, vec![35]);
    let (one, many) = (train_all(&case, 1, 1), train_all(&case, 11, 1));
    assert!(many == train_all(&case, 16, 1), "both have 16 slices");
    let pairs = one.0.iter().flatten().flatten().zip(many.0.iter().flatten().flatten());
    let largest = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(largest < 1e-4, "{largest}");
}

/// A process whose images cannot be used ends the pass of all.
#[test]
fn a_bad_image_ends_the_pass_of_all() {
    let network = network(Architecture::ResNet8, [8, 8], Head::Linear);
    let room = Arc::new(Room {
        barrier: Barrier::new(2),
        lists: Mutex::new(vec![Vec::new(); 2]),
        short_lists: Mutex::new(vec![Vec::new(); 2]),
    });
    let work = |rank: usize| {
        let peers =
            Thread { rank, size: 2, room: Arc::clone(&room), started: VecDeque::new(), gathered: VecDeque::new() };
        let options = CpuOptions { peers: Some(Box::new(peers)), ..CpuOptions::default() };
        let mut engine = Cpu::with_options(network.clone(), 32, 0, Pool::single(), options).expect("valid");
        let mut images = vec![0.5; 16 * 3 * 8 * 8];
        images[5] = if rank == 1 { f32::NAN } else { 0.0 };
        engine.forward(&images, true).map(<[f32]>::len).expect_err("one of them is bad")
    };
    let work = &work;
    let [first, second] = std::thread::scope(|scope| {
        [0, 1].map(|rank| scope.spawn(move || work(rank))).map(|one| one.join().expect("it ends"))
    });
    assert_eq!(first.to_string(), "another process cannot compute its images");
    assert!(matches!(second, NnError::NotFinite { image: 0, .. }));
}

/// Heads on features are trained by one process.
#[test]
fn heads_on_features_are_refused() {
    let room = Arc::new(Room {
        barrier: Barrier::new(1),
        lists: Mutex::new(vec![Vec::new(); 2]),
        short_lists: Mutex::new(vec![Vec::new(); 2]),
    });
    let peers = Thread { rank: 0, size: 2, room, started: VecDeque::new(), gathered: VecDeque::new() };
    let options = CpuOptions { peers: Some(Box::new(peers)), ..CpuOptions::default() };
    let network = network(Architecture::Linear, [1, 1], Head::Linear);
    let refused = Cpu::with_options(network, 100, 7, Pool::single(), options).err().expect("refused").to_string();
    assert_eq!(refused, "processes = 2: must be 1 for a head on features");
}

/// A share of a batch that is larger than the slices of a process is refused: its gradients would have no place.
#[test]
fn more_images_than_slices() {
    let [rank, size] = [2, 3];
    let room = Arc::new(Room {
        barrier: Barrier::new(1),
        lists: Mutex::new(vec![Vec::new(); size]),
        short_lists: Mutex::new(vec![Vec::new(); size]),
    });
    let peers = Thread { rank, size, room, started: VecDeque::new(), gathered: VecDeque::new() };
    let options = CpuOptions { peers: Some(Box::new(peers)), ..CpuOptions::default() };
    let network = network(Architecture::ResNet8, [8, 8], Head::Linear);
    let mut engine = Cpu::with_options(network, 100, 7, Pool::new(1).expect("threads"), options).expect("valid");
    let images = vec![0.5; 34 * 3 * 64];
    // the last of three processes has two of eight slices of 13 images
    let refused = Err(NnError::BatchSize { got: 34, most: 26 });
    assert_eq!(engine.forward(&images, true).map(<[f32]>::len), refused);
    assert_eq!(engine.estimate_statistics(&images, 0.5).map(|()| 0), refused);
    engine.freeze_backbone(true).expect("it can be frozen");
    assert_eq!(engine.forward(&images, true).map(<[f32]>::len), refused);
    assert_eq!(engine.forward(&images, false).map(<[f32]>::len), Ok(34 * 5));
}
