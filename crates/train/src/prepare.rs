//! The dataset of a run, ready for training: loaders of its splits, class counts, groups.

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::loader::{Loader, Progress, Transform, unreadable_files};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::groups::ClassGroup;
use equipoise_data::describe::image_groups::ImageGroups;
use equipoise_data::error::UnreadableFile;
use equipoise_data::subset::content::content_hash;
use equipoise_data::subset::index::Fingerprint;
use equipoise_data::subset::split::{ValidationRule, split_validation};
use equipoise_data::{DataError, Dataset, Features, Images, Split};
use equipoise_pool::Pool;

use crate::error::{BrokenFile, TrainError};
use crate::preview::ChosenImages;
use crate::settings::{DataSettings, Settings};

/// Bytes of decoded images that are cached per split.
pub const CACHE_BYTES: u64 = 4 << 30;
/// The environment variable with another limit, in megabytes. What is cached does not change any result.
pub const CACHE_MB: &str = "EQUIPOISE_CACHE_MB";

/// The limit on decoded images that are cached per split.
fn cache_bytes() -> u64 {
    let chosen = std::env::var(CACHE_MB).ok().and_then(|megabytes| megabytes.trim().parse::<u64>().ok());
    chosen.map_or(CACHE_BYTES, |megabytes| megabytes.saturating_mul(1 << 20))
}

/// Largest width or height of a thumbnail.
const THUMBNAIL_SIZE: u32 = 64;

/// A split with its loader.
pub struct SplitLoader {
    /// Loads batches of images.
    pub loader: Loader,
    /// Class of each image.
    pub labels: Vec<u32>,
    names: Names,
}

/// The names of a split's images.
enum Names {
    /// Images in memory have none.
    Nothing,
    Files(Vec<String>),
    /// Rows know their names, or where they are.
    Rows(Features),
}

impl Names {
    fn new(images: &Images) -> Self {
        match images {
            Images::Memory(_) => Self::Nothing,
            Images::Files(files) => Self::Files(files.iter().map(|file| file.display().to_string()).collect()),
            Images::Features(features) => Self::Rows(features.clone()),
        }
    }
}

