//! The settings of a run: everything that its result depends on, in one value that is stored with the run.
//!
//! Every setting has one default, here. Files and options change settings by name ([`Settings::with_value`]); [`Settings::check`] refuses
//! values that no run could use; [`KEYS`] describes each of them. Threads, paths of outputs and progress are not settings: they have no
//! influence on the result.

mod check;
mod edit;
mod keys;
mod retrain;
#[cfg(test)]
mod tests;

use equipoise_criterion::{Config, Id, Preset};
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::sampler::SamplerKind;
use equipoise_data::describe::broken_files::MAX_BROKEN;
use equipoise_data::describe::groups::GroupRule;
use equipoise_data::features::read::is_feature_file;
use equipoise_data::features::scaling::FeatureScaling;
use equipoise_data::subset::long_tail::Profile;
use equipoise_data::subset::split::SplitRule;
use equipoise_nn::network::Head;
use serde::{Deserialize, Serialize};

pub use equipoise_nn::{Architecture, Precision};

pub use self::edit::RecordedSettings;
pub use self::keys::{KEYS, Key, setting_of_option};
use crate::error::TrainError;
use crate::schedule::Schedule;

/// Everything that the result of a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Seed of everything random in the run except the choice of a subset.
    pub seed: u64,
    /// Number of passes over the training images.
    pub epochs: u64,
    /// Images per optimizer step.
    pub batch_size: usize,
    /// How classes are grouped for reporting.
    pub groups: GroupRule,
    /// How the best epoch is selected.
    pub select_best: SelectBest,
    /// Epochs without improvement after which the run ends; 0 disables early stopping.
    pub patience: u64,
    /// Epochs between evaluations. The last epoch is always evaluated.
    pub evaluate_every: u64,
    /// Tau of the post-hoc logit adjustment applied to every output of the trained network; 0 disables it.
    pub logit_adjustment: f64,
    /// The numbers that activations are kept in, and that convolutions multiply.
    pub precision: Precision,
    /// The dataset.
    pub data: DataSettings,
    /// The network.
    pub model: ModelSettings,
    /// The criterion.
    pub criterion: Config,
    /// The optimizer.
    pub optimizer: OptimizerSettings,
    /// The augmentation of training images.
    pub augment: Augmentation,
}

/// Learning rate of networks on images, unless another one is chosen.
pub(crate) const LEARNING_RATE: f64 = 0.1;
/// Learning rate of heads on features that are not cosine heads, unless another one is chosen.
pub(crate) const FEATURE_LEARNING_RATE: f64 = 0.01;

/// How the best epoch of a run is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectBest {
    /// By balanced accuracy on the validation split if there is one; otherwise the last epoch.
    Auto,
    /// The last epoch.
    Last,
    /// By balanced accuracy on the validation split.
    Val,
    /// By accuracy on the test split, as many papers do. The result is optimistic and labeled so.
    Test,
}

/// The dataset of a run, and the part of it that is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSettings {
    /// Name or path of the dataset.
    pub dataset: String,
    /// Imbalance factor of the long-tailed subset to draw.
    pub imbalance: Option<f64>,
    /// Profile of class sizes in the long-tailed subset.
    pub profile: Profile,
    /// Seed that selects the images of the long-tailed subset.
    pub subset_seed: u32,
    /// File written by `data index` that lists the images of the subset.
    pub subset_file: Option<String>,
    /// Column of a list that names the image files.
    pub path_column: Option<String>,
    /// Column of a list that names the classes.
    pub label_column: Option<String>,
    /// File of the labels of features: a `.npy` array, or text with a line per row.
    pub labels: Option<String>,
    /// How features are scaled.
    pub scaling: FeatureScaling,
    /// Name or path of a dataset whose images are the test split.
    pub test_data: Option<String>,
    /// Name or path of a dataset whose images are the validation split.
    pub val_data: Option<String>,
    /// Column of a list, or regular expression on the path, that tells which images belong together: no split divides them.
    pub group_by: Option<String>,
    /// Fraction of the image files that may be unreadable; they are left out.
    pub max_broken: f64,
    /// Fraction of every class used for testing if the dataset has no test split; 0 to train on everything.
    pub test_fraction: f64,
    /// Seed of the test and validation splits, and of folds.
    pub split_seed: u64,
    /// Number of folds of a cross-validation; 0 for none. The test split is then one of them.
    pub folds: u32,
    /// The fold that is the test split, from 1; 0 without folds.
    pub fold: u32,
    /// Fraction of every class's training images used for validation if the dataset has no validation split.
    pub val_fraction: f64,
    /// Least number of every class's validation images, or half of the class if that is less.
    pub val_at_least: u32,
    /// Validation images per class beside a subset by `imbalance`: first images that it leaves out, then training images; 0 for none.
    pub val_per_class: u32,
    /// Height and width that image files are scaled to; 0 leaves the choice to the size of the images and the network.
    pub image_size: u32,
    /// How often the images of each class are drawn.
    pub sampler: SamplerKind,
}

