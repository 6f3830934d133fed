//! Whether settings can be used: the one place that knows the ranges.

use std::fmt::Display;

use equipoise_criterion::{Id, MethodConfig};
use equipoise_data::batch::cutmix::CutMix;
use equipoise_data::batch::sampler::SamplerKind;
use equipoise_data::subset::grouping::GroupBy;
use equipoise_data::subset::split::SplitRule;
use equipoise_nn::network::Head;

use super::{Architecture, DataSettings, OptimizerKind, OptimizerSettings, Sam, SelectBest, Settings};
use crate::error::TrainError;

/// The smallest image that leaves the stages of a network something to see.
const MIN_IMAGE_SIZE: u32 = 8;

/// Returns an error that names the setting unless `ok`.
fn require(ok: bool, field: &str, value: impl Display, must: &str) -> Result<(), TrainError> {
    let error = || TrainError::OutOfRange { field: field.to_owned(), value: value.to_string(), must: must.to_owned() };
    if ok { Ok(()) } else { Err(error()) }
}

fn nonnegative(field: &str, value: f64) -> Result<(), TrainError> {
    require(value >= 0.0 && value.is_finite(), field, value, "finite and at least 0")
}

fn fraction(field: &str, value: f64) -> Result<(), TrainError> {
    require((0.0..1.0).contains(&value), field, value, "at least 0 and less than 1")
}

impl Settings {
    /// Checks everything that does not depend on the contents of the dataset.
    ///
    /// # Errors
    /// Returns an error that names the first setting that cannot be used.
    pub fn check(&self) -> Result<(), TrainError> {
        self.check_storable()?;
        require(self.epochs >= 1, "epochs", self.epochs, "at least 1")?;
        require((1..=65_536).contains(&self.batch_size), "batch_size", self.batch_size, "from 1 to 65536")?;
        require(self.evaluate_every >= 1, "evaluate_every", self.evaluate_every, "at least 1")?;
        let tau = self.logit_adjustment;
        require((0.0..=100.0).contains(&tau), "logit_adjustment", tau, "from 0 to 100")?;
        let selected_by_val = !matches!(self.select_best, SelectBest::Last | SelectBest::Test);
        let must = "0 unless the best epoch is selected on a validation split";
        require(self.patience == 0 || selected_by_val, "patience", self.patience, must)?;
        self.data.check()?;
        let scale = self.model.head_scale.unwrap_or(1.0);
        require(scale > 0.0 && scale.is_finite(), "model.head_scale", scale, "finite and more than 0")?;
        let (learned, cosine) = (self.model.learn_head_scale, matches!(self.head(), Head::Cosine { .. }));
        require(!learned || cosine, "model.learn_head_scale", learned, "false unless 'model.head' is cosine")?;
        self.check_lws()?;
        self.check_criterion()?;
        self.check_head()?;
        self.optimizer.check()?;
        self.check_freezing()?;
        self.check_features()?;
        let schedule = self.schedule().check(self.epochs);
        schedule.map_err(|what| TrainError::Setting { field: "optimizer.schedule".to_owned(), what })?;
        if let Some(Sam { start, .. }) = self.optimizer.sam {
            let must = format!("smaller, so that at least one of the {} epochs has SAM", self.epochs);
            let is_left = self.epochs == 0 || self.sam_rho(self.epochs - 1).is_some();
            require(is_left, "optimizer.sam.start", start, &must)?;
        }
        self.check_augmentation()
    }

    fn check_augmentation(&self) -> Result<(), TrainError> {
        let augment = &self.augment;
        for (field, value) in [("augment.crop_padding", augment.crop_padding), ("augment.cutout", augment.cutout)] {
            require(value <= 1024, field, value, "at most 1024")?;
        }
        if augment.policy.is_some() && augment.randaugment.is_some() {
            let what =
                "a run has either 'augment.policy' or 'augment.randaugment'; set the other one to none".to_owned();
            return Err(TrainError::Setting { field: "augment.policy".to_owned(), what });
        }
        nonnegative("augment.mixup_alpha", augment.mixup_alpha)?;
        self.check_mixing()
    }

