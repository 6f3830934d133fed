//! Trees with a folder per class, made by the tests.

use std::fs;
use std::path::Path;

use equipoise_data::ReadOptions;
use equipoise_data::describe::groups::GroupRule;
use equipoise_data::describe::inspect::inspect;
use equipoise_data::read::format::class_folders::tree;
use equipoise_data::subset::split::SplitRule;
use equipoise_data::{DataError, Dataset, Images, Split};
use equipoise_pool::Pool;
use equipoise_testing::{TempFolder, damaged};
use image::{ImageFormat, Rgb, RgbImage};

/// Writes a small PNG of one color; the extension does not matter.
fn picture(path: &Path, color: u8) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    RgbImage::from_pixel(6, 4, Rgb([color, 7, 9])).save_with_format(path, ImageFormat::Png).expect("writes");
}

/// Ten images of cats, five of dogs, two of newts.
fn zoo() -> TempFolder {
    let here = TempFolder::new("zoo");
    for (class, number) in [("cat", 10), ("dog", 5), ("newt", 2)] {
        (0..number).for_each(|i| picture(&here.path().join(class).join(format!("{i}.png")), i));
    }
    here
}

fn files(part: &Split) -> Vec<String> {
    let Images::Files(files) = &part.images else { panic!("not files") };
    let name = |path: &std::path::PathBuf| {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        format!("{}/{}", folder.to_string_lossy(), path.file_name().unwrap_or_default().to_string_lossy())
    };
    files.iter().map(name).collect()
}

fn read(path: &Path) -> Dataset {
    tree(path, &ReadOptions::default()).expect("good")
}

#[test]
fn one_tree_is_split_within_every_class() {
    let zoo = zoo();
    let set = read(zoo.path());
    assert_eq!(set.classes, ["cat", "dog", "newt"]);
    assert_eq!(set.counts().expect("labels"), [8, 4, 1]);
    assert_eq!(set.test.labels, [0, 0, 1, 2]);
    let mut all = [files(&set.train), files(&set.test)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 17, "an image is in both splits, or in none");
    assert_eq!(set, read(zoo.path()), "the same again");
    let other = tree(zoo.path(), &SplitRule { seed: 1, ..SplitRule::default() }.into()).expect("good");
    assert_ne!(files(&other.test), files(&set.test));
    let half = tree(zoo.path(), &SplitRule { test_fraction: 0.5, seed: 0 }.into()).expect("good");
    assert_eq!(half.counts().expect("labels"), [5, 2, 1]);
    // another class does not change where the others go
    picture(&zoo.path().join("ant/0.png"), 1);
    let more = read(zoo.path());
    assert!(files(&set.test).iter().all(|file| files(&more.test).contains(file)));
}

