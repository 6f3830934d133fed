//! What can be wrong with data. Every variant carries the values it speaks of, and the file where there is one.

use std::io;
use std::path::PathBuf;

use equipoise_support::{LockOwner, nearest};
use thiserror::Error;

use crate::acquire::catalog::{KNOWN_DATASETS, KnownDataset};
use crate::features::error::FeatureError;

/// An image file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFile {
    /// Index of the image in its split.
    pub index: u32,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// Why data cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The system refused to read a file or folder.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused to write a file or folder.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A dataset is already where one is to be put.
    #[error("{} already exists; remove it first to replace it", path.display())]
    AlreadyInPlace {
        /// The existing dataset.
        path: PathBuf,
    },
    /// An archive holds an entry that must not be unpacked.
    #[error("{}: {}: {what}", path.display(), entry.display())]
    HostileArchive {
        /// The archive.
        path: PathBuf,
        /// The entry.
        entry: PathBuf,
        /// Why it is refused.
        what: &'static str,
    },
    /// A dataset whose authors do not publish its files.
    #[error("{name} cannot be downloaded: its authors do not publish its files openly")]
    NotPublished {
        /// The dataset.
        name: &'static str,
    },
    /// Another process works in a folder.
    #[error("{}: another process is working there{}", folder.display(), process_note(owner.as_ref()))]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// The other process, if the lock file names it.
        owner: Option<LockOwner>,
    },
    /// A URL that cannot be used.
    #[error("{url}: {what}")]
    Address {
        /// The URL.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// A connection that cannot be trusted, or leads nowhere.
    #[error("{url}: {what}")]
    Connection {
        /// URL of the file.
        url: String,
        /// What is wrong with the connection.
        what: String,
    },
    /// A server refuses a file.
    #[error("{url}: the server answers {status}")]
    Status {
        /// URL of the file.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// A download failed more often than the retry policy allows.
    #[error("{url}: {what}; {}", resume_note(*have, *total))]
    TransferFailed {
        /// URL of the file.
        url: String,
        /// The last failure.
        what: String,
        /// Bytes that have arrived.
        have: u64,
        /// Size of the file, if it is known.
        total: Option<u64>,
    },
    /// A server announces a file of another size than the official one.
    #[error("{url}: the server announces {got} bytes, but the official file has {want}")]
    AnnouncedSize {
        /// URL of the file.
        url: String,
        /// The announced size.
        got: u64,
        /// The official size.
        want: u64,
    },
    /// A server sends more bytes than it may.
    #[error("{url}: the server sent more than {limit} bytes; the download was removed")]
    TooManyBytes {
        /// URL of the file.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// A file is not the official one.
    #[error("{url}: its MD5 sum is {got}, but the official one is {official}; the download was removed")]
    Checksum {
        /// URL of the file.
        url: String,
        /// MD5 sum of the download.
        got: String,
        /// Official MD5 sum.
        official: String,
    },
    /// A file or folder of a dataset is missing.
    #[error("{}: there is no {name}", folder.display())]
    Missing {
        /// Where it should be.
        folder: PathBuf,
        /// Its name.
        name: String,
    },
    /// A file does not start as its format requires.
    #[error("{}: not {format}: it starts with {got:02x?}", path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// Its first bytes.
        got: Vec<u8>,
    },
    /// A file is too short or too long.
    #[error("{}: {got} bytes, but {want} are needed", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size, uncompressed.
        got: u64,
        /// The size it should have.
        want: String,
    },
    /// A file asks for more than is allowed.
    #[error("{}: {what} = {got}: at most {limit} are accepted", path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        got: u64,
        /// How large it may be.
        limit: u64,
    },
    /// Two files of a dataset disagree.
    #[error("{}: {got} {what}, but {want} {other_what} in {}", path.display(), other.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What it holds.
        what: &'static str,
        /// How many of them.
        got: u64,
        /// What the other file holds.
        other_what: &'static str,
        /// How many of them.
        want: u64,
        /// The other file.
        other: PathBuf,
    },
    /// A label in a file is out of range.
    #[error("{}: record {record}: label {label}, but there are {classes} classes", path.display())]
    Label {
        /// The file.
        path: PathBuf,
        /// The record, from 0.
        record: usize,
        /// Its label.
        label: u64,
        /// Number of classes.
        classes: usize,
    },
    /// A label in memory is out of range.
    #[error("image {index}: label {label}, but there are {classes} classes")]
    LabelRange {
        /// Index of the image.
        index: usize,
        /// Its label.
        label: u64,
        /// Number of classes.
        classes: usize,
    },
    /// A line of a text file cannot be used.
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A pattern of file names cannot be used.
    #[error("{pattern}: {what}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        what: String,
    },
    /// Images cannot be grouped as asked.
    #[error("group-by `{text}`: {what}")]
    GroupBy {
        /// The column or expression.
        text: String,
        /// Why it cannot be used.
        what: String,
    },
    /// An imbalance factor is out of range.
    #[error("imbalance = {imbalance}: must be at least 1 and finite")]
    Imbalance {
        /// The factor.
        imbalance: f64,
    },
    /// A dataset has more images than an index can number.
    #[error("{images} images: at most 2^32 are supported")]
    TooManyImages {
        /// Number of images.
        images: usize,
    },
    /// A name is neither a known dataset nor a path.
    #[error("`{name}` is neither a known dataset ({}) nor a path{}", known_names(), near_name(name))]
    Unknown {
        /// The name.
        name: String,
    },
    /// A file or folder is in no format that is read.
    #[error("{}: not a dataset: expected a folder per class, a .csv, .tsv or .jsonl list, or CIFAR or IDX files", path.display())]
    Unrecognized {
        /// The file or folder.
        path: PathBuf,
    },
    /// A folder of images with several lists.
    #[error("{}: it holds {} lists; name the one with the images and labels to train on, such as {}; --test-data names another one", folder.display(), lists.len(), lists[0].display())]
    SeveralLists {
        /// The folder.
        folder: PathBuf,
        /// The lists in it; the first is probably meant.
        lists: Vec<PathBuf>,
    },
    /// A test or validation folder has a class that the training folder lacks.
    #[error("{}: there is no such class in {}{}; rename the folder, or move it out of the dataset", folder.display(), train.display(), similar_note(similar.as_ref()))]
    ExtraClass {
        /// The class's folder.
        folder: PathBuf,
        /// The training folder.
        train: PathBuf,
        /// The class whose name differs only in upper and lower case.
        similar: Option<String>,
    },
    /// The test or validation split of a list has a class that its training split lacks.
    #[error("{}: class `{class}` is in the {split} split, but not in the train split", path.display())]
    ClassNotTrained {
        /// The list.
        path: PathBuf,
        /// The class.
        class: String,
        /// The split that has it.
        split: &'static str,
    },
    /// Two folders stand for one split.
    #[error("{}: another folder differs only in upper and lower case: {}", folder.display(), other.display())]
    TwoSplitFolders {
        /// The first folder.
        folder: PathBuf,
        /// The second folder.
        other: PathBuf,
    },
    /// A link leads to a folder around it.
    #[error("{}: this link leads back to {}; remove it", link.display(), target.display())]
    LinkLoop {
        /// The link.
        link: PathBuf,
        /// The folder that it leads to.
        target: PathBuf,
    },
    /// A folder holds files where it should hold one folder per class.
    #[error(
        "{}: it holds {files} files and no folder; a folder per class is needed, or a .csv, .tsv or .jsonl list with the labels", folder.display()
    )]
    NoClasses {
        /// The folder.
        folder: PathBuf,
        /// Number of files in it.
        files: usize,
    },
    /// CIFAR in its Python version.
    #[error("{}: this is the Python version of CIFAR; the binary version is needed ({archive})", path.display())]
    PythonCifar {
        /// The folder.
        path: PathBuf,
        /// Name of the binary version's archive.
        archive: &'static str,
    },
    /// An archive that does not hold CIFAR.
    #[error("{}: only CIFAR's binary version is read from an archive; unpack this one first", path.display())]
    ForeignArchive {
        /// The archive.
        path: PathBuf,
    },
    /// A known dataset is not on this machine.
    #[error("{name} is not in {}: {}`equipoise data import {name} PATH` takes it from a disk", path.display(), fetch_note(name))]
    NotInstalled {
        /// The dataset.
        name: &'static str,
        /// Where it should be.
        path: PathBuf,
    },
    /// Two splits hold images of different sizes.
    #[error("{}: images of {} x {}, but {} x {} in {}", path.display(), got.0, got.1, want.0, want.1, other.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Width and height of its images.
        got: (usize, usize),
        /// Width and height of the other file's images.
        want: (usize, usize),
        /// The other file.
        other: PathBuf,
    },
    /// Means and standard deviations of different numbers of channels.
    #[error("{means} means for {deviations} standard deviations")]
    Channels {
        /// Number of means.
        means: usize,
        /// Number of standard deviations.
        deviations: usize,
    },
    /// Two folder names become the same text.
    #[error("{}: another class has the same name as text", folder.display())]
    SameClass {
        /// The second folder.
        folder: PathBuf,
    },
    /// A dataset without images.
    #[error("{}: it names no image", path.display())]
    NoImages {
        /// The folder or list.
        path: PathBuf,
    },
    /// Image files that cannot be used.
    #[error("{} image file{} cannot be read: {}", files.len(), if files.len() == 1 { "" } else { "s" }, first_files(files))]
    Unreadable {
        /// The files, by index.
        files: Vec<UnreadableFile>,
    },
    /// Photographs were asked for, but the images are in memory.
    #[error("images in memory all have one size; crops of photographs need image files")]
    NoPhotographs,
    /// A sheet of images that cannot be drawn.
    #[error("the sheet of images cannot be drawn: {what}")]
    Sheet {
        /// Why not.
        what: String,
    },
    /// A test fraction that leaves nothing for training.
    #[error("test fraction = {fraction}: must be at least 0 and less than 1")]
    TestFraction {
        /// The fraction.
        fraction: f64,
    },
    /// A parameter of an augmentation or of normalization is out of range.
    #[error("{field} = {got}: must be {want}")]
    Parameter {
        /// The parameter.
        field: &'static str,
        /// Its value.
        got: f64,
        /// What it must be.
        want: &'static str,
    },
    /// A name that is none of a few known ones.
    #[error("unknown {what} `{name}`: must be one of {known}")]
    Name {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
        /// The known names.
        known: &'static str,
    },
    /// A group rule that cannot be used.
    #[error("groups = {rule}: {what}")]
    Groups {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        what: String,
    },
    /// A shard of a worker that does not exist.
    #[error("shard {rank}/{size}: the rank must be less than the number of workers")]
    Shard {
        /// Rank of the worker, from 0.
        rank: usize,
        /// Number of workers.
        size: usize,
    },
    /// The source of an import does not exist.
    #[error("{}: there is no such file or folder", path.display())]
    NoSource {
        /// The source.
        path: PathBuf,
    },
    /// An entry of a folder cannot be copied.
    #[error("{}: {what}; it cannot be imported", path.display())]
    NotCopied {
        /// The entry.
        path: PathBuf,
        /// Why not.
        what: &'static str,
    },
    /// A folder would be copied into itself.
    #[error("{}: the data folder, {}, lies inside it", path.display(), root.display())]
    ContainsDataRoot {
        /// The source of the import.
        path: PathBuf,
        /// The data folder.
        root: PathBuf,
    },
    /// A subset file that belongs to another dataset.
    #[error("{}: it belongs to another dataset: its fingerprint is {got}, that of the training images is {want}", path.display())]
    OtherDataset {
        /// The subset file.
        path: PathBuf,
        /// The fingerprint in it.
        got: String,
        /// The fingerprint of the training images.
        want: String,
    },
    /// A file of features or labels cannot be used.
    #[error("{}: {what}", path.display())]
    Features {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: FeatureError,
    },
    /// A file of labels is given for images, which have their own.
    #[error("--labels {}: only features take their labels from a file; images have theirs in folders or lists", labels.display())]
    LabelsOfImages {
        /// The file of labels.
        labels: PathBuf,
    },
    /// Features were asked for as pixels of 8 bits.
    #[error("features are no pixels: they have no levels from 0 to 255")]
    NoPixels,
    /// A subset file without images.
    #[error("{}: it lists no image", path.display())]
    EmptySubset {
        /// The subset file.
        path: PathBuf,
    },
}