impl DataSettings {
    /// Takes no validation split out of the training images.
    pub fn hold_nothing_out(&mut self) {
        (self.val_fraction, self.val_at_least, self.val_per_class) = (0.0, 0, 0);
    }
}

/// The network of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSettings {
    /// The network; `None` leaves the choice to the size of the images. A run that has started has one.
    pub name: Option<Architecture>,
    /// Classification head of the network; `None` is the one that the criterion needs, else a linear one.
    pub head: Option<HeadKind>,
    /// Factor of the logits of a cosine head; `None` is 1 for a criterion that scales cosines itself, else 16.
    pub head_scale: Option<f32>,
    /// Whether the factor of a cosine head is trained, from `head_scale` on.
    pub learn_head_scale: bool,
    /// Weights to start from: a run folder, a checkpoint or a safetensors file.
    pub weights: Option<String>,
    /// Whether only the head is trained.
    pub freeze_backbone: bool,
    /// Epochs at the start in which only the head is trained.
    pub freeze_epochs: u64,
    /// Whether batch norms keep the statistics of `weights`, in training too.
    pub freeze_batch_norm: bool,
    /// Whether the head starts from random weights, whatever `weights` has.
    pub reset_head: bool,
    /// Width of the hidden layer of `mlp`.
    pub hidden: usize,
    /// Whether a head on features starts as the classifier by the nearest class mean.
    pub class_means: bool,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            name: None,
            head: None,
            head_scale: None,
            learn_head_scale: false,
            weights: None,
            freeze_backbone: false,
            freeze_epochs: 0,
            freeze_batch_norm: false,
            reset_head: false,
            hidden: 512,
            class_means: false,
        }
    }
}

/// Classification head of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeadKind {
    /// A linear layer with bias.
    Linear,
    /// A linear layer that stays as it is, with a trained factor for every class: learnable weight scaling.
    Lws,
    /// The scaled cosine between the features and the weights of a class.
    Cosine,
}

/// How gradients change the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Stochastic gradient descent with momentum.
    Sgd,
    /// Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).
    #[serde(rename = "adamw")]
    AdamW,
    /// L-BFGS on all training rows at once, for heads on features: it goes to the minimum, where the others stop on the way.
    Lbfgs,
}

/// The optimizer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSettings {
    /// The optimizer.
    pub name: OptimizerKind,
    /// Learning rate that the schedule scales; `None` is 0.1, or 0.01 for a head on features that is not a cosine
    /// head. A run that has started has one.
    pub learning_rate: Option<f64>,
    /// Factor of the learning rate of everything but the head.
    pub backbone_factor: f64,
    /// Factor of the learning rate from one block of the backbone to the one before it.
    pub layer_decay: f64,
    /// Momentum of SGD.
    pub momentum: f64,
    /// Whether SGD has Nesterov's momentum.
    pub nesterov: bool,
    /// Decays of AdamW's first and second moment.
    pub betas: [f64; 2],
    /// Summand in AdamW's denominator.
    pub epsilon: f64,
    /// Weight decay of all parameters.
    pub weight_decay: f64,
    /// Largest global norm of a gradient; 0 disables clipping.
    pub clip_grad_norm: f64,
    /// Decay of the EMA of the weights at every step; 0 for a run without an EMA, or with [`ema_epochs`](Self::ema_epochs).
    pub ema_decay: f64,
    /// Averaging time of the EMA of the weights, in epochs; 0 for a run without an EMA, or with [`ema_decay`](Self::ema_decay).
    pub ema_epochs: f64,
    /// Training images from which an evaluation estimates the batch-norm statistics of the EMA anew; 0 keeps the EMA of
    /// the running statistics.
    pub ema_bn_images: u32,
    /// Schedule of the learning rate; `None` is the paper's shape for the number of epochs.
    pub schedule: Option<Schedule>,
    /// Sharpness-aware minimization; `None` disables it.
    pub sam: Option<Sam>,
    /// Most iterations of L-BFGS.
    pub iterations: u32,
    /// Norm of the gradient, over that at the start, at which L-BFGS ends.
    pub tolerance: f64,
    /// Folds of the stratified cross-validation that chooses the weight decay of a head on features; 0 leaves it as it is.
    pub cross_validation: u32,
}