#[test]
fn train_val_and_test_folders() {
    let here = TempFolder::new("parts");
    for (part, number) in [("train", 3), ("val", 2), ("test", 1)] {
        for class in ["a", "b"] {
            (0..number).for_each(|i| picture(&here.path().join(part).join(class).join(format!("{i}.png")), i));
        }
    }
    picture(&here.path().join("train/b/deeper/x.jpg"), 5);
    let set = read(here.path());
    assert_eq!(set.train.labels, [0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(set.val.as_ref().expect("val").labels, [0, 0, 1, 1]);
    assert_eq!(set.test.labels, [0, 1]);
    assert!(files(&set.train).contains(&"deeper/x.jpg".to_owned()));
    // without test/, val/ is the test split
    fs::remove_dir_all(here.path().join("test")).expect("removes");
    let set = read(here.path());
    assert_eq!((set.val, set.test.labels), (None, vec![0, 0, 1, 1]));
    picture(&here.path().join("val/c/0.png"), 1);
    let error = tree(here.path(), &ReadOptions::default()).expect_err("class c").to_string();
    assert!(error.contains("val/c: there is no such class in"), "{error}");
    fs::remove_dir_all(here.path().join("val")).expect("removes");
    // train/ alone is split
    let set = read(here.path());
    assert_eq!((set.train.labels.len(), set.test.labels), (5, vec![0, 1]));
    assert!(set.problems[0].what.starts_with("20 % of every class are for testing"), "{:?}", set.problems);
}

#[test]
fn bad_trees() {
    let here = TempFolder::new("bad");
    let error = |path: &Path| tree(path, &ReadOptions::default()).expect_err("bad");
    assert!(matches!(error(&here.path().join("nowhere")), DataError::Read { .. }));
    assert!(matches!(error(here.path()), DataError::NoImages { .. }));
    fs::create_dir_all(here.path().join("empty")).expect("a folder");
    assert!(matches!(error(here.path()), DataError::NoImages { .. }));
    picture(&here.path().join("Cat/0.png"), 1);
    for share in [1.0, -1.0, f64::NAN] {
        assert!(matches!(
            tree(here.path(), &SplitRule { test_fraction: share, seed: 0 }.into()),
            Err(DataError::TestFraction { .. })
        ));
    }
    picture(&here.path().join("cat/0.png"), 2);
    let problems: Vec<String> = read(here.path()).problems.iter().map(|p| p.what.clone()).collect();
    assert_eq!(problems, ["a class without images", "class `cat` differs from `Cat` only in upper and lower case"]);
}

/// Odd names and links have a defined result.
#[cfg(unix)]
#[test]
fn odd_paths() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    let here = TempFolder::new("odd");
    let at = |name: &str| here.path().join(name);
    for class in ["caf\u{e9}", "cafe\u{301}", "\u{1f431}", "a\nb"] {
        picture(&at(class).join("0.png"), 1);
    }
    picture(&here.path().join(OsStr::from_bytes(b"\xff\xfe")).join(OsStr::from_bytes(b"\xfd.png")), 2);
    picture(&at(".hidden/0.png"), 3);
    fs::write(at("README"), b"beside the classes").expect("writes");
    symlink(at("a\nb/0.png"), at("a\nb/1.png")).expect("a link");
    symlink(at("nowhere"), at("a\nb/nowhere")).expect("a link");
    symlink("itself", at("a\nb/itself")).expect("a link");
    symlink(at("caf\u{e9}"), at("linked class")).expect("a link");
    symlink(at("\u{1f431}"), at("a\nb/linked")).expect("a link");
    symlink(at("\u{1f431}"), at("a\nb/linked again")).expect("a link");
    let pipe = std::process::Command::new("mkfifo").arg(at("a\nb/pipe")).status().is_ok_and(|status| status.success());
    let set = read(here.path());
    assert_eq!(set.classes, ["a\nb", "cafe\u{301}", "caf\u{e9}", "linked class", "\u{fffd}\u{fffd}", "\u{1f431}"]);
    assert_eq!(set.train.labels.len() + set.test.labels.len(), 8);
    let said = |file: &str| {
        let found = set.problems.iter().find(|problem| problem.path == at(file).display().to_string());
        found.map(|problem| problem.what.as_str())
    };
    assert_eq!(said("a\nb/linked again"), Some("another link leads to the same folder, which is read once"));
    assert_eq!(said("a\nb/nowhere"), Some("neither a file nor a folder"));
    assert_eq!(said("a\nb/itself"), Some("neither a file nor a folder"));
    assert_eq!(said("a\nb/pipe").is_some(), pipe);
    assert_eq!(said("\u{fffd}\u{fffd}"), Some("the class name is not UTF-8"));
    let tree_said = set.problems.iter().find(|p| p.path == here.path().display().to_string());
    assert_eq!(tree_said.map(|p| p.what.as_str()), Some("ignored 1 file beside the class folders: README"));
    assert_eq!(set.problems.len(), 6 + usize::from(pipe), "{:?}", set.problems);
    // names that become the same text cannot both be classes
    picture(&here.path().join(OsStr::from_bytes(b"\xfe\xff")).join("0.png"), 2);
    assert!(matches!(tree(here.path(), &ReadOptions::default()), Err(DataError::SameClass { .. })));
    // a link to a folder around it would never end
    for (target, link) in
        [(here.path().to_owned(), "a\nb/loop"), (at("a\nb"), "a\nb/self"), (here.path().to_owned(), "loop")]
    {
        symlink(target, at(link)).expect("a link");
        let found = tree(here.path(), &ReadOptions::default());
        assert!(
            matches!(&found, Err(DataError::LinkLoop { link: found, .. }) if *found == at(link)),
            "{link}: {found:?}"
        );
        fs::remove_file(at(link)).expect("removes");
    }
    // nor would two links that lead to each other's folders
    fs::create_dir_all(at("one")).expect("a folder");
    fs::create_dir_all(at("two")).expect("a folder");
    symlink(at("two"), at("one/x")).expect("a link");
    symlink(at("one"), at("two/y")).expect("a link");
    assert!(matches!(tree(here.path(), &ReadOptions::default()), Err(DataError::LinkLoop { .. })));
}

/// A thousand nested folders are read; a path that is longer than the system allows is an error.
#[cfg(target_os = "linux")]
#[test]
fn deep_trees() {
    let here = TempFolder::new("deep");
    let class = here.path().join("class");
    let deep = |levels: usize| std::iter::repeat_n("d", levels).collect::<std::path::PathBuf>();
    picture(&class.join("0.png"), 1);
    picture(&class.join(deep(1000)).join("1.png"), 2);
    let set = read(here.path());
    assert_eq!(set.train.labels.len() + set.test.labels.len(), 2);
    let report = inspect(&set, GroupRule::default(), &Pool::single(), &|_, _| {}).expect("labels");
    assert_eq!((report.problems.len(), report.sizes[0].1), (0, 2));
    // half of it is created elsewhere, because the system allows no file at such a path
    let other = here.path().join(".other");
    picture(&other.join(deep(1500)).join("2.png"), 3);
    fs::rename(&other, class.join(deep(1000)).join("other")).expect("moves");
    let error = tree(here.path(), &ReadOptions::default()).expect_err("too deep");
    assert!(matches!(error, DataError::Read { .. }), "{error}");
}

/// A split may be a link to a folder.
#[cfg(unix)]
#[test]
fn linked_splits() {
    let here = TempFolder::new("linked");
    picture(&here.path().join("set/test/a/0.png"), 1);
    picture(&here.path().join("elsewhere/a/0.png"), 2);
    std::os::unix::fs::symlink(here.path().join("elsewhere"), here.path().join("set/train")).expect("a link");
    let set = read(&here.path().join("set"));
    assert_eq!((set.classes.concat(), set.train.labels.len(), set.problems), ("a".to_owned(), 1, Vec::new()));
}

/// Entries beside the splits are reported too.
#[test]
fn ignored_entries_are_reported() {
    let here = TempFolder::new("beside");
    for name in ["train/a/0.png", "test/a/0.png", "val/a/0.png", "valid/a/0.png", "extra/0.png"] {
        picture(&here.path().join(name), 1);
    }
    let problems: Vec<String> = read(here.path()).problems.into_iter().map(|p| p.path + ": " + &p.what).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].ends_with("extra: ignored: the dataset is in train, val, test"), "{problems:?}");
    assert!(problems[1].ends_with("valid: ignored: the dataset is in train, val, test"), "{problems:?}");
}

