//! `equipoise predict`: classes and probabilities of images.

use std::io::Write;
use std::path::PathBuf;

use equipoise_train::run::prediction::Predictor;
use serde_json::json;

use crate::checkpoints;
use crate::failure::Failure;
use crate::options::ThreadArgs;
use crate::output::printable;

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise predict runs/my-images-cwap-resnet32-s0 photo.jpg other.png
  equipoise predict runs/my-images-cwap-resnet32-s0 --top 3 --csv *.jpg > labels.csv")]
pub(crate) struct Args {
    /// Run folder or checkpoint
    run: PathBuf,
    /// Image files
    #[arg(required = true)]
    images: Vec<PathBuf>,
    /// Number of classes to print per image
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print a line of JSON per image
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV: path, label, probability
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let checkpoint = checkpoints::read(&args.run)?;
    let pool = args.threads.pool()?;
    let mut predictor = Predictor::new(checkpoint, args.images.clone(), &pool)?;
    if args.csv {
        writeln!(out, "path,label,probability")?;
    }
    let names = predictor.classes().to_vec();
    predictor.predict(|image, classes| -> Result<(), Failure> {
        let path = args.images[image].display().to_string();
        let top = classes.iter().take(args.top.into()).map(|(class, probability)| (&names[*class], probability));
        if args.json {
            let top: Vec<_> = top.map(|(label, p)| json!({"label": label, "probability": p})).collect();
            writeln!(out, "{}", json!({"path": path, "predictions": top}))?;
        } else if args.csv {
            for (label, p) in top {
                writeln!(out, "{},{},{p:.6}", csv_field(&path), csv_field(label))?;
            }
        } else {
            let top: Vec<String> = top.map(|(label, p)| format!("{} {:.1} %", printable(label), 100.0 * p)).collect();
            writeln!(out, "{}: {}", printable(&path), top.join(", "))?;
        }
        Ok(())
    })
}

fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
