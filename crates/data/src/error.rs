//! What can be wrong with data. Every variant carries what it speaks of, and the file where there is one.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

fn known_names() -> String {
    crate::acquire::catalog::KNOWN.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")
}

/// An image file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its place in its part of the set.
    pub at: u32,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// The first few files, and how many more there are.
fn some(files: &[Unreadable]) -> String {
    const SHOWN: usize = 5;
    let named: Vec<String> =
        files.iter().take(SHOWN).map(|file| format!("{}: {}", file.path.display(), file.what)).collect();
    let more = if files.len() > SHOWN { format!("; and {} more", files.len() - SHOWN) } else { String::new() };
    format!("{}{more}", named.join("; "))
}

fn fetched(name: &str) -> String {
    let fetchable = crate::acquire::catalog::Known::named(name).is_some_and(|known| !known.files.is_empty());
    if fetchable { format!("`equipoise data fetch {name}` gets it, ") } else { String::new() }
}

fn in_brackets(process: &str) -> String {
    if process.is_empty() { String::new() } else { format!(" (process {process})") }
}

fn so_far(have: u64, of: Option<u64>) -> String {
    match (have, of) {
        (0, _) => "nothing is here yet, and the same command tries again".to_owned(),
        (_, None) => format!("{have} bytes are here, and the same command goes on with them"),
        (_, Some(of)) => format!("{have} of {of} bytes are here, and the same command goes on with them"),
    }
}