    /// What only heads on features have.
    fn check_features(&self) -> Result<(), TrainError> {
        let refuse = |field: &str, what: String| Err(TrainError::Setting { field: field.to_owned(), what });
        let OptimizerSettings { iterations, tolerance, cross_validation, .. } = self.optimizer;
        require((1..=65_536).contains(&self.model.hidden), "model.hidden", self.model.hidden, "from 1 to 65536")?;
        require(iterations >= 1, "optimizer.iterations", iterations, "at least 1")?;
        require((0.0..1.0).contains(&tolerance), "optimizer.tolerance", tolerance, "at least 0 and less than 1")?;
        let folds = "0, or from 2 to 20";
        require(
            cross_validation == 0 || (2..=20).contains(&cross_validation),
            "optimizer.cross_validation",
            cross_validation,
            folds,
        )?;
        let Some(name) = self.model.name else { return Ok(()) };
        let needs_features = [
            ("model.class_means", self.model.class_means),
            ("optimizer.cross_validation", cross_validation > 0),
            ("optimizer.name", self.optimizer.name == OptimizerKind::Lbfgs),
        ];
        if let (false, Some((field, _))) = (name.is_for_features(), needs_features.iter().find(|(_, is_set)| *is_set)) {
            return refuse(
                field,
                format!("this is for heads on features (linear, cosine, mlp), and the model is {name}"),
            );
        }
        if self.model.class_means && name == Architecture::Mlp {
            return refuse(
                "model.class_means",
                "the head of mlp reads its hidden layer, which has no class means yet".to_owned(),
            );
        }
        if self.optimizer.name == OptimizerKind::Lbfgs {
            self.check_lbfgs()?;
        }
        Ok(())
    }

