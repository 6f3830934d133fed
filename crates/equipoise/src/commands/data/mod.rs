//! `equipoise data`: the known datasets, and long-tailed subsets as text.

mod fetch;
mod import;
mod index;
mod list;
mod transfer;

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::{DataError, Dataset};

use crate::failure::Failure;
use crate::output::warn;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the known datasets, where they are and where they come from
    List(list::Args),
    /// Download a dataset from its official source, check it and put it into the data folder
    #[command(after_long_help = "\
An interrupted transfer continues where it stopped: a few times by itself, later with the same command. The checksum of a file must be \
the official one before anything is unpacked; if there is no official checksum, the command says so. Proxies are those of HTTPS_PROXY, \
HTTP_PROXY and NO_PROXY.

Examples:
  equipoise data fetch cifar10
  equipoise data fetch cifar10 --from https://mirror.example/cifar/ --keep")]
    Fetch(fetch::Args),
    /// Put a dataset that is already on disk (a folder, or the official .tar.gz or .zip) into the data folder
    #[command(after_long_help = "\
The dataset is copied or unpacked next to its destination, read as training reads it, and only then moved there.

Examples:
  equipoise data import cifar10 ~/Downloads/cifar-10-binary.tar.gz
  equipoise data import fashion-mnist /usr/share/datasets/fashion-mnist")]
    Import(import::Args),
    /// Write a long-tailed subset as text: one index in the original training order per line
    #[command(after_long_help = "\
Indices are written class by class in the order in which they are drawn: exactly the images that NumPy selects with this seed.

Examples:
  equipoise data index cifar10 --imbalance 100
  equipoise data index cifar10 --imbalance 50 --profile step --subset-seed 3 -o subset.txt")]
    Index(index::Args),
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    match &args.action {
        Action::List(args) => list::run(args, out),
        Action::Fetch(args) => fetch::run(args, out),
        Action::Import(args) => import::run(args, out),
        Action::Index(args) => index::run(args, out),
    }
}

/// A known dataset that is not built into the program. `verb` is what the user wants to do with it.
fn external(name: &str, verb: &str) -> Result<&'static KnownDataset, Failure> {
    let known = KnownDataset::by_name(name).ok_or_else(|| DataError::Unknown { name: name.to_owned() })?;
    if known.is_embedded() {
        return Err(Failure::usage(format!("{name} is built into the program: there is nothing to {verb}")));
    }
    Ok(known)
}

/// Prints what was put into the data folder, and warns if it is not the whole dataset.
fn print_stored(known: &KnownDataset, dataset: &Dataset, path: &Path, out: &mut impl Write) -> Result<(), Failure> {
    let (train, test, classes) = (dataset.train.labels.len(), dataset.test.labels.len(), dataset.classes.len());
    let (name, path) = (known.name, path.display());
    writeln!(out, "{name}: {train} training and {test} test images, {classes} classes, now in {path}")?;
    let expected = known.size;
    let sizes = [
        (train, expected.train, "training images"),
        (test, expected.test, "test images"),
        (classes, expected.classes, "classes"),
    ];
    let missing = sizes.into_iter().filter(|(got, want, _)| got != want);
    let missing: Vec<String> = missing.map(|(got, want, what)| format!("{got} of {want} {what}")).collect();
    if !missing.is_empty() {
        warn(&format!("this is not the whole dataset: {}", missing.join(", ")));
    }
    Ok(())
}
