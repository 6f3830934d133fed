//! The dataset of a run, ready for training: loaders of its splits, class counts, groups.

use equipoise_data::augment::{Normalize, Policy};
use equipoise_data::groups::Group;
use equipoise_data::index::Fingerprint;
use equipoise_data::loader::{Loader, Progress, Recipe};
use equipoise_data::longtail::counts;
use equipoise_data::photo::View;
use equipoise_data::{DataSet, Images, Part};
use equipoise_pool::Pool;
use equipoise_random::Draws;

use crate::error::TrainError;
use crate::settings::Settings;

/// Keeps these draws apart from other draws of a run with the same seed.
const SALT: u64 = 0x7661_6c00_0000_0000;
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
    fn new(split: Part, recipe: Recipe, pool: &Pool, progress: Progress<'_>) -> Result<Self, TrainError> {
        let names = match &split.images {
            Images::Memory(_) => None,
            Images::Files(files) => Some(files.iter().map(|file| file.display().to_string()).collect()),
        };
        let loader = Loader::new(split.images, recipe, CACHE_BYTES, pool, progress)?;
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
    pub groups: Vec<Group>,
    /// The training split.
    pub train: SplitLoader,
    /// The validation split, if there is one.
    pub val: Option<SplitLoader>,
    /// The test split.
    pub test: SplitLoader,
    /// Fingerprint of all splits.
    pub fingerprint: String,
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
        mut set: DataSet,
        settings: &Settings,
        normalized: Option<&Normalize>,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, TrainError> {
        check_dataset(&set, settings)?;
        take_validation_split(&mut set, settings)?;
        let counts = counts(&set.train.labels, set.classes.len())?;
        let groups = settings.rule()?.groups(&counts);
        let splits = [Some(&set.train), set.val.as_ref(), Some(&set.test)];
        let fingerprints: Vec<String> =
            splits.into_iter().flatten().map(|split| Fingerprint::of(split).to_string()).collect();
        let normalize = normalized.cloned().unwrap_or_else(|| default_normalize(&set));
        let files = matches!(set.train.images, Images::Files(_));
        let evaluation = recipe(settings, files, &normalize, false)?;
        let load = |split: Part, recipe: Recipe| SplitLoader::new(split, recipe, pool, progress);
        let data = Self {
            name: set.name,
            classes: set.classes,
            counts,
            groups,
            train: load(set.train, recipe(settings, files, &normalize, true)?)?,
            val: set.val.map(|val| load(val, evaluation.clone())).transpose()?,
            test: load(set.test, evaluation)?,
            fingerprint: fingerprints.join(", "),
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
                Err(TrainError::Set { set: self.name.clone(), what })
            }
            None => Ok(()),
        }
    }
}

fn refuse<T>(set: &DataSet, what: impl Into<String>) -> Result<T, TrainError> {
    Err(TrainError::Set { set: set.name.clone(), what: what.into() })
}

/// Checks that a dataset can be trained on.
fn check_dataset(set: &DataSet, settings: &Settings) -> Result<(), TrainError> {
    if set.classes.len() < 2 {
        return refuse(set, format!("it has {} class, but at least 2 are needed", set.classes.len()));
    }
    if set.test.labels.is_empty() {
        return refuse(set, "it has no test images");
    }
    if settings.data.val > 0.0 && set.val.is_some() {
        return refuse(set, "it has a validation split of its own: leave out `data.val`");
    }
    Ok(())
}

/// Takes a validation split out of the training split if the settings ask for one.
fn take_validation_split(set: &mut DataSet, settings: &Settings) -> Result<(), TrainError> {
    let fraction = settings.data.val;
    if fraction > 0.0 {
        let (train, val) = divide(&set.train, set.classes.len(), fraction, settings.data.split_seed);
        if val.labels.is_empty() {
            return refuse(set, format!("no class is large enough for `data.val` = {fraction}"));
        }
        (set.train, set.val) = (train, Some(val));
    }
    if set.train.labels.is_empty() {
        return refuse(set, "it has no training images");
    }
    Ok(())
}

/// The normalization for a dataset: the published one where there is one, else that of the training images.
fn default_normalize(set: &DataSet) -> Normalize {
    match (&set.train.images, set.name.as_str()) {
        (_, "cifar10" | "cifar100") => Normalize::cifar(),
        (Images::Memory(pixels), _) => Normalize::of(pixels, &(0..pixels.len() as u32).collect::<Vec<_>>()),
        (Images::Files(_), _) => Normalize::imagenet(),
    }
}

/// How images are loaded, in training or for evaluation.
///
/// # Errors
/// If a setting is out of range.
pub fn recipe(settings: &Settings, files: bool, normalize: &Normalize, train: bool) -> Result<Recipe, TrainError> {
    let (photographs, normalize) = (settings.large() && files, normalize.clone());
    let side = match settings.data.side {
        0 if photographs => 224,
        0 => 32,
        side => side,
    };
    if !photographs {
        let policy = if train { settings.policy(normalize)? } else { Policy::plain(normalize) };
        return Ok(Recipe::Small { side, policy });
    }
    let (randaugment, jitter) = if train { settings.changes()? } else { (None, None) };
    // 256 for 224, as is customary
    let resize = (side * 8).div_ceil(7);
    let view = if train { View::RandomResizedCrop } else { View::CenterCrop { resize } };
    Ok(Recipe::Photo { side, view, normalize, randaugment, jitter })
}

/// Takes a share of every class out of a split: the rest, and the share. No class loses its last image.
fn divide(part: &Part, classes: usize, share: f64, seed: u64) -> (Part, Part) {
    let mut of_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (at, label) in part.labels.iter().enumerate() {
        of_class[*label as usize].push(at as u32);
    }
    let mut taken = vec![false; part.labels.len()];
    for mut places in of_class {
        let number = ((places.len() as f64 * share).round() as usize).min(places.len().saturating_sub(1));
        places.sort_by_key(|at| Draws::new(seed ^ SALT, 0, u64::from(*at)).at(0));
        places.iter().take(number).for_each(|at| taken[*at as usize] = true);
    }
    let of = |want: bool| (0..part.labels.len() as u32).filter(|at| taken[*at as usize] == want).collect::<Vec<u32>>();
    (part.subset(&of(false)), part.subset(&of(true)))
}

#[cfg(test)]
mod tests {
    use equipoise_data::Pixels;

    use super::*;

    fn part(labels: &[u32]) -> Part {
        let bytes: Vec<u8> = (0..labels.len() as u8).collect();
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: bytes.into() };
        Part { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    #[test]
    fn a_share_of_every_class_is_taken() {
        let labels: Vec<u32> = [vec![0; 20], vec![1; 10], vec![2; 1], vec![4; 3]].concat();
        let (train, val) = divide(&part(&labels), 5, 0.2, 7);
        let counted = |part: &Part| counts(&part.labels, 5).expect("valid");
        assert_eq!((counted(&train), counted(&val)), (vec![16, 8, 1, 0, 2], vec![4, 2, 0, 0, 1]));
        // nothing is lost, nothing is in both
        let mut all: Vec<u8> =
            [&train, &val].iter().flat_map(|p| p.images.pixels().expect("memory").bytes.to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..34).collect::<Vec<u8>>());
        assert_eq!(divide(&part(&labels), 5, 0.2, 7), (train.clone(), val));
        assert_ne!(divide(&part(&labels), 5, 0.2, 8).0, train);
    }
}
