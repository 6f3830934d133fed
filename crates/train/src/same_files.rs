//! Whether all workers see the same image files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::TrainError;
use crate::workers::Workers;

/// Files of at most this many bytes are compared as a whole.
const WHOLE: u64 = 64 << 10;
/// Bytes at the beginning, in the middle and at the end of longer files that are compared.
const PIECE: u64 = 4 << 10;

/// Checks that all workers have the same files. `may_lack` allows workers that cannot read a file that others can.
///
/// # Errors
/// Names a worker and a file that differs.
pub fn check_files(files: &[PathBuf], may_lack: bool, workers: &mut impl Workers) -> Result<(), TrainError> {
    if workers.shard().size() == 1 {
        return Ok(());
    }
    let digests: Vec<[u8; 8]> = files.iter().map(|file| digest(file).to_le_bytes()).collect();
    let nodes = workers.exchange(workers.node().as_bytes())?;
    let all = workers.exchange(digests.as_flattened())?;
    let name = |rank: usize| worker_name(rank, &String::from_utf8_lossy(&nodes[rank]));
    let of = |rank: usize| all[rank].as_chunks::<8>().0;
    for rank in 1..all.len() {
        let (other, first) = (name(rank), name(0));
        if of(rank).len() != of(0).len() {
            let what = format!("{other} finds {} images, and {first} {}", of(rank).len(), of(0).len());
            return Err(TrainError::Unusable { what });
        }
        for (file, (theirs, ours)) in files.iter().zip(of(rank).iter().zip(of(0))).filter(|(_, (a, b))| a != b) {
            let (lacks, has) = match (*theirs == UNREADABLE, *ours == UNREADABLE) {
                (true, _) => (&other, &first),
                (_, true) => (&first, &other),
                _ => {
                    let what = format!("{other} has other images than {first}: they differ in {}", file.display());
                    return Err(TrainError::Unusable { what });
                }
            };
            if !may_lack {
                let what = format!("{lacks} cannot read {}, which {has} can", file.display());
                return Err(TrainError::Unusable { what });
            }
        }
    }
    Ok(())
}

/// A worker as messages name it.
pub(crate) fn worker_name(rank: usize, node: &str) -> String {
    match node {
        "" => format!("rank {rank}"),
        node => format!("rank {rank} on {node}"),
    }
}

/// The digest of a file that cannot be read.
const UNREADABLE: [u8; 8] = [0; 8];

/// A digest of what is in a file; 0 if it cannot be read.
fn digest(file: &Path) -> u64 {
    let mut bytes = Vec::new();
    match read_sample(file, &mut bytes) {
        Ok(()) => fnv1a(&bytes) | 1,
        Err(_) => 0,
    }
}

/// Adds a file's length, and its bytes or some of them.
pub(crate) fn read_sample(path: &Path, bytes: &mut Vec<u8>) -> std::io::Result<()> {
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

pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
