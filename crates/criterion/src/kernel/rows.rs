//! The loop over a batch's rows: which threads do what, and what is kept of each row.
//!
//! Rows are independent of each other, and everything that is summed over rows is summed afterwards, in their order;
//! so results do not depend on the number of threads.

use rayon::prelude::*;

use super::lanes::Simd;
use super::softmax::{self, BLOCK, Edge, Shape, Slope, Sums};
use crate::batch::Batch;

/// Batches of fewer logits than this are not worth a second thread.
const WORTH_SPLITTING: usize = 16_384;

/// Room that a training loop owns and hands to every call, so that a step allocates nothing once it is warm.
///
/// Any criterion can use any `Work`; it holds no state that outlives a call.
#[derive(Debug)]
pub struct Work {
    simd: Simd,
    pub(crate) rows: Vec<Row>,
    tasks: Vec<Task>,
    /// What counting this batch would make of the criterion's per-class table.
    pub(crate) table: Vec<f32>,
    /// What counting this batch would make of the criterion's histogram.
    pub(crate) mass: Vec<f64>,
    /// Weights that go with `mass`.
    pub(crate) gains: Vec<f64>,
    /// The classes `mass` speaks of.
    pub(crate) classes: Vec<u32>,
}

/// Room for one of the tasks that a batch is split into.
#[derive(Debug)]
struct Task {
    edge: Edge,
    maxima: Vec<f32>,
    row: Vec<f32>,
    counts: Vec<u64>,
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}

impl Work {
    /// Room for the best instruction set of this CPU.
    #[must_use]
    pub fn new() -> Self {
        Self::with_simd(Simd::best())
    }

    /// Room for a chosen instruction set; one that this CPU lacks is replaced by the best it has.
    #[must_use]
    pub fn with_simd(simd: Simd) -> Self {
        let simd = if Simd::available().contains(&simd) { simd } else { Simd::best() };
        let (rows, tasks, table, mass, gains, classes) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { simd, rows, tasks, table, mass, gains, classes }
    }
}

/// One label of a row and its share of the row (1 unless labels are mixed).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) row: usize,
    pub(crate) label: usize,
    pub(crate) share: f64,
    /// Share times deferred class weight, over the batch's denominator.
    pub(crate) coefficient: f64,
    /// Share times deferred class weight.
    pub(crate) gain: f64,
    pub(crate) sums: Sums,
    pub(crate) weighed: Weighed,
}

/// What a criterion makes of a row's sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weighed {
    /// The part's loss, weight included.
    pub(crate) loss: f64,
    /// Its weight, as reported.
    pub(crate) weight: f64,
    /// Multiplies softmax(z') - target.
    pub(crate) scale: f64,
    /// The target is 1 - smooth at the label and smooth / C everywhere.
    pub(crate) smooth: f64,
    /// For the criterion's counting: the region its gradient norm fell into.
    pub(crate) region: u32,
}

impl Weighed {
    /// Cross-entropy of the adjusted logits with weight 1.
    pub(crate) fn cross_entropy(part: &Part) -> Self {
        Self::constant(1.0, part.sums.adjusted.cross_entropy())
    }

    /// A loss of `weight * value` whose weight is a constant.
    pub(crate) fn constant(weight: f64, value: f64) -> Self {
        Self { loss: weight * value, weight, scale: weight, ..Self::default() }
    }
}

/// What is kept of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) parts: [Part; 2],
    /// One part, or two where labels are mixed.
    pub(crate) count: usize,
    pub(crate) finite: bool,
    /// The row's loss and weight, deferred class weights included.
    pub(crate) loss: f64,
    pub(crate) weight: f64,
}

impl Row {
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts[..self.count]
    }

    /// Loss and weight of the row from those of its parts.
    fn total(&mut self) {
        self.loss = self.parts().iter().map(|p| p.gain * p.weighed.loss).sum();
        self.weight = self.parts().iter().map(|p| p.gain * p.weighed.weight).sum();
    }

    pub(crate) fn parts_mut(&mut self) -> &mut [Part] {
        &mut self.parts[..self.count]
    }
}

/// A softmax criterion as the loop over rows sees it.
pub(crate) trait Softmax: Sync {
    /// What it does to the logits of a row.
    type Shape<'a>: Shape
    where
        Self: 'a;
    /// The shape for one label; `row` is room for a number per class.
    fn shape<'a>(&'a self, part: &Part, row: &'a mut Vec<f32>) -> Self::Shape<'a>;
    /// Loss, weight and slope of one label from the row's sums.
    fn weigh(&self, part: &Part) -> Weighed;
}

/// A batch on its way through a criterion.
pub(crate) struct Job<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) classes: usize,
    pub(crate) grad: &'a mut [f32],
    pub(crate) work: &'a mut Work,
}

