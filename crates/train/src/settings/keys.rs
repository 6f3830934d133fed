//! Every setting with its type, default and description: the source of error messages and documentation.

use std::fmt::Write;

use equipoise_criterion::Id;
use toml::Value;

use super::Settings;

/// A setting, as users see it.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name of the setting, with its section: `optimizer.learning_rate`.
    pub name: &'static str,
    /// Type or possible values.
    pub values: &'static str,
    /// What happens if the setting has no value. `None` for settings that always have one.
    pub unset: Option<&'static str>,
    /// One line about the setting.
    pub about: &'static str,
}

/// A setting that always has a value.
const fn required(name: &'static str, values: &'static str, about: &'static str) -> Key {
    Key { name, values, unset: None, about }
}

/// A setting that need not have a value.
const fn optional(name: &'static str, values: &'static str, unset: &'static str, about: &'static str) -> Key {
    Key { name, values, unset: Some(unset), about }
}

const COUNT: &str = "integer, at least 0";
const POSITIVE: &str = "integer, at least 1";
const NONNEGATIVE: &str = "number, at least 0";
const PROBABILITY: &str = "number, more than 0 and at most 1";
const FRACTION: &str = "number, at least 0 and less than 1";

/// Every setting, in the order of a configuration file.
pub const KEYS: &[Key] = &[
    required("seed", COUNT, "Seed of everything random except the choice of a subset."),
    required(
        "epochs",
        POSITIVE,
        "Number of passes over the training images. Without this setting, heads on features get 10.",
    ),
    required(
        "batch_size",
        "integer, 1 to 65536",
        "Images per optimizer step. A last step with less than a quarter of them, or a single one, shares evenly with the one before it.",
    ),
    required(
        "groups",
        "`rank:K`, `mass:K` (K 1 to 26, 4 if left out) or `threshold`",
        "How classes are grouped for reporting.",
    ),
    required(
        "select_best",
        "`auto`, `last`, `val` or `test`",
        "How the best epoch is selected. `auto`: on the validation split if there is one, else the last epoch. Of equally accurate epochs the one with the lower validation loss counts. `test` is optimistic and labeled so.",
    ),
    required("patience", COUNT, "Epochs without higher accuracy after which the run ends. 0 disables early stopping."),
    required("evaluate_every", POSITIVE, "Epochs between evaluations. The last epoch is always evaluated."),
    required("logit_adjustment", "number, 0 to 100", "Tau of the post-hoc logit adjustment. 0 disables it."),
    required(
        "precision",
        "`f32`, `bf16` or `bf16-amx`",
        "Number format of activations and products. A step in `bf16` takes 55 to 75 % of the memory and is faster on CPUs with AVX512_BF16; `bf16-amx` is fastest on CPUs with AMX. Other CPUs compute the same results more slowly.",
    ),
    required("data.dataset", "text", "Name or path of the dataset."),
    optional(
        "data.imbalance",
        "number, at least 1",
        "the whole dataset",
        "Imbalance factor of the long-tailed subset to draw.",
    ),
    required("data.profile", "`exp` or `step`", "Profile of class sizes in the long-tailed subset."),
    required("data.subset_seed", COUNT, "Seed that selects the images of the long-tailed subset."),
    optional(
        "data.subset_file",
        "path",
        "no file",
        "File written by `equipoise data index` that lists the images of the subset.",
    ),
    optional(
        "data.path_column",
        "text",
        "a usual name, such as `path` or `filename`",
        "Column of a CSV or JSON-lines list that names the image files.",
    ),
    optional(
        "data.label_column",
        "text",
        "a usual name, such as `label` or `class`",
        "Column of a CSV or JSON-lines list that names the classes.",
    ),
    optional(
        "data.labels",
        "path",
        "in the file of features, or beside it (`x.labels.npy` or `x.labels.csv` for `x.npy`)",
        "File of the labels of features: a `.npy` array, or a CSV or text file with a line per row.",
    ),
    required(
        "data.scaling",
        "`standardize`, `normalize` or `none`",
        "How features are scaled: mean 0 and standard deviation 1 over the training rows, or rows of length 1.",
    ),
    optional(
        "data.test_data",
        "text",
        "the test split of the dataset",
        "Name or path of a dataset whose images are used for testing; `data.dataset` is then not split.",
    ),
    optional(
        "data.val_data",
        "text",
        "the validation split of the dataset",
        "Name or path of a dataset whose images are used for validation.",
    ),
    optional(
        "data.group_by",
        "text",
        "every image stands alone",
        "Column of a list, or regular expression on the path (its first group, if it has one), that tells which images belong together: they fall on one side of every split.",
    ),
    required(
        "data.max_broken",
        FRACTION,
        "Fraction of the image files that may be unreadable; they are left out. One file is always allowed, unless this is 0.",
    ),
    required(
        "data.test_fraction",
        FRACTION,
        "Fraction of every class used for testing if the dataset has no test split. 0: train on everything.",
    ),
    required("data.split_seed", COUNT, "Seed of the test and validation splits, and of folds."),
    required(
        "data.folds",
        "integer, 0 or 2 to 1000",
        "Number of folds of a cross-validation, one of which is the test split. 0: none. `train --folds` sets it.",
    ),
    required("data.fold", "integer, 0 to `data.folds`", "The fold that is the test split, from 1. 0 without folds."),
    required(
        "data.val_fraction",
        FRACTION,
        "Fraction of every class's training images used for validation if the dataset has no validation split.",
    ),
    required(
        "data.val_at_least",
        COUNT,
        "Least number of every class's validation images, or half of the class if that is less. `--val` sets it to 5.",
    ),
    required(
        "data.val_per_class",
        COUNT,
        "Validation images of every class beside a subset by `data.imbalance`, to choose settings on a benchmark: first images that the subset leaves out, then its own, of which a class gives at most half.",
    ),
    required(
        "data.image_size",
        "integer, 0 or 8 to 65536",
        "Height and width that image files are scaled to. 0: 224 for photograph networks; for small networks 32, or 64 if the images are larger than 48 pixels.",
    ),
    required(
        "data.sampler",
        "`uniform`, `class-balanced`, `square-root` or `progressive`",
        "How often the images of each class are drawn.",
    ),
    optional(
        "model.name",
        "`resnet8`, `resnet14`, `resnet20`, `resnet32`, `resnet32x2`, `resnet32x4`, `resnet44`, `resnet56` (small images), `resnet18`, `resnet34` or `resnet50` (photographs); `linear`, `cosine` or `mlp` (features)",
        "`resnet32` for images of up to 96 pixels, `resnet18` for larger ones, `linear` for features",
        "The network, or the head on features.",
    ),
    optional(
        "model.head",
        "`linear`, `cosine` or `lws`",
        "`linear`; `cosine` for `ldam`, which needs it",
        "Classification head of the network. `lws` (learnable weight scaling, Kang et al., ICLR 2020) keeps the linear head of `model.weights` and trains a factor per class.",
    ),
    optional(
        "model.head_scale",
        "number, more than 0",
        "16; 1 for `ldam`, which has a scale of its own",
        "Factor of the logits of a cosine head.",
    ),
    required(
        "model.learn_head_scale",
        "`true` or `false`",
        "Train the factor of a cosine head, from `model.head_scale` on and without weight decay.",
    ),
    optional(
        "model.weights",
        "path",
        "random weights",
        "Weights to start from: a run folder, a checkpoint or a safetensors file.",
    ),
    required("model.freeze_backbone", "`true` or `false`", "Train only the head."),
    required(
        "model.freeze_epochs",
        COUNT,
        "Epochs at the start in which only the head is trained, for training that starts from `model.weights`.",
    ),
    required(
        "model.freeze_batch_norm",
        "`true` or `false`",
        "Keep the batch-norm statistics of `model.weights` and normalize with them in training too. The factors and summands of batch norms are still trained.",
    ),
    required(
        "model.reset_head",
        "`true` or `false`",
        "Start the head from random weights, even if `model.weights` has a head for these classes.",
    ),
    required("model.hidden", "integer, 1 to 65536", "Width of the hidden layer of `mlp`."),
    required(
        "model.class_means",
        "`true` or `false`",
        "Start a head on features as the classifier by the nearest class mean.",
    ),
    required("criterion.method", "a name that `equipoise criteria` lists", "The criterion."),
    optional(
        "criterion.preset",
        "`recommended`, `reference`, `printed` or `paper`",
        "`recommended`",
        "Parameters of the criterion to start from.",
    ),
    required(
        "criterion.params",
        "table",
        "Parameters of the criterion, on top of the preset; see `equipoise criteria NAME`.",
    ),
    optional(
        "criterion.drw.start_epoch",
        COUNT,
        "no deferred re-weighting",
        "First epoch, from 0, with deferred re-weighting.",
    ),
    optional(
        "criterion.drw.beta",
        FRACTION,
        "0.9999",
        "Beta of the effective number of images in deferred re-weighting.",
    ),
    optional(
        "criterion.drw.reduction",
        "`weights` or `batch`",
        "`weights`",
        "What the weighted sum of losses is divided by.",
    ),
    required(
        "optimizer.name",
        "`sgd`, `adamw` or `lbfgs`",
        "How gradients change the weights. `lbfgs` minimizes the loss of all rows at once, for linear and cosine heads on features and criteria without a state.",
    ),
    optional(
        "optimizer.learning_rate",
        "number, more than 0",
        "0.1; 0.01 for `linear` and `mlp` on features",
        "Learning rate that the schedule scales.",
    ),
    required(
        "optimizer.backbone_factor",
        "number, more than 0",
        "Factor of the learning rate of everything but the head, for training that starts from `model.weights`.",
    ),
    required(
        "optimizer.layer_decay",
        "number, more than 0 and at most 1",
        "Factor of the learning rate from one residual block to the one before it: the last block has this factor, the one before it the square, and so on to the stem.",
    ),
    required("optimizer.momentum", FRACTION, "Momentum of `sgd`."),
    required("optimizer.nesterov", "`true` or `false`", "Nesterov's momentum, for `sgd`."),
    required(
        "optimizer.betas",
        "two numbers, at least 0 and less than 1",
        "Decays of the first and the second moment of `adamw`.",
    ),
    required("optimizer.epsilon", "number, more than 0", "Summand in the denominator of `adamw`."),
    required("optimizer.weight_decay", NONNEGATIVE, "Weight decay of all parameters."),
    required("optimizer.clip_grad_norm", NONNEGATIVE, "Largest global norm of a gradient. 0 disables clipping."),
    required(
        "optimizer.ema_decay",
        FRACTION,
        "Decay of the EMA of the weights at every step. The EMA is evaluated in place of the weights. 0 disables it.",
    ),
    required(
        "optimizer.ema_epochs",
        NONNEGATIVE,
        "Averaging time of the EMA in epochs, in place of `optimizer.ema_decay`: the decay is exp(-1 / (epochs x steps per epoch)). At most about a ninth of the steps so far. 0 disables it.",
    ),
    required(
        "optimizer.ema_bn_images",
        COUNT,
        "Training images from which every evaluation estimates the batch-norm statistics of the EMA anew, as `torch.optim.swa_utils.update_bn` does. It costs a forward pass of these images. 0 evaluates the EMA of the running statistics.",
    ),
    optional(
        "optimizer.schedule.name",
        "`multi-step`, `cosine`, `constant` or `paper`",
        "`paper`: multi-step with 2.5 % of the epochs as warm-up and a factor of 0.01 after 80 % and 90 %; `cosine` below 5 epochs",
        "Schedule of the learning rate.",
    ),
    optional(
        "optimizer.schedule.warmup_epochs",
        NONNEGATIVE,
        "0; 2.5 % of the epochs for `cosine`",
        "Epochs of linear warm-up, for `multi-step` and `cosine`.",
    ),
    optional(
        "optimizer.schedule.floor",
        FRACTION,
        "0",
        "Learning rate at the end of `cosine`, as a fraction of `optimizer.learning_rate`.",
    ),
    optional(
        "optimizer.schedule.milestones",
        "list of `{ epoch, factor }`",
        "none",
        "Epochs, from 1, from which on `multi-step` multiplies the learning rate by a factor.",
    ),
    optional(
        "optimizer.sam.rho",
        "number, more than 0",
        "no SAM",
        "Length of the ascent of sharpness-aware minimization (Foret et al., ICLR 2021), which doubles the time of a step.",
    ),
    optional("optimizer.sam.start", FRACTION, "0", "Fraction of the epochs before the first one with SAM."),
    required("optimizer.iterations", POSITIVE, "Most iterations of `lbfgs`."),
    required("optimizer.tolerance", FRACTION, "Norm of the gradient, over that at the start, at which `lbfgs` ends."),
    required(
        "optimizer.cross_validation",
        "integer, 0 or 2 to 20",
        "Folds of the stratified cross-validation that chooses the weight decay of a head on features, by balanced accuracy. 0 leaves it as it is.",
    ),
    required(
        "augment.crop_padding",
        "integer, 0 to 1024",
        "Black pixels added on each side before a random crop to the original size. For small networks; photographs are cropped to a random area.",
    ),
    required("augment.flip", "`true` or `false`", "Mirror half of the images."),
    required(
        "augment.cutout",
        "integer, 0 to 1024",
        "Height and width of the square that cutout erases. 0 disables cutout.",
    ),
    optional(
        "augment.randaugment",
        "`[operations, magnitude]`: 1 to 14, 0 to 30 or `\"difficulty\"`",
        "disabled",
        "RandAugment: operations per image and their magnitude. `difficulty`: every class has a level from 0 to 10, which rises after an epoch in which the network classified more than 60 % of its images well, and falls otherwise.",
    ),
    optional(
        "augment.policy",
        "`trivialaugment` or `autoaugment-cifar10`",
        "disabled",
        "Random changes of colors and shapes in place of RandAugment. The policy `autoaugment-cifar10` was searched on CIFAR-10.",
    ),
    optional(
        "augment.color_jitter",
        "`[brightness, contrast, saturation, hue]`: each at least 0, hue at most 0.5",
        "disabled",
        "Strength of random changes of color.",
    ),
    required("augment.mixup_alpha", NONNEGATIVE, "Alpha of mixup. 0 disables mixup."),
    optional(
        "augment.cutmix",
        PROBABILITY,
        "disabled",
        "Probability that a patch of another image is pasted into an image (CutMix); 0.5 in its paper on CIFAR.",
    ),
    optional(
        "augment.cmo",
        PROBABILITY,
        "disabled",
        "Probability that a patch of an image, drawn in inverse proportion to the size of its class, is pasted into an image (CMO); 0.5 in its paper. The first and last three epochs have no patches.",
    ),
];

