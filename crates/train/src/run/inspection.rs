//! A dataset before training: class sizes, imbalance, problems and advice, for the images that a run would use.

use equipoise_data::describe::image_side::usual_image_side;
use equipoise_data::describe::inspect::{BrokenImage, DatasetReport, inspect as report_on};
use equipoise_data::{Dataset, Images, Pixels};

use super::RunContext;
use super::dataset::load;
use super::input::{check_input, choose_input, few_photographs};
use crate::error::TrainError;
use crate::prepare::number_of_images;
use crate::settings::{DataSettings, Settings};

/// A dataset that was looked at.
pub struct Inspection {
    /// What it is like.
    pub report: DatasetReport,
    /// The dataset, without files that cannot be read.
    pub dataset: Dataset,
    /// The settings, with the network and the image size that a run would have.
    pub settings: Settings,
}

/// Looks at the dataset of some settings as a run uses it: without files that cannot be read.
///
/// # Errors
/// Returns an error if the dataset cannot be read, or `train` would refuse what the settings say about its images.
pub fn inspect(settings: &Settings, context: &RunContext<'_>) -> Result<Inspection, TrainError> {
    let mut broken: Vec<BrokenImage> = Vec::new();
    loop {
        let left_out = broken.iter().map(|image| image.path.clone()).collect();
        let loaded = load(&settings.data, context.data_root, &left_out, context.feedback)?;
        let mut chosen = settings.clone();
        choose_input(&mut chosen, &loaded.dataset);
        check_input(&chosen, &loaded.dataset)?;
        let input = on_input(&settings.data, &loaded.dataset);
        let images = number_of_images(&loaded.dataset) + broken.len();
        let dataset = loaded.into_dataset();
        let progress = |done, total| context.feedback.reading(done, total);
        let report = report_on(&dataset, settings.groups, context.pool, &progress);
        context.feedback.reading_done();
        let mut report = report?;
        if report.broken.is_empty() {
            report.add_broken(broken, images);
            report.advice.extend(input);
            return Ok(Inspection { report, dataset, settings: chosen });
        }
        broken.append(&mut report.broken);
    }
}

/// Which network a run chooses, how large it sees the images, and what is best for such images.
fn on_input(data: &DataSettings, dataset: &Dataset) -> Vec<String> {
    let mut settings = Settings { data: data.clone(), ..Settings::default() };
    choose_input(&mut settings, dataset);
    let model = settings.architecture();
    let choice = match &dataset.train.images {
        Images::Memory(Pixels { height, width, .. }) => {
            format!("The images are {width} x {height}: `train` chooses {model} (--model).")
        }
        Images::Features(_) => format!(
            "A head on features takes seconds: `train` chooses {model} (--model linear, cosine or mlp), and `compare` shows several criteria \
             beside the nearest class mean and the nearest neighbors."
        ),
        Images::Files(_) => {
            let size = settings.data.image_size;
            let Some(side) = usual_image_side(&dataset.train) else {
                return vec!["There is no image that can be read.".to_owned()];
            };
            format!(
                "The shorter side of the images is usually {side} pixels: `train` chooses {model} and scales them to {size} x {size} \
                 (--model, --image-size)."
            )
        }
    };
    let recipe = "With time for 200 epochs: `train --config recommended`.";
    let recipe = (model.is_for_small_images() && !model.is_for_features()).then(|| recipe.to_owned());
    [choice].into_iter().chain(few_photographs(&settings, dataset.train.labels.len())).chain(recipe).collect()
}
