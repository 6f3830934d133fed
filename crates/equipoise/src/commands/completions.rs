//! `equipoise completions`: completions for a shell.

use std::io::Write;

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  equipoise completions bash > ~/.local/share/bash-completion/completions/equipoise
  equipoise completions zsh > ~/.zfunc/_equipoise")]
pub(crate) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args, command: &mut clap::Command, out: &mut impl Write) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "equipoise", &mut text);
    out.write_all(&text)?;
    Ok(())
}
