//! From a data set to what a run sees of it: parts with loaders, counts, groups.

use equipoise_data::batch::loader::{Loader, Progress, Recipe};
use equipoise_data::batch::photo::View;
use equipoise_data::batch::small::{Normalize, Policy};
use equipoise_data::describe::groups::Group;
use equipoise_data::subset::index::Fingerprint;
use equipoise_data::subset::long_tail::counts;
use equipoise_data::{Dataset, Images, Split};
use equipoise_pool::Pool;
use equipoise_random::{Example, Stream};

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
    pub groups: Vec<Group>,
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
        let refuse = |what: String| TrainError::Dataset { dataset: set.name.clone(), what };
        if set.classes.len() < 2 {
            return Err(refuse(format!("{} class: at least 2 are needed to tell apart", set.classes.len())));
        }
        if set.test.labels.is_empty() {
            return Err(refuse("it has no test images".to_owned()));
        }
        if settings.data.val_fraction > 0.0 && set.val.is_some() {
            return Err(refuse("it has a validation part of its own: leave out `data.val_fraction`".to_owned()));
        }
        if settings.data.val_fraction > 0.0 {
            let (train, val) =
                divide(&set.train, set.classes.len(), settings.data.val_fraction, settings.data.split_seed);
            if val.labels.is_empty() {
                return Err(refuse(format!(
                    "no class is large enough for `data.val_fraction` = {}",
                    settings.data.val_fraction
                )));
            }
            (set.train, set.val) = (train, Some(val));
        }
        if set.train.labels.is_empty() {
            return Err(refuse("it has no training images".to_owned()));
        }
        let counts = counts(&set.train.labels, set.classes.len())?;
        let groups = settings.groups.groups(&counts);
        let parts = [Some(&set.train), set.val.as_ref(), Some(&set.test)];
        let parts: Vec<String> = parts.into_iter().flatten().map(|part| Fingerprint::of(part).to_string()).collect();
        let fingerprint = parts.join(", ");
        let normalize = normalized.cloned().unwrap_or_else(|| normalize(&set));
        let files = matches!(set.train.images, Images::Files(_));
        let train_recipe = recipe(settings, files, &normalize, true)?;
        let plain = recipe(settings, files, &normalize, false)?;
        let show = |part: Split, recipe: Recipe| -> Result<Shown, TrainError> {
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
            return Err(TrainError::Dataset { dataset: set.name, what });
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
pub fn recipe(settings: &Settings, files: bool, normalize: &Normalize, train: bool) -> Result<Recipe, TrainError> {
    let (photographs, normalize) = (!settings.model.name.is_for_small_images() && files, normalize.clone());
    let side = match settings.data.image_size {
        0 if photographs => 224,
        0 => 32,
        side => side,
    };
    if !photographs {
        let policy = if train { settings.policy(normalize)? } else { Policy::plain(normalize) };
        return Ok(Recipe::Small { side, policy });
    }
    let (randaugment, jitter) = if train { settings.color_augmentation()? } else { (None, None) };
    // 256 for 224, as everybody does
    let resize = (side * 8).div_ceil(7);
    let view = if train { View::RandomResizedCrop } else { View::CenterCrop { resize } };
    Ok(Recipe::Photo { side, view, normalize, randaugment, jitter })
}

/// Takes a share of every class out of a part: what stays, and what is taken. No class loses its last image.
fn divide(part: &Split, classes: usize, share: f64, seed: u64) -> (Split, Split) {
    let mut of_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (at, label) in part.labels.iter().enumerate() {
        of_class[*label as usize].push(at as u32);
    }
    let mut taken = vec![false; part.labels.len()];
    for mut places in of_class {
        let number = ((places.len() as f64 * share).round() as usize).min(places.len().saturating_sub(1));
        let key = |at: &u32| Example { seed, epoch: 0, example: (*at).into() }.draws(Stream::ValidationSplit).at(0);
        places.sort_by_key(key);
        places.iter().take(number).for_each(|at| taken[*at as usize] = true);
    }
    let of = |want: bool| (0..part.labels.len() as u32).filter(|at| taken[*at as usize] == want).collect::<Vec<u32>>();
    (part.subset(&of(false)), part.subset(&of(true)))
}

#[cfg(test)]
mod tests {
    use equipoise_data::Pixels;

    use super::*;

    fn part(labels: &[u32]) -> Split {
        let bytes: Vec<u8> = (0..labels.len() as u8).collect();
        let pixels = Pixels { channels: 1, height: 1, width: 1, bytes: bytes.into() };
        Split { images: Images::Memory(pixels), labels: labels.to_vec() }
    }

    #[test]
    fn a_share_of_every_class_is_taken() {
        let labels: Vec<u32> = [vec![0; 20], vec![1; 10], vec![2; 1], vec![4; 3]].concat();
        let (train, val) = divide(&part(&labels), 5, 0.2, 7);
        let counted = |part: &Split| counts(&part.labels, 5).expect("valid");
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
