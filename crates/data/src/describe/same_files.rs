//! Files with the same bytes, found without decoding and without reading most of them.

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use equipoise_pool::Pool;

use crate::hash::fnv1a;

/// Bytes in the middle of a file that tell most files of the same length apart.
const SAMPLE: u64 = 4096;

/// A key for every file that shares its bytes with another one of the list; files with the same bytes have the same key.
/// `None` for all others, and for files that cannot be read. Only files that agree in length and in the middle are read.
#[must_use]
pub fn same_files(files: &[&Path], pool: &Pool) -> Vec<Option<(u64, u64)>> {
    let all: Vec<usize> = (0..files.len()).collect();
    // a pipe or device need not end
    let length =
        |index: usize| std::fs::metadata(files[index]).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    let (lengths, all) = shared(all, pool, length);
    let middle = |index: usize| middle_of(files[index]).ok().map(|bytes| (lengths[&index], fnv1a(&bytes)));
    let (_, all) = shared(all, pool, middle);
    let whole = |index: usize| std::fs::read(files[index]).ok().map(|bytes| (bytes.len() as u64, fnv1a(&bytes)));
    let (keys, all) = shared(all, pool, whole);
    let mut found = vec![None; files.len()];
    all.into_iter().for_each(|index| found[index] = keys.get(&index).copied());
    found
}

/// The keys of these files, and those among the files that share their key.
fn shared<K: Copy + Eq + Hash + Send>(
    files: Vec<usize>,
    pool: &Pool,
    key: impl Fn(usize) -> Option<K> + Sync,
) -> (HashMap<usize, K>, Vec<usize>) {
    const FILES_PER_TASK: usize = 64;
    let mut keys: Vec<(usize, Option<K>)> = files.into_iter().map(|index| (index, None)).collect();
    let mut tasks: Vec<&mut [(usize, Option<K>)]> = keys.chunks_mut(FILES_PER_TASK).collect();
    pool.each(&mut tasks, |_, task| task.iter_mut().for_each(|(index, of)| *of = key(*index)));
    let keys: Vec<(usize, K)> = keys.into_iter().filter_map(|(index, key)| Some((index, key?))).collect();
    let mut number: HashMap<K, usize> = HashMap::new();
    keys.iter().for_each(|(_, key)| *number.entry(*key).or_default() += 1);
    let several = keys.iter().filter(|(_, key)| number[key] > 1).map(|(index, _)| *index).collect();
    (keys.into_iter().collect(), several)
}

fn middle_of(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SAMPLE) / 2))?;
    let mut bytes = Vec::new();
    file.take(SAMPLE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use equipoise_testing::TempFolder;

    use super::*;

    #[test]
    fn only_the_same_bytes_share_a_key() {
        let folder = TempFolder::new("same");
        let long = |start: u8| [vec![start], vec![7; 9000]].concat();
        let contents = [vec![1, 2], vec![1, 3], vec![1, 2], long(1), long(2), long(1), vec![5]];
        let mut paths: Vec<PathBuf> = Vec::new();
        for (number, bytes) in contents.iter().enumerate() {
            paths.push(folder.path().join(number.to_string()));
            std::fs::write(&paths[number], bytes).expect("written");
        }
        paths.push(folder.path().join("missing"));
        let files: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let keys = same_files(&files, &Pool::single());
        assert!(keys[0].is_some() && keys[0] == keys[2] && keys[3].is_some() && keys[3] == keys[5], "{keys:?}");
        assert_ne!(keys[0], keys[3]);
        assert!([1, 4, 6, 7].iter().all(|index| keys[*index].is_none()), "{keys:?}");
    }
}
