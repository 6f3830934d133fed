//! A dataset before training: class sizes, imbalance, problems and advice, for the images that a run would use.

use equipoise_data::describe::groups::GroupRule;
use equipoise_data::describe::image_side::usual_image_side;
use equipoise_data::describe::inspect::{BrokenImage, DatasetReport, inspect as report_on};
use equipoise_data::{Dataset, Images, Pixels};

use super::RunContext;
use super::dataset::load;
use super::input::choose_input;
use crate::error::TrainError;
use crate::prepare::number_of_images;
use crate::settings::{DataSettings, Settings};

/// Looks at a dataset as a run uses it: without files that cannot be read. Also returns the dataset.
///
/// # Errors
/// Returns an error if the dataset cannot be read.
pub fn inspect(
    data: &DataSettings,
    groups: GroupRule,
    context: &RunContext<'_>,
) -> Result<(DatasetReport, Dataset), TrainError> {
    let mut broken: Vec<BrokenImage> = Vec::new();
    loop {
        let left_out = broken.iter().map(|image| image.path.clone()).collect();
        let loaded = load(data, context.data_root, &left_out, context.feedback)?;
        let input = on_input(data, &loaded.dataset);
        let images = number_of_images(&loaded.dataset) + broken.len();
        let dataset = loaded.into_dataset();
        let progress = |done, total| context.feedback.reading(done, total);
        let report = report_on(&dataset, groups, context.pool, &progress);
        context.feedback.reading_done();
        let mut report = report?;
        if report.broken.is_empty() {
            report.add_broken(broken, images);
            report.advice.push(input);
            return Ok((report, dataset));
        }
        broken.append(&mut report.broken);
    }
}

/// Which network a run chooses, and how large it sees the images.
fn on_input(data: &DataSettings, dataset: &Dataset) -> String {
    let mut settings = Settings { data: data.clone(), ..Settings::default() };
    choose_input(&mut settings, dataset);
    let model = settings.architecture();
    match &dataset.train.images {
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
                return "There is no image that can be read.".to_owned();
            };
            format!(
                "The shorter side of the images is usually {side} pixels: `train` chooses {model} and scales them to {size} x {size} \
                 (--model, --image-size)."
            )
        }
    }
}
