//! A run's folder: one process at a time writes to it, every file in it is whole, the last two checkpoints are kept.
//!
//! A file is written under a temporary name (`*.part`), handed to the disk, and only then renamed. So a process that is
//! killed, a full disk or a power cut leaves the old file or the new one, never half of one.

use std::error::Error;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::snapshot::{self, Damage, START, Snapshot};

pub use equipoise_record::CONFIG;
/// The newest checkpoint.
pub const CHECKPOINT: &str = "checkpoint.eqp";
/// That of the best epoch.
pub const BEST: &str = "best.eqp";
/// The one before the newest.
pub const PREVIOUS: &str = "previous.eqp";
/// Held by the process that writes to the folder, with its number inside.
const LOCK: &str = "lock";
/// What the names of temporary files end in.
const PART: &str = ".part";

fn by(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

/// An error with all that is behind it.
fn said(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A run's folder cannot be used, or something in it.
#[derive(Debug, Error)]
pub enum StoreError {
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
    /// A file is no checkpoint, or not what was written.
    #[error("cannot use {}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Damage,
    },
    /// Neither of the two checkpoints can be used.
    #[error("no checkpoint is left: {}; {}", said(newest), said(previous))]
    NoneLeft {
        /// What is wrong with the newest.
        newest: Box<StoreError>,
        /// What is wrong with the one before it.
        previous: Box<StoreError>,
    },
    /// Another process writes to the folder, or another part of this one.
    #[error("run folder {} is in use by {}", path.display(), by(*pid))]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process, if it has said so.
        pid: Option<u32>,
    },
    /// A new run's folder has something in it.
    #[error("{} is there already, and not empty", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// There is no run in a folder.
    #[error("{} is not the folder of a run: it has no {CONFIG}", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// A name that would lead elsewhere, or that the folder needs for itself.
    #[error("`{}` cannot be the name of a file or folder of a run", name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
}

fn cannot_read(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Read { path: path.to_owned(), source }
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Write { path: path.to_owned(), source }
}

/// Checks that a name is one, and not a way to somewhere else.
fn plain(name: &str) -> Result<(), StoreError> {
    // a backslash or a colon leads elsewhere on other systems, where a folder may be carried to
    let letters = name.chars().all(|c| !c.is_control() && !matches!(c, '/' | '\\' | ':'));
    let fine = letters && !matches!(name, "" | "." | "..") && name != LOCK && !name.ends_with(PART);
    if fine { Ok(()) } else { Err(StoreError::Name { name: name.to_owned() }) }
}

/// The temporary file of a file.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PART);
    name.into()
}

/// Removes a file that need not be there.
fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot_write(path)(error)),
        _ => Ok(()),
    }
}

/// Hands a folder's names to the disk.
fn sync(folder: &Path) -> Result<(), StoreError> {
    // elsewhere folders cannot be opened
    if cfg!(not(unix)) {
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // some network file systems do not know this for folders
        Err(error) if !matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Err(cannot_write(folder)(error))
        }
        _ => Ok(()),
    }
}

/// Puts all of a reader into a file, and the file onto the disk.
fn fill(mut file: &File, path: &Path, from: &mut dyn Read) -> Result<(), StoreError> {
    io::copy(from, &mut file).and_then(|_| file.sync_all()).map_err(cannot_write(path))
}

/// Makes a file that is on the disk when this ends well, and not there otherwise.
fn make(path: &Path, from: &mut dyn Read) -> Result<(), StoreError> {
    // never written in place: what a killed process left here may be a second name of a checkpoint
    remove(path)?;
    let file = File::options().write(true).create_new(true).open(path).map_err(cannot_write(path))?;
    fill(&file, path, from).inspect_err(|_| {
        // the room may be needed, and the error is told either way
        let _ = fs::remove_file(path);
    })
}

