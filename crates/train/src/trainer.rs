//! The loop: a thin one, over an engine, a criterion and prepared data.
//!
//! What a step does is a function of the settings and of its place in the run, so that a run can be stopped anywhere, written
//! down and taken up again without a trace. The next batch is made while the engine works on the last.

use std::sync::mpsc::sync_channel;

use equipoise_criterion::{Batch, BatchError, Criterion, Mixed, Output, Workspace};
use equipoise_data::batch::mixup::{Mixup, blend};
use equipoise_data::batch::sampler::Sampler;
use equipoise_nn::{Engine, Kind, Sgd};
use equipoise_pool::Pool;
pub use equipoise_record::Epoch;
use equipoise_record::{Details, METRICS, NORMS, Norms};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, FORMAT, Header};
use crate::details::Inquiry;
use crate::error::TrainError;
use crate::evaluate::{Adjust, Seen, evaluate};
use crate::folder::{BEST, Folder, read_snapshot};
use crate::metrics::Metrics;
use crate::norms::Observer;
use crate::prepare::{Prepared, Shown};
use crate::settings::{Choose, Settings};
use crate::snapshot::Snapshot;
use crate::workers::Workers;

/// Where a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are finished.
    pub epoch: u64,
    /// Steps that are done of the next one.
    pub step: u64,
    /// Sum of the losses of their images.
    loss: f64,
    /// Images that they have seen.
    images: u64,
    /// Steps since the beginning.
    pub steps: u64,
}

/// What somebody who watches a run is told after a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// From 1.
    pub epoch: u64,
    /// Steps done of the epoch.
    pub step: u64,
    /// Steps of an epoch.
    pub steps: u64,
    /// Images of this step.
    pub images: u64,
    /// Mean loss of the epoch so far.
    pub loss: f64,
}

/// What somebody who watches a run wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Go on.
    Go,
    /// Write a checkpoint, and go on.
    Save,
    /// Write a checkpoint and stop.
    Stop,
}

/// Somebody who watches a run.
pub trait Watch {
    /// After every step.
    fn step(&mut self, step: &Step) -> Wish;
    /// During an evaluation: images done, and all of them. Save counts as Go.
    fn evaluating(&mut self, done: usize, whole: usize) -> Wish;
    /// After every epoch.
    fn epoch(&mut self, epoch: &Epoch, norms: &Norms);
}

/// Nobody.
pub struct Unwatched;

impl Watch for Unwatched {
    fn step(&mut self, _: &Step) -> Wish {
        Wish::Go
    }
    fn evaluating(&mut self, _: usize, _: usize) -> Wish {
        Wish::Go
    }
    fn epoch(&mut self, _: &Epoch, _: &Norms) {}
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All epochs are done.
    Finished,
    /// Nothing got better for as long as the settings allow.
    Early,
    /// The watcher wished so.
    Stopped,
}

/// What makes a network's output.
const EVALUATED: [Kind; 2] = [Kind::Parameters, Kind::Statistics];

fn put(engine: &mut impl Engine, values: &[Vec<Vec<f32>>; 2]) -> Result<(), TrainError> {
    EVALUATED.into_iter().zip(values).try_for_each(|(kind, values)| Ok(engine.set_tensors(kind, values)?))
}

/// A run.
pub struct Trainer<E, W> {
    settings: Settings,
    data: Prepared,
    engine: E,
    workers: W,
    criterion: Criterion,
    sampler: Sampler,
    mix: Option<Mixup>,
    pool: Pool,
    work: Workspace,
    position: Position,
    history: Vec<Epoch>,
    best: Option<u64>,
    /// Of what is evaluated.
    average: Option<[Vec<Vec<f32>>; 2]>,
    /// Images of the last step.
    last: Vec<u32>,
    /// Epochs that are in the file.
    noted: usize,
    norms: Observer,
    last_norms: Option<Norms>,
}

