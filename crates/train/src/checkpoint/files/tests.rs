use std::process::{Child, Command, Stdio};
use std::time::Duration;

use equipoise_record::names::CONFIG;
use equipoise_testing::TempFolder;

use super::*;

const LOCK: &str = "lock";

/// A run with nothing but its configuration.
fn new_run(temp: &TempFolder) -> RunFolder {
    let folder = RunFolder::create(&temp.join("run")).expect("new");
    folder.write(CONFIG, b"epochs = 3\n").expect("space");
    folder
}

/// A run with checkpoints 1 and 2.
fn run_with_checkpoints(temp: &TempFolder) -> RunFolder {
    let folder = new_run(temp);
    save(&folder, &checkpoint(1)).expect("space");
    save(&folder, &checkpoint(2)).expect("space");
    folder
}

fn checkpoint(number: usize) -> RawCheckpoint {
    RawCheckpoint { header: format!("{{\"step\": {number}}}"), tensors: vec![vec![number as f32; 1000], vec![]] }
}

/// What is found if the newest checkpoint is intact.
fn newest(number: usize) -> Option<FoundCheckpoint> {
    Some(FoundCheckpoint { checkpoint: checkpoint(number), warning: None })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
    names.sort();
    names
}

/// Changes a file; other links to it keep their content.
fn corrupt(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("there");
    change(&mut bytes);
    fs::remove_file(path).expect("there");
    fs::write(path, bytes).expect("space");
}

fn tear(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() / 2);
}

#[test]
fn the_last_two_checkpoints_are_kept() {
    let temp = TempFolder::new("checkpoint");
    let folder = new_run(&temp);
    assert_eq!(load(&folder).expect("nothing to read"), None);
    for number in 1..5 {
        save(&folder, &checkpoint(number)).expect("space");
        assert_eq!(load(&folder).expect("intact"), newest(number));
        let previous = read(&folder.path().join(PREVIOUS));
        if number == 1 {
            assert!(matches!(previous, Err(CheckpointError::Folder(FolderError::Read { .. }))));
        } else {
            assert_eq!(previous.expect("intact"), checkpoint(number - 1));
        }
    }
    assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
    drop(folder);
    let folder = RunFolder::open(&temp.join("run")).expect("free");
    assert_eq!(load(&folder).expect("intact"), newest(4));
}

#[test]
fn a_corrupt_checkpoint_is_replaced_by_the_previous_one() {
    for (change, reason) in [
        (tear as fn(&mut Vec<u8>), "truncated: "),
        (|bytes| bytes[2000] ^= 4, "corrupt: its checksum is "),
        (Vec::clear, "truncated: 0 "),
        (|bytes| bytes[7] = b'1', "a checkpoint of format 1, but this program reads format 2"),
    ] {
        let temp = TempFolder::new("checkpoint");
        let folder = run_with_checkpoints(&temp);
        let path = folder.path().join(CHECKPOINT);
        corrupt(&path, change);
        let found = load(&folder).expect("one is left").expect("one is left");
        assert_eq!(found.checkpoint, checkpoint(1));
        let warning = found.warning.expect("a warning");
        assert!(warning.starts_with(&format!("cannot use {}: {reason}", path.display())), "{warning}");
        assert!(warning.ends_with("; continuing from previous.eqp, the checkpoint before it"), "{warning}");
        // the corrupt one does not replace the intact one
        save(&folder, &checkpoint(3)).expect("space");
        assert_eq!(load(&folder).expect("intact"), newest(3));
        assert_eq!(read(&folder.path().join(PREVIOUS)).expect("intact"), checkpoint(1));
    }
}

#[test]
fn a_missing_checkpoint_is_reported() {
    let temp = TempFolder::new("checkpoint");
    let folder = run_with_checkpoints(&temp);
    let path = folder.path().join(CHECKPOINT);
    fs::remove_file(&path).expect("there");
    let found = load(&folder).expect("one is left").expect("one is left");
    assert_eq!(found.checkpoint, checkpoint(1));
    assert!(found.warning.expect("a warning").starts_with(&format!("{} is missing; ", path.display())));
    // something that is not a file never blocks
    fs::create_dir(&path).expect("space");
    let found = load(&folder).expect("one is left").expect("one is left");
    assert!(found.warning.expect("a warning").contains("not a file"));
}

