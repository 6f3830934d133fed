//! `equipoise data index`.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use equipoise_data::dataset::class_counts;
use equipoise_data::subset::index::{Fingerprint, to_text};
use equipoise_train::run::dataset::LoadedDataset;

use crate::failure::Failure;
use crate::options::DatasetArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let LoadedDataset { dataset, subset, .. } = args.dataset.load(&HashSet::new())?;
    let Some(subset) = subset else {
        return Err(Failure::usage("--imbalance is required: the imbalance factor of the subset"));
    };
    let train = &dataset.train;
    let labels: Vec<u32> = subset.indices.iter().map(|index| train.labels[*index as usize]).collect();
    let (images, counts) = (labels.len(), class_counts(&labels, dataset.classes.len())?);
    let about = format!("{}, {}: {images} training images\nper class {counts:?}", dataset.name, subset.description);
    let text = to_text(&subset.indices, &about, Fingerprint::of(train));
    match &args.output {
        None => out.write_all(text.as_bytes())?,
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "{images} indices written to {}", path.display())?;
        }
    }
    Ok(())
}
