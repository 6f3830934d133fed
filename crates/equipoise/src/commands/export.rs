//! `equipoise export`: networks for other programs.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use equipoise_support::Examples;
use equipoise_train::run::export::{to_joined_onnx, to_onnx, to_safetensors};

use crate::checkpoints::{self, describe, warn_if_untrained};
use crate::decisions::{ProbabilityArgs, calibration_sentence};
use crate::failure::Failure;
use crate::output::write_file;

#[derive(clap::Args)]
#[command(after_long_help = "\
Tensors have the names of torchvision and of the usual ResNets for CIFAR, so PyTorch's `load_state_dict` takes the file as it is. The \
metadata of the file hold the names of the classes, the image size, how to resize and normalize, and the scale of the head; \
docs/export.md shows how to use them.

An ONNX file takes pixels in 0 to 1 and returns logits and probabilities, for any number of images; normalization and all adjustments of \
logits are inside. That of a head on features takes the features; with --backbone it takes images.

Probabilities are calibrated if the run is (`equipoise calibrate`). --prior makes logits and probabilities right for a place where the classes \
have other shares.

Examples:
  equipoise export runs/fashion-mini-balanced-softmax-resnet32-s0 -o weights.safetensors
  equipoise export runs/fashion-mini-balanced-softmax-resnet32-s0 -o network.onnx
  equipoise export runs/fashion-mini-balanced-softmax-resnet32-s0 -o network.onnx --prior train
  equipoise export runs/features-balanced-softmax-linear-s0 --backbone dinov2.onnx -o classifier.onnx")]
pub(crate) struct Args {
    /// Run folder or checkpoint
    run: PathBuf,
    /// Format of the file [default: that of its extension, .safetensors or .onnx]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// File to write, such as weights.safetensors or network.onnx; an existing file is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// ONNX file of the backbone that computed the features of the run: the two are joined, images in, probabilities out
    #[arg(long, value_name = "MODEL")]
    backbone: Option<PathBuf>,
    #[command(flatten)]
    probabilities: ProbabilityArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Named tensors, without code that runs when the file is read
    Safetensors,
    /// A computation that onnxruntime and other programs run: pixels in, probabilities out
    Onnx,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Onnx => "ONNX",
        }
    }

    /// The format of a file, by its extension unless one is given.
    fn of(path: &Path, given: Option<Self>) -> Result<Self, Failure> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        let by_name = match extension.as_deref() {
            Some("safetensors") => Some(Self::Safetensors),
            Some("onnx") => Some(Self::Onnx),
            _ => None,
        };
        let refuse = |what: String| Err(Failure::usage(format!("{}: {what}", path.display())));
        match (given, by_name, extension) {
            (Some(given), Some(named), Some(extension)) if given != named => {
                refuse(format!("--format {} contradicts the extension .{extension}", given.name().to_lowercase()))
            }
            (_, None, Some(extension)) if matches!(extension.as_str(), "pt" | "pth" | "ckpt" | "bin" | "h5") => {
                refuse(format!(
                    ".{extension} files cannot be written; name a .safetensors file, which PyTorch loads, or an .onnx file"
                ))
            }
            (Some(format), ..) | (None, Some(format), _) => Ok(format),
            (None, None, _) => refuse(
                "the format does not follow from this name; end it in .safetensors or .onnx, or choose with --format"
                    .to_owned(),
            ),
        }
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let format = Format::of(&args.output, args.format)?;
    if args.backbone.is_some() && format != Format::Onnx {
        return Err(Failure::usage("--backbone: only an ONNX file can be joined with a backbone"));
    }
    let checkpoint = checkpoints::read(&args.run)?;
    warn_if_untrained(&checkpoint.header);
    let decision = args.probabilities.decision(&args.run, &checkpoint.header, None, 0.0)?;
    let version = env!("CARGO_PKG_VERSION");
    let bytes = match format {
        Format::Safetensors => to_safetensors(&checkpoint, &decision, version)?,
        Format::Onnx => match &args.backbone {
            Some(backbone) => to_joined_onnx(&checkpoint, backbone, &decision, version)?,
            None => to_onnx(&checkpoint, &decision, version)?,
        },
    };
    let header = &checkpoint.header;
    let path = args.output.display();
    if args.output.exists() {
        return Err(Failure::usage(format!("{path} already exists")));
    }
    write_file(&args.output, &bytes)?;
    let (network, classes) = (&header.network.name, header.classes.len());
    let (format_name, size) = (format.name(), bytes.len());
    writeln!(out, "{network}, {classes} classes, {}: {size} bytes of {format_name} in {path}", describe(header))?;
    if let Some(calibration) = &decision.calibration {
        let examples = Examples::of_features(header.network.is_on_features());
        writeln!(out, "{}", calibration_sentence(calibration, examples))?;
    }
    if let Some(prior) = &args.probabilities.prior {
        writeln!(out, "logits are for the prior {prior}")?;
    }
    if format == Format::Onnx {
        return Ok(());
    }
    let tau = header.settings.logit_adjustment;
    match args.probabilities.prior.is_some() {
        true => writeln!(out, "add the `logit_offsets` of the metadata to the logits")?,
        false if tau > 0.0 => writeln!(
            out,
            "the run adjusts logits after training (tau {tau}): add the `logit_offsets` of the metadata to them"
        )?,
        false => {}
    }
    if decision.calibration.as_ref().is_some_and(equipoise_record::Calibration::is_fitted) {
        writeln!(out, "divide the logits by the `temperature` of the metadata before the softmax")?;
    }
    Ok(())
}
