//! `equipoise export`: weights for other programs.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use equipoise_nn::Weights;
use equipoise_train::trainer::Checkpoint;

use crate::Failure;
use crate::runs::{checkpoint, train_failure};

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
        weights.to_bytes(&header.network, header.position.steps).map_err(|error| train_failure(error.into()))?;
    let place = args.out.display();
    let file = OpenOptions::new().write(true).create_new(true).open(&args.out);
    let mut file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::Usage(format!("{place} is there already")));
        }
        file => file.with_context(|| format!("cannot write {place}"))?,
    };
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    if let Err(error) = written {
        drop(file);
        // half a file is worse than none
        let _ = std::fs::remove_file(&args.out);
        return Err(Failure::Failed(anyhow::Error::from(error).context(format!("cannot write {place}"))));
    }
    let (network, epoch) = (&header.network.name, header.position.epoch);
    writeln!(
        out,
        "{network}, {} classes, after epoch {epoch}: {} bytes in {place}",
        header.classes.len(),
        bytes.len()
    )?;
    Ok(())
}
