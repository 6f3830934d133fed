//! The loop over a batch's rows: how threads share them, and what is kept of each row.
//!
//! Rows are independent of each other. Sums over rows are taken afterwards, in the order of the rows, so results do not
//! depend on the number of threads.

use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

use super::shape::{Plain, Shape};
use super::softmax::{self, BLOCK, RowBuffers, Slope, Sums};
use crate::batch::Batch;

/// Batches of fewer logits than this are not worth a second thread.
const WORTH_SPLITTING: usize = 16_384;
const TASKS_PER_THREAD: usize = 4;
/// The list of tasks is on the stack.
const MOST_TASKS: usize = 128;

/// Scratch memory that a training loop owns and passes to every call, so that a warm step allocates nothing.
///
/// Any criterion can use any `Workspace`. It holds no state that outlives a call.
#[derive(Debug, Default)]
pub struct Workspace {
    pool: Pool,
    pub(crate) simd: SimdLevel,
    pub(crate) rows: Vec<Row>,
    tasks: Vec<Task>,
    /// What the exponentials of every block of every row are relative to.
    shifts: Vec<f32>,
    /// What counting this batch would make of the criterion's per-class table.
    pub(crate) table: Vec<f32>,
    /// What counting this batch would make of the criterion's histogram.
    pub(crate) mass: Vec<f64>,
    /// The weight of each entry of `mass`.
    pub(crate) gains: Vec<f64>,
    /// The classes of the entries of `mass`.
    pub(crate) classes: Vec<u32>,
    /// A counter per class, 0 between calls.
    pub(crate) counts: Vec<u32>,
}

/// Scratch memory of one of the tasks that a batch is split into.
#[derive(Debug, Default)]
struct Task {
    maxima: Vec<f32>,
    shifts: Vec<f32>,
    late: Vec<f32>,
    late_at: Vec<u32>,
    /// A number per class, for the criterion's own use.
    row: Vec<f32>,
    /// The gradient for a row's second label.
    second: Vec<f32>,
    counts: Vec<u64>,
}

impl Workspace {
    /// A workspace for calls that run on the calling thread alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A workspace for calls that split their batch over the threads of a pool. Results do not depend on the pool.
    #[must_use]
    pub fn with_pool(pool: Pool) -> Self {
        Self { pool, ..Self::default() }
    }

    /// Uses the instructions of a chosen level instead of the best one.
    #[must_use]
    pub fn with_simd(self, simd: SimdLevel) -> Self {
        Self { simd, ..self }
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
    /// The part's weight, as reported.
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

    /// Computes the totals of the row from its parts.
    fn total(&mut self) {
        self.finite = self.parts().iter().all(|p| p.sums.finite);
        self.loss = self.parts().iter().map(|p| p.gain * p.weighed.loss).sum();
        self.weight = self.parts().iter().map(|p| p.gain * p.weighed.weight).sum();
    }

    /// 1 - p_y of the raw logits, averaged over the labels by share.
    pub(crate) fn gradient_norm(&self) -> f64 {
        self.parts().iter().map(|p| p.share * p.sums.raw.miss()).sum()
    }

    /// 1 - p_y of the adjusted logits, averaged over the labels by share.
    pub(crate) fn adjusted_norm(&self) -> f64 {
        self.parts().iter().map(|p| p.share * p.sums.adjusted.miss()).sum()
    }

    /// The largest slope of the row's parts, before the batch's denominator.
    pub(crate) fn steepest(&self) -> f64 {
        self.parts().iter().map(|p| (p.gain * p.weighed.scale).abs()).fold(0.0, f64::max)
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
    /// The shape for one label. `row` is scratch memory for a number per class.
    fn shape<'a>(&'a self, part: &Part, row: &'a mut Vec<f32>) -> Self::Shape<'a>;
    /// Loss, weight and slope of one label from the row's sums.
    fn weigh(&self, part: &Part) -> Weighed;
}

/// A batch on its way through a criterion.
pub(crate) struct Job<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) classes: usize,
    pub(crate) grad: &'a mut [f32],
    /// Whether `sums.raw` of every part must be that of the raw logits, whatever the criterion.
    pub(crate) raw_sums: bool,
    pub(crate) workspace: &'a mut Workspace,
}

/// Which passes over a row are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first one.
    Sums,
    /// The second one, once every part is weighed.
    Gradient,
    /// Both, each part weighed in between.
    Both,
}

/// A row's slices, and the scratch memory of the task that handles it.
struct Line<'a> {
    logits: &'a [f32],
    grad: &'a mut [f32],
    shifts: &'a mut [f32],
    simd: SimdLevel,
    /// As in [`Job`].
    raw_sums: bool,
    task: &'a mut Task,
}