/// Splits in capitals, splits without train, files without classes, and files that are not images.
#[test]
fn untidy_folders() {
    let here = TempFolder::new("people");
    let at = |name: &str| here.path().join(name);
    let said = || tree(here.path(), &ReadOptions::default()).expect_err("bad").to_string();
    picture(&at("Test/a/0.png"), 1);
    picture(&at("VALID/a/0.png"), 2);
    assert!(said().ends_with("no train folder beside the others; to use one of them alone, name it"), "{}", said());
    picture(&at("Train/a/0.png"), 3);
    fs::write(at("Train/a/Thumbs.db"), b"\0\0").expect("writes");
    fs::write(at("Train/a/broken.png"), b"text").expect("writes");
    picture(&at("Train/a/picture.gif"), 4);
    picture(&at("Train/a/again.bmp"), 3);
    fs::write(at("Train/a/.DS_Store"), b"x").expect("writes");
    let set = read(here.path());
    assert_eq!((set.classes.concat(), set.train.labels.len(), set.test.labels.len()), ("a".to_owned(), 4, 1));
    let report = inspect(&set, GroupRule::default(), &Pool::single(), &|_, _| {}).expect("labels");
    let class = &report.classes[0];
    assert_eq!((report.train, report.val, class.val, class.broken), (3, Some(1), Some(1), 1));
    let problems: Vec<String> = report.problems.iter().map(|p| format!("{}: {}", p.path, p.what)).collect();
    for what in [
        "Thumbs.db: not an image",
        "Train: ignored 1 hidden entry",
        "broken.png: not a JPEG, PNG, WebP, BMP, GIF or PPM image",
        "picture.gif: a PNG file with the extension of a GIF",
    ] {
        assert!(problems.iter().any(|problem| problem.ends_with(what)), "no {what} in {problems:?}");
    }
    picture(&at("train/a/0.png"), 3);
    if fs::read_dir(here.path()).expect("reads").count() == 4 {
        assert!(
            matches!(tree(here.path(), &ReadOptions::default()), Err(DataError::TwoSplitFolders { .. })),
            "{}",
            said()
        );
        fs::remove_dir_all(at("train")).expect("removes");
    }
    fs::remove_dir_all(at("VALID")).expect("removes");
    picture(&at("val/0.png"), 3);
    let set = read(here.path());
    let ignored =
        |problem: &equipoise_data::Problem| problem.path.ends_with("val") && problem.what.contains("no class folders");
    assert!(set.val.is_none() && set.problems.iter().any(ignored), "{:?}", set.problems);
}

