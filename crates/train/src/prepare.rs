//! The dataset of a run, ready for training: loaders of its splits, class counts, groups.

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::loader::{Loader, Progress, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::groups::ClassGroup;
use equipoise_data::subset::content::content_hash;
use equipoise_data::subset::index::Fingerprint;
use equipoise_data::subset::split::{ValidationRule, split_validation};
use equipoise_data::{Dataset, Images, Split};
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::settings::{DataSettings, Settings};

/// Bytes of decoded photographs that are cached per split.
const CACHE_BYTES: u64 = 4 << 30;

/// A split with its loader.
pub struct SplitLoader {
    /// Loads batches of images.
    pub loader: Loader,
    /// Class of each image.
    pub labels: Vec<u32>,
    /// File name of each image, if the images come from files.
    names: Option<Vec<String>>,
}

impl SplitLoader {
    pub(crate) fn new(
        split: Split,
        transform: Transform,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, TrainError> {
        let names = match &split.images {
            Images::Memory(_) => None,
            Images::Files(files) => Some(files.iter().map(|file| file.display().to_string()).collect()),
        };
        let loader = Loader::new(split.images, transform, CACHE_BYTES, pool, progress)?;
        Ok(Self { loader, labels: split.labels, names })
    }

    /// The name of an image: its file, or its number.
    #[must_use]
    pub fn name(&self, index: u32) -> String {
        self.names.as_ref().map_or_else(|| format!("number {index}"), |names| names[index as usize].clone())
    }

    /// Number of values per image.
    pub(crate) fn image_len(&self) -> usize {
        let (channels, height, width) = self.loader.shape();
        channels * height * width
    }
}

/// The dataset of a run.
pub struct RunData {
    /// Name of the dataset.
    pub name: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Training images per class.
    pub counts: Vec<u64>,
    /// Groups of classes.
    pub groups: Vec<ClassGroup>,
    /// The training split.
    pub train: SplitLoader,
    /// The validation split, if there is one.
    pub val: Option<SplitLoader>,
    /// The test split.
    pub test: SplitLoader,
    /// Fingerprint of all splits.
    pub fingerprint: String,
    /// Hash of a sample of the pixels of all splits.
    pub content: String,
    /// Whether the images come from files.
    pub files: bool,
    /// Normalization of the pixels.
    pub normalize: Normalize,
}

impl RunData {
    /// Prepares a dataset whose training split is already the subset to train on. If the settings ask for a validation split,
    /// it is taken out of the training split. Pixels are normalized as given, or as suits the dataset.
    ///
    /// # Errors
    /// If the dataset cannot be trained on, or a file cannot be read.
    pub fn new(
        mut dataset: Dataset,
        settings: &Settings,
        normalized: Option<&Normalize>,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, TrainError> {
        check_dataset(&dataset, settings)?;
        take_validation_split(&mut dataset, settings)?;
        let counts = class_counts(&dataset.train.labels, dataset.classes.len())?;
        let groups = settings.groups.groups(&counts);
        let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
        let fingerprints: Vec<String> =
            splits.into_iter().flatten().map(|split| Fingerprint::of(split).to_string()).collect();
        let contents: Vec<String> =
            splits.into_iter().flatten().map(|split| format!("{:016x}", content_hash(split))).collect();
        let normalize = normalized.cloned().unwrap_or_else(|| default_normalize(&dataset));
        let files = matches!(dataset.train.images, Images::Files(_));
        let evaluation = transform(settings, files, &normalize, false);
        let load = |split: Split, transform: Transform| SplitLoader::new(split, transform, pool, progress);
        let data = Self {
            name: dataset.name,
            classes: dataset.classes,
            counts,
            groups,
            train: load(dataset.train, transform(settings, files, &normalize, true))?,
            val: dataset.val.map(|val| load(val, evaluation.clone())).transpose()?,
            test: load(dataset.test, evaluation)?,
            fingerprint: fingerprints.join(", "),
            content: contents.join(", "),
            files,
            normalize,
        };
        data.check_shapes()?;
        Ok(data)
    }

    /// Checks that the images of all splits have the same shape.
    fn check_shapes(&self) -> Result<(), TrainError> {
        let shape = self.train.loader.shape();
        match self.val.iter().chain([&self.test]).find(|split| split.loader.shape() != shape) {
            Some(split) => {
                let what = format!("training images are {shape:?}, others {:?}", split.loader.shape());
                Err(TrainError::Dataset { dataset: self.name.clone(), what })
            }
            None => Ok(()),
        }
    }
}

fn refuse<T>(dataset: &Dataset, what: impl Into<String>) -> Result<T, TrainError> {
    Err(TrainError::Dataset { dataset: dataset.name.clone(), what: what.into() })
}

/// Checks that a dataset can be trained on.
pub(crate) fn check_dataset(dataset: &Dataset, settings: &Settings) -> Result<(), TrainError> {
    if dataset.classes.len() < 2 {
        return refuse(dataset, format!("it has {} class, but at least 2 are needed", dataset.classes.len()));
    }
    if dataset.test.labels.is_empty() {
        return refuse(dataset, "it has no test images");
    }
    if settings.data.val_fraction > 0.0 && dataset.val.is_some() {
        return refuse(dataset, "it has a validation split of its own: leave out 'data.val_fraction'");
    }
    Ok(())
}

/// Takes a validation split out of the training split if the settings ask for one.
pub(crate) fn take_validation_split(dataset: &mut Dataset, settings: &Settings) -> Result<(), TrainError> {
    let DataSettings { val_fraction: fraction, val_at_least: at_least, split_seed: seed, .. } = settings.data;
    if fraction > 0.0 {
        let rule = ValidationRule { fraction, at_least, seed };
        let (train, val) = split_validation(&dataset.train, dataset.classes.len(), rule)?;
        if val.labels.is_empty() {
            return refuse(dataset, format!("no class is large enough for 'data.val_fraction' = {fraction}"));
        }
        (dataset.train, dataset.val) = (train, Some(val));
    }
    if dataset.train.labels.is_empty() {
        return refuse(dataset, "it has no training images");
    }
    Ok(())
}

/// The normalization for a dataset: the published one where there is one, else that of the training images.
pub(crate) fn default_normalize(dataset: &Dataset) -> Normalize {
    let published = KnownDataset::by_name(&dataset.name).and_then(KnownDataset::normalize);
    published.unwrap_or_else(|| match &dataset.train.images {
        Images::Memory(pixels) => Normalize::of(pixels, &(0..pixels.len() as u32).collect::<Vec<_>>()),
        Images::Files(_) => Normalize::imagenet(),
    })
}

/// How images are loaded and transformed, in training or for evaluation.
///
/// Photographs get the crops of ImageNet if the network is made for them.
#[must_use]
pub fn transform(settings: &Settings, files: bool, normalize: &Normalize, train: bool) -> Transform {
    let (architecture, normalize) = (settings.model.name, normalize.clone());
    let photographs = files && !architecture.is_for_small_images();
    let image_size = match settings.data.image_size {
        0 if photographs => architecture.default_image_size() as u32,
        0 => 32,
        size => size,
    };
    let augmentation = if train { settings.augment } else { Augmentation::NONE };
    if !photographs {
        return Transform::Small { image_size, transform: SmallTransform { augmentation, normalize } };
    }
    // 256 for 224, as is customary
    let resize = (image_size * 8).div_ceil(7);
    let crop = if train { PhotoCrop::RandomResizedCrop } else { PhotoCrop::CenterCrop { resize } };
    Transform::Photo { image_size, crop, augmentation, normalize }
}