/// A batch as it comes from the thread that makes it.
#[derive(Default)]
struct Made {
    images: Vec<f32>,
    places: Vec<u32>,
    labels: Vec<u32>,
    examples: Vec<u64>,
    partners: Vec<u32>,
    shares: Vec<f32>,
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// A run from its beginning. The engine has its first weights and room for the settings' batch, or for all training images.
    ///
    /// # Errors
    /// For settings out of range, and a network that does not fit the data.
    pub fn new(settings: Settings, data: Prepared, mut engine: E, workers: W, pool: Pool) -> Result<Self, TrainError> {
        settings.check()?;
        let network = engine.network();
        let (channels, height, width) = data.train.loader.shape();
        let want = (network.channels, network.size[0], network.size[1], network.classes);
        if (channels, height, width, data.classes.len()) != want {
            let what = format!(
                "{} classes, images {channels} x {height} x {width}: the network has {} and {} x {} x {}",
                data.classes.len(),
                want.3,
                want.0,
                want.1,
                want.2
            );
            return Err(TrainError::Set { set: data.name, what });
        }
        if settings.choose == Choose::Val && data.val.is_none() {
            let what = "val: there is no validation part (`data.val` takes one out of the training images)".to_owned();
            return Err(TrainError::Setting { field: "choose".to_owned(), what });
        }
        if settings.patience > 0 && data.val.is_none() {
            let what = "there is no validation part to tell what is better".to_owned();
            return Err(TrainError::Setting { field: "patience".to_owned(), what });
        }
        engine.freeze(settings.model.freeze);
        let criterion = settings.criterion.init(&data.counts)?;
        let sampler =
            Sampler::new(settings.kind()?, settings.epochs, &data.train.labels, data.classes.len(), settings.seed)?;
        let average = (settings.optimizer.ema > 0.0).then(|| EVALUATED.map(|kind| engine.tensors(kind)));
        let work = Workspace::with_pool(pool.clone());
        let mix = settings.mix()?;
        let (position, history, best) = (Position::default(), Vec::new(), None);
        let norms = Observer::new(&data.counts);
        Ok(Self {
            settings,
            data,
            engine,
            workers,
            criterion,
            sampler,
            mix,
            pool,
            work,
            position,
            history,
            best,
            average,
            last: Vec::new(),
            noted: 0,
            norms,
            last_norms: None,
        })
    }