/// Images with the same pixels are duplicates, whatever their format.
#[test]
fn duplicates_are_found_by_pixels() {
    let here = TempFolder::new("pixels");
    for (name, format) in
        [("train/a/0.png", ImageFormat::Png), ("val/a/0.bmp", ImageFormat::Bmp), ("test/a/0.ppm", ImageFormat::Pnm)]
    {
        let path = here.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let image = RgbImage::from_pixel(3, 2, Rgb([u8::from(name.starts_with("train")), 5, 5]));
        image.save_with_format(&path, format).expect("writes");
    }
    fs::copy(here.path().join("train/a/0.png"), here.path().join("val/a/1.png")).expect("copies");
    let report = inspect(&read(here.path()), GroupRule::default(), &Pool::single(), &|_, _| {}).expect("labels");
    let advice = report.advice.join("\n");
    assert!(advice.contains("1 validation image is also in training"), "{advice}");
    assert!(advice.contains("1 test image is also in validation"), "{advice}");
}

/// A folder that cannot be read is an error.
#[cfg(unix)]
#[test]
fn locked_folders() {
    use std::os::unix::fs::PermissionsExt;
    let here = TempFolder::new("locked");
    let lock = |mode| fs::set_permissions(here.path(), fs::Permissions::from_mode(mode)).expect("is ours");
    lock(0o000);
    let locked = fs::read_dir(here.path()).is_err();
    let found = equipoise_data::load(here.path().to_str().expect("UTF-8"), Path::new("x"), &ReadOptions::default());
    lock(0o755);
    // a superuser can still read it
    assert!(!locked || matches!(found, Err(DataError::Read { .. })), "{found:?}");
}

/// A list may name things that are not files, such as a device that never ends.
#[cfg(unix)]
#[test]
fn a_list_of_things_that_are_not_files() {
    let here = TempFolder::new("devices");
    let text = format!("/dev/zero,a\n/dev/null,a\n{},b\nnowhere.png,b\n", here.path().display());
    let list = here.path().join("x.csv");
    fs::write(&list, text).expect("writes");
    let set = equipoise_data::read::format::list::list(&list, &ReadOptions::default()).expect("a list");
    let report = inspect(&set, GroupRule::default(), &Pool::single(), &|_, _| {}).expect("labels");
    let mut said: Vec<(&str, &str)> = report.problems.iter().map(|p| (&p.path[..], &p.what[..])).collect();
    said.sort_unstable_by_key(|(path, _)| path.len());
    assert_eq!(said[..2].iter().map(|(_, what)| *what).collect::<Vec<_>>(), ["not a file"; 2]);
    assert!(said[2].1 == "not a file" && said[3].1 == "line 4: there is no such file", "{said:?}");
}