impl SplitLoader {
    /// Reads the images of a split. Files that cannot be read go to `broken`; then there is no loader.
    pub(crate) fn new(
        split: Split,
        transform: Transform,
        classes: &[String],
        broken: &mut Vec<BrokenFile>,
        (pool, progress): (&Pool, Progress<'_>),
    ) -> Result<Option<Self>, TrainError> {
        Self::cached(split, transform, cache_bytes(), classes, broken, (pool, progress))
    }

    /// Reads the images of a split as [`new`](Self::new) does; `cache_bytes` is the limit on decoded files that are kept.
    fn cached(
        split: Split,
        transform: Transform,
        cache_bytes: u64,
        classes: &[String],
        broken: &mut Vec<BrokenFile>,
        (pool, progress): (&Pool, Progress<'_>),
    ) -> Result<Option<Self>, TrainError> {
        let names = Names::new(&split.images);
        match Loader::new(split.images, transform, cache_bytes, pool, progress) {
            Ok(loader) => Ok(Some(Self { loader, labels: split.labels, names })),
            Err(DataError::Unreadable { files }) => {
                broken.extend(broken_files(files, &split.labels, classes));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A loader that decodes no file before it is needed.
    fn unchecked(split: Split, transform: Transform) -> Result<Self, TrainError> {
        let names = Names::new(&split.images);
        let loader = match split.images {
            Images::Files(files) => Loader::unchecked(files, transform),
            memory => Loader::new(memory, transform, 0, &Pool::single(), &|_, _| {})?,
        };
        Ok(Self { loader, labels: split.labels, names })
    }

    /// The name of an image: its file, the place of a row of features, or its number.
    #[must_use]
    pub fn name(&self, index: u32) -> String {
        match &self.names {
            Names::Nothing => format!("number {index}"),
            Names::Files(files) => files[index as usize].clone(),
            Names::Rows(features) => features.row_name(index as usize),
        }
    }

    /// The name of an image and its thumbnail, for the report. A missing thumbnail is no reason to fail.
    #[must_use]
    pub fn describe(&self, index: u32) -> (String, Option<String>) {
        (self.name(index), self.loader.thumbnail(index, THUMBNAIL_SIZE).ok())
    }

    /// Number of values per image.
    pub(crate) fn image_len(&self) -> usize {
        let (channels, height, width) = self.loader.shape();
        channels * height * width
    }
}

/// Files of a split that cannot be read, with their classes.
fn broken_files(files: Vec<UnreadableFile>, labels: &[u32], classes: &[String]) -> impl Iterator<Item = BrokenFile> {
    files.into_iter().map(|UnreadableFile { index, path, what }| {
        let class = labels.get(index as usize).and_then(|label| classes.get(*label as usize));
        BrokenFile { path, class: class.cloned().unwrap_or_default(), what }
    })
}

/// The files of all splits that cannot be read.
pub(crate) fn find_broken(dataset: &Dataset, pool: &Pool, progress: Progress<'_>) -> Vec<BrokenFile> {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    let of = |split: &Split| match &split.images {
        Images::Memory(_) | Images::Features(_) => Vec::new(),
        Images::Files(files) => {
            broken_files(unreadable_files(files, pool, progress), &split.labels, &dataset.classes).collect()
        }
    };
    splits.into_iter().flatten().flat_map(of).collect()
}

/// A dataset that is ready, or the files in it that cannot be read.
pub(crate) enum Prepared<T> {
    /// All files can be read.
    Ready(T),
    /// These files cannot be read.
    Broken(Vec<BrokenFile>),
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
    /// Training images that the report shows.
    pub shown: ChosenImages,
    /// How images that belong together were split, if they are grouped.
    pub image_groups: Option<ImageGroups>,
}

impl RunData {
    /// Prepares a dataset whose training split is already the subset to train on. If the settings ask for a validation split,
    /// it is taken out of the training split. Pixels are normalized as given, or as suits the dataset.
    ///
    /// # Errors
    /// If the dataset cannot be trained on, or a file cannot be read.
    pub fn new(
        dataset: Dataset,
        settings: &Settings,
        normalized: Option<&Normalize>,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, TrainError> {
        let images = number_of_images(&dataset);
        match Self::prepare(dataset, settings, normalized, pool, progress)? {
            Prepared::Ready(data) => Ok(data),
            Prepared::Broken(files) => Err(TrainError::Broken { files, images, allowed: 0 }),
        }
    }

    /// Prepares a dataset as [`new`](Self::new) does, or finds all files in it that cannot be read.
    pub(crate) fn prepare(
        mut dataset: Dataset,
        settings: &Settings,
        normalized: Option<&Normalize>,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Prepared<Self>, TrainError> {
        check_dataset(&dataset, settings)?;
        take_validation_split(&mut dataset, settings)?;
        let counts = class_counts(&dataset.train.labels, dataset.classes.len())?;
        let groups = settings.groups.groups(&counts);
        let (fingerprint, content) = (fingerprint(&dataset), content(&dataset));
        let normalize = normalized.cloned().unwrap_or_else(|| default_normalize(&dataset, settings));
        let files = matches!(dataset.train.images, Images::Files(_));
        let evaluation = transform(settings, files, &normalize, false);
        let shown = ChosenImages::for_report(&dataset.train, &groups, settings.seed);
        let image_groups = ImageGroups::of(&dataset);
        let Dataset { name, classes, train, val, test, .. } = dataset;
        let mut broken = Vec::new();
        let mut load = |split: Split, transform: Transform| {
            SplitLoader::new(split, transform, &classes, &mut broken, (pool, progress))
        };
        let train = load(train, transform(settings, files, &normalize, true))?;
        let val = val.map(|val| load(val, evaluation.clone())).transpose()?;
        let test = load(test, evaluation)?;
        let (Some(train), Some(test), true) = (train, test, broken.is_empty()) else {
            return Ok(Prepared::Broken(broken));
        };
        let val = val.flatten();
        let data = Self {
            name,
            classes,
            counts,
            groups,
            train,
            val,
            test,
            fingerprint,
            content,
            files,
            normalize,
            shown,
            image_groups,
        };
        data.check_shapes()?;
        Ok(Prepared::Ready(data))
    }

    /// Checks that the images of all splits have the same shape.
    fn check_shapes(&self) -> Result<(), TrainError> {
        let shape = self.train.loader.shape();
        match self.val.iter().chain([&self.test]).find(|split| split.loader.shape() != shape) {
            Some(split) => {
                let what = match self.train.loader.is_of_features() {
                    true => format!("training rows have {} features, others {}", shape.0, split.loader.shape().0),
                    false => format!("training images are {shape:?}, others {:?}", split.loader.shape()),
                };
                Err(TrainError::Dataset { dataset: self.name.clone(), what })
            }
            None => Ok(()),
        }
    }
}

/// Which images of a dataset are loaded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitOptions {
    /// The split.
    pub split: SplitName,
    /// Whether images are augmented as in training.
    pub augmented: bool,
    /// Limit on decoded files that are kept in memory. All files are decoded before the first batch, and unreadable ones left
    /// out. `None` decodes nothing before it is needed, and keeps nothing.
    pub cache_bytes: Option<u64>,
}

/// A split of a dataset. As text: `train`, `val` or `test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitName {
    /// The training split.
    Train,
    /// The validation split.
    Val,
    /// The test split.
    Test,
}

impl std::str::FromStr for SplitName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "train" => Ok(Self::Train),
            "val" => Ok(Self::Val),
            "test" => Ok(Self::Test),
            _ => Err(format!("'{name}' must be train, val or test")),
        }
    }
}

/// One split of a run's dataset, for training loops of their own.
pub struct SplitData {
    /// Name of the dataset.
    pub name: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// Training images per class, whichever split this is.
    pub counts: Vec<u64>,
    /// Groups of classes.
    pub groups: Vec<ClassGroup>,
    /// The images.
    pub split: SplitLoader,
    /// Normalization of the pixels.
    pub normalize: Normalize,
}

impl SplitData {
    /// Prepares one split as [`RunData`] does, or finds all files of the dataset that cannot be read.
    pub(crate) fn prepare(
        mut dataset: Dataset,
        settings: &Settings,
        normalized: Option<&Normalize>,
        options: SplitOptions,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Prepared<Self>, TrainError> {
        check_dataset(&dataset, settings)?;
        take_validation_split(&mut dataset, settings)?;
        let counts = class_counts(&dataset.train.labels, dataset.classes.len())?;
        let groups = settings.groups.groups(&counts);
        let normalize = normalized.cloned().unwrap_or_else(|| default_normalize(&dataset, settings));
        let files = matches!(dataset.train.images, Images::Files(_));
        let transform = transform(settings, files, &normalize, options.augmented);
        let split = match options.split {
            SplitName::Train => std::mem::replace(&mut dataset.train, empty_split()),
            SplitName::Test => std::mem::replace(&mut dataset.test, empty_split()),
            SplitName::Val => match dataset.val.take() {
                Some(val) => val,
                None => {
                    return refuse(
                        &dataset,
                        "it has no validation split; 'data.val_fraction' takes one out of the training images, and 'data.val_per_class' images beside a subset",
                    );
                }
            },
        };
        let split = match options.cache_bytes {
            None => SplitLoader::unchecked(split, transform)?,
            Some(bytes) => {
                // files of other splits are looked at too: which images a split gets depends on them
                let mut broken = find_broken(&dataset, pool, progress);
                let of = (pool, progress);
                let split = SplitLoader::cached(split, transform, bytes, &dataset.classes, &mut broken, of)?;
                match split.filter(|_| broken.is_empty()) {
                    Some(split) => split,
                    None => return Ok(Prepared::Broken(broken)),
                }
            }
        };
        let Dataset { name, classes, .. } = dataset;
        Ok(Prepared::Ready(Self { name, classes, counts, groups, split, normalize }))
    }
}

fn empty_split() -> Split {
    Split { images: Images::Files(Vec::new()), labels: Vec::new() }
}

/// Number of images in all splits.
#[must_use]
pub fn number_of_images(dataset: &Dataset) -> usize {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    splits.into_iter().flatten().map(|split| split.labels.len()).sum()
}

/// Fingerprints of all splits.
pub(crate) fn fingerprint(dataset: &Dataset) -> String {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    let fingerprints = splits.into_iter().flatten().map(|split| Fingerprint::of(split).to_string());
    fingerprints.collect::<Vec<_>>().join(", ")
}

/// Hashes of a sample of the pixels of every split.
pub(crate) fn content(dataset: &Dataset) -> String {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    let hashes = splits.into_iter().flatten().map(|split| format!("{:016x}", content_hash(split)));
    hashes.collect::<Vec<_>>().join(", ")
}

fn refuse<T>(dataset: &Dataset, what: impl Into<String>) -> Result<T, TrainError> {
    Err(TrainError::Dataset { dataset: dataset.name.clone(), what: what.into() })
}

/// Checks that a dataset can be trained on.
pub(crate) fn check_dataset(dataset: &Dataset, settings: &Settings) -> Result<(), TrainError> {
    if dataset.classes.len() < 2 {
        return refuse(dataset, format!("it has {} class, but at least 2 are needed", dataset.classes.len()));
    }
    if dataset.test.labels.is_empty() && settings.data.test_fraction > 0.0 {
        let why = match dataset.groups.is_empty() {
            true => "",
            false => ", because --group-by makes no group that is small enough to be held out",
        };
        return refuse(dataset, format!("it has no test images{why}; `--test-fraction 0` trains without any"));
    }
    if settings.data.val_fraction > 0.0 && dataset.val.is_some() {
        return refuse(dataset, "it has a validation split: leave out 'data.val_fraction'");
    }
    Ok(())
}

/// Takes a validation split out of the training split if the settings ask for one.
pub(crate) fn take_validation_split(dataset: &mut Dataset, settings: &Settings) -> Result<(), TrainError> {
    let DataSettings { val_fraction: fraction, val_at_least: at_least, split_seed: seed, .. } = settings.data;
    if fraction > 0.0 {
        let of = (dataset.classes.len(), &dataset.groups);
        let rule = ValidationRule { fraction, at_least, seed };
        let (train, val) = split_validation(&dataset.train, of, rule)?;
        if val.labels.is_empty() {
            let what = match dataset.groups.is_empty() {
                true => format!("no class is large enough for 'data.val_fraction' = {fraction}"),
                false => format!("no group is small enough to be held out by 'data.val_fraction' = {fraction}"),
            };
            return refuse(dataset, what);
        }
        (dataset.train, dataset.val) = (train, Some(val));
    }
    if dataset.train.labels.is_empty() {
        return refuse(dataset, "it has no training images");
    }
    Ok(())
}

/// The normalization for a dataset: the published one where there is one, else that of the training images or features.
pub(crate) fn default_normalize(dataset: &Dataset, settings: &Settings) -> Normalize {
    let published = KnownDataset::by_name(&dataset.name).and_then(KnownDataset::normalize);
    published.unwrap_or_else(|| match &dataset.train.images {
        Images::Memory(pixels) => Normalize::of(pixels, &(0..pixels.len() as u32).collect::<Vec<_>>()),
        Images::Files(_) => Normalize::imagenet(),
        Images::Features(features) => settings.data.scaling.fit(features),
    })
}

/// How images are loaded and transformed, in training or for evaluation.
///
/// Photographs get the crops of ImageNet if the network is made for them.
#[must_use]
pub fn transform(settings: &Settings, files: bool, normalize: &Normalize, train: bool) -> Transform {
    let (architecture, normalize) = (settings.architecture(), normalize.clone());
    if architecture.is_for_features() {
        return Transform::Features { scaling: settings.data.scaling, normalize };
    }
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