    /// Goes back to where a checkpoint was written.
    ///
    /// # Errors
    /// For a checkpoint of another run: it says what differs.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let Checkpoint { header, parameters, statistics, trained, momentum, running } = checkpoint;
        let wrong = |what: &str| Err(TrainError::Checkpoint { what: what.to_owned() });
        if header.network != *self.engine.network() {
            return wrong("it is of another network");
        }
        if header.fingerprint != self.data.fingerprint || header.classes != self.data.classes {
            return wrong("its images are not these: some were added, removed or renamed, or have another class");
        }
        // the same images may have moved
        let mut settings = header.settings.clone();
        settings.data.set.clone_from(&self.settings.data.set);
        if let Some(field) = settings.difference(&self.settings) {
            return wrong(&format!("it is of a run with another `{field}`"));
        }
        if header.averaged != self.average.is_some() {
            return wrong("it has no average of the weights");
        }
        self.criterion.restore(&header.criterion)?;
        self.engine.set_tensors(Kind::Parameters, trained)?;
        self.engine.set_tensors(Kind::Momentum, momentum)?;
        self.engine.set_tensors(Kind::Statistics, running)?;
        if self.average.is_some() {
            self.average = Some([parameters.clone(), statistics.clone()]);
        }
        self.position = header.position;
        self.history.clone_from(&header.history);
        self.best = header.best;
        self.norms.restore(header.norms.as_ref());
        self.last_norms.clone_from(&header.last_norms);
        Ok(())
    }

    /// Everything that has to be known to go on.
    ///
    /// # Panics
    /// Never: everything in a header can be written.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let header = Header {
            format: FORMAT,
            settings: self.settings.clone(),
            network: self.engine.network().clone(),
            dataset: self.data.name.clone(),
            classes: self.data.classes.clone(),
            counts: self.data.counts.clone(),
            fingerprint: self.data.fingerprint.clone(),
            files: self.data.files,
            normalize: self.data.normalize.clone(),
            position: self.position,
            criterion: self.criterion.state(),
            history: self.history.clone(),
            best: self.best,
            averaged: self.average.is_some(),
            norms: Some(self.norms.tally.clone()),
            last_norms: self.last_norms.clone(),
        };
        let header = serde_json::to_string(&header).expect("a header can be written");
        let mut tensors = self.engine.tensors(Kind::Parameters);
        tensors.extend(self.engine.tensors(Kind::Momentum));
        tensors.extend(self.engine.tensors(Kind::Statistics));
        tensors.extend(self.average.iter().flatten().flatten().cloned());
        Snapshot { header, tensors }
    }

    /// The run's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it sees of its data.
    pub fn data(&self) -> &Prepared {
        &self.data
    }

    /// Threads that it uses.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// What the criterion warns of.
    pub fn warnings(&self) -> &[String] {
        self.criterion.warnings()
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The epochs that are done.
    pub fn history(&self) -> &[Epoch] {
        &self.history
    }

    /// The best of them, if it is not simply the last.
    pub fn best(&self) -> Option<&Epoch> {
        self.history.iter().find(|epoch| Some(epoch.epoch) == self.best)
    }

    /// Which part chooses, if any.
    fn chooser(&self) -> Choose {
        match self.settings.choose {
            Choose::Auto if self.data.val.is_some() => Choose::Val,
            Choose::Auto => Choose::Last,
            choose => choose,
        }
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> u64 {
        let (images, size) = (self.sampler.len(), self.share());
        images.div_ceil(size * self.workers.shard().size()) as u64
    }

    /// Images of a step that this worker sees.
    fn share(&self) -> usize {
        self.settings.batch.div_ceil(self.workers.shard().size()).max(1)
    }

    /// Trains to the end, or until the watcher has had enough. Checkpoints go to the folder.
    ///
    /// # Errors
    /// If the folder cannot be written to, a file can no longer be read, or the run diverges.
    pub fn run(&mut self, folder: &Folder, watch: &mut dyn Watch) -> Result<End, TrainError> {
        // what a killed process did not write of its epochs, or wrote of ones that are not done, is mended
        self.noted = folder.lines(METRICS, self.history.len())?;
        self.write_history(folder)?;
        if folder.lines(NORMS, self.history.len())? < self.history.len() {
            self.write_norms(folder)?;
        }
        if self.position == Position::default() {
            folder.save(&self.snapshot())?;
        }
        while self.position.epoch < self.settings.epochs {
            if self.exhausted() {
                return Ok(End::Early);
            }
            if !self.steps_of_epoch(folder, watch)? || !self.finish(folder, watch)? {
                self.sound()?;
                folder.save(&self.snapshot())?;
                return Ok(End::Stopped);
            }
        }
        Ok(End::Finished)
    }

    /// Whether nothing got better for too long.
    fn exhausted(&self) -> bool {
        let best = self.best.unwrap_or(0);
        // after an evaluation only: who did not look cannot know
        let looked = self.history.last().is_some_and(|epoch| epoch.val.is_some());
        let patience = self.settings.patience;
        patience > 0 && looked && self.position.step == 0 && self.position.epoch.saturating_sub(best) >= patience
    }

    /// Whether there is nothing left to do.
    pub fn finished(&self) -> bool {
        self.position.epoch >= self.settings.epochs || self.exhausted()
    }

    /// The rest of an epoch's steps; false if the watcher stopped them.
    fn steps_of_epoch(&mut self, folder: &Folder, watch: &mut dyn Watch) -> Result<bool, TrainError> {
        loop {
            match self.some_steps(watch)? {
                Wish::Go => return Ok(true),
                Wish::Save => {
                    self.sound()?;
                    folder.save(&self.snapshot())?;
                }
                Wish::Stop => return Ok(false),
            }
        }
    }

    /// Steps until the epoch ends, or until the watcher wishes something.
    fn some_steps(&mut self, watch: &mut dyn Watch) -> Result<Wish, TrainError> {
        let (epoch, seed) = (self.position.epoch, self.settings.seed);
        let (steps, share) = (self.steps(), self.share());
        let order = self.sampler.epoch(epoch, self.workers.shard());
        let whole = if self.mix.is_some() {
            self.sampler.epoch(epoch, equipoise_data::batch::sampler::Shard::WHOLE)
        } else {
            Vec::new()
        };
        let (first, mix) = (self.position.step as usize, self.mix);
        // the thread that makes batches borrows the data; everything else stays with the loop
        let Self { data, engine, workers, criterion, settings, work, position, average, last, norms, .. } = self;
        let (train, classes) = (&data.train, data.classes.len());
        let schedule = settings.schedule();
        let (mut gradient, mut weights, mut gradient_norms) = (Vec::new(), Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let (send, receive) = sync_channel::<Result<Made, TrainError>>(1);
            let (give_back, used) = sync_channel::<Made>(4);
            scope.spawn(move || {
                for places in order.chunks(share).skip(first) {
                    let mut made = used.try_recv().unwrap_or_default();
                    let result = make(&mut made, places, train, mix.as_ref(), &whole, (seed, epoch));
                    // nobody listens any more: the loop has ended
                    if send.send(result.map(|()| made)).is_err() {
                        return;
                    }
                }
            });
            while position.step < steps {
                let Ok(made) = receive.recv() else { break };
                let made = made?;
                let number = made.labels.len();
                gradient.resize(number * classes, 0.0);
                weights.resize(number, 0.0);
                gradient_norms.resize(number, 0.0);
                let rate = schedule.rate(settings.optimizer.rate, settings.epochs, epoch, position.step, steps);
                let summary = {
                    let logits = engine.forward(&made.images, true)?;
                    let mixed =
                        (!made.partners.is_empty()).then(|| Mixed { labels: &made.partners, share: &made.shares });
                    let batch = Batch { mixed, epoch, examples: &made.examples, ..Batch::new(logits, &made.labels) };
                    let output = Output {
                        grad: &mut gradient,
                        weights: &mut weights,
                        // mixed examples have no gradient norm of their own
                        gradient_norms: batch.mixed.is_none().then_some(&mut gradient_norms[..]),
                    };
                    let summary = criterion.train(&batch, output, work);
                    if summary.is_ok() && batch.mixed.is_none() {
                        norms.add(&gradient_norms, &made.labels, &weights);
                    }
                    summary
                };
                let summary = summary.map_err(|error| match error {
                    BatchError::NotFinite { .. } | BatchError::Overflow { .. } => {
                        diverged(engine, train, &made, *position, error.to_string())
                    }
                    error => error.into(),
                })?;
                engine.backward(&gradient)?;
                let size = workers.shard().size();
                if size > 1 {
                    workers.sum_gradients(engine.gradients());
                    engine.gradients().iter_mut().for_each(|g| *g /= size as f32);
                }
                let clip = (settings.optimizer.clip > 0.0).then_some(settings.optimizer.clip as f32);
                let norm = engine.step(&Sgd {
                    rate: rate as f32,
                    momentum: settings.optimizer.momentum as f32,
                    weight_decay: settings.optimizer.weight_decay as f32,
                    clip,
                });
                if !norm.is_finite() {
                    let what = format!("the gradient's norm is {norm}");
                    return Err(diverged(engine, train, &made, *position, what));
                }
                if let Some(average) = average {
                    // at first over the last tenth of the steps: weights from the start would stay for long
                    let steps = position.steps as f64;
                    let keep = settings.optimizer.ema.min((1.0 + steps) / (10.0 + steps)) as f32;
                    let now = EVALUATED.into_iter().flat_map(|kind| engine.tensors(kind));
                    for (average, now) in average.iter_mut().flatten().zip(now) {
                        average.iter_mut().zip(now).for_each(|(a, w)| *a = keep * *a + (1.0 - keep) * w);
                    }
                }
                last.clone_from(&made.places);
                position.step += 1;
                position.steps += 1;
                position.images += number as u64;
                position.loss += summary.loss * number as f64;
                // a full channel only means that there are enough
                let _ = give_back.try_send(made);
                let mean = position.loss / position.images as f64;
                let step = Step { epoch: epoch + 1, step: position.step, steps, images: number as u64, loss: mean };
                // batches that are made already are made again
                match watch.step(&step) {
                    Wish::Go => {}
                    wish => return Ok(wish),
                }
            }
            Ok(Wish::Go)
        })
    }

    /// Whether every weight is a number: nothing else is worth keeping.
    fn sound(&self) -> Result<(), TrainError> {
        let tensors = [Kind::Parameters, Kind::Statistics].map(|kind| self.engine.tensors(kind));
        if tensors.iter().flatten().flatten().all(|w| w.is_finite()) {
            return Ok(());
        }
        Err(self.diverged_after("it left weights that are not finite".to_owned()))
    }

    /// What the last step has done.
    fn diverged_after(&self, what: String) -> TrainError {
        let made = Made { places: self.last.clone(), ..Made::default() };
        let position = Position { step: self.position.step.saturating_sub(1), ..self.position };
        diverged(&self.engine, &self.data.train, &made, position, what)
    }

    /// Ends an epoch: evaluation, records, checkpoint; false if the watcher stopped it.
    fn finish(&mut self, folder: &Folder, watch: &mut dyn Watch) -> Result<bool, TrainError> {
        self.sound()?;
        self.average_workers()?;
        let last = self.position.epoch + 1 == self.settings.epochs;
        let due = last || (self.position.epoch + 1).is_multiple_of(self.settings.evaluate_every);
        let (mut val, mut test) = (None, None);
        if due {
            let Some((on_val, on_test)) = self.evaluate_parts(watch)? else { return Ok(false) };
            let unusable = on_test.unusable + on_val.as_ref().map_or(0, |metrics| metrics.unusable);
            if unusable > 0 {
                let what = format!("{unusable} images of the evaluation have logits that are not finite");
                return Err(self.diverged_after(what));
            }
            (val, test) = (on_val, Some(on_test));
        }
        // from here on nothing can stop it half-way
        if self.workers.shard().size() > 1 {
            let others = self.workers.others(&self.criterion.state());
            self.criterion.merge(&others)?;
            self.workers.sum_counts(self.norms.cells());
        }
        self.criterion.end_epoch();
        let norms = self.norms.end_epoch(self.position.epoch + 1, &self.criterion);
        self.last_norms = Some(norms.clone());
        let (epoch, steps) = (self.position.epoch, self.steps());
        let schedule = self.settings.schedule();
        let rate = schedule.rate(self.settings.optimizer.rate, self.settings.epochs, epoch, steps - 1, steps);
        let loss = self.epoch_loss();
        let record = Epoch { epoch: epoch + 1, rate, loss, val, test };
        let better = self.is_better(&record);
        if better {
            self.best = Some(record.epoch);
        }
        // classes of older epochs are in metrics.jsonl; here they would make every checkpoint larger than the one before
        let best = self.best;
        for old in self.history.iter_mut().filter(|old| Some(old.epoch) != best) {
            for metrics in old.val.iter_mut().chain(&mut old.test) {
                metrics.per_class.clear();
            }
        }
        self.history.push(record);
        self.position = Position { epoch: epoch + 1, steps: self.position.steps, ..Position::default() };
        let snapshot = self.snapshot();
        if better {
            folder.write(BEST, &snapshot.to_bytes())?;
        }
        folder.save(&snapshot)?;
        self.write_history(folder)?;
        self.write_norms(folder)?;
        watch.epoch(&self.history[epoch as usize], &norms);
        Ok(true)
    }

    /// Adds what is missing in `metrics.jsonl`: a line of JSON per epoch.
    fn write_history(&mut self, folder: &Folder) -> Result<(), TrainError> {
        let mut lines = Vec::new();
        for epoch in &self.history[self.noted..] {
            let line =
                serde_json::to_string(epoch).map_err(|error| TrainError::Checkpoint { what: error.to_string() })?;
            lines.extend_from_slice(line.as_bytes());
            lines.push(b'\n');
        }
        folder.append(METRICS, &lines)?;
        self.noted = self.history.len();
        Ok(())
    }

    /// Adds the last epoch's gradient norms to their file.
    fn write_norms(&self, folder: &Folder) -> Result<(), TrainError> {
        let Some(norms) = &self.last_norms else { return Ok(()) };
        let line = serde_json::to_string(norms).map_err(|error| TrainError::Checkpoint { what: error.to_string() })?;
        Ok(folder.append(NORMS, (line + "\n").as_bytes())?)
    }

    /// Mean loss of the epoch's images, everyone's.
    fn epoch_loss(&mut self) -> f64 {
        let Position { loss, images, .. } = self.position;
        if self.workers.shard().size() == 1 {
            return loss / images.max(1) as f64;
        }
        // integers have the same sum for everyone
        const FINE: f64 = (1u64 << 32) as f64;
        let mut counts = [images, (loss * FINE) as u64];
        self.workers.sum_counts(&mut counts);
        counts[1] as f64 / FINE / counts[0].max(1) as f64
    }

    /// All workers evaluate the same network. Doing it twice changes nothing.
    fn average_workers(&mut self) -> Result<(), TrainError> {
        if self.workers.shard().size() > 1 {
            let mut statistics = self.engine.tensors(Kind::Statistics);
            self.workers.average(&mut statistics);
            self.engine.set_tensors(Kind::Statistics, &statistics)?;
            if let Some([_, statistics]) = &mut self.average {
                self.workers.average(statistics);
            }
        }
        Ok(())
    }

    fn is_better(&self, record: &Epoch) -> bool {
        let figure = |epoch: &Epoch| match self.chooser() {
            Choose::Val => epoch.val.as_ref().and_then(|metrics| metrics.balanced),
            Choose::Test => epoch.test.as_ref().and_then(|metrics| metrics.top1),
            Choose::Auto | Choose::Last => None,
        };
        match (figure(record), self.best().and_then(figure)) {
            (Some(new), Some(old)) => new > old,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    fn adjust(&self) -> Adjust {
        Adjust::by_counts(&self.data.counts, self.settings.logit_adjust)
    }

    /// Metrics on the validation part and on the test set; `None` if the watcher stopped it.
    fn evaluate_parts(&mut self, watch: &mut dyn Watch) -> Result<Option<(Option<Metrics>, Metrics)>, TrainError> {
        let own = self.average.as_ref().map(|_| EVALUATED.map(|kind| self.engine.tensors(kind)));
        if let Some(average) = &self.average {
            put(&mut self.engine, average)?;
        }
        let adjust = self.adjust();
        // what the engine has room for
        let room = self.settings.batch.min(self.data.train.labels.len());
        let mut tallies = Vec::new();
        let whole = self.data.test.labels.len() + self.data.val.as_ref().map_or(0, |val| val.labels.len());
        let mut before = 0;
        for part in self.data.val.iter().chain([&self.data.test]) {
            let mut go = |seen: &Seen<'_>| watch.evaluating(before + seen.done(), whole) != Wish::Stop;
            let tally = evaluate(&mut self.engine, part, room, &self.pool, &adjust, &mut go)?;
            let Some(tally) = tally else { break };
            tallies.push(tally);
            before += part.labels.len();
        }
        if let Some(own) = own {
            put(&mut self.engine, &own)?;
        }
        if tallies.len() < 1 + usize::from(self.data.val.is_some()) {
            return Ok(None);
        }
        let mut all =
            tallies.iter().map(|tally| tally.metrics(&self.data.counts, &self.data.groups, &self.data.classes));
        let val = self.data.val.is_some().then(|| all.next()).flatten();
        Ok(all.next().map(|test| (val, test)))
    }
}

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Evaluates once more the weights that a finished run is reported by, for more than metrics; `None` if the watcher stopped it.
    ///
    /// # Errors
    /// If images or the best epoch's checkpoint can no longer be read.
    pub fn details(&mut self, folder: &Folder, watch: &mut dyn Watch) -> Result<Option<Details>, TrainError> {
        let own = EVALUATED.map(|kind| self.engine.tensors(kind));
        let mut epoch = self.position.epoch;
        let best = self.best.filter(|best| self.chooser() == Choose::Val && *best != epoch);
        let shown = match best {
            Some(best) => {
                let checkpoint = Checkpoint::new(read_snapshot(&folder.path().join(BEST))?)?;
                epoch = best;
                [checkpoint.parameters, checkpoint.statistics]
            }
            None => self.average.clone().unwrap_or_else(|| own.clone()),
        };
        put(&mut self.engine, &shown)?;
        let (room, whole) = (self.settings.batch.min(self.data.train.labels.len()), self.data.test.labels.len());
        let adjust = self.adjust();
        let mut inquiry = Inquiry::new(&self.data);
        let mut go = |seen: &Seen<'_>| {
            inquiry.add(seen);
            watch.evaluating(seen.done(), whole) != Wish::Stop
        };
        let tally = evaluate(&mut self.engine, &self.data.test, room, &self.pool, &adjust, &mut go);
        put(&mut self.engine, &own)?;
        Ok(tally?.map(|tally| inquiry.details(epoch, &tally, &self.data)))
    }
}

