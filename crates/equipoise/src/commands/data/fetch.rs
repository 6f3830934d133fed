//! `equipoise data fetch`.

use std::io::Write;

use equipoise_data::acquire::fetch::{Fetch, Fetched};

use super::transfer::TransferDisplay;
use super::{external, print_stored};
use crate::failure::Failure;
use crate::options::RootArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the dataset
    name: String,
    #[command(flatten)]
    root: RootArgs,
    /// Mirror of the official files: the address of their folder, or of one of them
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Keep the downloaded files
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let known = external(&args.name, "fetch")?;
    if known.files.is_empty() {
        let name = known.name;
        return Err(Failure::usage(format!(
            "{name} is only available after a login at https://www.image-net.org; download it there, then use \
             `equipoise data import {name} PATH`"
        )));
    }
    let root = args.root.path();
    let mut display = TransferDisplay::new();
    let fetch = Fetch { from: args.from.as_deref(), keep: args.keep, ..Fetch::new(known, &root) };
    let fetched = fetch.run(&mut |event| display.show(event));
    display.end_line();
    let Fetched { path, dataset, kept } = fetched?;
    print_stored(known, &dataset, &path, out)?;
    if let Some(folder) = kept {
        writeln!(out, "the downloaded files are in {}", folder.display())?;
    }
    Ok(())
}
