//! `equipoise export`: weights for other programs.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use equipoise_nn::Weights;
use equipoise_train::checkpoint::Checkpoint;

use crate::Failure;
use crate::runs::{checkpoint, train_failure, trained};

#[derive(clap::Args)]
#[command(after_long_help = "\
The names are those of torchvision and of the usual ResNets for CIFAR; PyTorch's `load_state_dict` takes the file as it is.

Examples:
  equipoise export runs/fashion-mini-cwap-resnet32-s0 -o weights.safetensors")]
pub(crate) struct Args {
    /// A run's folder, or a checkpoint
    run: PathBuf,
    /// Of the file
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    format: Format,
    /// Where to write it; an existing file is not overwritten
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Tensors by name, which are read without running anything
    Safetensors,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let Checkpoint { header, parameters, statistics, .. } = checkpoint(&args.run)?;
    let Format::Safetensors = args.format;
    let weights = Weights { parameters, statistics };
    let bytes =
        weights.to_bytes(&header.network, header.position.total_steps).map_err(|error| train_failure(error.into()))?;
    let place = args.out.display();
    if args.out.exists() {
        return Err(Failure::Usage(format!("{place} is there already")));
    }
    // under its name only when it is whole
    let mut part = args.out.clone().into_os_string();
    part.push(".part");
    let written = std::fs::File::create(&part).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&part, &args.out)
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&part);
        return Err(Failure::Failed(anyhow::Error::from(error).context(format!("cannot write {place}"))));
    }
    let (network, classes) = (&header.network.name, header.classes.len());
    writeln!(out, "{network}, {classes} classes, {}: {} bytes in {place}", trained(&header), bytes.len())?;
    let tau = header.settings.logit_adjust;
    if tau > 0.0 {
        writeln!(
            out,
            "not in it: the run's post-hoc adjustment, which takes {tau} ln(a class's share of the training images) from its logit"
        )?;
    }
    Ok(())
}
