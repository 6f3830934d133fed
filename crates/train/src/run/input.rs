//! The network and its image size, where the settings leave them to the images.

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::describe::image_side::usual_image_side;
use equipoise_data::features::scaling::FeatureScaling;
use equipoise_data::{Dataset, Images};
use equipoise_nn::Architecture;

use crate::error::TrainError;
use crate::settings::Settings;

/// The largest shorter side, in pixels, that counts as a small image.
const LARGEST_SMALL_IMAGE: u32 = 96;
/// The largest shorter side of images that small networks see at 32 x 32 rather than at 64 x 64.
const LARGEST_FOR_32: u32 = 48;

/// Chooses the network, the image size and the learning rate that the settings leave open. Images in memory keep their size.
pub fn choose_input(settings: &mut Settings, dataset: &Dataset) {
    choose_network(settings, dataset);
    settings.optimizer.learning_rate = Some(settings.learning_rate());
}

/// Refuses a head for images, a network for features, and what has no effect on the one or the other.
///
/// # Errors
/// Names the setting and what it is for.
pub fn check_input(settings: &Settings, dataset: &Dataset) -> Result<(), TrainError> {
    let (model, has_features) = (settings.architecture(), dataset.train.images.features().is_some());
    let what = match (model.is_for_features(), has_features) {
        (true, false) => {
            format!("{model} is a head on features, and these are images: `equipoise embed` computes their features")
        }
        (false, true) => format!("{model} is a network on images, and these are features: use linear, cosine or mlp"),
        _ => {
            check_feature_settings(settings, has_features)?;
            return check_augmentation(settings, matches!(dataset.train.images, Images::Files(_)));
        }
    };
    Err(TrainError::Setting { field: "model.name".to_owned(), what })
}

/// Refuses padding for photographs, whose crops have no use for it.
fn check_augmentation(settings: &Settings, files: bool) -> Result<(), TrainError> {
    let photographs = files && !settings.architecture().is_for_small_images();
    let padding = settings.augment.crop_padding;
    if !photographs || padding == Augmentation::default().crop_padding {
        return Ok(());
    }
    let what = format!(
        "{padding} has no effect with {}: photographs are cropped to a random area, not padded; leave this setting out, or choose a \
         network for small images",
        settings.architecture()
    );
    Err(TrainError::Setting { field: "augment.crop_padding".to_owned(), what })
}

/// Refuses what has no effect on features, or on images.
fn check_feature_settings(settings: &Settings, has_features: bool) -> Result<(), TrainError> {
    let refuse = |field: &str, what: &str| Err(TrainError::Setting { field: field.to_owned(), what: what.to_owned() });
    let (augment, usual) = (&settings.augment, Augmentation::default());
    // rows can be blended; everything else changes pixels
    let blended = Augmentation { mixup_alpha: augment.mixup_alpha, ..usual };
    if has_features && *augment != blended {
        return refuse(
            "augment",
            "features are not augmented, except by mixup; `equipoise embed --augmented-copies` augments their images",
        );
    }
    if has_features && settings.data.image_size > 0 {
        return refuse("data.image_size", "features have no height and width; leave this setting out");
    }
    if has_features && settings.model.freeze_backbone && settings.architecture() != Architecture::Mlp {
        return refuse("model.freeze_backbone", "a head on features has no backbone");
    }
    if !has_features && settings.data.scaling != FeatureScaling::default() {
        return refuse("data.scaling", "only features are scaled");
    }
    Ok(())
}

fn choose_network(settings: &mut Settings, dataset: &Dataset) {
    if dataset.train.images.features().is_some() {
        settings.model.name.get_or_insert(Architecture::Linear);
        return;
    }
    let files = matches!(dataset.train.images, Images::Files(_));
    if settings.model.name.is_some() && (settings.data.image_size > 0 || !files) {
        return;
    }
    let known = KnownDataset::by_name(&settings.data.dataset).map(|known| known.image_side);
    let side = known.or_else(|| usual_image_side(&dataset.train)).unwrap_or(0);
    let seen = if settings.data.image_size > 0 && files { settings.data.image_size } else { side };
    let architecture = *settings.model.name.get_or_insert_with(|| architecture_for(seen));
    if files && settings.data.image_size == 0 {
        settings.data.image_size = image_size(architecture, side);
    }
}

/// Fewer photographs than this are too few to train a network from random weights.
const ENOUGH_PHOTOGRAPHS: usize = 20_000;

/// What to do in place of training a network for photographs from random weights on few of them.
#[must_use]
pub fn few_photographs(settings: &Settings, images: usize) -> Option<String> {
    let model = settings.architecture();
    let for_photographs = !model.is_for_small_images() && !model.is_for_features();
    let few = for_photographs && settings.model.weights.is_none() && images < ENOUGH_PHOTOGRAPHS;
    few.then(|| {
        format!(
            "With {images} photographs, a head on the features of a pretrained backbone is usually far better than {model} from random \
             weights, and takes seconds: `equipoise embed`, docs/photographs.md."
        )
    })
}

/// The network for images with this shorter side.
#[must_use]
pub fn architecture_for(side: u32) -> Architecture {
    if side <= LARGEST_SMALL_IMAGE { Architecture::ResNet32 } else { Architecture::ResNet18 }
}

/// The size at which a network sees image files with this shorter side.
#[must_use]
pub fn image_size(architecture: Architecture, side: u32) -> u32 {
    match architecture.is_for_small_images() {
        true if side <= LARGEST_FOR_32 => 32,
        true => 64,
        false => architecture.default_image_size() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_follows_the_images() {
        let choice = |side| (architecture_for(side), image_size(architecture_for(side), side));
        assert_eq!(choice(28), (Architecture::ResNet32, 32));
        assert_eq!(choice(48), (Architecture::ResNet32, 32));
        assert_eq!(choice(64), (Architecture::ResNet32, 64));
        assert_eq!(choice(96), (Architecture::ResNet32, 64));
        assert_eq!(choice(97), (Architecture::ResNet18, 224));
        assert_eq!(image_size(Architecture::ResNet8, 375), 64);
        assert_eq!(image_size(Architecture::ResNet50, 64), 224);
    }
}
