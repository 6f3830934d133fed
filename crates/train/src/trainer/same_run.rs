//! Whether all workers train the same run on the same data.

use std::collections::BTreeSet;
use std::path::Path;

use equipoise_nn::Engine;

use super::Trainer;
use crate::error::TrainError;
use crate::prepare::{RunData, SplitLoader};
use crate::same_files::{fnv1a, read_sample, worker_name};
use crate::workers::Workers;

impl<E: Engine, W: Workers> Trainer<E, W> {
    /// Checks that all workers train the same run from the same position.
    pub(super) fn check_workers(&mut self) -> Result<(), TrainError> {
        let RunData { fingerprint, content, files, train, val, test, .. } = &*self.data;
        let same = SameWork {
            settings: self.settings.to_toml()?,
            data: format!("{fingerprint}, {content}"),
            position: format!("{} {}", self.position.epoch, self.position.step),
            splits: [train].into_iter().chain(val).chain([test]).collect(),
            files: *files,
        };
        same.check(&mut self.workers)
    }
}

/// What all workers must have alike.
pub(crate) struct SameWork<'a> {
    /// The settings.
    pub(crate) settings: String,
    /// Fingerprints of the data.
    pub(crate) data: String,
    /// The position within the run, or whatever tells one checkpoint from another.
    pub(crate) position: String,
    /// The images.
    pub(crate) splits: Vec<&'a SplitLoader>,
    /// Whether the images come from files.
    pub(crate) files: bool,
}

impl SameWork<'_> {
    /// Checks that all workers have the same.
    pub(crate) fn check(&self, workers: &mut impl Workers) -> Result<(), TrainError> {
        if workers.shard().size() == 1 {
            return Ok(());
        }
        let digests = self.digests();
        let data = format!("{}, {:016x}", self.data, fnv1a(digests.as_flattened()));
        let own = [&workers.node(), &self.settings, &data, &self.position].map(String::as_str).join("\0");
        let all = workers.exchange(own.as_bytes())?;
        let all: Vec<String> = all.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect();
        let part = |rank: usize, part: usize| all[rank].split('\0').nth(part).unwrap_or_default();
        let name = |rank: usize| worker_name(rank, part(rank, 0));
        let differs = |rank: usize| (1..4).find(|number| part(rank, *number) != part(0, *number));
        let Some((rank, number)) = (1..all.len()).find_map(|rank| Some((rank, differs(rank)?))) else { return Ok(()) };
        let (other, first) = (name(rank), name(0));
        let what = match number {
            1 => format!("{other} has other settings than {first}"),
            2 => match self.first_difference(&digests, rank, workers)? {
                name if name.is_empty() => format!("{other} has another dataset than {first}"),
                name => format!("{other} has another dataset than {first}: they differ in {name}"),
            },
            _ => format!("{other} has another checkpoint than {first}"),
        };
        Err(TrainError::Unusable { what })
    }

    /// The name of an image that only one of two workers has, or that differs between them; empty if the images have no names.
    fn first_difference(
        &self,
        own: &[[u8; 16]],
        rank: usize,
        workers: &mut impl Workers,
    ) -> Result<String, TrainError> {
        let all = workers.exchange(own.as_flattened())?;
        let images = |rank: usize| all[rank].as_chunks::<16>().0;
        let [first, other] = [0, rank].map(|rank| images(rank).iter().copied().collect::<BTreeSet<_>>());
        // a file that cannot be read is left out, and may change the splits; so a file that one lacks is more telling
        let names = |images: &BTreeSet<[u8; 16]>| images.iter().map(|image| image.split_at(8).0.to_vec()).collect();
        let [named_first, named_other]: [BTreeSet<Vec<u8>>; 2] = [names(&first), names(&other)];
        let missing = named_first.symmetric_difference(&named_other).next().cloned();
        let differing = || first.symmetric_difference(&other).next().map(|image| image[..8].to_vec());
        let Some(wanted) = missing.or_else(differing) else { return Ok(String::new()) };
        let name = self.names().find(|name| fnv1a(name.as_bytes()).to_le_bytes()[..] == wanted);
        let names = workers.exchange(name.unwrap_or_default().as_bytes())?;
        let name = [rank, 0].into_iter().map(|rank| &names[rank]).find(|name| !name.is_empty());
        Ok(name.map_or_else(String::new, |name| String::from_utf8_lossy(name).into_owned()))
    }

    /// The names of all images that come from files.
    fn names(&self) -> impl Iterator<Item = String> {
        let splits = self.splits.iter().filter(|_| self.files);
        splits.flat_map(|split| (0..split.labels.len()).map(|index| split.name(index as u32)))
    }

    /// Two digests for every image that comes from a file: one of its name; one of its class, the length of the file and what is
    /// in it.
    fn digests(&self) -> Vec<[u8; 16]> {
        let labels = self.splits.iter().flat_map(|split| &split.labels);
        let digest = |(name, label): (String, &u32)| {
            let mut bytes = label.to_le_bytes().to_vec();
            // a file that cannot be read counts as empty
            let _ = read_sample(Path::new(&name), &mut bytes);
            let mut both = [0; 16];
            both[..8].copy_from_slice(&fnv1a(name.as_bytes()).to_le_bytes());
            both[8..].copy_from_slice(&fnv1a(&bytes).to_le_bytes());
            both
        };
        self.names().zip(labels).map(digest).collect()
    }
}