/// Gives a file a second name, or makes a copy where the file system has no such thing.
fn duplicate(path: &Path, to: &Path) -> Result<(), StoreError> {
    remove(to)?;
    match fs::hard_link(path, to) {
        Ok(()) => Ok(()),
        Err(_) => make(to, &mut File::open(path).map_err(cannot_read(path))?),
    }
}

/// The bytes of a checkpoint file, whose start fits its length: of other files hardly anything is read.
fn bytes_of(path: &Path) -> Result<Vec<u8>, StoreError> {
    // before it is opened, because opening a pipe waits for somebody to write
    if !fs::metadata(path).map_err(cannot_read(path))?.is_file() {
        return Err(cannot_read(path)(io::Error::other("not a file")));
    }
    let mut file = File::open(path).map_err(cannot_read(path))?;
    let length = file.metadata().map_err(cannot_read(path))?.len();
    let mut bytes = Vec::new();
    (&mut file).take(START as u64).read_to_end(&mut bytes).map_err(cannot_read(path))?;
    snapshot::check_start(&bytes, length).map_err(|source| StoreError::Damaged { path: path.to_owned(), source })?;
    let rest = length - bytes.len() as u64;
    usize::try_from(rest)
        .map_err(|_| io::ErrorKind::OutOfMemory.into())
        .and_then(|rest| bytes.try_reserve_exact(rest).map_err(io::Error::from))
        .and_then(|()| file.take(rest).read_to_end(&mut bytes))
        .map_err(cannot_read(path))?;
    Ok(bytes)
}

/// Reads one checkpoint without locking its folder, which another process may be writing to.
///
/// # Errors
/// If it cannot be read or is damaged.
pub fn read_snapshot(path: &Path) -> Result<Snapshot, StoreError> {
    let bytes = bytes_of(path)?;
    Snapshot::from_bytes(&bytes).map_err(|source| StoreError::Damaged { path: path.to_owned(), source })
}

/// Makes a folder under `parent` with a readable name that is not taken: `stem`, else `stem-2`, `stem-3` and so on. Two
/// processes never get the same.
///
/// # Errors
/// If `stem` is no name, or the folder cannot be made.
pub fn fresh(parent: &Path, stem: &str) -> Result<Folder, StoreError> {
    plain(stem)?;
    fs::create_dir_all(parent).map_err(cannot_write(parent))?;
    let mut number = 1u64;
    loop {
        let path = parent.join(if number == 1 { stem.to_owned() } else { format!("{stem}-{number}") });
        match fs::create_dir(&path) {
            Ok(()) => match Folder::claim(&path) {
                // somebody was told to use just this one
                Err(StoreError::Locked { .. } | StoreError::NotEmpty { .. }) => {}
                other => return other,
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot_write(&path)(error)),
        }
        number += 1;
    }
}