/// Every unreadable file is reported before training.
#[test]
fn a_messy_folder() {
    let zoo = zoo();
    let cats = zoo.path().join("cat");
    fs::write(cats.join("empty.jpg"), b"").expect("writes");
    fs::write(cats.join("text.png"), b"not an image at all").expect("writes");
    let whole = fs::read(cats.join("3.png")).expect("reads");
    fs::write(cats.join("torn.png"), &whole[..whole.len() - 20]).expect("writes");
    // dog/1 has the same bytes as cat/1
    for threads in [1, 2] {
        let report =
            inspect(&read(zoo.path()), GroupRule::default(), &Pool::new(threads).expect("threads"), &|_, _| {})
                .expect("labels");
        let said =
            |file: &str, what: &str| report.problems.iter().any(|p| p.path.ends_with(file) && p.what.contains(what));
        assert!(said("cat/empty.jpg", "the file is empty"), "{:?}", report.problems);
        assert!(said("cat/text.png", "not a JPEG, PNG"), "{:?}", report.problems);
        assert!(said("cat/torn.png", "PNG: "), "{:?}", report.problems);
        assert!(report.problems.iter().any(|p| p.what.contains("the same image as")), "{:?}", report.problems);
        assert_eq!(report.sizes, [("6 x 4".to_owned(), 17)]);
        assert_eq!(report.formats, [("PNG".to_owned(), 17)]);
        assert!(report.advice[0].starts_with("3 files cannot be read"), "{:?}", report.advice);
    }
}

fn list(name: &str, text: &str) -> Result<Dataset, DataError> {
    equipoise_data::read::format::list::parse(
        &Path::new("lists").join(name),
        &mut text.as_bytes(),
        &ReadOptions::default(),
    )
}

#[test]
fn lists_of_paths_and_labels() {
    // numbers are sorted as numbers, paths are relative to the list
    let set = list("own.csv", "a.png,10\nb.png,9\n\"odd, name.png\", 9\nc.png,10\n").expect("good");
    assert_eq!((set.name.as_str(), &set.classes[..]), ("own", &["9".to_owned(), "10".to_owned()][..]));
    assert_eq!((set.train.labels.len(), set.test.labels.len()), (2, 2));
    let mut all = [files(&set.train), files(&set.test)].concat();
    all.sort();
    assert_eq!(all, ["lists/a.png", "lists/b.png", "lists/c.png", "lists/odd, name.png"]);
    let header = "label,path,part\ncat,a.png,train\ndog,b.png,train\ncat,c.png,test\n\ndog,d.png,val\n";
    let set = list("own.csv", header).expect("good");
    assert_eq!((set.classes.concat(), set.train.labels, set.test.labels), ("catdog".to_owned(), vec![0, 1], vec![0]));
    assert_eq!(set.val.expect("val").labels, [1]);
    let lines = "{\"path\": \"a.png\", \"label\": 3, \"part\": \"train\"}\n\n{\"path\": \"b.png\", \"label\": \"3\", \"part\": \"test\"}\n";
    let set = list("own.jsonl", lines).expect("good");
    assert_eq!((set.classes.concat(), files(&set.test)), ("3".to_owned(), vec!["lists/b.png".to_owned()]));
}

#[test]
fn classes_of_a_list_that_differ_in_case_only() {
    let problems = |text: &str| list_problems("x.csv", text);
    let cats = problems("a.png,Cat\nb.png,cat\nc.png,dog\n");
    assert_eq!(cats, ["class `cat` differs from `Cat` only in upper and lower case"]);
    let ones = problems("a.png,1\nb.png,01\nc.png,10\n");
    assert_eq!(ones, ["class `1` differs from `01` only in leading zeros"]);
}

/// Problems of a list itself, without those of its files, none of which exists.
fn list_problems(name: &str, text: &str) -> Vec<String> {
    let problems = list(name, text).expect("good").problems.into_iter();
    let (own, files): (Vec<_>, Vec<_>) = problems.partition(|problem| problem.path == format!("lists/{name}"));
    assert!(files.iter().all(|file| file.what.starts_with("line ")), "{files:?}");
    own.into_iter().map(|problem| problem.what).collect()
}

