//! Feature files: the rows of an interrupted run, and the safetensors file at the end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::error::EmbedError;

/// Length of the first line of a partial file.
const HEADER: usize = 64;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> EmbedError + '_ {
    |cause| EmbedError::File { path: path.to_owned(), cause }
}

/// The file of the rows of an interrupted run, beside the file to write.
#[must_use]
pub fn partial_path(output: &Path) -> PathBuf {
    output.with_file_name(format!("{}.partial", output.file_name().unwrap_or_default().display()))
}

/// Rows of features that are written as they come, so that an interrupted run can be continued.
///
/// The file starts with a line that tells what the rows belong to, then has one row after the other. A row of NaN stands for an
/// image that cannot be read.
pub(crate) struct PartialFile {
    path: PathBuf,
    file: File,
    width: Option<usize>,
    rows: usize,
}

impl PartialFile {
    /// Opens the rows of an interrupted run with the same `key`, up to a whole number of batches; else starts anew.
    pub(crate) fn open(path: PathBuf, key: u64, batch: usize) -> Result<Self, EmbedError> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(&path).map_err(failed(&path))?;
        // rows of two processes would be mixed
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let what = "another process is computing these features";
            return Err(failed(&path)(std::io::Error::new(ErrorKind::ResourceBusy, what)));
        }
        let mut header = [0; HEADER];
        let width = match file.read_exact(&mut header) {
            Ok(()) => width_in(&header, key),
            Err(_) => None,
        };
        let rows = match width {
            Some(width) => {
                let bytes = file.metadata().map_err(failed(&path))?.len() - HEADER as u64;
                (bytes / (4 * width as u64)) as usize / batch * batch
            }
            None => 0,
        };
        let width = width.filter(|_| rows > 0);
        let end = width.map_or(0, |width| HEADER + 4 * width * rows) as u64;
        file.set_len(end).map_err(failed(&path))?;
        file.seek(SeekFrom::Start(end)).map_err(failed(&path))?;
        Ok(Self { path, file, width, rows })
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Values per row, once there is a row.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Appends rows.
    pub(crate) fn append(&mut self, key: u64, width: usize, values: &[f32]) -> Result<(), EmbedError> {
        let mut bytes = Vec::with_capacity(HEADER + 4 * values.len());
        if self.width.is_none() {
            self.width = Some(width);
            bytes.extend(header(key, width));
        }
        bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
        self.file.write_all(&bytes).map_err(failed(&self.path))?;
        self.rows += values.len() / width;
        Ok(())
    }

    /// Which rows are not NaN.
    pub(crate) fn readable(&mut self) -> Result<Vec<bool>, EmbedError> {
        let mut readable = Vec::with_capacity(self.rows);
        self.each_row(|row| {
            readable.push(!row.starts_with(&f32::NAN.to_le_bytes()));
            Ok(())
        })?;
        Ok(readable)
    }

    /// Calls `each` with the bytes of every row.
    fn each_row(&mut self, mut each: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<(), EmbedError> {
        let path = &self.path;
        self.file.seek(SeekFrom::Start(HEADER as u64)).map_err(failed(path))?;
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut row = vec![0; 4 * self.width.unwrap_or(0)];
        for _ in 0..self.rows {
            reader.read_exact(&mut row).and_then(|()| each(&row)).map_err(failed(path))?;
        }
        Ok(())
    }

    /// Writes the readable rows with their labels, if there are any, and splits as a safetensors file, and removes the partial file. If that
    /// fails, the partial file is left.
    pub(crate) fn finish(
        mut self,
        output: &Path,
        keep: &[bool],
        labels: &[i64],
        splits: &[u8],
        metadata: &[(&str, String)],
    ) -> Result<(), EmbedError> {
        let temporary = output.with_file_name(format!("{}.tmp", output.file_name().unwrap_or_default().display()));
        let head = safetensors_header(splits.len(), !labels.is_empty(), self.width.unwrap_or(0), metadata);
        let labels = labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<u8>>();
        let written = self.write(&temporary, &[head, labels].concat(), keep, splits);
        written.and_then(|()| std::fs::rename(&temporary, output).map_err(failed(output))).inspect_err(|_| {
            // the first error is reported
            let _ = std::fs::remove_file(&temporary);
        })?;
        // the features are safe
        let _ = std::fs::remove_file(&self.path);
        Ok(())
    }

    /// Writes what comes before the rows, those to keep, and what comes after them.
    fn write(&mut self, path: &Path, before: &[u8], keep: &[bool], after: &[u8]) -> Result<(), EmbedError> {
        let mut writer = BufWriter::new(File::create(path).map_err(failed(path))?);
        writer.write_all(before).map_err(failed(path))?;
        let mut kept = keep.iter();
        self.each_row(|row| if kept.next() == Some(&true) { writer.write_all(row) } else { Ok(()) })?;
        writer.write_all(after).map_err(failed(path))?;
        writer.into_inner().map_err(|error| failed(path)(error.into_error()))?.sync_all().map_err(failed(path))
    }
}

