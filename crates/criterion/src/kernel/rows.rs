//! The loop over a batch's rows: how threads share them, and what is kept of each row.
//!
//! Rows are independent of each other. Sums over rows are taken afterwards, in the order of the rows, so results do not
//! depend on the number of threads.

use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

use super::shape::{Plain, Shape};
use super::softmax::{self, BLOCK, RowBuffers, Slope, Sums};
use crate::batch::Batch;
use crate::criterion::Revision;

/// Batches of fewer logits than this are not worth a second thread.
const WORTH_SPLITTING: usize = 16_384;
const TASKS_PER_THREAD: usize = 4;
/// The list of tasks is on the stack.
const MOST_TASKS: usize = 128;

/// Scratch memory that a training loop owns and passes to every call, so that a warm step allocates nothing.
///
/// Any criterion can use any `Workspace`. It holds no state of a criterion, only what is needed to count the last batch.
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
    /// The batch that was evaluated last, unless it is counted.
    pub(crate) seen: Option<Seen>,
}

/// A batch that was evaluated and may be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The criterion and its state.
    pub(crate) by: Revision,
    /// The epoch of the batch.
    pub(crate) epoch: u64,
}

/// Scratch memory of one of the tasks that a batch is split into.
#[derive(Debug, Default)]
struct Task {
    maxima: Vec<f32>,
    shifts: Vec<f32>,
    recomputed: Vec<f32>,
    recomputed_classes: Vec<u32>,
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

    /// Splits batches over the threads of another pool from now on.
    pub fn set_pool(&mut self, pool: Pool) {
        self.pool = pool;
    }

    /// The pool that batches are split over.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Uses the instructions of a chosen level instead of the best one.
    #[must_use]
    pub fn with_simd(self, simd: SimdLevel) -> Self {
        Self { simd, ..self }
    }
}

/// One label of a row and its share of the row (1 unless labels are mixed).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LabelTerm {
    pub(crate) row: usize,
    pub(crate) label: usize,
    pub(crate) share: f64,
    /// Share times deferred class weight, over the batch's denominator.
    pub(crate) coefficient: f64,
    /// Share times deferred class weight.
    pub(crate) gain: f64,
    pub(crate) sums: Sums,
    pub(crate) weighted: WeightedLoss,
}

/// What a criterion makes of a row's sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WeightedLoss {
    /// The term's loss, weight included.
    pub(crate) loss: f64,
    /// The term's weight, as reported.
    pub(crate) weight: f64,
    /// Multiplies softmax(z') - target.
    pub(crate) scale: f64,
    /// The target is 1 - smooth at the label and smooth / C everywhere.
    pub(crate) smooth: f64,
    /// For the criterion's counting: the region its gradient norm fell into.
    pub(crate) region: u32,
}

impl WeightedLoss {
    /// Cross-entropy of the adjusted logits with weight 1.
    pub(crate) fn cross_entropy(term: &LabelTerm) -> Self {
        Self::constant(1.0, term.sums.adjusted.cross_entropy())
    }

    /// A loss of `weight * value` whose weight is a constant.
    pub(crate) fn constant(weight: f64, value: f64) -> Self {
        Self { loss: weight * value, weight, scale: weight, ..Self::default() }
    }
}

/// What is kept of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) terms: [LabelTerm; 2],
    /// One term, or two where labels are mixed.
    pub(crate) count: usize,
    pub(crate) finite: bool,
    /// The row's loss and weight, deferred class weights included.
    pub(crate) loss: f64,
    pub(crate) weight: f64,
}

impl Row {
    pub(crate) fn terms(&self) -> &[LabelTerm] {
        &self.terms[..self.count]
    }

    /// Computes the totals of the row from its terms.
    fn total(&mut self) {
        self.finite = self.terms().iter().all(|p| p.sums.finite);
        self.loss = self.terms().iter().map(|p| p.gain * p.weighted.loss).sum();
        self.weight = self.terms().iter().map(|p| p.gain * p.weighted.weight).sum();
    }

    /// 1 - p_y of the raw logits, averaged over the labels by share.
    pub(crate) fn gradient_norm(&self) -> f64 {
        self.terms().iter().map(|p| p.share * p.sums.raw.one_minus_p()).sum()
    }

    /// 1 - p_y of the adjusted logits, averaged over the labels by share.
    pub(crate) fn adjusted_norm(&self) -> f64 {
        self.terms().iter().map(|p| p.share * p.sums.adjusted.one_minus_p()).sum()
    }

    /// The largest slope of the row's terms, before the batch's denominator.
    pub(crate) fn steepest(&self) -> f64 {
        self.terms().iter().map(|p| (p.gain * p.weighted.scale).abs()).fold(0.0, f64::max)
    }

    pub(crate) fn terms_mut(&mut self) -> &mut [LabelTerm] {
        &mut self.terms[..self.count]
    }
}

/// A softmax criterion as the loop over rows sees it.
pub(crate) trait SoftmaxMethod: Sync {
    /// What it does to the logits of a row.
    type Shape<'a>: Shape
    where
        Self: 'a;
    /// The shape for one label. `row` is scratch memory for a number per class.
    fn shape<'a>(&'a self, term: &LabelTerm, row: &'a mut Vec<f32>) -> Self::Shape<'a>;
    /// Loss, weight and slope of one label from the row's sums.
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss;
}

