use std::fs::File;
use std::io::Read;

use equipoise_support::LockOwner;
use equipoise_testing::TempFolder;

use super::atomic::fill;
use super::*;
use crate::names::{COMPARISON_RESULT, is_run};

/// A run with nothing but its configuration.
fn new_run(temp: &TempFolder) -> RunFolder {
    let folder = RunFolder::create(&temp.join("run")).expect("new");
    folder.write(CONFIG, b"epochs = 3\n").expect("space");
    folder
}

/// A run with checkpoints 1 and 2.
fn run_with_checkpoints(temp: &TempFolder) -> RunFolder {
    let folder = new_run(temp);
    for bytes in [b"1", b"2"] {
        rotate(&folder, bytes).expect("space");
    }
    folder
}

fn rotate(folder: &RunFolder, bytes: &[u8]) -> Result<(), FolderError> {
    folder.rotate_checkpoint(&mut &bytes[..], Path::is_file)
}

fn read(folder: &RunFolder, name: &str) -> Option<String> {
    fs::read_to_string(folder.path().join(name)).ok()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
    names.sort();
    names
}

/// An error with its causes, as a user sees it.
fn message(error: &FolderError) -> String {
    equipoise_support::with_causes(error)
}

#[test]
fn a_folder_is_locked_by_one_owner() {
    let temp = TempFolder::new("record");
    let folder = new_run(&temp);
    for path in [temp.join("run"), temp.path().join("run/../run")] {
        match RunFolder::open(&path).expect_err("in use") {
            FolderError::Locked { owner, .. } => assert_eq!(owner.map(|owner| owner.pid), Some(std::process::id())),
            other => panic!("{other}"),
        }
    }
    drop(folder);
    // the leftover of a killed process
    fs::write(temp.join("run").join(LOCK), "4000000000 and more").expect("space");
    let folder = RunFolder::open(&temp.join("run")).expect("free again");
    assert!(read(&folder, LOCK).is_some_and(|text| text.starts_with(&format!("{} ", std::process::id()))));
    assert_eq!(folder.path(), temp.join("run"));
}

/// Leftovers of an interrupted rotation are further links to a checkpoint: they must not be written through.
#[test]
fn leftover_links_of_a_checkpoint_are_harmless() {
    let temp = TempFolder::new("record");
    let folder = run_with_checkpoints(&temp);
    for name in [CHECKPOINT, PREVIOUS, "a"] {
        fs::hard_link(folder.path().join(CHECKPOINT), part_path(&folder.path().join(name))).expect("hard links");
    }
    folder.write("a", b"a").expect("space");
    assert_eq!([CHECKPOINT, PREVIOUS].map(|name| read(&folder, name).expect("there")), ["2", "1"]);
    rotate(&folder, b"3").expect("space");
    assert_eq!([CHECKPOINT, PREVIOUS].map(|name| read(&folder, name).expect("there")), ["3", "2"]);
    assert_eq!(names(folder.path()), ["a", CHECKPOINT, CONFIG, LOCK, PREVIOUS]);
}

#[test]
fn a_corrupt_checkpoint_does_not_become_the_previous_one() {
    let temp = TempFolder::new("record");
    let folder = run_with_checkpoints(&temp);
    folder.rotate_checkpoint(&mut &b"3"[..], |_| false).expect("space");
    assert_eq!([CHECKPOINT, PREVIOUS].map(|name| read(&folder, name).expect("there")), ["3", "1"]);
}

#[test]
fn a_file_is_copied_where_there_are_no_hard_links() {
    let temp = TempFolder::new("record");
    let [from, to] = ["from", "to"].map(|name| temp.path().join(name));
    fs::write(&from, b"new").expect("space");
    fs::write(&to, b"a leftover").expect("space");
    create_file(&to, &mut File::open(&from).expect("there")).expect("space");
    assert_eq!(fs::read(&to).expect("there"), b"new");
    let nowhere = temp.path().join("nowhere/to");
    assert!(matches!(link_or_copy(&from, &nowhere), Err(FolderError::Write { path, .. }) if path == nowhere));
    assert!(matches!(link_or_copy(&nowhere, &to), Err(FolderError::Read { path, .. }) if path == nowhere));
}

#[test]
fn a_full_disk_changes_nothing() {
    let temp = TempFolder::new("record");
    let folder = run_with_checkpoints(&temp);
    // a name that is taken stands for a disk that is full
    let part = part_path(&folder.path().join(CHECKPOINT));
    fs::create_dir(&part).expect("space");
    let error = rotate(&folder, b"3").expect_err("no space");
    assert!(matches!(&error, FolderError::Write { path, .. } if *path == part), "{error}");
    assert_eq!(read(&folder, CHECKPOINT).as_deref(), Some("2"));
    fs::remove_dir(&part).expect("there");
    let part = part_path(&folder.path().join(PREVIOUS));
    fs::create_dir(&part).expect("space");
    assert!(matches!(rotate(&folder, b"3"), Err(FolderError::Write { path, .. }) if path == part));
    assert_eq!(read(&folder, CHECKPOINT).as_deref(), Some("2"));
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).expect("space");
    assert!(matches!(folder.write("taken", b""), Err(FolderError::Write { path, .. }) if path == taken));
    assert_eq!(names(folder.path()), [CHECKPOINT, CONFIG, LOCK, PREVIOUS, "previous.eqp.part", "taken"]);
    let full = Path::new("/dev/full");
    if let Ok(file) = File::options().write(true).open(full) {
        let error = fill(&file, full, &mut &[1; 100][..]).expect_err("full");
        assert!(message(&error).starts_with("cannot write /dev/full: "), "{}", message(&error));
    }
}