impl Drop for PartialFile {
    /// A file without rows is nothing to go on from.
    fn drop(&mut self) {
        if self.rows == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn header(key: u64, width: usize) -> [u8; HEADER] {
    let mut bytes = [b' '; HEADER];
    let text = format!("equipoise features {key:016x} {width}");
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes[HEADER - 1] = b'\n';
    bytes
}

/// The width of rows that belong to `key`.
fn width_in(bytes: &[u8; HEADER], key: u64) -> Option<usize> {
    let text = std::str::from_utf8(bytes).ok()?;
    let width = text.strip_prefix(&format!("equipoise features {key:016x} "))?.trim().parse().ok()?;
    (width > 0 && *bytes == header(key, width)).then_some(width)
}

/// The start of a safetensors file with `labels`, if it has them, `features` and `split`, in this order.
fn safetensors_header(rows: usize, has_labels: bool, width: usize, metadata: &[(&str, String)]) -> Vec<u8> {
    let (labels, features) = (if has_labels { 8 * rows } else { 0 }, 4 * rows * width);
    let about: Map<String, Value> =
        metadata.iter().map(|(key, text)| ((*key).to_owned(), text.clone().into())).collect();
    let mut header = json!({
        "__metadata__": about,
        "features": {"dtype": "F32", "shape": [rows, width], "data_offsets": [labels, labels + features]},
        "split": {"dtype": "U8", "shape": [rows], "data_offsets": [labels + features, labels + features + rows]},
    });
    if has_labels {
        header["labels"] = json!({"dtype": "I64", "shape": [rows], "data_offsets": [0, labels]});
    }
    let mut text = header.to_string().into_bytes();
    // values start at a multiple of eight bytes, for readers that map the file
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}

#[cfg(test)]
mod tests {
    use equipoise_testing::TempFolder;

    use super::*;

    #[test]
    fn rows_survive_an_interruption() {
        let place = TempFolder::new("features");
        let path = partial_path(&place.path().join("f.safetensors"));
        let mut file = PartialFile::open(path.clone(), 7, 2).expect("opened");
        assert_eq!((file.rows(), file.width()), (0, None));
        file.append(7, 3, &[1.0; 9]).expect("written");
        let Err(busy) = PartialFile::open(path.clone(), 7, 2) else { panic!("it is written") };
        assert!(busy.to_string().ends_with("another process is computing these features"));
        drop(file);
        // three rows: one batch of two, and half of the next
        let mut file = PartialFile::open(path.clone(), 7, 2).expect("opened");
        assert_eq!((file.rows(), file.width()), (2, Some(3)));
        file.append(7, 3, &[f32::NAN; 3]).expect("written");
        assert_eq!(file.readable().expect("read"), [true, true, false]);
        drop(file);
        // other features start anew
        let file = PartialFile::open(path.clone(), 8, 2).expect("opened");
        assert_eq!((file.rows(), file.width()), (0, None));
        drop(file);
        assert!(!path.exists(), "there are no rows in it");
    }

    #[test]
    fn a_finished_file_by_hand() {
        let place = TempFolder::new("features");
        let output = place.path().join("f.safetensors");
        let mut file = PartialFile::open(partial_path(&output), 7, 2).expect("opened");
        file.append(7, 2, &[1.0, 2.0, f32::NAN, f32::NAN, 3.0, 4.0]).expect("written");
        let keep = file.readable().expect("read");
        file.finish(&output, &keep, &[5, 6], &[0, 2], &[("classes", "[]".to_owned())]).expect("written");
        let bytes = std::fs::read(&output).expect("read");
        let length = u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes")) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
        assert_eq!(header["features"], json!({"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 32]}));
        assert_eq!(header["__metadata__"]["classes"], "[]");
        let data = &bytes[8 + length..];
        assert_eq!((length % 8, data.len(), &data[32..]), (0, 34, &[0, 2][..]));
        let values: Vec<f32> =
            data[16..32].chunks_exact(4).map(|x| f32::from_le_bytes(*x.first_chunk().expect("four bytes"))).collect();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
        assert!(!partial_path(&output).exists());
        // a file that cannot be written leaves the rows, and nothing else
        let mut file = PartialFile::open(partial_path(&output), 7, 2).expect("opened");
        file.append(7, 2, &[1.0; 4]).expect("written");
        std::fs::remove_file(&output).and_then(|()| std::fs::create_dir(&output)).expect("a folder in its place");
        file.finish(&output, &[true; 2], &[5, 6], &[0, 2], &[]).expect_err("it is a folder");
        let mut left: Vec<_> =
            place.path().read_dir().expect("a folder").flatten().map(|file| file.file_name()).collect();
        left.sort();
        assert_eq!(left, ["f.safetensors", "f.safetensors.partial"]);
    }
}