/// Fills a batch.
fn make(
    made: &mut Made,
    places: &[u32],
    train: &Shown,
    mix: Option<&Mixup>,
    whole: &[u32],
    (seed, epoch): (u64, u64),
) -> Result<(), TrainError> {
    let (channels, height, width) = train.loader.shape();
    let one = channels * height * width;
    let pool = Pool::single();
    made.places.clear();
    made.places.extend_from_slice(places);
    made.labels.clear();
    made.labels.extend(places.iter().map(|at| train.labels[*at as usize]));
    made.examples.clear();
    made.examples.extend(places.iter().map(|at| u64::from(*at)));
    made.images.resize(places.len() * one, 0.0);
    train.loader.batch(places, seed, epoch, &mut made.images, &pool)?;
    made.partners.clear();
    made.shares.clear();
    if let Some(mix) = mix {
        let partners: Vec<_> = places
            .iter()
            .map(|at| mix.draw(equipoise_random::Example { seed, epoch, example: u64::from(*at) }, whole.len()))
            .collect();
        let others: Vec<u32> = partners.iter().map(|partner| whole[partner.position]).collect();
        let mut images = vec![0.0; places.len() * one];
        train.loader.batch(&others, seed, epoch, &mut images, &pool)?;
        let pairs = made.images.chunks_exact_mut(one).zip(images.chunks_exact(one));
        pairs.zip(&partners).for_each(|((own, other), partner)| blend(own, other, partner.share));
        made.partners.extend(others.iter().map(|at| train.labels[*at as usize]));
        made.shares.extend(partners.iter().map(|partner| partner.share));
    }
    Ok(())
}

fn diverged(engine: &dyn Engine, train: &Shown, made: &Made, position: Position, what: String) -> TrainError {
    const NAMED: usize = 8;
    let weights = engine.tensors(Kind::Parameters);
    // NaN is larger than everything here
    let size = |w: &f32| if w.is_nan() { f32::INFINITY } else { w.abs() };
    let largest = weights.iter().flatten().map(size).fold(0.0, f32::max);
    let mut files: Vec<String> = made.places.iter().take(NAMED).map(|at| train.name(*at)).collect();
    if made.places.len() > NAMED {
        files.push(format!("and {} more", made.places.len() - NAMED));
    }
    TrainError::Diverged { epoch: position.epoch + 1, step: position.step + 1, what, largest, files: files.join(", ") }
}