fn near_name(name: &str) -> String {
    let near = nearest(name, KNOWN_DATASETS.iter().map(|known| known.name));
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

fn known_names() -> String {
    KNOWN_DATASETS.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
}

/// The first few files, and how many more there are.
fn first_files(files: &[UnreadableFile]) -> String {
    const SHOWN: usize = 5;
    let named: Vec<String> =
        files.iter().take(SHOWN).map(|file| format!("{}: {}", file.path.display(), file.what)).collect();
    let more = if files.len() > SHOWN { format!("; and {} more", files.len() - SHOWN) } else { String::new() };
    format!("{}{more}", named.join("; "))
}

fn fetch_note(name: &str) -> String {
    let fetchable = KnownDataset::by_name(name).is_some_and(|known| !known.files.is_empty());
    if fetchable { format!("`equipoise data fetch {name}` downloads it, ") } else { String::new() }
}

fn similar_note(similar: Option<&String>) -> String {
    similar.map(|class| format!(", though there is '{class}'")).unwrap_or_default()
}

fn process_note(owner: Option<&LockOwner>) -> String {
    owner.map(|owner| format!(" ({owner})")).unwrap_or_default()
}

fn resume_note(have: u64, total: Option<u64>) -> String {
    match (have, total) {
        (0, _) => "nothing has arrived yet; run the same command to try again".to_owned(),
        (_, None) => format!("{have} bytes have arrived; run the same command to resume"),
        (_, Some(total)) => format!("{have} of {total} bytes have arrived; run the same command to resume"),
    }
}
