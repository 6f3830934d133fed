//! Whether all workers train the same run on the same data.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use equipoise_nn::Engine;

use super::Trainer;
use crate::error::TrainError;
use crate::prepare::{RunData, SplitLoader};
use crate::workers::Workers;

/// Bytes in the middle of a file that are compared.
const COMPARED: usize = 4096;

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Checks that all workers train the same run from the same position.
    pub(super) fn check_workers(&mut self) -> Result<(), TrainError> {
        if self.workers.shard().size() == 1 {
            return Ok(());
        }
        let digests = digests(&self.data);
        let RunData { fingerprint, content, .. } = &*self.data;
        let data = format!("{fingerprint}, {content}, {:016x}", fnv1a(digests.as_flattened()));
        let position = format!("{} {}", self.position.epoch, self.position.step);
        let own = [self.workers.node(), self.settings.to_toml()?, data, position].join("\0");
        let all = self.workers.exchange(own.as_bytes())?;
        let all: Vec<String> = all.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect();
        let part = |rank: usize, part: usize| all[rank].split('\0').nth(part).unwrap_or_default();
        let worker = |rank: usize| match part(rank, 0) {
            "" => format!("worker {rank}"),
            node => format!("worker {rank} on {node}"),
        };
        let differs = |rank: usize| (1..4).find(|number| part(rank, *number) != part(0, *number));
        let Some((rank, number)) = (1..all.len()).find_map(|rank| Some((rank, differs(rank)?))) else { return Ok(()) };
        let (other, first) = (worker(rank), worker(0));
        let what = match number {
            1 => format!("{other} has other settings than {first}"),
            2 => match self.first_difference(&digests, rank)? {
                name if name.is_empty() => format!("{other} has another dataset than {first}"),
                name => format!("{other} has another dataset than {first}: they differ in {name}"),
            },
            _ => format!("{other} has another checkpoint than {first}"),
        };
        Err(TrainError::Unusable { what })
    }

    /// The name of the first image in which the data of a worker differs from that of worker 0, as that worker names it; empty if
    /// the images have no names.
    fn first_difference(&mut self, own: &[[u8; 8]], rank: usize) -> Result<String, TrainError> {
        let all = self.workers.exchange(own.as_flattened())?;
        let images = |rank: usize| all[rank].as_chunks::<8>().0;
        let same = images(0).iter().zip(images(rank)).take_while(|(first, other)| first == other).count();
        let names = splits(&self.data).flat_map(|split| (0..split.labels.len()).map(|index| split.name(index as u32)));
        let has_names = self.data.files;
        let name = names.enumerate().find(|(number, _)| has_names && *number == same).map(|(_, name)| name);
        let names = self.workers.exchange(name.unwrap_or_default().as_bytes())?;
        // the worker with fewer images has no name for the first one that it lacks
        let name = [rank, 0].into_iter().map(|rank| &names[rank]).find(|name| !name.is_empty());
        Ok(name.map_or_else(String::new, |name| String::from_utf8_lossy(name).into_owned()))
    }
}

fn splits(data: &RunData) -> impl Iterator<Item = &SplitLoader> {
    [&data.train].into_iter().chain(&data.val).chain([&data.test])
}

/// A digest of every image that comes from a file: of its class, of the length of the file and of the bytes in its middle.
fn digests(data: &RunData) -> Vec<[u8; 8]> {
    let mut all = Vec::new();
    if data.files {
        for split in splits(data) {
            for (index, label) in split.labels.iter().enumerate() {
                let mut bytes = label.to_le_bytes().to_vec();
                // a file that cannot be read counts as empty
                let _ = read_middle(&split.name(index as u32), &mut bytes);
                all.push(fnv1a(&bytes).to_le_bytes());
            }
        }
    }
    all
}

fn read_middle(path: &str, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    bytes.extend(length.to_le_bytes());
    file.seek(SeekFrom::Start((length / 2).saturating_sub(COMPARED as u64 / 2)))?;
    file.take(COMPARED as u64).read_to_end(bytes)?;
    Ok(())
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
