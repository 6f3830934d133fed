//! `equipoise settings`: every setting of a run.

use std::io::Write;

use equipoise_train::settings::{KEYS, Settings};

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(after_long_help = "\
Settings go into a TOML file (--config FILE) or on the command line (--set KEY=VALUE). `equipoise train --print-config` prints the \
settings of a run as TOML.

Examples:
  equipoise settings
  equipoise settings --markdown")]
pub(crate) struct Args {
    /// Print a Markdown table
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    if args.markdown {
        out.write_all(Settings::describe().as_bytes())?;
        return Ok(());
    }
    for key in KEYS {
        let (values, default) = (key.values.replace('`', ""), key.default_text().replace('`', ""));
        writeln!(out, "{}\n    {}\n    {values} [default: {default}]", key.name, key.about.replace('`', ""))?;
    }
    Ok(())
}