    /// L-BFGS needs a function of the weights alone, with a gradient everywhere.
    fn check_lbfgs(&self) -> Result<(), TrainError> {
        let refuse = |field: &str, what: String| Err(TrainError::Setting { field: field.to_owned(), what });
        let method = self.criterion.method.id();
        if !is_smooth_and_stateless(method) {
            let what = format!(
                "lbfgs minimizes one function of the weights, but the loss of {method} changes from step to step; use sgd or adamw"
            );
            return refuse("optimizer.name", what);
        }
        if self.criterion.drw.is_some() {
            return refuse(
                "optimizer.name",
                "lbfgs minimizes one function, but deferred re-weighting changes the loss; use sgd or adamw".to_owned(),
            );
        }
        if self.model.name == Some(Architecture::Mlp) {
            return refuse("optimizer.name", "lbfgs is for linear and cosine heads; mlp needs sgd or adamw".to_owned());
        }
        if self.data.sampler != SamplerKind::Uniform {
            return refuse("data.sampler", "lbfgs sees every row once, so that it has no use for a sampler".to_owned());
        }
        let unused =
            [("augment.mixup_alpha", self.augment.mixup_alpha > 0.0), ("optimizer.sam", self.optimizer.sam.is_some())];
        match unused.iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => refuse(field, "lbfgs minimizes the loss of the rows as they are".to_owned()),
            None if self.optimizer.has_ema() => {
                refuse("optimizer.ema_epochs", "lbfgs has no steps to average over".to_owned())
            }
            None => require(
                self.epochs == 1,
                "epochs",
                self.epochs,
                "1 with `lbfgs`, whose one epoch has 'optimizer.iterations'",
            ),
        }
    }

    /// Images are mixed in at most one way.
    fn check_mixing(&self) -> Result<(), TrainError> {
        let augment = &self.augment;
        for (field, value) in [("augment.cutmix", augment.cutmix), ("augment.cmo", augment.cmo)] {
            let probability = value.unwrap_or(1.0);
            let must = "more than 0 and at most 1, or left out";
            require(probability > 0.0 && probability <= 1.0, field, probability, must)?;
        }
        let ways = [
            ("augment.mixup_alpha", augment.mixup_alpha > 0.0),
            ("augment.cutmix", augment.cutmix.is_some()),
            ("augment.cmo", augment.cmo.is_some()),
        ];
        let mut ways = ways.into_iter().filter(|(_, is_used)| *is_used).map(|(field, _)| field);
        if let (Some(first), Some(second)) = (ways.next(), ways.next()) {
            let what = format!("images are already mixed by '{first}'; a run has at most one of mixup, CutMix and CMO");
            return Err(TrainError::Setting { field: second.to_owned(), what });
        }
        let is_always = |probability: Option<f64>| probability.is_some_and(|probability| probability >= 1.0);
        let all_mixed = [
            ("augment.mixup_alpha, which mixes all", augment.mixup_alpha > 0.0),
            ("augment.cutmix of 1", is_always(augment.cutmix)),
            ("augment.cmo of 1", is_always(augment.cmo)),
        ];
        let counting = [
            ("augment.randaugment", "the magnitude 'difficulty' counts", augment.follows_difficulty()),
            ("criterion.method", "the histograms of cwap count", self.criterion.method.id() == Id::Cwap),
        ];
        let mixing = all_mixed.into_iter().find(|(_, is_used)| *is_used);
        if let (Some((mixing, _)), Some((field, what, _))) = (mixing, counting.into_iter().find(|(.., counts)| *counts))
        {
            let what = format!("{what} only images that are not mixed, and there are none with {mixing}");
            return Err(TrainError::Setting { field: field.to_owned(), what });
        }
        let too_short = augment.cmo.is_some() && self.epochs < CutMix::MIN_CMO_EPOCHS;
        let must =
            format!("at least {} with 'augment.cmo', which pauses in the first and last three", CutMix::MIN_CMO_EPOCHS);
        require(!too_short, "epochs", self.epochs, &must)
    }

    /// TOML integers are signed: a run must be able to read its own settings.
    fn check_storable(&self) -> Result<(), TrainError> {
        let integers = [
            ("seed", self.seed),
            ("epochs", self.epochs),
            ("patience", self.patience),
            ("model.freeze_epochs", self.model.freeze_epochs),
            ("evaluate_every", self.evaluate_every),
            ("data.split_seed", self.data.split_seed),
        ];
        integers
            .into_iter()
            .try_for_each(|(field, value)| require(i64::try_from(value).is_ok(), field, value, "at most 2^63 - 1"))
    }

    /// What stays as it is in training comes from weights, and is not estimated anew.
    fn check_freezing(&self) -> Result<(), TrainError> {
        let model = &self.model;
        let has_weights = model.weights.is_some();
        let (epochs, norms) = (model.freeze_epochs, model.freeze_batch_norm);
        require(epochs == 0 || has_weights, "model.freeze_epochs", epochs, "0 without 'model.weights'")?;
        require(
            epochs == 0 || !model.freeze_backbone,
            "model.freeze_epochs",
            epochs,
            "0 with 'model.freeze_backbone'",
        )?;
        require(epochs < self.epochs, "model.freeze_epochs", epochs, "less than the number of epochs")?;
        require(!norms || has_weights, "model.freeze_batch_norm", norms, "false without 'model.weights'")?;
        let bn_images = self.optimizer.ema_bn_images;
        for (field, frozen) in [("freeze_backbone", model.freeze_backbone), ("freeze_batch_norm", norms)] {
            let must = format!("0 with 'model.{field}', which keeps the batch-norm statistics");
            require(bn_images == 0 || !frozen, "optimizer.ema_bn_images", bn_images, &must)?;
        }
        if model.freeze_backbone && !has_weights {
            let what = "without weights to start from, the backbone would stay random; add --weights PATH, re-train the head of a run \
                        with --from RUN, or leave out --freeze-backbone";
            return Err(TrainError::Setting { field: "model.freeze_backbone".to_owned(), what: what.to_owned() });
        }
        Ok(())
    }

    /// Learnable weight scaling balances a network that is trained already.
    fn check_lws(&self) -> Result<(), TrainError> {
        let ready = self.model.freeze_backbone && self.model.weights.is_some();
        let what = "lws only scales a trained head: it needs 'model.weights' and 'model.freeze_backbone'".to_owned();
        match self.head() == Head::Lws {
            true if !ready => Err(TrainError::Setting { field: "model.head".to_owned(), what }),
            true if self.model.reset_head => {
                let what = "lws scales a trained head, and a new one is random; start from the run with --weights RUN --freeze-backbone";
                Err(TrainError::Setting { field: "model.head".to_owned(), what: what.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// The parameters of the criterion. What only the class counts can tell is checked when the run starts.
    fn check_criterion(&self) -> Result<(), TrainError> {
        self.criterion.init(&[1, 1])?;
        if let MethodConfig::Cwap(cwap) = &self.criterion.method {
            let (start, must) = (cwap.intra_start, "0, or less than the number of epochs");
            require(start == 0 || start < self.epochs, "criterion.params.intra_start", start, must)?;
        }
        match &self.criterion.drw {
            Some(drw) => {
                let must = "less than the number of epochs";
                require(drw.start_epoch < self.epochs, "criterion.drw.start_epoch", drw.start_epoch, must)
            }
            None => Ok(()),
        }
    }
}

impl Settings {
    /// Whether the criterion can train the head.
    fn check_head(&self) -> Result<(), TrainError> {
        let Some(own) = self.criterion.method.cosine_scale() else { return Ok(()) };
        let field = match self.head() {
            Head::Cosine { scale: 1.0, learned: false } => return Ok(()),
            Head::Cosine { learned: true, .. } => "model.learn_head_scale",
            Head::Cosine { .. } => "model.head_scale",
            Head::Linear | Head::Lws => "model.head",
        };
        let method = self.criterion.method.id();
        let what = format!(
            "{method} needs a cosine head with a scale of 1, because it multiplies the cosines by its own scale of {own}: leave \
             out 'model.head' and 'model.head_scale', or choose another criterion"
        );
        Err(TrainError::Setting { field: field.to_owned(), what })
    }
}

impl DataSettings {
    fn check(&self) -> Result<(), TrainError> {
        if let Some(factor) = self.imbalance {
            require(factor >= 1.0 && factor.is_finite(), "data.imbalance", factor, "finite and at least 1")?;
        }
        if self.imbalance.is_some() && self.subset_file.is_some() {
            let what = "a run has either 'data.imbalance' or 'data.subset_file'".to_owned();
            return Err(TrainError::Setting { field: "data.subset_file".to_owned(), what });
        }
        let rule = SplitRule { test_fraction: self.test_fraction, seed: self.split_seed };
        require(rule.check().is_ok(), "data.test_fraction", self.test_fraction, "at least 0 and less than 1")?;
        require(self.folds != 1 && self.folds <= 1000, "data.folds", self.folds, "0, or 2 to 1000")?;
        match self.folds {
            0 => require(self.fold == 0, "data.fold", self.fold, "0 unless 'data.folds' is more than 0")?,
            folds => require((1..=folds).contains(&self.fold), "data.fold", self.fold, "from 1 to 'data.folds'")?,
        }
        if self.folds > 0 && self.test_data.is_some() {
            let what = "folds test on training images: leave out 'data.test_data', or 'data.folds'".to_owned();
            return Err(TrainError::Setting { field: "data.folds".to_owned(), what });
        }
        fraction("data.max_broken", self.max_broken)?;
        self.group_by.as_deref().map(GroupBy::new).transpose()?;
        fraction("data.val_fraction", self.val_fraction)?;
        let must = "0 unless 'data.val_fraction' is more than 0";
        require(self.val_at_least == 0 || self.val_fraction > 0.0, "data.val_at_least", self.val_at_least, must)?;
        self.check_val_per_class()?;
        let is_size = self.image_size == 0 || (MIN_IMAGE_SIZE..=65_536).contains(&self.image_size);
        require(is_size, "data.image_size", self.image_size, "0, or from 8 to 65536")
    }

    fn check_val_per_class(&self) -> Result<(), TrainError> {
        let conflicts = [
            (self.imbalance.is_none(), "0 without 'data.imbalance', beside whose subset it takes images"),
            (self.val_data.is_some(), "0 beside 'data.val_data'"),
            (self.group_by.is_some(), "0 beside 'data.group_by', whose groups it would divide"),
            (self.folds > 0, "0 beside 'data.folds', whose images it would change ('--folds')"),
            (self.val_fraction > 0.0, "0 beside 'data.val_fraction' ('--val' and '--val-fraction')"),
        ];
        let conflict = conflicts.into_iter().find(|(has_conflict, _)| *has_conflict && self.val_per_class > 0);
        conflict.map_or(Ok(()), |(_, must)| require(false, "data.val_per_class", self.val_per_class, must))
    }
}

impl OptimizerSettings {
    fn check_ema(&self) -> Result<(), TrainError> {
        let Self { ema_decay, ema_epochs, ema_bn_images, .. } = *self;
        fraction("optimizer.ema_decay", ema_decay)?;
        require((ema_decay as f32) < 1.0, "optimizer.ema_decay", ema_decay, "less than 1 in 32 bits")?;
        nonnegative("optimizer.ema_epochs", ema_epochs)?;
        if ema_decay > 0.0 && ema_epochs > 0.0 {
            let what =
                "a run has either 'optimizer.ema_epochs' or 'optimizer.ema_decay'; set the other to 0".to_owned();
            return Err(TrainError::Setting { field: "optimizer.ema_epochs".to_owned(), what });
        }
        let must = "0 unless 'optimizer.ema_epochs' or 'optimizer.ema_decay' is set";
        require(ema_bn_images == 0 || self.has_ema(), "optimizer.ema_bn_images", ema_bn_images, must)
    }

    /// The engine computes with 32 bits, so the values must be usable there too.
    fn check(&self) -> Result<(), TrainError> {
        let Self { learning_rate, momentum, nesterov, betas, epsilon, weight_decay, clip_grad_norm, .. } = *self;
        let usable = |value: f64| value as f32 > 0.0 && (value as f32).is_finite();
        let rate = learning_rate.unwrap_or(super::LEARNING_RATE);
        require(usable(rate), "optimizer.learning_rate", rate, "finite and more than 0")?;
        let factor = self.backbone_factor;
        require(usable(factor), "optimizer.backbone_factor", factor, "finite and more than 0")?;
        let decay = self.layer_decay;
        require(usable(decay) && decay <= 1.0, "optimizer.layer_decay", decay, "more than 0 and at most 1")?;
        fraction("optimizer.momentum", momentum)?;
        let has_momentum = self.name == OptimizerKind::Sgd && momentum > 0.0;
        require(!nesterov || has_momentum, "optimizer.nesterov", nesterov, "false without the momentum of `sgd`")?;
        betas.into_iter().try_for_each(|beta| fraction("optimizer.betas", beta))?;
        require(usable(epsilon), "optimizer.epsilon", epsilon, "finite and more than 0")?;
        nonnegative("optimizer.weight_decay", weight_decay)?;
        nonnegative("optimizer.clip_grad_norm", clip_grad_norm)?;
        let clip = clip_grad_norm == 0.0 || usable(clip_grad_norm);
        require(clip, "optimizer.clip_grad_norm", clip_grad_norm, "0 or a number that 32 bits can hold")?;
        if let Some(Sam { rho, start }) = self.sam {
            require(usable(rho), "optimizer.sam.rho", rho, "finite and more than 0")?;
            fraction("optimizer.sam.start", start)?;
        }
        self.check_ema()
    }
}

/// Whether the loss of a criterion is a differentiable function of logits, labels and class counts alone.
fn is_smooth_and_stateless(method: Id) -> bool {
    match method {
        Id::Softmax
        | Id::ClassBalanced
        | Id::EffectiveNumber
        | Id::Focal
        | Id::BalancedSoftmax
        | Id::LogitAdjusted
        | Id::Vs
        | Id::Cdt
        | Id::Ldam
        | Id::LabelAwareSmoothing => true,
        // they count in training, depend on the batch, or draw classes at random
        Id::Ghm | Id::Seesaw | Id::Cwap | Id::Equalization => false,
    }
}
