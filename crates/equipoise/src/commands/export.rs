//! `equipoise export`: weights for other programs.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use equipoise_train::run::export::to_safetensors;

use crate::checkpoints::{self, describe};
use crate::failure::Failure;
use crate::output::write_file;

#[derive(clap::Args)]
#[command(after_long_help = "\
Tensors have the names of torchvision and of the usual ResNets for CIFAR, so PyTorch's `load_state_dict` takes the file as it is. The \
metadata of the file hold the names of the classes, the image size, how to resize and normalize, and the scale of the head; \
docs/export.md shows how to use them.

Examples:
  equipoise export runs/fashion-mini-cwap-resnet32-s0 -o weights.safetensors")]
pub(crate) struct Args {
    /// Run folder or checkpoint
    run: PathBuf,
    /// Format of the file
    #[arg(long, value_enum, default_value_t = Format::Safetensors)]
    format: Format,
    /// File to write; an existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Named tensors, without code that runs when the file is read
    Safetensors,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let checkpoint = checkpoints::read(&args.run)?;
    let Format::Safetensors = args.format;
    let bytes = to_safetensors(&checkpoint, env!("CARGO_PKG_VERSION"))?;
    let header = &checkpoint.header;
    let path = args.output.display();
    if args.output.exists() {
        return Err(Failure::usage(format!("{path} already exists")));
    }
    write_file(&args.output, &bytes)?;
    let (network, classes) = (&header.network.name, header.classes.len());
    writeln!(out, "{network}, {classes} classes, {}: {} bytes in {path}", describe(header), bytes.len())?;
    let tau = header.settings.logit_adjustment;
    if tau > 0.0 {
        writeln!(
            out,
            "the run adjusts logits after training (tau {tau}): add the `logit_offsets` of the metadata to them"
        )?;
    }
    Ok(())
}
