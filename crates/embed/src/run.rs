//! The features of a whole dataset.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};

use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::image_draw::ImageDraw;
use equipoise_data::batch::loader::{Loader, Transform};
use equipoise_data::batch::normalize::Normalize;
use equipoise_data::batch::photo::PhotoCrop;
use equipoise_data::error::UnreadableFile;
use equipoise_data::{DataError, Dataset, Images, Split};
use equipoise_pool::Pool;
use serde_json::json;

use crate::backbone::{Backbone, Pooling};
use crate::error::EmbedError;
use crate::file::{PartialFile, partial_path};
use crate::preprocessing::Preprocessing;
use crate::ranks::{Part, Ranks, agree_on_start, exchange_parts};

/// Images per call of the model, if the model does not fix it.
const BATCH_SIZE: usize = 32;

/// What to compute and where to write it.
#[derive(Clone, Debug)]
pub struct EmbedOptions {
    /// The model.
    pub model: PathBuf,
    /// The file to write.
    pub output: PathBuf,
    /// Additional rows for every training image: randomly cropped and mirrored copies.
    pub augmented_copies: u32,
    /// Version of the program, for the metadata.
    pub version: String,
}

/// What was computed.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Number of rows in the file.
    pub rows: usize,
    /// Number of features per row.
    pub width: usize,
    /// Rows that an interrupted run had computed before.
    pub resumed: usize,
    /// Files that cannot be read; they are left out.
    pub unreadable: Vec<UnreadableFile>,
    /// How the model's output became a row.
    pub pooling: Option<Pooling>,
}

/// A row of the file: an image of a split, as it is or in an augmented copy.
#[derive(Clone, Copy)]
struct Row {
    split: usize,
    index: u32,
    /// 0 for the image as it is.
    copy: u32,
}

/// The images of a split, as they are and augmented.
struct Source<'a> {
    split: &'a Split,
    plain: Loader,
    augmented: Option<Loader>,
}

/// Computes the features of all images and writes them as a safetensors file. `progress` is called with the number of rows done
/// and of all.
///
/// Several processes compute every n-th batch each, and rank 0 writes the file. The others return `None`.
///
/// The rows are those of the training split, the augmented copies, the validation split and the test split. Tensors: `labels`, which a dataset
/// without classes has none of, `features` and `split` (0 training, 1 validation, 2 test).
///
/// # Errors
/// If the model cannot be run or a file cannot be written. Files that cannot be read are left out and named.
pub fn embed(
    options: &EmbedOptions,
    backbone: &mut Backbone,
    preprocessing: &Preprocessing,
    dataset: &Dataset,
    pool: &Pool,
    ranks: &mut dyn Ranks,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Option<Embedded>, EmbedError> {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    let sources: Vec<Option<Source<'_>>> = splits
        .iter()
        .enumerate()
        .map(|(number, split)| {
            let copies = if number == 0 { options.augmented_copies } else { 0 };
            split.map(|split| Source::new(split, preprocessing, backbone.channels(), copies)).transpose()
        })
        .collect::<Result<_, EmbedError>>()?;
    let rows = rows(&splits, options.augmented_copies);
    let batch = backbone.batch_size().unwrap_or(BATCH_SIZE);
    let key = key(options, backbone, preprocessing, dataset)?;
    let is_first = ranks.rank() == 0;
    let file = is_first.then(|| PartialFile::open(partial_path(&options.output), key, batch)).transpose();
    let (mut file, resumed) = agree_on_start(ranks, file, key)?;
    let mut result = Embedded { rows: 0, width: 0, resumed, unreadable: Vec::new(), pooling: None };
    let mut reasons = HashMap::new();
    let chunks: Vec<&[Row]> = rows[resumed.min(rows.len())..].chunks(batch).collect();
    let mut written = Ok(());
    for round in chunks.chunks(ranks.size()) {
        let own = written.and_then(|()| match round.get(ranks.rank()) {
            Some(chunk) => Part::compute(chunk, options, backbone, preprocessing, &sources, pool),
            None => Ok(Part::default()),
        });
        let parts = exchange_parts(ranks, own)?;
        written = Ok(());
        for (chunk, part) in round.iter().zip(parts) {
            let Some(file) = &mut file else { continue };
            result.pooling = part.pooling;
            reasons.extend(part.failed.into_iter().map(|(row, what)| ((chunk[row].split, chunk[row].index), what)));
            written = written.and_then(|()| {
                if file.width().is_some_and(|before| before != part.width) {
                    let what = format!("it returns {} features per image now", part.width);
                    return Err(EmbedError::Model { path: options.model.clone(), what });
                }
                file.append(key, part.width, &part.features)
            });
            progress(file.rows().min(rows.len()), rows.len());
        }
    }
    written?;
    let Some(mut file) = file else { return Ok(None) };
    let keep = file.readable()?;
    result.unreadable = unreadable(&rows, &keep, &sources, &reasons);
    result.width = file.width().unwrap_or(0);
    let kept: Vec<Row> = rows.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(row, _)| *row).collect();
    result.rows = kept.len();
    if kept.is_empty() {
        let files = result.unreadable;
        return Err(DataError::Unreadable { files }.into());
    }
    let label = |row: &Row| splits[row.split].map_or(0, |split| i64::from(split.labels[row.index as usize]));
    let labels: Vec<i64> = if dataset.classes.is_empty() { Vec::new() } else { kept.iter().map(label).collect() };
    let numbers: Vec<u8> = kept.iter().map(|row| row.split as u8).collect();
    let metadata = metadata(options, backbone, preprocessing, dataset, &kept, &sources);
    file.finish(&options.output, &keep, &labels, &numbers, &metadata)?;
    Ok(Some(result))
}