#[test]
fn a_file_that_cannot_be_finished_is_removed() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no more"))
        }
    }
    let temp = TempFolder::new("record");
    let error = create_file(&temp.path().join("x"), &mut b"abc".chain(Fails)).expect_err("fails");
    assert_eq!(message(&error), format!("cannot write {}: no more", temp.path().join("x").display()));
    assert!(names(temp.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn a_read_only_folder_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempFolder::new("record");
    let folder = run_with_checkpoints(&temp);
    let mode = |mode| fs::set_permissions(temp.join("run"), fs::Permissions::from_mode(mode)).expect("ours");
    mode(0o555);
    // root may write everywhere
    if File::create(temp.join("run").join("try")).is_err() {
        let error = folder.write("a.txt", b"a").expect_err("read-only");
        let part = temp.join("run").join("a.txt.part");
        assert!(message(&error).starts_with(&format!("cannot write {}: ", part.display())), "{}", message(&error));
        assert!(matches!(rotate(&folder, b"3"), Err(FolderError::Write { .. })));
        assert_eq!(read(&folder, CHECKPOINT).as_deref(), Some("2"));
    }
    mode(0o755);
}

#[test]
fn a_new_folder_must_be_empty() {
    let temp = TempFolder::new("record");
    fs::create_dir(temp.join("run")).expect("space");
    drop(RunFolder::create(&temp.join("run")).expect("empty"));
    // the leftovers of a process that was killed right after it started: its lock and a half-written configuration
    fs::write(part_path(&temp.join("run").join(CONFIG)), "seed").expect("space");
    let folder = RunFolder::create(&temp.join("run")).expect("empty except for a lock");
    assert!(matches!(RunFolder::create(&temp.join("run")), Err(FolderError::Locked { .. })));
    assert_eq!(names(&temp.join("run")), [LOCK]);
    folder.write(CONFIG, b"").expect("space");
    drop(folder);
    assert!(matches!(RunFolder::create(&temp.join("run")), Err(FolderError::NotEmpty { .. })));
    let foreign = temp.path().join("foreign");
    fs::create_dir(&foreign).expect("space");
    fs::write(foreign.join("letter"), "").expect("space");
    assert!(matches!(RunFolder::create(&foreign), Err(FolderError::NotEmpty { .. })));
    assert_eq!(names(&foreign), ["letter"]);
    assert!(matches!(RunFolder::create(&foreign.join("letter")), Err(FolderError::Write { .. })));
    drop(RunFolder::create(&temp.path().join("a/b/c")).expect("created with its parents"));
}

#[test]
fn a_folder_that_is_not_a_run_is_not_touched() {
    let temp = TempFolder::new("record");
    fs::write(temp.path().join("film.part"), "").expect("space");
    for path in [temp.path().to_owned(), temp.join("run"), temp.path().join("film.part")] {
        assert!(!is_run(&path));
        assert!(matches!(RunFolder::open(&path), Err(FolderError::NotARun { .. })));
        assert!(matches!(RunFolder::open_comparison(&path), Err(FolderError::NotAComparison { .. })));
    }
    assert_eq!(names(temp.path()), ["film.part"]);
}

/// A resumed run must never be started inside the folder of a comparison, whatever else is in it.
#[test]
fn a_comparison_is_not_opened_as_a_run() {
    for marker in [COMPARISON, COMPARISON_RESULT] {
        let temp = TempFolder::new("record");
        let folder = new_run(&temp);
        assert!(is_run(folder.path()) && !is_comparison(folder.path()));
        folder.write(marker, b"").expect("space");
        drop(folder);
        let path = temp.join("run");
        assert!(!is_run(&path) && is_comparison(&path));
        let before = names(&path);
        assert!(matches!(RunFolder::open(&path), Err(FolderError::IsComparison { path: named }) if named == path));
        assert_eq!(names(&path), before);
    }
    let temp = TempFolder::new("record");
    let comparison = RunFolder::create(&temp.path().join("comparison")).expect("new");
    comparison.write(COMPARISON, b"epochs = 3\n").expect("space");
    let path = comparison.path().to_owned();
    drop(comparison);
    RunFolder::open_comparison(&path).expect("a comparison");
    let error = RunFolder::open(&path).expect_err("not a run");
    assert!(matches!(error, FolderError::IsComparison { .. }), "{error}");
}

#[test]
fn a_unique_folder_has_a_name_of_its_own() {
    let temp = TempFolder::new("record");
    let parent = temp.path().join("runs");
    let create = |stem: &str| RunFolder::create_unique(&parent, stem).expect("space");
    let folders: Vec<RunFolder> = (0..3).map(|_| create("cifar10-aura")).collect();
    assert_eq!(names(&parent), ["cifar10-aura", "cifar10-aura-2", "cifar10-aura-3"]);
    assert_eq!(folders[1].path(), parent.join("cifar10-aura-2"));
    drop(folders);
    // the names of ended runs are taken as well
    assert_eq!(create("cifar10-aura").path(), parent.join("cifar10-aura-4"));
    // from four threads at once
    let created = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| create("x"))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut created: Vec<&Path> = created.iter().map(RunFolder::path).collect();
    created.sort();
    assert_eq!(created, ["x", "x-2", "x-3", "x-4"].map(|name| parent.join(name)));
    let long = "x".repeat(5000);
    assert!(matches!(RunFolder::create_unique(&parent, &long), Err(FolderError::Write { .. })));
}