/// A byte-order mark, other names of the columns, and columns that are ignored.
#[test]
fn lists_of_other_programs() {
    let text = "\u{feff}ID,FileName,Class,Split\n7,a.png,cat,Training\n8,b.png,cat,VALID\n9,c.png,cat,testing\n";
    let set = list("x.csv", text).expect("good");
    assert_eq!((set.classes.concat(), files(&set.train)), ("cat".to_owned(), vec!["lists/a.png".to_owned()]));
    assert_eq!((set.val.expect("val").labels.len(), set.test.labels.len()), (1, 1));
    assert_eq!(list_problems("x.csv", text), ["ignored columns: ID"]);
    let quoted = list("x.csv", "\u{feff}\"a,1.png\",cat\nb.png,cat\n").expect("good");
    assert!([files(&quoted.train), files(&quoted.test)].concat().contains(&"lists/a,1.png".to_owned()));
    let lines = "\u{feff}{\"image\": \"a\", \"class\": 3, \"split\": \"Train\", \"id\": 7}\n\
        {\"file\": \"b\", \"label\": \"3\", \"set\": \"test\", \"id\": [8]}\n";
    assert_eq!(list("x.jsonl", lines).expect("good").classes, ["3"]);
    assert_eq!(list_problems("x.jsonl", lines), ["ignored fields: id"]);
}

#[test]
fn invalid_lines_are_named() {
    let said = |name: &str, text: &str| list(name, text).expect_err("wrong").to_string();
    assert_eq!(said("x.csv", "a.png,1\nb.png\n"), "lists/x.csv: line 2: 1 fields: a path and a label are needed");
    assert_eq!(said("x.csv", "a.png,1\n,2\n"), "lists/x.csv: line 2: the path is missing");
    assert_eq!(said("x.csv", "a,1,train\nb,2,tets\n"), "lists/x.csv: line 2: split `tets`: must be train, val or test");
    assert_eq!(said("x.csv", "a,1,train\n"), "lists/x.csv: there is no line with split test or val");
    assert_eq!(said("x.csv", "a,1,test\n"), "lists/x.csv: there is no line with split train");
    assert_eq!(said("x.csv", "a,1,train\nb,1\n"), "lists/x.csv: line 1: some lines have a split and some have none");
    let header = said("x.csv", "image,kind\na.png,cat\n");
    assert_eq!(
        header,
        "lists/x.csv: line 1: the columns are `image | kind`: no column is known to hold the classes; name it: --label-column NAME"
    );
    assert_eq!(said("x.csv", "a,1,train,9\n"), "lists/x.csv: line 1: 4 fields: at most 3 are expected");
    let untrained = said("x.csv", "a,1,train\nb,1,test\nc,2,test\n");
    assert_eq!(untrained, "lists/x.csv: class `2` is in the test split, but not in the train split");
    for label in ["-1", "1.5", "null", "[]"] {
        let said = said("x.jsonl", &format!("{{\"path\": \"a\", \"label\": {label}}}"));
        assert_eq!(said, "lists/x.jsonl: line 1: the label must be text or a whole number");
    }
    assert_eq!(said("x.csv", "\n\n"), "lists/x.csv: it names no image");
    // empty lines count, also before a last line without an end
    for text in ["\na.png,1\n\n\nb.png", "\r\na.png,1\r\n\r\n\r\nb.png\r\n", "\"a\n\nb\",1\n\nb.png"] {
        assert_eq!(said("x.csv", text), "lists/x.csv: line 5: 1 fields: a path and a label are needed", "{text:?}");
    }
    let broken = equipoise_data::read::format::list::parse(
        Path::new("x.csv"),
        &mut &b"a.png,1\nb\xff.png,1\n"[..],
        &ReadOptions::default(),
    );
    assert!(broken.expect_err("not UTF-8").to_string().starts_with("x.csv: line 2: "));
    assert!(said("x.jsonl", "{\"path\": \"a\", \"label\": 1}\n{\"path\": 1}\n").starts_with("lists/x.jsonl: line 2: "));
}