/// Sharpness-aware minimization (SAM): a step follows the gradient at the weights of a small ascent.
///
/// *Sharpness-aware minimization for efficiently improving generalization*, Foret et al., ICLR 2021. A step takes twice as
/// long. Running statistics and the counts of the criterion come from the first of the two passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sam {
    /// Length of the ascent.
    pub rho: f64,
    /// Fraction of the epochs before the first one with SAM.
    #[serde(default)]
    pub start: f64,
}

/// Number of epochs of a head on features, if nothing else is said. More epochs fit the rare rows of the training split and lose accuracy on
/// others: docs/photographs.md has the figures.
const HEAD_EPOCHS: u64 = 10;

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            epochs: 40,
            batch_size: 128,
            groups: GroupRule::default(),
            select_best: SelectBest::Auto,
            patience: 0,
            evaluate_every: 1,
            logit_adjustment: 0.0,
            precision: Precision::default(),
            data: DataSettings::default(),
            model: ModelSettings::default(),
            criterion: Config::from(Id::BalancedSoftmax.preset(Preset::default())),
            optimizer: OptimizerSettings::default(),
            augment: Augmentation::default(),
        }
    }
}

impl Default for DataSettings {
    fn default() -> Self {
        let split = SplitRule::default();
        Self {
            dataset: "fashion-mini".to_owned(),
            imbalance: None,
            profile: Profile::default(),
            subset_seed: 0,
            subset_file: None,
            path_column: None,
            label_column: None,
            labels: None,
            scaling: FeatureScaling::default(),
            test_data: None,
            val_data: None,
            group_by: None,
            max_broken: MAX_BROKEN,
            test_fraction: split.test_fraction,
            split_seed: split.seed,
            folds: 0,
            fold: 0,
            val_fraction: 0.0,
            val_at_least: 0,
            val_per_class: 0,
            image_size: 0,
            sampler: SamplerKind::Uniform,
        }
    }
}

impl Default for OptimizerSettings {
    fn default() -> Self {
        Self {
            name: OptimizerKind::Sgd,
            learning_rate: None,
            backbone_factor: 1.0,
            layer_decay: 1.0,
            momentum: 0.9,
            nesterov: false,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 2e-4,
            clip_grad_norm: 0.0,
            ema_decay: 0.0,
            ema_epochs: 0.0,
            ema_bn_images: 0,
            schedule: None,
            sam: None,
            iterations: 200,
            tolerance: 1e-4,
            cross_validation: 0,
        }
    }
}

impl OptimizerSettings {
    /// Whether the run keeps an EMA of the weights, which is evaluated in place of the weights.
    #[must_use]
    pub fn has_ema(&self) -> bool {
        self.ema_decay > 0.0 || self.ema_epochs > 0.0
    }

    /// Decay of the EMA at every step, in a run with this many steps per epoch.
    #[must_use]
    pub fn ema_decay_per_step(&self, steps: u64) -> f64 {
        match self.ema_epochs > 0.0 {
            // below 1 in 32 bits too
            true => (-1.0 / (self.ema_epochs * steps as f64)).exp().min(1.0 - f64::from(f32::EPSILON) / 2.0),
            false => self.ema_decay,
        }
    }
}