impl Part {
    /// Computes the features of some rows. Those of images that cannot be read are NaN.
    fn compute(
        chunk: &[Row],
        options: &EmbedOptions,
        backbone: &mut Backbone,
        preprocessing: &Preprocessing,
        sources: &[Option<Source<'_>>],
        pool: &Pool,
    ) -> Result<Self, EmbedError> {
        let Loaded { images, failed } = load(chunk, sources, preprocessing, pool)?;
        let mut features = Vec::new();
        let (width, pooling) = backbone.features(&images, preprocessing.image_size, &mut features)?;
        for (row, values) in features.chunks_exact_mut(width).enumerate() {
            if failed.iter().any(|(position, _)| *position == row) {
                values.fill(f32::NAN);
            } else if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                let what = format!("it returns {value} for {}", name(sources, chunk[row]));
                return Err(EmbedError::Model { path: options.model.clone(), what });
            }
        }
        Ok(Self { width, pooling: Some(pooling), failed, features })
    }
}

/// The rows of the file, in order.
fn rows(splits: &[Option<&Split>], copies: u32) -> Vec<Row> {
    let of = |split: usize, copy: u32| {
        let number = splits[split].map_or(0, |split| split.labels.len() as u32);
        (0..number).map(move |index| Row { split, index, copy })
    };
    (0..=copies).flat_map(|copy| of(0, copy)).chain(of(1, 0)).chain(of(2, 0)).collect()
}

impl<'a> Source<'a> {
    fn new(split: &'a Split, how: &Preprocessing, channels: usize, copies: u32) -> Result<Self, EmbedError> {
        let loader = |crop: PhotoCrop| -> Result<Loader, EmbedError> {
            // brightness is normalized after the channels are joined
            let normalize = match channels {
                1 => Normalize::new(&[0.0; 3], &[1.0; 3])?,
                _ => Normalize::new(&how.mean, &how.std)?,
            };
            let augmentation = Augmentation { flip: true, ..Augmentation::NONE };
            let transform = Transform::Photo { image_size: how.image_size, crop, augmentation, normalize };
            Ok(match &split.images {
                Images::Files(files) => Loader::unchecked(files.clone(), transform),
                Images::Memory(pixels) => Loader::photographs(pixels, transform),
                Images::Features(_) => return Err(DataError::NoPixels.into()),
            })
        };
        let plain = loader(PhotoCrop::CenterCrop { resize: how.resize })?;
        let augmented = (copies > 0).then(|| loader(PhotoCrop::RandomResizedCrop)).transpose()?;
        Ok(Self { split, plain, augmented })
    }

    /// The loader of a copy.
    fn loader(&self, copy: u32) -> &Loader {
        self.augmented.as_ref().filter(|_| copy > 0).unwrap_or(&self.plain)
    }
}

/// Images that are ready for the model.
struct Loaded {
    images: Vec<f32>,
    /// Positions of those that cannot be read, with the reasons.
    failed: Vec<(usize, String)>,
}