#[test]
fn names_that_are_probably_no_classes() {
    let text = "a.png,NaN,train\nb.png,cat;dog,train\nc.png,cat,train\nd.png,salt; pepper,train\nd.png,cat,test\n";
    let problems = list_problems("x.csv", text);
    let doubts: Vec<&String> = problems.iter().filter(|what| what.contains("probably")).collect();
    let said = [
        "class `NaN`: these labels are probably missing",
        "class `cat;dog`: probably several labels of one image, which count as a class of their own",
    ];
    assert_eq!(doubts, said);
}

/// 100,000 damaged lists of each kind: an error or a dataset, never a panic.
#[test]
fn a_hundred_thousand_damaged_lists() {
    let csv = "path,label,part\na.png,1,train\n\"b,c.png\",cat,test\nd.png,1,val\n";
    let json = "{\"path\": \"a.png\", \"label\": 3, \"part\": \"train\"}\n{\"path\": \"b.png\", \"label\": \"3\", \"part\": \"test\"}\n";
    for (kind, (name, text)) in [("x.csv", csv), ("x.jsonl", json)].into_iter().enumerate() {
        let mut read = 0;
        for round in 0..100_000 {
            let bytes = damaged(text.as_bytes(), equipoise_random::Draws::new(2, kind as u64, round));
            let set =
                equipoise_data::read::format::list::parse(Path::new(name), &mut &bytes[..], &ReadOptions::default());
            read += usize::from(set.is_ok());
        }
        assert!((1000..99_000).contains(&read), "{name}: {read} of 100,000 could be read");
    }
}

#[test]
fn tiny_imagenet_as_shipped() {
    use equipoise_data::read::format::tiny_imagenet::tiny_imagenet;
    let here = TempFolder::new("tiny");
    let write = |name: &str, text: &str| fs::write(here.path().join(name), text).expect("writes");
    for (wnid, number) in [("n02", 3), ("n01", 2)] {
        (0..number).for_each(|i| picture(&here.path().join(format!("train/{wnid}/images/{wnid}_{i}.JPEG")), i));
        write(&format!("train/{wnid}/{wnid}_boxes.txt"), "n02_0.JPEG\t0\t0\t9\t9\n");
    }
    picture(&here.path().join("val/images/val_0.JPEG"), 8);
    picture(&here.path().join("val/images/val_1.JPEG"), 9);
    picture(&here.path().join("train/n03/images/0.JPEG"), 1);
    write("wnids.txt", "n02\nn01\n");
    write("words.txt", "n01\tgoldfish, Carassius auratus\nn02\tbullfrog\n");
    write("val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n");
    let set = tiny_imagenet(here.path()).expect("good");
    assert_eq!(set.classes, ["goldfish", "bullfrog"]);
    assert!(set.problems[0].path.ends_with("train/n03") && set.problems.len() == 1, "{:?}", set.problems);
    assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![0, 0, 1, 1, 1], vec![0, 1]));
    assert_eq!(files(&set.test), ["images/val_1.JPEG", "images/val_0.JPEG"]);
    let found = equipoise_data::load(here.path().to_str().expect("UTF-8"), Path::new("x"), &ReadOptions::default());
    assert_eq!(found.expect("recognised"), set);
    write("val/val_annotations.txt", "val_0.JPEG\tn09\n");
    let error = tiny_imagenet(here.path()).expect_err("class n09").to_string();
    assert!(error.ends_with("val_annotations.txt: line 1: class `n09` is not in wnids.txt"), "{error}");
    for outside in ["../../x.png", "/etc/passwd", "a/b", ".."] {
        write("val/val_annotations.txt", &format!("{outside}\tn01\n"));
        let error = tiny_imagenet(here.path()).expect_err("outside").to_string();
        assert!(error.ends_with(&format!("line 1: `{outside}` is not a file name")), "{error}");
    }
    for (ids, what) in [
        ("n01\n..\n", "line 2: `..` is not a folder name"),
        ("n01\nn02\nn01\n", "line 3: the class is already in line 1"),
    ] {
        write("wnids.txt", ids);
        let error = tiny_imagenet(here.path()).expect_err("ids").to_string();
        assert!(error.ends_with(what), "{error}");
    }
    write("wnids.txt", "n02\nn01\n");
    write("val/val_annotations.txt", "val_0.JPEG\n");
    assert!(
        tiny_imagenet(here.path())
            .expect_err("no class")
            .to_string()
            .ends_with("line 1: a file and a class are needed")
    );
}

