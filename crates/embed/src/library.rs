//! The onnxruntime library, which is found at run time and never downloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::EmbedError;

/// The environment variable that names the library.
pub const VARIABLE: &str = "ORT_DYLIB_PATH";

/// Finds the library: the given path, the environment variable, then the Python package `onnxruntime`.
///
/// # Errors
/// [`EmbedError::NoLibrary`] names the three places.
pub fn find(given: Option<&Path>) -> Result<PathBuf, EmbedError> {
    let mut tried = Vec::new();
    let from_variable = std::env::var_os(VARIABLE).map(PathBuf::from);
    for (place, path) in [("--onnxruntime", given), (VARIABLE, from_variable.as_deref())] {
        match path {
            Some(path) if path.is_file() => return Ok(path.to_owned()),
            Some(path) => match library_in(path) {
                Some(library) => return Ok(library),
                None => {
                    tried.push(format!("{place}: {} is neither the library nor a folder with it", path.display()));
                    return Err(EmbedError::NoLibrary { tried });
                }
            },
            None => tried.push(format!("{place}: not given")),
        }
    }
    match package_folder() {
        Ok(folder) => match library_in(&folder.join("capi")) {
            Some(library) => Ok(library),
            None => {
                tried.push(format!(
                    "the Python package in {}: it has no library of its own (packages from 1.19 on have one)",
                    folder.display()
                ));
                Err(EmbedError::NoLibrary { tried })
            }
        },
        Err(what) => {
            tried.push(format!("the Python package onnxruntime: {what}"));
            Err(EmbedError::NoLibrary { tried })
        }
    }
}

/// The library in a folder. Its name may end in a version.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let is_library = |name: &str| {
        name.starts_with("libonnxruntime.so")
            || (name.starts_with("libonnxruntime.") && name.ends_with(".dylib"))
            || name == "onnxruntime.dll"
    };
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(is_library)).map(|entry| entry.path()).collect();
    found.sort();
    found.pop()
}

/// The folder of the Python package, which is looked up but not imported.
fn package_folder() -> Result<PathBuf, String> {
    const SCRIPT: &str = "import importlib.util; spec = importlib.util.find_spec('onnxruntime'); \
                          print(spec.submodule_search_locations[0] if spec else '')";
    for python in ["python3", "python"] {
        let output = Command::new(python).args(["-c", SCRIPT]).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let Ok(output) = output else { continue };
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        return if folder.is_empty() { Err(format!("{python} does not have it")) } else { Ok(folder.into()) };
    }
    Err("there is no python3".to_owned())
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    #[test]
    fn the_newest_library_of_a_folder_is_found() {
        let place = TempFolder::new("library");
        for name in ["libonnxruntime.so.1.30.0", "libonnxruntime.so.1.31.1", "libonnxruntime_providers_shared.so", "x"]
        {
            std::fs::write(place.path().join(name), "").expect("written");
        }
        let found = find(Some(place.path())).expect("found");
        assert_eq!(found, place.path().join("libonnxruntime.so.1.31.1"));
    }

    #[test]
    fn a_wrong_path_is_named() {
        let message = find(Some(Path::new("nowhere"))).expect_err("refused").to_string();
        assert!(message.contains("pip install onnxruntime") && message.contains("--onnxruntime: nowhere"), "{message}");
    }
}
