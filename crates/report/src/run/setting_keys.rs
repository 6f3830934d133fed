//! Keys of the settings that the report reads from `config.toml`. No other file of this crate names a key.

pub(crate) const SEED: &str = "seed";
/// Command of a training loop of its own.
pub(crate) const COMMAND: &str = equipoise_record::names::COMMAND;
pub(crate) const EPOCHS: &str = "epochs";
pub(crate) const BATCH_SIZE: &str = "batch_size";
pub(crate) const PRECISION: &str = "precision";
pub(crate) const EVALUATE_EVERY: &str = "evaluate_every";
pub(crate) const SELECT_BEST: &str = "select_best";
pub(crate) const LOGIT_ADJUSTMENT: &str = "logit_adjustment";
pub(crate) const DATASET: &str = "data.dataset";
pub(crate) const IMBALANCE: &str = "data.imbalance";
pub(crate) const SUBSET_FILE: &str = "data.subset_file";
pub(crate) const SUBSET_SEED: &str = "data.subset_seed";
pub(crate) const IMAGE_SIZE: &str = "data.image_size";
pub(crate) const MODEL: &str = "model.name";
pub(crate) const FOLDS: &str = "data.folds";
pub(crate) const FOLD: &str = "data.fold";
pub(crate) const HEAD: &str = "model.head";
pub(crate) const HEAD_SCALE: &str = "model.head_scale";
pub(crate) const METHOD: &str = "criterion.method";
pub(crate) const DRW_START: &str = "criterion.drw.start_epoch";
pub(crate) const LEARNING_RATE: &str = "optimizer.learning_rate";
pub(crate) const CLIP_GRAD_NORM: &str = "optimizer.clip_grad_norm";
pub(crate) const EMA_DECAY: &str = "optimizer.ema_decay";
pub(crate) const SAM_RHO: &str = "optimizer.sam.rho";
pub(crate) const SCHEDULE: &str = "optimizer.schedule.name";
pub(crate) const MIXUP_ALPHA: &str = "augment.mixup_alpha";

/// What a recipe may add to plain training, in the words of a reader; 0, `false` and `none` are no addition.
pub(crate) const INGREDIENTS: [(&str, &str); 11] = [
    ("model.freeze_backbone", "frozen backbone"),
    ("augment.randaugment", "RandAugment"),
    ("augment.policy", "policy"),
    ("augment.cutout", "cutout"),
    (MIXUP_ALPHA, "mixup"),
    ("augment.cutmix", "CutMix"),
    ("augment.cmo", "CMO"),
    ("optimizer.nesterov", "Nesterov momentum"),
    (EMA_DECAY, "EMA"),
    ("optimizer.ema_epochs", "EMA epochs"),
    (SAM_RHO, "SAM"),
];

/// Prefix of every setting of the criterion.
pub(crate) const CRITERION_PREFIX: &str = "criterion.";
/// Prefix of the criterion's own parameters.
pub(crate) const PARAMS_PREFIX: &str = "criterion.params.";
/// Optional tables: the prefix of their keys, and a key that is present whenever the table is. Scale and kind of a head come together.
pub(crate) const OPTIONAL_TABLES: [(&str, &str); 4] =
    [("criterion.drw.", DRW_START), ("optimizer.schedule.", SCHEDULE), ("optimizer.sam.", SAM_RHO), (HEAD_SCALE, HEAD)];

/// Fields of the schedule in `result.json`.
pub(crate) mod schedule {
    pub(crate) const NAME: &str = "name";
    pub(crate) const MULTI_STEP: &str = "multi-step";
    pub(crate) const WARMUP_EPOCHS: &str = "warmup_epochs";
    pub(crate) const MILESTONES: &str = "milestones";
    pub(crate) const EPOCH: &str = "epoch";
    pub(crate) const FACTOR: &str = "factor";
}