#[test]
fn inaturalist_annotations() {
    use equipoise_data::read::format::inat::inat2017;
    let here = TempFolder::new("inat");
    let write = |name: &str, text: &str| fs::write(here.path().join(name), text).expect("writes");
    let json = |images: &str, annotations: &str| {
        let categories = r#"[{"id": 7, "name": "Rana"}, {"id": 2, "name": "Hyla", "supercategory": "Amphibia"}]"#;
        format!(r#"{{"info": {{}}, "images": [{images}], "annotations": [{annotations}], "categories": {categories}}}"#)
    };
    let image = |id: u32, file: &str| format!(r#"{{"id": {id}, "width": 800, "file_name": "{file}"}}"#);
    let label = |id: u32, category: u32| format!(r#"{{"id": 1, "image_id": {id}, "category_id": {category}}}"#);
    let images = [image(5, "a/b.jpg"), image(6, "c.jpg")].join(",");
    write("train2017.json", &json(&images, &[label(6, 7), label(5, 2)].join(",")));
    write("val2017.json", &json(&image(1, "v.jpg"), &label(1, 7)));
    let set = inat2017(here.path()).expect("good");
    assert_eq!(
        (set.classes.concat(), set.train.labels.clone(), set.test.labels.clone()),
        ("HylaRana".to_owned(), vec![1, 0], vec![1])
    );
    assert!(files(&set.train)[1].ends_with("a/b.jpg"));
    let more = json(&[images.clone(), image(9, "x.jpg")].join(","), &label(6, 7)).replace("Hyla", "Rana");
    let val = fs::read(here.path().join("val2017.json")).expect("reads");
    let other =
        equipoise_data::read::format::inat::parse(Path::new(""), Path::new(""), &mut more.as_bytes(), &mut &val[..]);
    let other = other.map(|set| (set.classes, set.problems[0].what.clone()));
    let twins = ["Rana (2)", "Rana (7)"].map(str::to_owned).to_vec();
    assert_eq!(other.expect("good"), (twins, "2 images without an annotation are not read".to_owned()));
    // the same in a folder that is named after the archive
    let inner = here.path().join("train_val2017");
    fs::create_dir(&inner).expect("a folder");
    let names = ["train2017.json", "val2017.json"];
    let (plain, deeper) = (names.map(|name| here.path().join(name)), names.map(|name| inner.join(name)));
    plain.iter().zip(&deeper).for_each(|(from, to)| fs::rename(from, to).expect("renames"));
    assert_eq!(inat2017(here.path()).expect("good"), set);
    plain.iter().zip(&deeper).for_each(|(to, from)| fs::rename(from, to).expect("renames"));
    let said = |annotations: &str, images: &str| {
        write("val2017.json", &json(images, annotations));
        inat2017(here.path()).expect_err("wrong").to_string()
    };
    assert!(said(&label(9, 7), &image(1, "v.jpg")).ends_with("annotations[0]: there is no image with id 9"));
    assert!(said(&label(1, 9), &image(1, "v.jpg")).ends_with("annotations[0]: there is no category with id 9"));
    for outside in ["../../etc/passwd", "/etc/passwd", "a/../../b"] {
        assert!(said(&label(1, 7), &image(1, outside)).ends_with("lies outside the dataset"));
    }
    let twice = [image(1, "v.jpg"), image(1, "w.jpg")].join(",");
    assert!(said(&label(1, 7), &twice).ends_with("images: two have the same id"));
    let long = image(1, &"n".repeat(70_000));
    assert!(said(&label(1, 7), &long).starts_with("cannot read"), "a name that is too long");
    assert!(said("", "").ends_with("val2017.json: it names no image"));
    write("val2017.json", "{\"images\": [");
    assert!(inat2017(here.path()).expect_err("torn").to_string().contains("val2017.json: line 1: EOF"));
}
