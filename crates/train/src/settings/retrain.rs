//! Classifier re-training: the settings of a second stage that trains a new head on the backbone of a run.

use equipoise_criterion::{Config, Id};
use equipoise_data::batch::sampler::SamplerKind;

use super::Settings;
use crate::schedule::Schedule;

impl Settings {
    /// Settings that re-train the classifier of a run with these settings (cRT; Kang et al., "Decoupling Representation and
    /// Classifier for Long-Tailed Recognition", ICLR 2020). `weights` is the folder of the run.
    ///
    /// Data, network, batches and augmentation are those of the run. Its backbone is frozen, batch norms included, and a new head
    /// is trained for 10 epochs with a cosine schedule. `balanced-softmax` corrects for class sizes, where the paper draws classes
    /// equally often, so images are drawn uniformly and logits are not adjusted afterwards.
    #[must_use]
    pub fn retrain_head(&self, weights: &str) -> Self {
        let mut settings = self.clone();
        settings.epochs = 10;
        settings.patience = 0;
        settings.evaluate_every = 1;
        settings.logit_adjustment = 0.0;
        settings.data.sampler = SamplerKind::Uniform;
        settings.model.weights = Some(weights.to_owned());
        (settings.model.freeze_backbone, settings.model.freeze_epochs) = (true, 0);
        settings.model.reset_head = true;
        (settings.model.head, settings.model.head_scale) = (None, None);
        settings.criterion = Config::from(Id::BalancedSoftmax.default_config());
        settings.model.learn_head_scale = false;
        (settings.optimizer.ema_decay, settings.optimizer.ema_epochs, settings.optimizer.ema_bn_images) = (0.0, 0.0, 0);
        settings.optimizer.sam = None;
        settings.optimizer.schedule = Some(Schedule::Cosine { warmup_epochs: None, floor: 0.0 });
        settings
    }
}
