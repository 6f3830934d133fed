//! Whether all workers train the same run on the same data.

use super::Position;
use crate::error::TrainError;
use crate::prepare::RunData;
use crate::same_files::worker_name;
use crate::settings::Settings;
use crate::workers::Workers;

/// Checks that all workers have the same settings and data, and go on from the same position.
///
/// # Errors
/// Names a worker that differs from rank 0, and in what.
pub fn check_same_run(
    settings: &Settings,
    data: &RunData,
    position: Position,
    workers: &mut impl Workers,
) -> Result<(), TrainError> {
    let position = format!("{} {}", position.epoch, position.step);
    let fingerprints = format!("{}, {}", data.fingerprint, data.content);
    check_same(&data.name, [settings.to_toml()?, fingerprints, position], workers)
}

/// Checks that all workers have the same settings, fingerprints of a dataset, and position or whatever tells one checkpoint from another.
pub(crate) fn check_same(dataset: &str, own: [String; 3], workers: &mut impl Workers) -> Result<(), TrainError> {
    if workers.shard().size() == 1 {
        return Ok(());
    }
    let own = [workers.node()].into_iter().chain(own).collect::<Vec<_>>().join("\0");
    let all = workers.exchange(own.as_bytes())?;
    let all: Vec<String> = all.iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect();
    let part = |rank: usize, part: usize| all[rank].split('\0').nth(part).unwrap_or_default();
    let name = |rank: usize| worker_name(rank, part(rank, 0));
    let differs = |rank: usize| (1..4).find(|number| part(rank, *number) != part(0, *number));
    let Some((rank, number)) = (1..all.len()).find_map(|rank| Some((rank, differs(rank)?))) else { return Ok(()) };
    let (other, first) = (name(rank), name(0));
    let what = match number {
        1 => format!("{other} has other settings than {first}"),
        2 => format!("{other} has other images or features than {first} in the dataset '{dataset}'"),
        _ => format!("{other} has another checkpoint than {first}"),
    };
    Err(TrainError::Unusable { what })
}
