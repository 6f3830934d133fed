//! From a data set to what a run sees of it: parts with loaders, counts, groups.

use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::loader::{Loader, Progress, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::batch::small::SmallTransform;
use equipoise_data::dataset::class_counts;
use equipoise_data::describe::groups::ClassGroup;
use equipoise_data::subset::index::Fingerprint;
use equipoise_data::subset::split::split_validation;
use equipoise_data::{Dataset, Images, Split};
use equipoise_pool::Pool;

use crate::error::TrainError;
use crate::settings::Settings;

/// Bytes of decoded photographs that are kept of each part.
const ROOM: u64 = 4 << 30;

/// A part of a set, ready to be shown.
pub struct Shown {
    /// Makes its batches.
    pub loader: Loader,
    /// The class of each image.
    pub labels: Vec<u32>,
    /// Files, where the images come from files.
    names: Option<Vec<String>>,
}

impl Shown {
    /// What an image is called.
    #[must_use]
    pub fn name(&self, at: u32) -> String {
        self.names.as_ref().map_or_else(|| format!("number {at}"), |names| names[at as usize].clone())
    }
}

/// What a run sees of a set.
pub struct Prepared {
    /// The set's name.
    pub name: String,
    /// The classes' names.
    pub classes: Vec<String>,
    /// Training images per class.
    pub counts: Vec<u64>,
    /// Groups of classes.
    pub groups: Vec<ClassGroup>,
    /// What is trained on.
    pub train: Shown,
    /// What is chosen by.
    pub val: Option<Shown>,
    /// What is tested on.
    pub test: Shown,
    /// Tells one training part from another, and the parts that are evaluated on.
    pub fingerprint: String,
    /// Whether images come from files.
    pub files: bool,
    /// What pixels are normalised by.
    pub normalize: Normalize,
}

impl Prepared {
    /// Makes parts and loaders of a set, whose training part is the subset already. A validation part is taken out of it if
    /// the settings say so and the set has none. Pixels are normalised by the figures given, or by the set's own.
    ///
    /// # Errors
    /// For a set that cannot be trained on, and files that cannot be read.
    pub fn new(
        mut set: Dataset,
        settings: &Settings,
        normalized: Option<&Normalize>,
        pool: &Pool,
        progress: Progress<'_>,
    ) -> Result<Self, TrainError> {
        let refuse = |what: String| TrainError::Set { set: set.name.clone(), what };
        if set.classes.len() < 2 {
            return Err(refuse(format!("{} class: at least 2 are needed to tell apart", set.classes.len())));
        }
        if set.test.labels.is_empty() {
            return Err(refuse("it has no test images".to_owned()));
        }
        if settings.data.val > 0.0 && set.val.is_some() {
            return Err(refuse("it has a validation part of its own: leave out `data.val`".to_owned()));
        }
        if settings.data.val > 0.0 {
            let (train, val) =
                split_validation(&set.train, set.classes.len(), settings.data.val, settings.data.split_seed)?;
            if val.labels.is_empty() {
                return Err(refuse(format!("no class is large enough for `data.val` = {}", settings.data.val)));
            }
            (set.train, set.val) = (train, Some(val));
        }
        if set.train.labels.is_empty() {
            return Err(refuse("it has no training images".to_owned()));
        }
        let counts = class_counts(&set.train.labels, set.classes.len())?;
        let groups = settings.rule()?.groups(&counts);
        let parts = [Some(&set.train), set.val.as_ref(), Some(&set.test)];
        let parts: Vec<String> = parts.into_iter().flatten().map(|part| Fingerprint::of(part).to_string()).collect();
        let fingerprint = parts.join(", ");
        let normalize = normalized.cloned().unwrap_or_else(|| normalize(&set));
        let files = matches!(set.train.images, Images::Files(_));
        let train_recipe = recipe(settings, files, &normalize, true)?;
        let plain = recipe(settings, files, &normalize, false)?;
        let show = |part: Split, recipe: Transform| -> Result<Shown, TrainError> {
            let names = match &part.images {
                Images::Memory(_) => None,
                Images::Files(files) => Some(files.iter().map(|file| file.display().to_string()).collect()),
            };
            let loader = Loader::new(part.images, recipe, ROOM, pool, progress)?;
            Ok(Shown { loader, labels: part.labels, names })
        };
        let train = show(set.train, train_recipe)?;
        let val = set.val.map(|val| show(val, plain.clone())).transpose()?;
        let test = show(set.test, plain)?;
        let shape = train.loader.shape();
        if test.loader.shape() != shape || val.as_ref().is_some_and(|val| val.loader.shape() != shape) {
            let what = format!("training images are {shape:?}, others {:?}", test.loader.shape());
            return Err(TrainError::Set { set: set.name, what });
        }
        Ok(Self {
            name: set.name,
            classes: set.classes,
            counts,
            groups,
            train,
            val,
            test,
            fingerprint,
            files,
            normalize,
        })
    }
}

/// By what a set's pixels are normalised: published figures where there are any, else those of its training images.
fn normalize(set: &Dataset) -> Normalize {
    match (&set.train.images, set.name.as_str()) {
        (_, "cifar10" | "cifar100") => Normalize::cifar(),
        (Images::Memory(pixels), _) => Normalize::of(pixels, &(0..pixels.len() as u32).collect::<Vec<_>>()),
        (Images::Files(_), _) => Normalize::imagenet(),
    }
}

/// How images are shown, in training or otherwise.
///
/// # Errors
/// For settings out of range.
pub fn recipe(settings: &Settings, files: bool, normalize: &Normalize, train: bool) -> Result<Transform, TrainError> {
    let (photographs, normalize) = (settings.large() && files, normalize.clone());
    let side = match settings.data.side {
        0 if photographs => 224,
        0 => 32,
        side => side,
    };
    let augmentation = if train { settings.augmentation()? } else { Augmentation::NONE };
    if !photographs {
        return Ok(Transform::Small { image_size: side, transform: SmallTransform { augmentation, normalize } });
    }
    // 256 for 224, as everybody does
    let resize = (side * 8).div_ceil(7);
    let crop = if train { PhotoCrop::RandomResizedCrop } else { PhotoCrop::CenterCrop { resize } };
    Ok(Transform::Photo { image_size: side, crop, augmentation, normalize })
}
