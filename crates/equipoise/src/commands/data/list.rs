//! `equipoise data list`.

use std::io::Write;

use equipoise_data::acquire::catalog::{KNOWN_DATASETS, KnownDataset};
use serde_json::json;

use crate::failure::Failure;
use crate::options::RootArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    root: RootArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    let root = args.root.path();
    for known in KNOWN_DATASETS {
        let path = root.join(known.name);
        let is_here = known.is_embedded() || path.exists();
        if args.json {
            let files = known.files.iter().map(|file| json!({"url": file.url, "bytes": file.bytes, "md5": file.md5}));
            let files: Vec<_> = files.collect();
            let stored_in = (is_here && !known.is_embedded()).then(|| path.display().to_string());
            let KnownDataset { name, about, .. } = known;
            writeln!(
                out,
                "{}",
                json!({"name": name, "about": about, "here": is_here, "path": stored_in, "files": files})
            )?;
            continue;
        }
        let place = match is_here {
            true if known.is_embedded() => "built into the program".to_owned(),
            true => path.display().to_string(),
            false => format!("not in {}", root.display()),
        };
        writeln!(out, "{:<15}{}\n{:15}{place}", known.name, known.about, "")?;
        for file in known.files {
            let checksum = file.md5.map_or_else(|| "no official checksum".to_owned(), |md5| format!("MD5 {md5}"));
            writeln!(out, "{:15}{}, {checksum}", "", file.url)?;
        }
    }
    Ok(())
}