impl Job<'_> {
    /// Calls `f` for every row with its logits, its gradient, what is kept of it and some room, on all threads.
    fn each(&mut self, f: impl Fn(&[f32], &mut [f32], &mut Row, Simd, &mut Task) + Sync) {
        let (classes, simd, work) = (self.classes, self.work.simd, &mut *self.work);
        let count = work.rows.len();
        let threads = if count * classes < WORTH_SPLITTING { 1 } else { rayon::current_num_threads() };
        // more tasks than threads: a thread that was held up is helped out
        let tasks = if threads == 1 { 1 } else { (4 * threads).min(count) };
        while work.tasks.len() < tasks {
            work.tasks.push(Task { edge: Edge::new(), maxima: Vec::new(), row: Vec::new(), counts: Vec::new() });
        }
        for task in &mut work.tasks[..tasks] {
            task.maxima.resize(classes.div_ceil(BLOCK), 0.0);
        }
        let each = |logits: &[f32], grads: &mut [f32], rows: &mut [Row], task: &mut Task| {
            let lines = logits.chunks_exact(classes).zip(grads.chunks_exact_mut(classes));
            for ((z, g), row) in lines.zip(rows) {
                f(z, g, row, simd, task);
            }
        };
        if tasks == 1 {
            each(self.batch.logits, self.grad, &mut work.rows, &mut work.tasks[0]);
            return;
        }
        let height = count.div_ceil(tasks);
        (self.batch.logits.par_chunks(height * classes), self.grad.par_chunks_mut(height * classes))
            .into_par_iter()
            .zip(work.rows.par_chunks_mut(height))
            .zip(work.tasks.par_iter_mut())
            .with_max_len(1)
            .for_each(|(((logits, grads), rows), task)| each(logits, grads, rows, task));
    }

    /// Both passes over each row in turn: for criteria whose weights depend on the row alone.
    pub(crate) fn fused<M: Softmax>(&mut self, method: &M) {
        self.each(|z, g, row, simd, task| {
            row.finite = true;
            for k in 0..row.count {
                let part = &mut row.parts[k];
                let mut shape = method.shape(part, &mut task.row);
                part.sums = softmax::sums(simd, &mut shape, z, part.label, &mut task.edge, &mut task.maxima);
                if !part.sums.finite {
                    row.finite = false;
                    return;
                }
                part.weighed = method.weigh(part);
                write(simd, &shape, z, part, k > 0, g);
            }
            row.total();
        });
    }

    /// The first pass over every row: for criteria that must see the whole batch before they weigh.
    pub(crate) fn sums<M: Softmax>(&mut self, method: &M) {
        self.each(|z, _, row, simd, task| {
            row.finite = true;
            for part in row.parts_mut() {
                let mut shape = method.shape(part, &mut task.row);
                part.sums = softmax::sums(simd, &mut shape, z, part.label, &mut task.edge, &mut task.maxima);
            }
            row.finite = row.parts().iter().all(|p| p.sums.finite);
        });
    }

    /// The second pass, once `weighed` of every part is set.
    pub(crate) fn gradients<M: Softmax>(&mut self, method: &M) {
        self.each(|z, g, row, simd, task| {
            for (k, part) in row.parts().iter().enumerate() {
                write(simd, &method.shape(part, &mut task.row), z, part, k > 0, g);
            }
            row.total();
        });
    }

    /// Whether every row of the first pass was finite.
    pub(crate) fn finite(&self) -> bool {
        self.work.rows.iter().all(|row| row.finite)
    }

    /// Counts every logit's gradient norm into `work.mass` (sigmoid forms).
    pub(crate) fn count_elements(&mut self, bins: usize) {
        for task in &mut self.work.tasks {
            task.counts.clear();
        }
        self.each(|z, _, row, simd, task| {
            task.counts.resize(bins, 0);
            row.finite = super::sigmoid::count(simd, z, row, &mut task.counts);
        });
        let work = &mut *self.work;
        work.mass.clear();
        work.mass.resize(bins, 0.0);
        for task in &work.tasks {
            for (sum, &n) in work.mass.iter_mut().zip(&task.counts) {
                *sum += n as f64;
            }
        }
    }

    /// Loss and gradient of the sigmoid form, divided by `over`; `gains` holds a weight per region of the gradient norm
    /// (one for all: no regions).
    pub(crate) fn elements(&mut self, gains: &[f32], over: f64) {
        self.each(|z, g, row, simd, _| super::sigmoid::row(simd, z, row, gains, over, g));
    }
}

/// The second pass for one label.
fn write<S: Shape>(simd: Simd, shape: &S, z: &[f32], part: &Part, more: bool, g: &mut [f32]) {
    let slope = Slope { scale: part.weighed.scale * part.coefficient, smooth: part.weighed.smooth };
    if more {
        softmax::gradient::<S, softmax::Add>(simd, shape, z, part.label, &part.sums, slope, g);
    } else {
        softmax::gradient::<S, softmax::Set>(simd, shape, z, part.label, &part.sums, slope, g);
    }
}