#[test]
fn two_corrupt_checkpoints_are_both_named() {
    let temp = TempFolder::new("checkpoint");
    let folder = run_with_checkpoints(&temp);
    let [newest, previous] = [CHECKPOINT, PREVIOUS].map(|name| folder.path().join(name));
    corrupt(&newest, tear);
    corrupt(&previous, |bytes| bytes[2000] ^= 4);
    let error = load(&folder).expect_err("none is left");
    assert!(matches!(error, CheckpointError::NoneLeft { .. }));
    let error = error.to_string();
    assert!(error.starts_with("no checkpoint is left: "), "{error}");
    assert!(error.contains(&format!("cannot use {}: truncated", newest.display())), "{error}");
    assert!(error.contains(&format!("cannot use {}: corrupt", previous.display())), "{error}");
    fs::remove_file(&previous).expect("there");
    assert!(matches!(load(&folder), Err(CheckpointError::Corrupt { path, .. }) if path == newest));
    fs::rename(&newest, &previous).expect("there");
    assert!(matches!(load(&folder), Err(CheckpointError::Corrupt { path, .. }) if path == previous));
}

/// What an interrupted `save` leaves, step by step: from checkpoints 1 and 2 to 3.
#[test]
fn wherever_a_save_is_interrupted_a_checkpoint_is_left() {
    let new = checkpoint(3).to_bytes();
    for step in 0..6 {
        let temp = TempFolder::new("checkpoint");
        let folder = run_with_checkpoints(&temp);
        let path = |name: &str| folder.path().join(name);
        let [newest_path, previous_path] = [CHECKPOINT, PREVIOUS].map(path);
        let [newest_part, previous_part] = ["checkpoint.eqp.part", "previous.eqp.part"].map(path);
        if step == 1 {
            fs::write(&newest_part, &new[..new.len() / 2]).expect("space");
        }
        if step >= 2 {
            fs::write(&newest_part, &new).expect("space");
        }
        if step >= 3 {
            fs::hard_link(&newest_path, &previous_part).expect("hard links");
        }
        if step >= 4 {
            fs::rename(&previous_part, &previous_path).expect("renamed");
        }
        if step >= 5 {
            fs::rename(&newest_part, &newest_path).expect("renamed");
        }
        let number = if step < 5 { 2 } else { 3 };
        let before = if step < 4 { 1 } else { 2 };
        assert_eq!(read(&previous_path).expect("intact"), checkpoint(before), "step {step}");
        drop(folder);
        let folder = RunFolder::open(&temp.join("run")).expect("free");
        assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS], "step {step}");
        assert_eq!(load(&folder).expect("intact"), newest(number), "step {step}");
        // after step 4 both names are links to one file
        save(&folder, &checkpoint(4)).expect("space");
        assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS], "step {step}");
        assert_eq!(load(&folder).expect("intact"), newest(4), "step {step}");
        assert_eq!(read(&previous_path).expect("intact"), checkpoint(number), "step {step}");
    }
}

/// A process that does not outlive the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs this test again as another process, which saves checkpoints until it is killed.
#[test]
fn a_killed_process_leaves_a_checkpoint() {
    const ROLE: &str = "EQUIPOISE_TEST_SAVES_IN";
    if let Some(path) = std::env::var_os(ROLE) {
        let folder = RunFolder::open(Path::new(&path)).expect("free");
        // bounded, in case nobody is left to kill it
        for number in 1..100_000 {
            save(&folder, &checkpoint(number)).expect("space");
        }
        return;
    }
    let temp = TempFolder::new("checkpoint");
    drop(run_with_checkpoints(&temp));
    for round in 0..10 {
        let name = "checkpoint::files::tests::a_killed_process_leaves_a_checkpoint";
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name])
            .env(ROLE, temp.join("run"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let mut child = KillOnDrop(child);
        let newest = temp.join("run").join(CHECKPOINT);
        let first = fs::read(&newest).expect("there");
        while fs::read(&newest).expect("always there") == first {
            assert!(child.0.try_wait().expect("our child").is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        match RunFolder::open(&temp.join("run")).expect_err("in use") {
            FolderError::Locked { owner, .. } => assert_eq!(owner.map(|owner| owner.pid), Some(child.0.id())),
            other => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        // reading needs no lock
        read(&newest).expect("always intact");
        drop(child);
        let folder = RunFolder::open(&temp.join("run")).expect("free");
        assert_eq!(load(&folder).expect("intact").expect("there").warning, None);
        read(&temp.join("run").join(PREVIOUS)).expect("intact");
        assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
    }
}