/// The folder of a run, which is this one's alone until it is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Makes a new folder, and those around it; one that is there and empty will do.
    ///
    /// # Errors
    /// If it is not empty, in use, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(cannot_write(path))?;
        // before the lock as well, which would be something new in a folder that is not ours
        empty(path)?;
        Self::claim(path)
    }

    /// Opens the folder of a run. What a killed process has left half written is removed.
    ///
    /// # Errors
    /// If it is none ([`StoreError::NotARun`]), in use, or cannot be written to.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let config = path.join(CONFIG);
        match fs::metadata(&config) {
            Ok(config) if config.is_file() => {}
            Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(cannot_read(&config)(error));
            }
            _ => return Err(StoreError::NotARun { path: path.to_owned() }),
        }
        let folder = Self { path: path.to_owned(), lock: lock(path)? };
        folder.sweep()?;
        Ok(folder)
    }

    /// Removes what a killed process has left half written.
    fn sweep(&self) -> Result<(), StoreError> {
        for entry in fs::read_dir(&self.path).map_err(cannot_read(&self.path))? {
            let entry = entry.map_err(cannot_read(&self.path))?;
            if is_part(&entry) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Takes an empty folder.
    fn claim(path: &Path) -> Result<Self, StoreError> {
        let folder = Self { path: path.to_owned(), lock: lock(path)? };
        // another process may have had it until just now
        empty(path)?;
        folder.sweep()?;
        if let Some(parent) = path.parent() {
            sync(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
        }
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file so that it is there whole or not at all; one of that name is replaced.
    ///
    /// # Errors
    /// If it is no name, or the disk fails us; what was there is there still.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        plain(name)?;
        let path = self.path.join(name);
        make(&part_of(&path), &mut &bytes[..])?;
        self.put(&path)
    }

    /// Cuts a file of lines after `most` whole ones; returns how many it has then.
    ///
    /// # Errors
    /// If it cannot be read or cut.
    pub fn lines(&self, name: &str, most: usize) -> Result<usize, StoreError> {
        plain(name)?;
        let path = self.path.join(name);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(source) => return Err(StoreError::Read { path, source }),
        };
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let (number, length) = ends.take(most).fold((0, 0), |(number, _), end| (number + 1, end));
        if length < bytes.len() {
            let cut = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(length as u64));
            cut.map_err(|source| StoreError::Write { path, source })?;
        }
        Ok(number)
    }

    /// Adds to the end of a file; one that is not there is made.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        plain(name)?;
        let path = self.path.join(name);
        let written =
            OpenOptions::new().append(true).create(true).open(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|source| StoreError::Write { path, source })
    }

    /// Saves a checkpoint; what was the newest becomes the previous one, unless it is damaged. Whenever this is
    /// interrupted, at least one good checkpoint is there if there was one before.
    ///
    /// # Errors
    /// If the disk fails us; what could be loaded before can be loaded still.
    pub fn save(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let (newest, previous) = (self.path.join(CHECKPOINT), self.path.join(PREVIOUS));
        make(&part_of(&newest), &mut &snapshot.to_bytes()[..])?;
        // a damaged one would replace what may be the only good one
        if bytes_of(&newest).is_ok_and(|bytes| snapshot::check(&bytes).is_ok()) {
            duplicate(&newest, &part_of(&previous)).and_then(|()| self.put(&previous)).inspect_err(|_| {
                let _ = fs::remove_file(part_of(&newest));
            })?;
        }
        self.put(&newest)
    }

    /// The newest good checkpoint, if there is one, and if it is not the newest of all, why: a warning for the user.
    ///
    /// # Errors
    /// If there are some, but none of them can be used.
    pub fn load(&self) -> Result<Option<(Snapshot, Option<String>)>, StoreError> {
        let read = |name: &str| match read_snapshot(&self.path.join(name)) {
            Err(StoreError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        };
        let newest = match read(CHECKPOINT) {
            Ok(Some(snapshot)) => return Ok(Some((snapshot, None))),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        match (newest, read(PREVIOUS)) {
            (None, Ok(None)) => Ok(None),
            (Some(error), Ok(None)) | (None, Err(error)) => Err(error),
            (Some(newest), Err(previous)) => {
                Err(StoreError::NoneLeft { newest: Box::new(newest), previous: Box::new(previous) })
            }
            (newest, Ok(Some(snapshot))) => {
                let missing = || format!("{} is missing", self.path.join(CHECKPOINT).display());
                let why = newest.map_or_else(missing, |error| said(&error));
                Ok(Some((snapshot, Some(format!("{why}; going on from {PREVIOUS}, the checkpoint before it")))))
            }
        }
    }

    /// Renames a file's temporary file to the file.
    fn put(&self, path: &Path) -> Result<(), StoreError> {
        let part = part_of(path);
        fs::rename(&part, path).map_err(cannot_write(path)).inspect_err(|_| {
            let _ = fs::remove_file(&part);
        })?;
        // two names of one file are both kept by a rename
        remove(&part)?;
        sync(&self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // closing the file is not enough while a process that is being started still has a copy of it
        let _ = self.lock.unlock();
    }
}

/// Whether something in a run's folder is a temporary file of ours.
fn is_part(entry: &fs::DirEntry) -> bool {
    let named = entry.file_name().as_encoded_bytes().ends_with(PART.as_bytes());
    named && entry.file_type().is_ok_and(|kind| !kind.is_dir())
}

/// Checks that there is nothing in a folder; what a process killed at once leaves does not count: a lock, and the settings half
/// written.
fn empty(folder: &Path) -> Result<(), StoreError> {
    let first = part_of(Path::new(CONFIG));
    for entry in fs::read_dir(folder).map_err(cannot_read(folder))? {
        let entry = entry.map_err(cannot_read(folder))?;
        if entry.file_name() != LOCK && !(entry.file_name() == first && is_part(&entry)) {
            return Err(StoreError::NotEmpty { path: folder.to_owned() });
        }
    }
    Ok(())
}

/// Takes a folder for this process. The system takes it back when the process ends, however that comes about.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = folder.join(LOCK);
    let mut options = File::options();
    // not emptied on opening: it may be another's
    let mut file = options.create(true).truncate(false).write(true).open(&path).map_err(cannot_write(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&path).ok().and_then(|pid| pid.trim().parse().ok());
            return Err(StoreError::Locked { path: folder.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(cannot_write(&path)(error)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(cannot_write(&path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// A place for one test, removed at its end.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("equipoise-folder-{}-{number}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn run(&self) -> PathBuf {
            self.0.join("run")
        }

        /// A run with nothing but its configuration.
        fn folder(&self) -> Folder {
            let folder = Folder::create(&self.run()).expect("new");
            folder.write(CONFIG, b"epochs = 3\n").expect("room");
            folder
        }

        /// A run with checkpoints 1 and 2.
        fn saved(&self) -> Folder {
            let folder = self.folder();
            folder.save(&checkpoint(1)).expect("room");
            folder.save(&checkpoint(2)).expect("room");
            folder
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn checkpoint(number: usize) -> Snapshot {
        Snapshot { header: format!("{{\"step\": {number}}}"), tensors: vec![vec![number as f32; 1000], vec![]] }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("there").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
        names.sort();
        names
    }

    /// Changes a file in place.
    fn spoil(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).expect("there");
        change(&mut bytes);
        // other names of the file stay as they are
        fs::remove_file(path).expect("there");
        fs::write(path, bytes).expect("room");
    }

    fn tear(bytes: &mut Vec<u8>) {
        bytes.truncate(bytes.len() / 2);
    }

    #[test]
    fn a_folder_is_one_process_alone() {
        let place = Place::new();
        let folder = place.folder();
        for path in [place.run(), place.0.join("run/../run")] {
            match Folder::open(&path).expect_err("in use") {
                StoreError::Locked { pid, .. } => assert_eq!(pid, Some(std::process::id())),
                other => panic!("{other}"),
            }
        }
        drop(folder);
        // of a process that was killed
        fs::write(place.run().join(LOCK), "4000000000 and more").expect("room");
        let folder = Folder::open(&place.run()).expect("free again");
        assert_eq!(fs::read_to_string(place.run().join(LOCK)).expect("there"), format!("{}\n", std::process::id()));
        assert_eq!(folder.path(), place.run());
    }

    #[test]
    fn the_last_two_checkpoints_are_kept() {
        let place = Place::new();
        let folder = place.folder();
        assert_eq!(folder.load().expect("good"), None);
        for number in 1..5 {
            folder.save(&checkpoint(number)).expect("room");
            assert_eq!(folder.load().expect("good"), Some((checkpoint(number), None)));
            let previous = read_snapshot(&folder.path().join(PREVIOUS));
            if number == 1 {
                assert!(matches!(previous, Err(StoreError::Read { .. })));
            } else {
                assert_eq!(previous.expect("good"), checkpoint(number - 1));
            }
        }
        assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
        drop(folder);
        let again = Folder::open(&place.run()).expect("free").load().expect("good");
        assert_eq!(again, Some((checkpoint(4), None)));
    }

    #[test]
    fn a_damaged_checkpoint_is_replaced_by_the_one_before() {
        for (change, why) in [
            (tear as fn(&mut Vec<u8>), "cut off: "),
            (|bytes| bytes[2000] ^= 4, "damaged: its checksum is "),
            (Vec::clear, "cut off: 0 "),
        ] {
            let place = Place::new();
            let folder = place.saved();
            let newest = folder.path().join(CHECKPOINT);
            spoil(&newest, change);
            let (snapshot, warning) = folder.load().expect("one is left").expect("one is left");
            assert_eq!(snapshot, checkpoint(1));
            let warning = warning.expect("a warning");
            assert!(warning.starts_with(&format!("cannot use {}: {why}", newest.display())), "{warning}");
            assert!(warning.ends_with("; going on from previous.eqp, the checkpoint before it"), "{warning}");
            // the good one is not replaced by the damaged one
            folder.save(&checkpoint(3)).expect("room");
            assert_eq!(folder.load().expect("good"), Some((checkpoint(3), None)));
            assert_eq!(read_snapshot(&folder.path().join(PREVIOUS)).expect("good"), checkpoint(1));
        }
    }

    #[test]
    fn a_missing_checkpoint_is_told() {
        let place = Place::new();
        let folder = place.saved();
        let newest = folder.path().join(CHECKPOINT);
        fs::remove_file(&newest).expect("there");
        let (snapshot, warning) = folder.load().expect("one is left").expect("one is left");
        assert_eq!(snapshot, checkpoint(1));
        assert!(warning.expect("a warning").starts_with(&format!("{} is missing; ", newest.display())));
        // what is no file is never waited for
        fs::create_dir(&newest).expect("room");
        assert!(folder.load().expect("one is left").expect("one is left").1.expect("a warning").contains("not a file"));
    }

    #[test]
    fn two_damaged_checkpoints_are_both_named() {
        let place = Place::new();
        let folder = place.saved();
        let [newest, previous] = [CHECKPOINT, PREVIOUS].map(|name| folder.path().join(name));
        spoil(&newest, tear);
        spoil(&previous, |bytes| bytes[2000] ^= 4);
        let error = folder.load().expect_err("none is left");
        assert!(matches!(error, StoreError::NoneLeft { .. }));
        let error = error.to_string();
        assert!(error.contains(&format!("cannot use {}: cut off", newest.display())), "{error}");
        assert!(error.contains(&format!("cannot use {}: damaged", previous.display())), "{error}");
        fs::remove_file(&previous).expect("there");
        assert!(matches!(folder.load(), Err(StoreError::Damaged { path, .. }) if path == newest));
        fs::rename(&newest, &previous).expect("there");
        assert!(matches!(folder.load(), Err(StoreError::Damaged { path, .. }) if path == previous));
    }

    /// What an interrupted `save` leaves, step by step: from checkpoints 1 and 2 to 3.
    #[test]
    fn wherever_a_save_is_interrupted_a_checkpoint_is_left() {
        let new = checkpoint(3).to_bytes();
        for step in 0..6 {
            let place = Place::new();
            let folder = place.saved();
            let path = |name: &str| folder.path().join(name);
            let [newest, previous] = [CHECKPOINT, PREVIOUS].map(path);
            let [newest_part, previous_part] = [&newest, &previous].map(|path| part_of(path));
            if step == 1 {
                fs::write(&newest_part, &new[..new.len() / 2]).expect("room");
            }
            if step >= 2 {
                fs::write(&newest_part, &new).expect("room");
            }
            if step >= 3 {
                fs::hard_link(&newest, &previous_part).expect("links");
            }
            if step >= 4 {
                fs::rename(&previous_part, &previous).expect("renamed");
            }
            if step >= 5 {
                fs::rename(&newest_part, &newest).expect("renamed");
            }
            let want = if step < 5 { 2 } else { 3 };
            let before = if step < 4 { 1 } else { 2 };
            assert_eq!(read_snapshot(&previous).expect("good"), checkpoint(before), "step {step}");
            drop(folder);
            let folder = Folder::open(&place.run()).expect("free");
            assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS], "step {step}");
            assert_eq!(folder.load().expect("good"), Some((checkpoint(want), None)), "step {step}");
            // after step 4 both names are of one file
            folder.save(&checkpoint(4)).expect("room");
            assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS], "step {step}");
            assert_eq!(folder.load().expect("good"), Some((checkpoint(4), None)), "step {step}");
            assert_eq!(read_snapshot(&previous).expect("good"), checkpoint(want), "step {step}");
        }
    }

    /// The same without opening the folder again: what is left over must not be written through.
    #[test]
    fn left_over_names_of_a_checkpoint_are_harmless() {
        let place = Place::new();
        let folder = place.saved();
        let [newest, previous] = [CHECKPOINT, PREVIOUS].map(|name| folder.path().join(name));
        for part in [part_of(&newest), part_of(&previous), part_of(&folder.path().join("a"))] {
            fs::hard_link(&newest, part).expect("links");
        }
        folder.write("a", b"a").expect("room");
        assert_eq!(folder.load().expect("good"), Some((checkpoint(2), None)));
        folder.save(&checkpoint(3)).expect("room");
        assert_eq!(folder.load().expect("good"), Some((checkpoint(3), None)));
        assert_eq!(read_snapshot(&previous).expect("good"), checkpoint(2));
        assert_eq!(names(folder.path()), ["a", CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
    }

    #[test]
    fn where_there_are_no_links_a_copy_is_made() {
        let place = Place::new();
        let [from, to] = ["from", "to"].map(|name| place.0.join(name));
        fs::write(&from, b"new").expect("room");
        fs::write(&to, b"what was left").expect("room");
        make(&to, &mut File::open(&from).expect("there")).expect("room");
        assert_eq!(fs::read(&to).expect("there"), b"new");
        let nowhere = place.0.join("nowhere/to");
        assert!(matches!(duplicate(&from, &nowhere), Err(StoreError::Write { path, .. }) if path == nowhere));
        assert!(matches!(duplicate(&nowhere, &to), Err(StoreError::Read { path, .. }) if path == nowhere));
    }

    /// A process that does not outlive the test.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// This test again as another process, which saves until it is killed.
    #[test]
    fn a_killed_process_leaves_a_checkpoint() {
        const ROLE: &str = "EQUIPOISE_TEST_SAVES_IN";
        if let Some(path) = std::env::var_os(ROLE) {
            let folder = Folder::open(Path::new(&path)).expect("free");
            // an end, should nobody be there to kill it
            for number in 1..100_000 {
                folder.save(&checkpoint(number)).expect("room");
            }
            return;
        }
        let place = Place::new();
        drop(place.saved());
        for round in 0..10 {
            let name = "folder::tests::a_killed_process_leaves_a_checkpoint";
            let child = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", name])
                .env(ROLE, place.run())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("a process");
            let mut child = Killed(child);
            let newest = place.run().join(CHECKPOINT);
            let first = fs::read(&newest).expect("there");
            while fs::read(&newest).expect("always there") == first {
                assert!(child.0.try_wait().expect("ours").is_none(), "it ended by itself");
                std::thread::sleep(Duration::from_millis(1));
            }
            match Folder::open(&place.run()).expect_err("in use") {
                StoreError::Locked { pid, .. } => assert_eq!(pid, Some(child.0.id())),
                other => panic!("{other}"),
            }
            std::thread::sleep(Duration::from_micros(700 * round));
            // a reader needs no lock
            read_snapshot(&newest).expect("always good");
            drop(child);
            let folder = Folder::open(&place.run()).expect("free");
            let (_, warning) = folder.load().expect("good").expect("there");
            assert_eq!(warning, None);
            read_snapshot(&place.run().join(PREVIOUS)).expect("good");
            assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
        }
    }

    #[test]
    fn a_full_disk_changes_nothing() {
        let place = Place::new();
        let folder = place.saved();
        // a name that is taken stands for a disk that takes no more
        let part = part_of(&folder.path().join(CHECKPOINT));
        fs::create_dir(&part).expect("room");
        let error = folder.save(&checkpoint(3)).expect_err("no room");
        assert!(matches!(&error, StoreError::Write { path, .. } if *path == part), "{error}");
        assert_eq!(folder.load().expect("good"), Some((checkpoint(2), None)));
        fs::remove_dir(&part).expect("there");
        let part = part_of(&folder.path().join(PREVIOUS));
        fs::create_dir(&part).expect("room");
        assert!(matches!(folder.save(&checkpoint(3)), Err(StoreError::Write { path, .. }) if path == part));
        assert_eq!(folder.load().expect("good"), Some((checkpoint(2), None)));
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).expect("room");
        assert!(matches!(folder.write("taken", b""), Err(StoreError::Write { path, .. }) if path == taken));
        assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS, "previous.eqp.part", "taken"]);
        let full = Path::new("/dev/full");
        if let Ok(file) = File::options().write(true).open(full) {
            let error = fill(&file, full, &mut &[1; 100][..]).expect_err("full");
            assert!(said(&error).starts_with("cannot write /dev/full: "), "{}", said(&error));
        }
    }

    /// A file that cannot be finished goes away again.
    #[test]
    fn half_a_file_is_not_left() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no more"))
            }
        }
        let place = Place::new();
        let error = make(&place.0.join("x"), &mut b"abc".chain(Fails)).expect_err("fails");
        assert_eq!(said(&error), format!("cannot write {}: no more", place.0.join("x").display()));
        assert!(names(&place.0).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_read_only_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let place = Place::new();
        let folder = place.saved();
        let mode = |mode| fs::set_permissions(place.run(), fs::Permissions::from_mode(mode)).expect("ours");
        mode(0o555);
        // root may write everywhere
        if File::create(place.run().join("try")).is_err() {
            let error = folder.write("a.txt", b"a").expect_err("read-only");
            let part = place.run().join("a.txt.part");
            assert!(said(&error).starts_with(&format!("cannot write {}: ", part.display())), "{}", said(&error));
            assert!(matches!(folder.save(&checkpoint(3)), Err(StoreError::Write { .. })));
            assert_eq!(folder.load().expect("good"), Some((checkpoint(2), None)));
        }
        mode(0o755);
    }

    #[test]
    fn a_new_folder_is_empty() {
        let place = Place::new();
        fs::create_dir(place.run()).expect("room");
        drop(Folder::create(&place.run()).expect("empty"));
        // with the lock of one that got no further, and what it had begun to write
        fs::write(part_of(&place.run().join(CONFIG)), "seed").expect("room");
        let folder = Folder::create(&place.run()).expect("empty but for a lock");
        assert!(matches!(Folder::create(&place.run()), Err(StoreError::Locked { .. })));
        assert_eq!(names(&place.run()), [LOCK]);
        folder.write(CONFIG, b"").expect("room");
        drop(folder);
        assert!(matches!(Folder::create(&place.run()), Err(StoreError::NotEmpty { .. })));
        let others = place.0.join("others");
        fs::create_dir(&others).expect("room");
        fs::write(others.join("letter"), "").expect("room");
        assert!(matches!(Folder::create(&others), Err(StoreError::NotEmpty { .. })));
        assert_eq!(names(&others), ["letter"]);
        assert!(matches!(Folder::create(&others.join("letter")), Err(StoreError::Write { .. })));
        drop(Folder::create(&place.0.join("a/b/c")).expect("with those around it"));
    }

    #[test]
    fn a_folder_without_a_run_is_not_touched() {
        let place = Place::new();
        fs::write(place.0.join("film.part"), "").expect("room");
        for path in [place.0.clone(), place.run(), place.0.join("film.part")] {
            assert!(matches!(Folder::open(&path), Err(StoreError::NotARun { .. })));
        }
        assert_eq!(names(&place.0), ["film.part"]);
    }

    #[test]
    fn a_fresh_folder_has_a_name_of_its_own() {
        let place = Place::new();
        let parent = place.0.join("runs");
        let folders: Vec<Folder> = (0..3).map(|_| fresh(&parent, "cifar10-aura").expect("room")).collect();
        assert_eq!(names(&parent), ["cifar10-aura", "cifar10-aura-2", "cifar10-aura-3"]);
        assert_eq!(folders[1].path(), parent.join("cifar10-aura-2"));
        drop(folders);
        // those of ended runs are taken as well
        assert_eq!(fresh(&parent, "cifar10-aura").expect("room").path(), parent.join("cifar10-aura-4"));
        // from four threads at once
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| fresh(&parent, "x").expect("room"))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        let mut made: Vec<&Path> = made.iter().map(Folder::path).collect();
        made.sort();
        assert_eq!(made, ["x", "x-2", "x-3", "x-4"].map(|name| parent.join(name)));
        let long = "x".repeat(5000);
        assert!(matches!(fresh(&parent, &long), Err(StoreError::Write { .. })));
    }

    #[test]
    fn hostile_names_are_refused() {
        let place = Place::new();
        let folder = place.folder();
        for name in ["", ".", "..", "a/b", "/", "/etc", "../x", "a\\b", "c:x", "a\0b", "a\nb", "lock", "a.part"] {
            assert!(matches!(fresh(&place.0, name), Err(StoreError::Name { .. })), "{name:?}");
            assert!(matches!(folder.write(name, b""), Err(StoreError::Name { .. })), "{name:?}");
        }
        assert_eq!(names(&place.0), ["run"]);
        assert_eq!(names(folder.path()), [CONFIG, LOCK]);
        fresh(&place.0, "Größe 1.5, -x").expect("a name");
    }

    #[test]
    fn files_are_replaced_whole() {
        let place = Place::new();
        let folder = place.folder();
        for text in ["a long text", "short", ""] {
            folder.write("notes.txt", text.as_bytes()).expect("room");
            assert_eq!(fs::read_to_string(folder.path().join("notes.txt")).expect("there"), text);
        }
        fs::write(folder.path().join("notes.txt.part"), "half").expect("room");
        fs::create_dir(folder.path().join("mine.part")).expect("room");
        drop(folder);
        let folder = Folder::open(&place.run()).expect("free");
        assert_eq!(names(folder.path()), [CONFIG, LOCK, "mine.part", "notes.txt"]);
    }

    #[test]
    fn errors_say_what_and_where() {
        let path = || PathBuf::from("runs/a");
        let source = || io::Error::other("no luck");
        let damaged = |path: PathBuf| StoreError::Damaged { path, source: Damage::NotACheckpoint };
        let errors = [
            (StoreError::Read { path: path(), source: source() }, "cannot read runs/a: no luck"),
            (StoreError::Write { path: path(), source: source() }, "cannot write runs/a: no luck"),
            (damaged(path()), "cannot use runs/a: not a checkpoint"),
            (
                StoreError::NoneLeft { newest: Box::new(damaged("x".into())), previous: Box::new(damaged("y".into())) },
                "no checkpoint is left: cannot use x: not a checkpoint; cannot use y: not a checkpoint",
            ),
            (StoreError::Locked { path: path(), pid: Some(123) }, "run folder runs/a is in use by process 123"),
            (StoreError::Locked { path: path(), pid: None }, "run folder runs/a is in use by another process"),
            (StoreError::NotEmpty { path: path() }, "runs/a is there already, and not empty"),
            (StoreError::NotARun { path: path() }, "runs/a is not the folder of a run: it has no config.toml"),
            (StoreError::Name { name: "a\n".into() }, "`a\\n` cannot be the name of a file or folder of a run"),
        ];
        for (error, want) in errors {
            assert_eq!(said(&error), want);
        }
    }
}