impl Settings {
    /// The learning rate schedule of the run.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        self.optimizer.schedule.clone().unwrap_or_else(|| Schedule::paper(self.epochs))
    }

    /// Settings with the defaults that depend on the dataset: heads on features have fewer epochs.
    #[must_use]
    pub fn with_defaults_of_data(mut self, dataset: &str) -> Self {
        if is_feature_file(dataset.as_ref()) {
            self.epochs = HEAD_EPOCHS;
        }
        self
    }

    /// Whether the epochs of a run stay what they are if the run gets more or fewer epochs.
    ///
    /// # Errors
    /// Returns what is laid out for the number of epochs.
    pub fn check_epochs_can_change(&self) -> Result<(), String> {
        let schedule = match &self.optimizer.schedule {
            Some(Schedule::Constant {} | Schedule::MultiStep { .. }) => None,
            Some(Schedule::Cosine { .. }) => Some("the cosine schedule of the learning rate"),
            None => Some("the default schedule of the learning rate"),
        };
        let sampler = (self.data.sampler == SamplerKind::Progressive).then_some("the progressive sampler");
        let sam = self.optimizer.sam.filter(|sam| sam.start > 0.0).map(|_| "the start of SAM");
        let cmo = self.augment.cmo.map(|_| "CMO, which pauses in the last epochs,");
        schedule.or(sampler).or(sam).or(cmo).map_or(Ok(()), |what| Err(what.to_owned()))
    }

    /// The network of the run: ResNet-32 unless it has been chosen.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.model.name.unwrap_or(Architecture::ResNet32)
    }

    /// The learning rate that the schedule scales.
    #[must_use]
    pub fn learning_rate(&self) -> f64 {
        self.optimizer.learning_rate.unwrap_or_else(|| self.usual_learning_rate())
    }

    /// The learning rate of SGD for a network like this.
    pub(crate) fn usual_learning_rate(&self) -> f64 {
        // the gradients of cosines do not grow with the features
        let has_large_gradients = self.architecture().is_for_features() && self.head_kind() != HeadKind::Cosine;
        if has_large_gradients { FEATURE_LEARNING_RATE } else { LEARNING_RATE }
    }

    /// Takes what these settings leave to the images, network, image size and what follows from them, from those of a run
    /// that has started.
    pub fn choose_as(&mut self, started: &Self) {
        self.model.name = self.model.name.or(started.model.name);
        self.optimizer.learning_rate = self.optimizer.learning_rate.or(started.optimizer.learning_rate);
        if self.optimizer.cross_validation > 0 {
            self.optimizer.weight_decay = started.optimizer.weight_decay;
        }
        if self.data.image_size == 0 {
            self.data.image_size = started.data.image_size;
        }
    }

    /// The first setting by which the runs of two settings differ. What one of them leaves to the images and the network is what the
    /// other says.
    #[must_use]
    pub fn difference_as_runs(&self, other: &Self) -> Option<String> {
        let (mut a, mut b) = (self.clone(), other.clone());
        a.choose_as(other);
        b.choose_as(self);
        a.difference(&b)
    }

    /// The settings of a run with the same settings on all training images, without a validation split. It ends with its
    /// last epoch.
    ///
    /// # Errors
    /// If the run holds no images out.
    pub fn refit(&self) -> Result<Self, TrainError> {
        if self.data.val_fraction == 0.0 && self.data.val_per_class == 0 {
            let what =
                "the run trained on all training images already: it held none of them out for validation".to_owned();
            return Err(TrainError::Unusable { what });
        }
        let mut settings = self.clone();
        settings.data.hold_nothing_out();
        // the weight decay that was chosen is that of the run
        settings.optimizer.cross_validation = 0;
        (settings.select_best, settings.patience) = (SelectBest::Last, 0);
        Ok(settings)
    }

    /// Whether only the head is trained in an epoch, counted from 0.
    #[must_use]
    pub fn freezes_backbone(&self, epoch: u64) -> bool {
        self.model.freeze_backbone || epoch < self.model.freeze_epochs
    }

    /// Length of SAM's ascent in an epoch, counted from 0; `None` for an epoch without SAM.
    #[must_use]
    pub fn sam_rho(&self, epoch: u64) -> Option<f64> {
        let started = |sam: &Sam| epoch as f64 >= sam.start * self.epochs as f64;
        self.optimizer.sam.filter(started).map(|sam| sam.rho)
    }

    /// The classification head of the network.
    #[must_use]
    pub fn head(&self) -> Head {
        match self.head_kind() {
            HeadKind::Linear => Head::Linear,
            HeadKind::Lws => Head::Lws,
            HeadKind::Cosine => Head::Cosine { scale: self.head_scale(), learned: self.model.learn_head_scale },
        }
    }

    /// The settings with the head that the criterion needs, where the user chose none.
    #[must_use]
    pub fn with_head_of_criterion(mut self) -> Self {
        (self.model.head, self.model.head_scale) = (Some(self.head_kind()), Some(self.head_scale()));
        self
    }

    /// The settings without a head that is just what criterion and network need, so that others get the head that they need.
    #[must_use]
    pub fn without_head_of_criterion(mut self) -> Self {
        let head = (self.model.head, self.model.head_scale);
        (self.model.head, self.model.head_scale) = (None, None);
        let needed = (self.head_kind(), self.head_scale());
        if (head.0.unwrap_or(needed.0), head.1.unwrap_or(needed.1)) != needed {
            (self.model.head, self.model.head_scale) = head;
        }
        self
    }

    fn head_kind(&self) -> HeadKind {
        let is_cosine = self.criterion.method.cosine_scale().is_some() || self.model.name == Some(Architecture::Cosine);
        let needed = if is_cosine { HeadKind::Cosine } else { HeadKind::Linear };
        self.model.head.unwrap_or(needed)
    }

    fn head_scale(&self) -> f32 {
        let needed = if self.criterion.method.cosine_scale().is_some() { 1.0 } else { 16.0 };
        self.model.head_scale.unwrap_or(needed)
    }
}
