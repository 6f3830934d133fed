//! `equipoise data import`.

use std::io::Write;
use std::path::PathBuf;

use equipoise_data::acquire::import::{Checksum, Imported, import};

use super::{external, print_stored};
use crate::failure::Failure;
use crate::options::RootArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the dataset
    name: String,
    /// Folder or archive
    path: PathBuf,
    #[command(flatten)]
    root: RootArgs,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let known = external(&args.name, "import")?;
    let Imported { path, dataset, checksum } = import(known, &args.path, &args.root.path())?;
    print_stored(known, &dataset, &path, out)?;
    match checksum {
        None => {}
        Some(Checksum::Official) => writeln!(out, "the checksum is the official one")?,
        Some(Checksum::Differs { got, official }) => {
            writeln!(out, "the checksum differs from the official one (MD5 {got}, official {official})")?;
        }
    }
    Ok(())
}