/// Data cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The system did not let us read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system did not let us write.
    #[error("cannot write {}", path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A set is where another one was to go.
    #[error("{} is there already: remove it first if it is to be replaced", path.display())]
    InPlace {
        /// Where.
        path: PathBuf,
    },
    /// An archive holds something that it should not.
    #[error("{}: {}: {what}", path.display(), entry.display())]
    Hostile {
        /// The archive.
        path: PathBuf,
        /// What is in it.
        entry: PathBuf,
        /// Why it is refused.
        what: &'static str,
    },
    /// A set that its makers do not give to everybody.
    #[error("{name}: its files are not published for everybody")]
    NotPublished {
        /// The set.
        name: &'static str,
    },
    /// Another process is at it.
    #[error("{}: another process is at work there{}", folder.display(), in_brackets(process))]
    Busy {
        /// Where it works.
        folder: PathBuf,
        /// Its number, if it can be told.
        process: String,
    },
    /// An address that cannot be used.
    #[error("{url}: {what}")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// A connection that cannot be trusted, or leads nowhere.
    #[error("{url}: {what}")]
    Connection {
        /// The file's address.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// A server does not give a file.
    #[error("{url}: the server answers {status}")]
    Status {
        /// The file's address.
        url: String,
        /// What the server answered.
        status: u16,
    },
    /// A transfer broke again and again.
    #[error("{url}: {what}: {}", so_far(*have, *of))]
    Broken {
        /// The file's address.
        url: String,
        /// What happened last.
        what: String,
        /// Bytes that are here.
        have: u64,
        /// Bytes that there should be, if that is known.
        of: Option<u64>,
    },
    /// A file of another size than the official one.
    #[error("{url}: the server announces {got} bytes, but the official file has {want}")]
    Announced {
        /// The file's address.
        url: String,
        /// What the server announced.
        got: u64,
        /// What it should be.
        want: u64,
    },
    /// A server sends more than it should.
    #[error("{url}: more than {most} bytes: what came was removed")]
    TooMuch {
        /// The file's address.
        url: String,
        /// What it may be.
        most: u64,
    },
    /// A file that is not the official one.
    #[error("{url}: its MD5 sum is {got}, the official one {official}: what came was removed")]
    Checksum {
        /// The file's address.
        url: String,
        /// Its sum.
        got: String,
        /// What it should be.
        official: String,
    },
    /// A file that belongs to the set is not there.
    #[error("{}: there is no {name}", folder.display())]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
        /// Its name.
        name: String,
    },
    /// A file does not start as its format demands.
    #[error("{}: not {format}: starts with {got:02x?}", path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// What it should be.
        format: &'static str,
        /// Its first bytes.
        got: Vec<u8>,
    },
    /// A file ends too early, or goes on where it should end.
    #[error("{}: {got} bytes: {want} are needed", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its bytes (uncompressed).
        got: u64,
        /// What they should be.
        want: String,
    },
    /// Something in a file speaks of more than we are willing to hold.
    #[error("{}: {what} = {got}: at most {most} are accepted", path.display())]
    Limit {
        /// The file.
        path: PathBuf,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        got: u64,
        /// How large it may be.
        most: u64,
    },
    /// Two files of a set do not go together.
    #[error("{}: {got} {what}, but {want} {than} in {}", path.display(), other.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What it holds.
        what: &'static str,
        /// How many.
        got: u64,
        /// What it should agree with.
        than: &'static str,
        /// How many.
        want: u64,
        /// The other file.
        other: PathBuf,
    },
    /// A record's label names no class.
    #[error("{}: record {record}: label {label}: there are {classes} classes", path.display())]
    Label {
        /// The file.
        path: PathBuf,
        /// The record, from 0.
        record: usize,
        /// Its label.
        label: u64,
        /// How many classes there are.
        classes: usize,
    },
    /// A label in memory names no class.
    #[error("image {at}: label {label}: there are {classes} classes")]
    LabelRange {
        /// The image's position.
        at: usize,
        /// Its label.
        label: u64,
        /// How many classes there are.
        classes: usize,
    },
    /// A line of a text file makes no sense.
    #[error("{}: line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// An imbalance factor below 1.
    #[error("imbalance = {imbalance}: must be at least 1 and finite")]
    Imbalance {
        /// The factor.
        imbalance: f64,
    },
    /// More images than positions can number.
    #[error("{images} images: at most 2^32 can be numbered")]
    TooMany {
        /// How many.
        images: usize,
    },
    /// Neither a known set nor a path.
    #[error("`{name}` is neither a known set ({}) nor a path", known_names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A file or folder in which no reader finds what it needs.
    #[error("{}: not a data set: a folder per class, a .csv or .jsonl list, CIFAR's or IDX files are read", path.display())]
    Unrecognised {
        /// The file or folder.
        path: PathBuf,
    },
    /// A class of a test or validation folder that is not trained on.
    #[error("{}: there is no such class in {}", folder.display(), train.display())]
    ExtraClass {
        /// The class's folder.
        folder: PathBuf,
        /// Where it should be too.
        train: PathBuf,
    },
    /// A class of a list's part test or val that is not trained on.
    #[error("{}: class `{class}` is in part {part}, but not in part train", path.display())]
    Untrained {
        /// The list.
        path: PathBuf,
        /// The class.
        class: String,
        /// Where it is.
        part: &'static str,
    },
    /// Two folders for one part of a set.
    #[error("{}: another folder differs in upper and lower case only: {}", folder.display(), other.display())]
    TwoParts {
        /// One of them.
        folder: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Files where folders with the classes' names should be.
    #[error("{}: {files} files and no folder: a folder per class is needed", folder.display())]
    NoClasses {
        /// Where.
        folder: PathBuf,
        /// How many files there are.
        files: usize,
    },
    /// CIFAR as Python's pickle.
    #[error("{}: CIFAR's Python version: the binary version is needed ({archive})", path.display())]
    Python {
        /// Where it is.
        path: PathBuf,
        /// What the binary version's archive is called.
        archive: &'static str,
    },
    /// An archive that does not hold CIFAR.
    #[error("{}: only archives of CIFAR's binary version are read in place: unpack it first", path.display())]
    ForeignArchive {
        /// The archive.
        path: PathBuf,
    },
    /// A known set that nobody has brought here.
    #[error("{name} is not in {}: {}`equipoise data import {name} PATH` takes it from a disk", place.display(), fetched(name))]
    NotHere {
        /// The set.
        name: &'static str,
        /// Where it was looked for.
        place: PathBuf,
    },
    /// Images of different sizes in parts that should go together.
    #[error("{}: images of {} x {}, but {} x {} in {}", path.display(), got.0, got.1, want.0, want.1, other.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Its images' width and height.
        got: (usize, usize),
        /// Those of the other file.
        want: (usize, usize),
        /// The other file.
        other: PathBuf,
    },
    /// Figures of different numbers of channels.
    #[error("{means} means for {deviations} standard deviations")]
    Channels {
        /// How many means.
        means: usize,
        /// How many standard deviations.
        deviations: usize,
    },
    /// Two folders whose names cannot be told apart once they are text.
    #[error("{}: another class's name looks the same", folder.display())]
    SameClass {
        /// The second of them.
        folder: PathBuf,
    },
    /// No class of a tree or list has a file.
    #[error("{}: it names no image", path.display())]
    NoImages {
        /// The tree.
        path: PathBuf,
    },
    /// Image files that cannot be used.
    #[error("{} image files cannot be read: {}", files.len(), some(files))]
    Unreadable {
        /// All of them, in the order of their places.
        files: Vec<Unreadable>,
    },
    /// Views of photographs were asked for, of small images in memory.
    #[error("images in memory are of one size: a photograph's crops need files")]
    NoPhotographs,
    /// A share of test images that leaves one of the parts empty.
    #[error("test share = {share}: must be more than 0 and less than 1")]
    Share {
        /// The share.
        share: f64,
    },
    /// A number that a change of images cannot be made with.
    #[error("{field} = {got}: must be {want}")]
    Parameter {
        /// Which one.
        field: &'static str,
        /// What it is.
        got: f64,
        /// What it should be.
        want: &'static str,
    },
    /// A rule for groups that cannot be used.
    #[error("groups = {rule}: {what}")]
    Groups {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        what: String,
    },
    /// A worker that there is not.
    #[error("shard {rank}/{size}: the first must be below the second")]
    Shard {
        /// Which worker, from 0.
        rank: usize,
        /// How many there are.
        size: usize,
    },
    /// What is to be imported is not there.
    #[error("{}: there is no such file or folder", path.display())]
    NoSource {
        /// What was asked for.
        path: PathBuf,
    },
    /// Something in a folder that cannot be copied.
    #[error("{}: {what}: it cannot be imported", path.display())]
    NotCopied {
        /// What it is.
        path: PathBuf,
        /// Why not.
        what: &'static str,
    },
    /// A folder that would be copied into itself.
    #[error("{}: the folder of the named sets, {}, lies in it", path.display(), root.display())]
    Around {
        /// What was to be imported.
        path: PathBuf,
        /// Where to.
        root: PathBuf,
    },
    /// A subset of another training set.
    #[error("{}: a subset of another set: its fingerprint is {got}, that of the training images {want}", path.display())]
    OtherSet {
        /// The file.
        path: PathBuf,
        /// What it was made for.
        got: String,
        /// What it was used with.
        want: String,
    },
    /// A subset without images.
    #[error("{}: it lists no position", path.display())]
    NoPositions {
        /// The file.
        path: PathBuf,
    },
}