impl Line<'_> {
    /// The sums of the raw logits, for criteria whose own passes have no softmax. The gradient's memory is scratch.
    fn raw_sums(&mut self, row: &mut Row) {
        let Task { maxima, late, late_at, .. } = &mut *self.task;
        let mut buffers = RowBuffers { maxima, shifts: self.shifts, exps: self.grad, late, late_at };
        for part in row.parts_mut() {
            part.sums = softmax::sums(self.simd, &mut Plain, self.logits, part.label, true, &mut buffers);
        }
    }

    /// Handles one label of a row. The first label's gradient is computed in place, a second one's in scratch and added.
    fn part<M: Softmax>(&mut self, method: &M, k: usize, part: &mut Part, stage: Stage) {
        let Task { maxima, shifts, late, late_at, row, second, .. } = &mut *self.task;
        let mut shape = method.shape(part, row);
        let mut buffers = if k == 0 {
            RowBuffers { maxima, shifts: self.shifts, exps: self.grad, late, late_at }
        } else {
            second.resize(self.logits.len(), 0.0);
            RowBuffers { maxima, shifts, exps: second, late, late_at }
        };
        // nothing was kept of a second label's exponentials
        if stage != Stage::Gradient || k > 0 {
            part.sums = softmax::sums(self.simd, &mut shape, self.logits, part.label, self.raw_sums, &mut buffers);
        }
        if !part.sums.finite || stage == Stage::Sums {
            return;
        }
        if stage == Stage::Both {
            part.weighed = method.weigh(part);
        }
        let slope = Slope { scale: part.weighed.scale * part.coefficient, smooth: part.weighed.smooth };
        softmax::gradient(self.simd, &shape, self.logits, part.label, &part.sums, slope, &mut buffers);
        if k > 0 {
            self.grad.iter_mut().zip(second).for_each(|(g, s)| *g += *s);
        }
    }
}

impl Job<'_> {
    /// Calls `f` for every row with its slices and what is kept of it, on all threads.
    fn each(&mut self, f: impl Fn(&mut Line<'_>, &mut Row) + Sync) {
        let (classes, raw_sums, workspace) = (self.classes, self.raw_sums, &mut *self.workspace);
        let (simd, count, blocks) = (workspace.simd, workspace.rows.len(), classes.div_ceil(BLOCK));
        let threads = if count * classes < WORTH_SPLITTING { 1 } else { workspace.pool.threads() };
        // more tasks than threads, so that the other threads can help one that was held up
        let tasks = if threads == 1 { 1 } else { (TASKS_PER_THREAD * threads).min(count).min(MOST_TASKS) };
        let height = count.div_ceil(tasks);
        while workspace.tasks.len() < tasks {
            workspace.tasks.push(Task::default());
        }
        workspace.shifts.resize(count * blocks, 0.0);
        let mut chunks = [const { None }; MOST_TASKS];
        let logits = self.batch.logits.chunks(height * classes);
        let grads = self.grad.chunks_mut(height * classes);
        let rows = workspace.rows.chunks_mut(height).zip(workspace.shifts.chunks_mut(height * blocks));
        for (chunk, parts) in chunks.iter_mut().zip(logits.zip(grads).zip(rows).zip(&mut workspace.tasks)) {
            *chunk = Some(parts);
        }
        workspace.pool.each(&mut chunks[..tasks], |_, chunk| {
            let Some((((logits, grads), (rows, shifts)), task)) = chunk else { return };
            task.maxima.resize(blocks, 0.0);
            task.shifts.resize(blocks, 0.0);
            let lines = logits.chunks_exact(classes).zip(grads.chunks_exact_mut(classes));
            for (((logits, grad), shifts), row) in lines.zip(shifts.chunks_exact_mut(blocks)).zip(rows.iter_mut()) {
                f(&mut Line { logits, grad, shifts, simd, raw_sums, task }, row);
            }
        });
    }

    fn softmax<M: Softmax>(&mut self, method: &M, stage: Stage) {
        self.each(|line, row| {
            for (k, part) in row.parts_mut().iter_mut().enumerate() {
                line.part(method, k, part, stage);
            }
            row.total();
        });
    }

    /// Both passes over each row in turn: for criteria whose weights depend on the row alone.
    pub(crate) fn fused<M: Softmax>(&mut self, method: &M) {
        self.softmax(method, Stage::Both);
    }

    /// The first pass over every row: for criteria that must see the whole batch before they weigh.
    pub(crate) fn sums<M: Softmax>(&mut self, method: &M) {
        self.softmax(method, Stage::Sums);
    }

    /// The second pass, once `weighed` of every part is set.
    pub(crate) fn gradients<M: Softmax>(&mut self, method: &M) {
        self.softmax(method, Stage::Gradient);
    }

    /// Whether every row of the first pass was finite.
    pub(crate) fn finite(&self) -> bool {
        self.workspace.rows.iter().all(|row| row.finite)
    }

    /// Counts every logit's gradient norm into `workspace.mass` (sigmoid forms).
    pub(crate) fn count_elements(&mut self, bins: usize) {
        for task in &mut self.workspace.tasks {
            task.counts.clear();
        }
        self.each(|line, row| {
            line.task.counts.resize(bins, 0);
            row.finite = super::sigmoid::count(line.simd, line.logits, row, &mut line.task.counts);
        });
        let workspace = &mut *self.workspace;
        workspace.mass.clear();
        workspace.mass.resize(bins, 0.0);
        for task in &workspace.tasks {
            for (sum, &n) in workspace.mass.iter_mut().zip(&task.counts) {
                *sum += n as f64;
            }
        }
    }

    /// Loss and gradient of the sigmoid form, divided by `over`. `gains` holds a weight per region of the gradient norm
    /// (one for all: no regions).
    pub(crate) fn elements(&mut self, gains: &[f32], over: f64) {
        self.each(|line, row| {
            if line.raw_sums {
                line.raw_sums(row);
            }
            super::sigmoid::row(line.simd, line.logits, row, gains, over, line.grad);
        });
    }
}