/// A batch on its way through a criterion.
pub(crate) struct BatchPass<'a> {
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) classes: usize,
    pub(crate) grad: &'a mut [f32],
    /// Whether `sums.raw` of every term must be that of the raw logits, whatever the criterion.
    pub(crate) raw_sums: bool,
    pub(crate) workspace: &'a mut Workspace,
}

/// Which passes over a row are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first one.
    Sums,
    /// The second one, once every term has its weight.
    Gradient,
    /// Both, each term weighted in between.
    Both,
}

/// A row's slices, and the scratch memory of the task that handles it.
struct RowPass<'a> {
    logits: &'a [f32],
    grad: &'a mut [f32],
    shifts: &'a mut [f32],
    simd: SimdLevel,
    /// As in [`BatchPass`].
    raw_sums: bool,
    task: &'a mut Task,
}

impl RowPass<'_> {
    /// The sums of the raw logits, for criteria whose own passes have no softmax. The gradient's memory is scratch.
    fn raw_sums(&mut self, row: &mut Row) {
        let Task { maxima, recomputed, recomputed_classes, .. } = &mut *self.task;
        let mut buffers = RowBuffers { maxima, shifts: self.shifts, exps: self.grad, recomputed, recomputed_classes };
        for term in row.terms_mut() {
            term.sums = softmax::sums(self.simd, &mut Plain, self.logits, term.label, true, &mut buffers);
        }
    }

    /// Handles one label of a row. The first label's gradient is computed in place, a second one's in scratch and
    /// added.
    fn label_term<M: SoftmaxMethod>(&mut self, method: &M, k: usize, term: &mut LabelTerm, stage: Stage) {
        let Task { maxima, shifts, recomputed, recomputed_classes, row, second, .. } = &mut *self.task;
        let mut shape = method.shape(term, row);
        let mut buffers = if k == 0 {
            RowBuffers { maxima, shifts: self.shifts, exps: self.grad, recomputed, recomputed_classes }
        } else {
            second.resize(self.logits.len(), 0.0);
            RowBuffers { maxima, shifts, exps: second, recomputed, recomputed_classes }
        };
        // nothing was kept of a second label's exponentials
        if stage != Stage::Gradient || k > 0 {
            term.sums = softmax::sums(self.simd, &mut shape, self.logits, term.label, self.raw_sums, &mut buffers);
        }
        if !term.sums.finite || stage == Stage::Sums {
            return;
        }
        if stage == Stage::Both {
            term.weighted = method.weigh(term);
        }
        let slope = Slope { scale: term.weighted.scale * term.coefficient, smooth: term.weighted.smooth };
        softmax::gradient(self.simd, &shape, self.logits, term.label, &term.sums, slope, &mut buffers);
        if k > 0 {
            self.grad.iter_mut().zip(second).for_each(|(g, s)| *g += *s);
        }
    }
}

impl BatchPass<'_> {
    /// Calls `f` for every row with its slices and what is kept of it, on all threads.
    fn each(&mut self, f: impl Fn(&mut RowPass<'_>, &mut Row) + Sync) {
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
        for (chunk, slices) in chunks.iter_mut().zip(logits.zip(grads).zip(rows).zip(&mut workspace.tasks)) {
            *chunk = Some(slices);
        }
        workspace.pool.each(&mut chunks[..tasks], |_, chunk| {
            let Some((((logits, grads), (rows, shifts)), task)) = chunk else { return };
            task.maxima.resize(blocks, 0.0);
            task.shifts.resize(blocks, 0.0);
            let rows_of_logits = logits.chunks_exact(classes).zip(grads.chunks_exact_mut(classes));
            for (((logits, grad), shifts), row) in
                rows_of_logits.zip(shifts.chunks_exact_mut(blocks)).zip(rows.iter_mut())
            {
                f(&mut RowPass { logits, grad, shifts, simd, raw_sums, task }, row);
            }
        });
    }

    fn softmax<M: SoftmaxMethod>(&mut self, method: &M, stage: Stage) {
        self.each(|pass, row| {
            for (k, term) in row.terms_mut().iter_mut().enumerate() {
                pass.label_term(method, k, term, stage);
            }
            row.total();
        });
    }

    /// Both passes over each row in turn: for criteria whose weights depend on the row alone.
    pub(crate) fn fused<M: SoftmaxMethod>(&mut self, method: &M) {
        self.softmax(method, Stage::Both);
    }

    /// The first pass over every row: for criteria that must see the whole batch before they weigh.
    pub(crate) fn sums<M: SoftmaxMethod>(&mut self, method: &M) {
        self.softmax(method, Stage::Sums);
    }

    /// The second pass, once `weighted` of every term is set.
    pub(crate) fn gradients<M: SoftmaxMethod>(&mut self, method: &M) {
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
        self.each(|pass, row| {
            pass.task.counts.resize(bins, 0);
            row.finite = super::sigmoid::count(pass.simd, pass.logits, row, &mut pass.task.counts);
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
        self.each(|pass, row| {
            if pass.raw_sums {
                pass.raw_sums(row);
            }
            super::sigmoid::row(pass.simd, pass.logits, row, gains, over, pass.grad);
        });
    }
}
