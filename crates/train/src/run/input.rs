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

/// Refuses a head for images, and a network for features.
///
/// # Errors
/// Names the model and what it is for.
pub fn check_input(settings: &Settings, dataset: &Dataset) -> Result<(), TrainError> {
    let (model, has_features) = (settings.architecture(), dataset.train.images.features().is_some());
    let what = match (model.is_for_features(), has_features) {
        (true, false) => {
            format!("{model} is a head on features, and these are images: `equipoise embed` computes their features")
        }
        (false, true) => format!("{model} is a network on images, and these are features: use linear, cosine or mlp"),
        _ => return check_feature_settings(settings, has_features),
    };
    Err(TrainError::Setting { field: "model.name".to_owned(), what })
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