#[test]
fn hostile_names_are_refused() {
    let temp = TempFolder::new("record");
    let folder = new_run(&temp);
    for name in ["", ".", "..", "a/b", "/", "/etc", "../x", "a\\b", "c:x", "a\0b", "a\nb", "lock", "a.part"] {
        assert!(matches!(RunFolder::create_unique(temp.path(), name), Err(FolderError::Name { .. })), "{name:?}");
        assert!(matches!(folder.write(name, b""), Err(FolderError::Name { .. })), "{name:?}");
        assert!(matches!(folder.append(name, b""), Err(FolderError::Name { .. })), "{name:?}");
        assert!(matches!(folder.truncate_lines(name, 1), Err(FolderError::Name { .. })), "{name:?}");
    }
    assert_eq!(names(temp.path()), ["run"]);
    assert_eq!(names(folder.path()), [CONFIG, LOCK]);
    RunFolder::create_unique(temp.path(), "Größe 1.5, -x").expect("a name");
}

#[test]
fn files_are_replaced_as_a_whole() {
    let temp = TempFolder::new("record");
    let folder = new_run(&temp);
    for text in ["a long text", "short", ""] {
        folder.write("notes.txt", text.as_bytes()).expect("space");
        assert_eq!(read(&folder, "notes.txt").as_deref(), Some(text));
    }
    fs::write(folder.path().join("notes.txt.part"), "half").expect("space");
    fs::create_dir(folder.path().join("mine.part")).expect("space");
    drop(folder);
    let folder = RunFolder::open(&temp.join("run")).expect("free");
    assert_eq!(names(folder.path()), [CONFIG, LOCK, "mine.part", "notes.txt"]);
}

#[test]
fn lines_are_appended_and_truncated() {
    let temp = TempFolder::new("record");
    let folder = new_run(&temp);
    assert_eq!(folder.truncate_lines("x.jsonl", 9).expect("no file"), 0);
    folder.append_json_lines("x.jsonl", &[1, 2]).expect("space");
    folder.append_json_lines("x.jsonl", &["3"]).expect("space");
    folder.append("x.jsonl", b"{\"torn").expect("space");
    // only complete lines count
    assert_eq!(folder.truncate_lines("x.jsonl", usize::MAX).expect("cut"), 3);
    assert_eq!(read(&folder, "x.jsonl").as_deref(), Some("1\n2\n\"3\"\n"));
    assert_eq!(folder.truncate_lines("x.jsonl", 2).expect("cut"), 2);
    assert_eq!(read(&folder, "x.jsonl").as_deref(), Some("1\n2\n"));
    assert_eq!(folder.truncate_lines("x.jsonl", 0).expect("cut"), 0);
    assert_eq!(read(&folder, "x.jsonl").as_deref(), Some(""));
}

#[test]
fn errors_say_what_and_where() {
    let path = || PathBuf::from("runs/a");
    let source = || io::Error::other("no luck");
    let owner = LockOwner { pid: 123, host: "node1".to_owned() };
    let errors = [
        (FolderError::Read { path: path(), source: source() }, "cannot read runs/a: no luck"),
        (FolderError::Write { path: path(), source: source() }, "cannot write runs/a: no luck"),
        (
            FolderError::Locked { path: path(), owner: Some(owner) },
            "run folder runs/a is in use by process 123 on node1",
        ),
        (FolderError::Locked { path: path(), owner: None }, "run folder runs/a is in use by another process"),
        (FolderError::NotEmpty { path: path() }, "runs/a already exists and is not empty"),
        (FolderError::NotARun { path: path() }, "runs/a is not a run folder: it has no config.toml"),
        (
            FolderError::IsComparison { path: path() },
            "runs/a is the folder of a comparison, not of a run: name one of the run folders in it, or repeat `equipoise compare` with this output folder",
        ),
        (
            FolderError::NotAComparison { path: path() },
            "runs/a is not the folder of a comparison: it has no compare.toml",
        ),
        (FolderError::Name { name: "a\n".into() }, "'a\\n' cannot be the name of a file or folder of a run"),
    ];
    for (error, want) in errors {
        assert_eq!(message(&error), want);
    }
}