/// Sections that a run need not have.
pub(super) const OPTIONAL_SECTIONS: [&str; 3] = ["criterion.drw", "optimizer.schedule", "optimizer.sam"];

/// Whether a dotted name is a section with settings in it.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// Words that other programs use for settings.
const ALIASES: [(&str, &str); 23] = [
    ("arch", "model.name"),
    ("architecture", "model.name"),
    ("backbone", "model.name"),
    ("bs", "batch_size"),
    ("clip", "optimizer.clip_grad_norm"),
    ("clip_norm", "optimizer.clip_grad_norm"),
    ("colorjitter", "augment.color_jitter"),
    ("ema", "optimizer.ema_decay"),
    ("grad_clip", "optimizer.clip_grad_norm"),
    ("img_size", "data.image_size"),
    ("imgsz", "data.image_size"),
    ("jitter", "augment.color_jitter"),
    ("label_smoothing", "criterion.params.smoothing"),
    ("loss", "criterion.method"),
    ("lr", "optimizer.learning_rate"),
    ("mixup", "augment.mixup_alpha"),
    ("network", "model.name"),
    ("pretrained", "model.weights"),
    ("rate", "optimizer.learning_rate"),
    ("scheduler", "optimizer.schedule.name"),
    ("size", "data.image_size"),
    ("warmup", "optimizer.schedule.warmup_epochs"),
    ("wd", "optimizer.weight_decay"),
];

