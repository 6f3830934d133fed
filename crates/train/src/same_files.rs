//! Whether all workers see the same image files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use equipoise_data::{Dataset, Images, Split};

use crate::error::TrainError;
use crate::workers::Workers;

/// Files of at most this many bytes are compared as a whole.
const WHOLE: u64 = 64 << 10;
/// Bytes at the beginning, in the middle and at the end of longer files that are compared.
const PIECE: u64 = 4 << 10;

/// An image file, and the number of its class.
pub type LabeledFile = (PathBuf, u32);

/// The image files of all splits of a dataset.
#[must_use]
pub fn files_of(dataset: &Dataset) -> Vec<LabeledFile> {
    let splits = [Some(&dataset.train), dataset.val.as_ref(), Some(&dataset.test)];
    let files = |split: &Split| match &split.images {
        Images::Files(files) => files.iter().cloned().zip(split.labels.iter().copied()).collect(),
        Images::Memory(_) | Images::Features(_) => Vec::new(),
    };
    splits.into_iter().flatten().flat_map(files).collect()
}

/// The file at an absolute path: the workers may have other working folders, and were told the absolute path of what rank 0 reads.
pub(crate) fn absolute((path, label): LabeledFile) -> LabeledFile {
    (std::path::absolute(&path).unwrap_or(path), label)
}

/// Checks that all workers have the same files. A worker without a list has failed, and tells the others afterwards. `may_lack` allows workers
/// that cannot read a file that others can.
///
/// # Errors
/// Names a worker, and a file that it lacks, cannot read, or has with other contents.
pub fn check_files(
    files: Option<&[LabeledFile]>,
    may_lack: bool,
    workers: &mut impl Workers,
) -> Result<(), TrainError> {
    if workers.shard().size() == 1 {
        return Ok(());
    }
    let own: Vec<[u8; 16]> = files.unwrap_or_default().iter().map(digests).collect();
    let summary = files.map_or_else(Vec::new, |_| fnv1a(own.as_flattened()).to_le_bytes().to_vec());
    let summaries = workers.exchange(&summary)?;
    let differs = |rank: &usize| ![&[], &summaries[0][..]].contains(&&summaries[*rank][..]);
    let others: Vec<usize> = (1..summaries.len()).filter(differs).collect();
    if others.is_empty() || summaries[0].is_empty() {
        return Ok(());
    }
    let nodes = workers.exchange(workers.node().as_bytes())?;
    let all = workers.exchange(own.as_flattened())?;
    let images = |rank: usize| all[rank].as_chunks::<16>().0;
    let found = others.iter().find_map(|rank| Some((*rank, Difference::find(images(0), images(*rank), may_lack)?)));
    let Some((rank, difference)) = found else { return Ok(()) };
    let is_wanted =
        |(path, _): &&LabeledFile| fnv1a(path.as_os_str().as_encoded_bytes()).to_le_bytes() == difference.file;
    let path = files.unwrap_or_default().iter().find(is_wanted);
    let paths = workers.exchange(path.map_or_else(String::new, |(path, _)| path.display().to_string()).as_bytes())?;
    let path = [0, rank].into_iter().map(|rank| String::from_utf8_lossy(&paths[rank])).find(|path| !path.is_empty());
    let (path, more) = (path.unwrap_or_default(), difference.others());
    let name = |rank: usize| worker_name(rank, &String::from_utf8_lossy(&nodes[rank]));
    let (worse, better) = if difference.is_of_first { (0, rank) } else { (rank, 0) };
    let verb = match difference.kind {
        Kind::Lacks => "it lacks",
        Kind::CannotRead => "it cannot read",
        Kind::Differs => "they differ in",
    };
    let what = format!("{} has other images than {}: {verb} {path}{more}", name(worse), name(better));
    Err(TrainError::Unusable { what })
}

/// How two workers' files differ.
struct Difference {
    kind: Kind,
    /// Digest of the name of the first file.
    file: [u8; 8],
    /// Whether it is rank 0 that lacks it or cannot read it.
    is_of_first: bool,
    number: usize,
}

enum Kind {
    Lacks,
    CannotRead,
    Differs,
}

impl Difference {
    /// The gravest difference: a file that is missing may also have changed classes and splits of others.
    fn find(first: &[[u8; 16]], other: &[[u8; 16]], may_lack: bool) -> Option<Self> {
        let [of_first, of_other] = [first, other].map(|files| files.iter().map(parts).collect::<HashMap<_, _>>());
        let lacking = |files: &[[u8; 16]], others: &HashMap<[u8; 8], [u8; 8]>| -> Vec<[u8; 8]> {
            files.iter().map(|file| parts(file).0).filter(|name| !others.contains_key(name)).collect()
        };
        let differing = |is_kind: &dyn Fn(&[u8; 8], &[u8; 8]) -> bool| -> Vec<[u8; 8]> {
            let pairs = first.iter().map(parts).filter_map(|(name, one)| Some((name, one, of_other.get(&name)?)));
            pairs.filter(|(_, one, other)| one != *other && is_kind(one, other)).map(|(name, ..)| name).collect()
        };
        let kinds = [
            (Kind::Lacks, false, lacking(first, &of_other)),
            (Kind::Lacks, true, lacking(other, &of_first)),
            (Kind::CannotRead, false, differing(&|_, other| *other == UNREADABLE)),
            (Kind::CannotRead, true, differing(&|one, _| *one == UNREADABLE)),
            (Kind::Differs, false, differing(&|one, other| ![one, other].contains(&&UNREADABLE))),
        ];
        let counts = |kind: &Kind| !(may_lack && matches!(kind, Kind::CannotRead));
        let mut kinds = kinds.into_iter().filter(|(kind, _, files)| counts(kind) && !files.is_empty());
        kinds.next().map(|(kind, is_of_first, files)| Self { kind, file: files[0], is_of_first, number: files.len() })
    }

    /// How many more files there are like the first.
    fn others(&self) -> String {
        match self.number {
            1 => String::new(),
            number => format!(" and {} more", number - 1),
        }
    }
}

/// The digests of name and contents.
fn parts(file: &[u8; 16]) -> ([u8; 8], [u8; 8]) {
    let (name, contents) = file.split_at(8);
    (name.try_into().unwrap_or_default(), contents.try_into().unwrap_or_default())
}

/// A worker as messages name it.
pub(crate) fn worker_name(rank: usize, node: &str) -> String {
    match node {
        "" => format!("rank {rank}"),
        node => format!("rank {rank} on {node}"),
    }
}

/// The digest of the contents of a file that cannot be read.
const UNREADABLE: [u8; 8] = [0; 8];

/// Two digests of a file: of its name; and of its class, length and contents.
fn digests((path, label): &LabeledFile) -> [u8; 16] {
    let mut bytes = label.to_le_bytes().to_vec();
    let contents = match read_sample(path, &mut bytes) {
        Ok(()) => (fnv1a(&bytes) | 1).to_le_bytes(),
        Err(_) => UNREADABLE,
    };
    let mut both = [0; 16];
    both[..8].copy_from_slice(&fnv1a(path.as_os_str().as_encoded_bytes()).to_le_bytes());
    both[8..].copy_from_slice(&contents);
    both
}

/// Adds a file's length, and its bytes or some of them.
fn read_sample(path: &Path, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    bytes.extend(length.to_le_bytes());
    if length <= WHOLE {
        file.read_to_end(bytes)?;
        return Ok(());
    }
    for start in [0, (length - PIECE) / 2, length - PIECE] {
        file.seek(SeekFrom::Start(start))?;
        (&file).take(PIECE).read_to_end(bytes)?;
    }
    Ok(())
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