/// The images of some rows in the model's channels.
fn load(rows: &[Row], sources: &[Option<Source<'_>>], how: &Preprocessing, pool: &Pool) -> Result<Loaded, EmbedError> {
    let plane = (how.image_size * how.image_size) as usize;
    let mut images = vec![0.0; rows.len() * 3 * plane];
    let mut failed = Vec::new();
    let mut start = 0;
    // rows of one loader are read together
    for part in rows.chunk_by(|a, b| a.split == b.split && a.copy == b.copy) {
        let Some(source) = &sources[part[0].split] else { continue };
        let draws: Vec<ImageDraw> = part.iter().map(|row| ImageDraw::new(row.index, 0, u64::from(row.copy))).collect();
        let out = &mut images[start * 3 * plane..][..part.len() * 3 * plane];
        match source.loader(part[0].copy).draw(&draws, out, pool) {
            Ok(()) => {}
            Err(DataError::Unreadable { files }) => {
                let position = |file: &UnreadableFile| part.iter().position(|row| row.index == file.index);
                failed.extend(files.into_iter().filter_map(|file| Some((start + position(&file)?, file.what))));
            }
            Err(error) => return Err(error.into()),
        }
        start += part.len();
    }
    if let ([mean], [std]) = (how.mean.as_slice(), how.std.as_slice()) {
        let gray = images.chunks_exact(3 * plane).flat_map(|image| brightness(image, plane));
        images = gray.map(|x| (x - mean) / std).collect();
    }
    Ok(Loaded { images, failed })
}

/// The brightness of an image with three channels.
fn brightness(image: &[f32], plane: usize) -> Vec<f32> {
    let pixel = |i: usize| 0.299 * image[i] + 0.587 * image[plane + i] + 0.114 * image[2 * plane + i];
    (0..plane).map(pixel).collect()
}

/// The name of an image: its path, or its split and index.
fn name(sources: &[Option<Source<'_>>], row: Row) -> String {
    let split = sources[row.split].as_ref().map(|source| source.split);
    let file = split.and_then(|split| split.images.file(row.index as usize));
    file.map_or_else(
        || format!("{}[{}]", ["train", "val", "test"][row.split], row.index),
        |file| file.display().to_string(),
    )
}

/// The files of the rows that are not kept, each once.
fn unreadable(
    rows: &[Row],
    keep: &[bool],
    sources: &[Option<Source<'_>>],
    reasons: &HashMap<(usize, u32), String>,
) -> Vec<UnreadableFile> {
    let failed = rows.iter().zip(keep).filter(|(row, keep)| !**keep && row.copy == 0);
    // an interrupted run does not keep its reasons
    let reason = |row: &Row| reasons.get(&(row.split, row.index)).map_or("it cannot be read", String::as_str);
    let file =
        |row: &Row| UnreadableFile { index: row.index, path: name(sources, *row).into(), what: reason(row).to_owned() };
    failed.map(|(row, _)| file(row)).collect()
}

/// What rows depend on: the model, the preprocessing, the images and the copies. Files count by their names and labels.
fn key(
    options: &EmbedOptions,
    backbone: &Backbone,
    preprocessing: &Preprocessing,
    dataset: &Dataset,
) -> Result<u64, EmbedError> {
    let mut hasher = DefaultHasher::new();
    hash_file(&options.model, &mut hasher)?;
    (backbone.output(), options.augmented_copies, preprocessing.to_json().to_string()).hash(&mut hasher);
    for split in [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)].into_iter().flatten() {
        split.labels.hash(&mut hasher);
        match &split.images {
            Images::Files(files) => files.hash(&mut hasher),
            Images::Memory(pixels) => pixels.bytes.hash(&mut hasher),
            Images::Features(_) => return Err(DataError::NoPixels.into()),
        }
    }
    Ok(hasher.finish())
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) -> Result<(), EmbedError> {
    let failed = |cause| EmbedError::File { path: path.to_owned(), cause };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(()),
            number => hasher.write(&buffer[..number]),
        }
    }
}

fn metadata(
    options: &EmbedOptions,
    backbone: &Backbone,
    preprocessing: &Preprocessing,
    dataset: &Dataset,
    kept: &[Row],
    sources: &[Option<Source<'_>>],
) -> Vec<(&'static str, String)> {
    let model = options.model.file_name().unwrap_or_default().display().to_string();
    let paths: Vec<String> = kept.iter().map(|row| name(sources, *row)).collect();
    vec![
        ("writer", format!("equipoise {}", options.version)),
        ("dataset", dataset.name.clone()),
        ("classes", json!(dataset.classes).to_string()),
        ("backbone", format!("{model}, output {}", backbone.output())),
        ("preprocessing", preprocessing.to_json().to_string()),
        ("paths", json!(paths).to_string()),
    ]
}