/// The known setting that an unknown name probably means: what other programs call so, the same name in another section, or a
/// similar name, first in the same section.
pub(super) fn nearest(unknown: &str) -> Option<String> {
    let (section, word) = split(unknown);
    let names = || KEYS.iter().map(|key| key.name).chain(OPTIONAL_SECTIONS);
    let ends_alike = |name: &&str| name.strip_suffix(unknown).is_some_and(|rest| rest.ends_with('.'));
    let alias = || ALIASES.iter().find(|(alias, _)| word.eq_ignore_ascii_case(alias)).map(|(_, name)| *name);
    let siblings = || names().filter(|name| split(name).0 == section);
    let known = names().find(ends_alike).or_else(alias);
    let known = known.or_else(|| similar(unknown, siblings())).or_else(|| similar(unknown, names()));
    known.map(str::to_owned).or_else(|| parameter(word))
}

/// The setting that an option of this name would change, such as `patience` or `weight-decay`: the whole name of a setting or the end of
/// it, a word of other programs, a parameter of a criterion, or the section with the name of what is chosen in it.
#[must_use]
pub fn setting_of_option(option: &str) -> Option<String> {
    let word = option.replace('-', "_");
    let names = || KEYS.iter().map(|key| key.name);
    let ends_alike = |name: &&str| split(name).1 == word && *name != "data.dataset";
    let alias = || ALIASES.iter().find(|(alias, _)| *alias == word).map(|(_, name)| *name);
    let known = names().find(|name| *name == word).or_else(|| names().find(ends_alike)).or_else(alias);
    let section = || {
        let chosen = [format!("{word}.name"), format!("{word}.method")].into_iter();
        chosen.into_iter().find(|name| names().any(|known| known == name))
    };
    let inside = || is_section(&word).then(|| format!("{word}.NAME"));
    known.map(str::to_owned).or_else(|| parameter(&word)).or_else(section).or_else(inside)
}

/// The setting of a criterion's parameter with this name.
fn parameter(word: &str) -> Option<String> {
    let mut fields = Id::ALL.iter().flat_map(|id| id.fields());
    fields.find(|field| field.name == word).map(|field| format!("criterion.params.{}", field.name))
}

/// The name whose last word is nearest to that of the unknown name.
fn similar(unknown: &str, names: impl Iterator<Item = &'static str> + Clone) -> Option<&'static str> {
    let near = equipoise_support::nearest(split(unknown).1, names.clone().map(|name| split(name).1))?;
    names.into_iter().find(|name| split(name).1 == near)
}

/// A dotted name as its section and its last word.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

impl Key {
    /// What a value must be, as part of a sentence.
    pub(super) fn must_be(&self) -> String {
        let article = match self.values.split([' ', ',']).next() {
            Some("integer") => "an ",
            Some("number" | "name" | "path" | "table" | "list") => "a ",
            _ => "",
        };
        format!("{article}{}", self.values.replace('`', ""))
    }

    /// The default value as TOML, or what happens without a value.
    #[must_use]
    pub fn default_text(&self) -> String {
        self.text_in(&Settings::default())
    }

    /// The value in some settings as TOML, or what happens without a value.
    pub(super) fn text_in(&self, settings: &Settings) -> String {
        let defaults = toml::Table::try_from(settings).unwrap_or_default();
        let mut names = self.name.split('.');
        let first = names.next().and_then(|name| defaults.get(name));
        match names.try_fold(first, |value, name| Some(value?.get(name))).flatten() {
            Some(Value::Table(_)) => "those of the preset".to_owned(),
            Some(value) => format!("`{value}`"),
            None => self.unset.unwrap_or("none").to_owned(),
        }
    }
}

impl Settings {
    /// A Markdown table of every setting.
    #[must_use]
    pub fn describe() -> String {
        let mut table = "| setting | values | default | meaning |\n|---|---|---|---|\n".to_owned();
        for key in KEYS {
            // writing to a string cannot fail
            let _ = writeln!(table, "| `{}` | {} | {} | {} |", key.name, key.values, key.default_text(), key.about);
        }
        table
    }
}
