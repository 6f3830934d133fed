//! The real program under `mpirun`, with several processes on this machine: the same bytes whatever their number, and faults.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a job counts as hanging.
const HANGS: Duration = Duration::from_secs(300);
/// Settings of small runs: 1,897 images make batches of an odd size, and a short last one.
const SMALL: [&str; 8] = ["--model", "resnet8", "--batch-size", "251", "--epochs", "2", "--threads", "1"];

#[expect(clippy::disallowed_methods, reason = "how long a job may take to end is part of its promise")]
fn now() -> Instant {
    Instant::now()
}

/// A new folder for a test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

/// The program with some processes.
fn command(processes: usize, folder: &Path, args: &[&str]) -> Command {
    let mut command = mpirun(folder);
    command.args(["-n", &processes.to_string(), PROGRAM]).args(args);
    command
}

/// The program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_equipoise-mpi");

/// `mpirun` in a folder, without processes.
fn mpirun(folder: &Path) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none"]).current_dir(folder);
    // for a test as root, in a container, with more processes than cores
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none").env("OMPI_MCA_mpi_yield_when_idle", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for a job; its exit code, and what it wrote to standard error and output.
fn wait(mut child: Child) -> (Option<i32>, String) {
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = from.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let texts =
        [read(Box::new(child.stderr.take().expect("piped"))), read(Box::new(child.stdout.take().expect("piped")))];
    let start = now();
    let code = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status.code();
        }
        if start.elapsed() > HANGS {
            let _ = child.kill();
            panic!("the job hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    (code, texts.map(|text| text.join().expect("it ends")).concat())
}

/// Runs the program to its end.
fn run(processes: usize, folder: &Path, args: &[&str]) -> String {
    let (code, text) = wait(command(processes, folder, args).spawn().expect("mpirun is installed"));
    assert_eq!(code, Some(0), "{processes} processes, {args:?}:\n{text}");
    text
}

/// What a command wrote, without the line that says how many processes there are, which several processes must have.
fn without_introduction(processes: usize, text: &str) -> String {
    let line = format!("{processes} processes with 1 thread each\n");
    assert_eq!(text.matches(&line).count(), usize::from(processes > 1), "{text}");
    text.replacen(&line, "", 1)
}

/// Everything in a run folder that is not a measurement of time or memory.
fn contents(run: &Path) -> Vec<(String, Vec<u8>)> {
    let names =
        ["checkpoint.eqp", "best.eqp", "metrics.jsonl", "norms.jsonl", "details.json", "samples.json", "result.json"];
    let read = |name: &str| {
        let bytes = fs::read(run.join(name)).ok()?;
        let measured = ["\"seconds\"", "\"images_per_second\"", "\"peak_mb\""];
        let is_result = |line: &&str| !measured.iter().any(|key| line.contains(key));
        let bytes = match name {
            "result.json" => {
                String::from_utf8_lossy(&bytes).lines().filter(is_result).collect::<Vec<_>>().join("\n").into_bytes()
            }
            _ => bytes,
        };
        Some((name.to_owned(), bytes))
    };
    let found: Vec<_> = names.iter().filter_map(|name| read(name)).collect();
    assert!(found.len() >= names.len() - 1, "only {:?}", found.iter().map(|file| &file.0).collect::<Vec<_>>());
    found
}

/// Compares two run folders byte for byte.
fn assert_same(one: &Path, other: &Path) {
    for ((name, one), (_, other)) in contents(one).iter().zip(contents(other)) {
        assert!(*one == other, "{name} differs");
    }
}

/// The same run with 1, 2, 3 and 4 processes.
fn assert_same_runs(name: &str, args: &[&str]) {
    let folder = folder(name);
    for processes in [1, 2, 3, 4] {
        let output = format!("{processes}");
        let text = run(processes, &folder, &[&["train", "-o", &output][..], &SMALL, args].concat());
        if processes > 1 {
            assert!(text.contains(&format!("{processes} processes with 1 thread each")), "{text}");
            assert_same(&folder.join("1"), &folder.join(output));
        }
    }
}

#[test]
fn every_criterion_has_the_same_bits() {
    let folder = folder("criteria");
    let all = "softmax,class-balanced,effective-number,focal,ghm,equalization,seesaw,cwap,balanced-softmax,logit-adjusted,vs,cdt,\
               ldam,label-aware-smoothing";
    for processes in [1, 2, 4] {
        let output = format!("{processes}");
        let args = ["--criteria", all, "--batch-size", "499", "--epochs", "1", "--threads", "1", "-o", &output];
        without_introduction(processes, &run(processes, &folder, &[&["compare"][..], &args].concat()));
        for criterion in all.split(',') {
            let path = |processes: &str| folder.join(processes).join(format!("{criterion}-s0"));
            assert_same(&path("1"), &path(&output));
        }
    }
}

#[test]
fn mixup_ema_and_samplers_have_the_same_bits() {
    let mixup = [
        "--set",
        "augment.mixup_alpha=0.4",
        "--set",
        "optimizer.ema_decay=0.9",
        "--set",
        "data.sampler=class-balanced",
    ];
    assert_same_runs("mixup", &mixup);
    let statistics =
        ["--set", "optimizer.ema_decay=0.9", "--set", "optimizer.ema_bn_images=300", "--val-fraction", "0.1"];
    assert_same_runs("statistics", &statistics);
}

#[test]
fn sam_adamw_and_difficulty_have_the_same_bits() {
    let optimizer = ["--set", "optimizer.name=adamw", "--lr", "0.001", "--set", "optimizer.sam.rho=0.05"];
    assert_same_runs("sam", &[&optimizer[..], &["--set", "augment.cutmix=0.5", "--criterion", "cwap"]].concat());
}

/// Ranks of a job as processes of this machine, by rank.
fn ranks(folder: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let is_ours = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder)
            && read("comm").starts_with(b"equipoise-mpi");
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        let rank = environment.split('\0').find_map(|line| line.strip_prefix("OMPI_COMM_WORLD_RANK="));
        if let (true, Some(rank)) = (is_ours, rank.and_then(|rank| rank.parse::<usize>().ok())) {
            found.push((rank, pid));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, pid)| pid).collect()
}

/// Kills of a random rank at a random time: none hangs, and all runs, resumed by another number of processes, end in the bytes of one that
/// was left alone. `EQUIPOISE_KILLS` sets their number.
#[test]
fn killed_runs_resume_with_any_number_of_processes() {
    let kills: u64 = std::env::var("EQUIPOISE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    let folder = folder("kills");
    run(1, &folder, &[&["train", "-o", "whole"][..], &SMALL].concat());
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for number in 0..kills {
        let (output, processes) = (format!("run{number}"), [2, 3, 4][random(3) as usize]);
        let args = [&["train", "-o", &output, "--checkpoint-minutes", "0"][..], &SMALL].concat();
        let child = command(processes, &folder, &args).spawn().expect("mpirun is installed");
        while !folder.join(&output).join("checkpoint.eqp").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(random(2000)));
        let (victim, killed) = (random(processes as u64) as usize, now());
        if let Some(pid) = ranks(&folder).get(victim) {
            // SAFETY: a plain system call; the process is a rank of the job above.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        let (code, text) = wait(child);
        assert!(killed.elapsed() < Duration::from_secs(10), "ended after {:?}", killed.elapsed());
        if code != Some(0) {
            assert!(text.contains(&format!("rank {victim}")), "{text}");
        }
        let resumed = [1, 8, 2, 4][random(4) as usize];
        run(resumed, &folder, &["train", "--resume", &output, "--threads", "1"]);
        assert_same(&folder.join("whole"), &folder.join(&output));
    }
}

/// Ctrl-C at `mpirun` stops the run, which is saved and goes on.
#[test]
fn interrupted_runs_are_saved() {
    let folder = folder("interrupted");
    run(1, &folder, &[&["train", "-o", "whole"][..], &SMALL].concat());
    let child =
        command(2, &folder, &[&["train", "-o", "run"][..], &SMALL].concat()).spawn().expect("mpirun is installed");
    while !folder.join("run/checkpoint.eqp").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let start = now();
    // SAFETY: a plain system call; the process is ours.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let (code, text) = wait(child);
    assert!(code != Some(0) && start.elapsed() < Duration::from_secs(10), "{text}");
    run(4, &folder, &["train", "--resume", "run", "--threads", "1"]);
    assert_same(&folder.join("whole"), &folder.join("run"));
}

/// Ctrl-C at `mpirun` ends commands that only read with one sentence about what was written.
#[test]
fn interrupted_commands_say_so() {
    let folder = folder("interrupted");
    let large = ["--model", "resnet32x4", "--batch-size", "256", "--threads", "1", "--epochs", "2", "-o", "run"];
    let mut train = command(1, &folder, &[&["train"][..], &large].concat()).spawn().expect("mpirun is installed");
    while !folder.join("run/checkpoint.eqp").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // the weights that it starts from are enough
    // SAFETY: a plain system call.
    unsafe { libc::kill(train.id() as i32, libc::SIGINT) };
    assert_ne!(train.wait().expect("it ends").code(), Some(0));
    fs::create_dir_all(folder.join("images")).expect("a folder");
    for number in 0..1000 {
        let image = [&b"P6 28 28 255\n"[..], &[number as u8; 28 * 28 * 3]].concat();
        fs::write(folder.join(format!("images/{number}.ppm")), image).expect("room");
    }
    let predict = ["predict", "run", "images", "--threads", "1"];
    let evaluate = ["evaluate", "run", "--split", "train", "--threads", "1", "--predictions", "predictions.csv"];
    for (args, said) in [
        (&predict[..], "interrupted; the predictions that were printed are complete, and the others are missing\n"),
        (&[&predict[..], &["-o", "predictions.csv"]].concat(), "interrupted; predictions.csv was not written\n"),
        (&evaluate, "interrupted; nothing was written\n"),
    ] {
        let mut child = command(2, &folder, args).spawn().expect("mpirun is installed");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut text = String::new();
        while !text.contains("2 processes with 1 thread each\n") {
            assert_ne!(stderr.read_line(&mut text).expect("text"), 0, "{text}");
        }
        std::thread::sleep(Duration::from_millis(200));
        let start = now();
        // SAFETY: a plain system call.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        stderr.read_to_string(&mut text).expect("text");
        assert_ne!(child.wait().expect("it ends").code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert_eq!(text.matches("interrupted").count(), 1, "{text}");
        assert!(text.contains(&format!("equipoise: {said}")), "{text}");
        assert!(!folder.join("predictions.csv").exists());
    }
}

/// A second job on the same folder is refused, and the first one goes on.
#[test]
fn a_second_job_is_refused() {
    let folder = folder("second");
    let first =
        command(2, &folder, &[&["train", "-o", "run"][..], &SMALL].concat()).spawn().expect("mpirun is installed");
    while !folder.join("run/checkpoint.eqp").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let start = now();
    let second =
        command(2, &folder, &["train", "--resume", "run", "--threads", "1"]).spawn().expect("mpirun is installed");
    let (code, text) = wait(second);
    let lock = fs::read_to_string(folder.join("run/lock")).expect("it is there");
    let (process, machine) = lock.trim().split_once(' ').expect("process and machine");
    assert_eq!(machine, fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux").trim());
    assert!(code != Some(0) && text.contains(&format!("is in use by process {process} on {machine}")), "{text}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(wait(first).0, Some(0));
}

/// A checkpoint of four processes is continued by one and by eight, and ends in the bytes of a run that was left alone.
#[test]
fn a_checkpoint_of_four_is_continued_by_one_and_by_eight() {
    let folder = folder("continued");
    let small = ["--model", "resnet8", "--batch-size", "64", "--epochs", "2", "--threads", "1"];
    run(1, &folder, &[&["train", "-o", "whole"][..], &small].concat());
    let args = [&["train", "-o", "1", "--checkpoint-minutes", "0"][..], &small].concat();
    let child = command(4, &folder, &args).spawn().expect("mpirun is installed");
    while !folder.join("1/checkpoint.eqp").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    // SAFETY: a plain system call; the process is ours.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_ne!(wait(child).0, Some(0), "it was interrupted");
    fs::create_dir(folder.join("8")).expect("a folder");
    for file in fs::read_dir(folder.join("1")).expect("a run").flatten() {
        fs::copy(file.path(), folder.join("8").join(file.file_name())).expect("a copy");
    }
    for processes in [1, 8] {
        let output = processes.to_string();
        run(processes, &folder, &["train", "--resume", &output, "--threads", "1"]);
        assert_same(&folder.join("whole"), &folder.join(output));
    }
}

/// What a command prints, writes and calls an image is the same for any number of processes.
#[test]
fn evaluations_are_shared_out() {
    let folder = folder("evaluate");
    run(2, &folder, &[&["train", "-o", "run", "--val-fraction", "0.1"][..], &SMALL].concat());
    for processes in [1, 2, 3, 4] {
        let (predictions, sweep) = (format!("{processes}.csv"), format!("--sweep={processes}-sweep.csv"));
        let args = ["--predictions", &predictions, &sweep, "--tta", "flip", "--threads", "1"];
        let text = run(processes, &folder, &[&["evaluate", "run", "--json", "--split", "all"][..], &args].concat());
        let text = without_introduction(processes, &text);
        fs::write(folder.join(format!("{processes}.json")), text).expect("room");
        for name in ["json", "csv"].map(|end| format!(".{end}")).iter().chain(&["-sweep.csv".to_owned()]) {
            let read = |processes: usize| fs::read(folder.join(format!("{processes}{name}"))).expect("it was written");
            assert!(read(processes) == read(1), "{processes}{name} differs");
        }
    }
    let (code, text) = wait(command(2, &folder, &["evaluate", "run", "nowhere"]).spawn().expect("mpirun is installed"));
    assert!(code == Some(2) && text.matches("`nowhere` is neither").count() == 1, "{code:?} {text}");
}

/// A head on features is trained by rank 0, with the bits of one process.
#[test]
fn heads_on_features_have_the_same_bits() {
    let folder = folder("features");
    let mut header = String::from("{'descr': '<f4', 'fortran_order': False, 'shape': (90, 5), }");
    header += &" ".repeat(117 - header.len());
    header += "\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    bytes.extend(header.as_bytes());
    let value = |i: usize| (i as f32 * 0.37).sin() + if i % 5 == i / 5 % 3 { 1.0 } else { 0.0 };
    bytes.extend((0..450).flat_map(|i| value(i).to_le_bytes()));
    fs::write(folder.join("features.npy"), bytes).expect("room");
    let labels: String = (0..90).map(|row| format!("class {}\n", row % 3)).collect();
    fs::write(folder.join("labels.txt"), labels).expect("room");
    for processes in [1, 3] {
        let output = processes.to_string();
        let args =
            ["train", "features.npy", "--labels", "labels.txt", "--epochs", "3", "--threads", "1", "-o", &output];
        let text = run(processes, &folder, &args);
        assert_eq!(text.contains("rank 0 trains a head on features alone"), processes > 1, "{text}");
    }
    assert_same(&folder.join("1"), &folder.join("3"));
}

/// The runs of a table are the same for one process and for two.
#[test]
fn tables_have_the_same_bits() {
    let folder = folder("table");
    let recipe = include_str!("../../crates/equipoise/tests/small_table.toml");
    fs::write(folder.join("recipe.toml"), recipe).expect("room");
    let runs = [1, 2].map(|processes| {
        let output = processes.to_string();
        let args = ["reproduce", "recipe.toml", "--criteria", "softmax,late", "--schedule", "short", "--seeds", "1"];
        let text = run(processes, &folder, &[&args[..], &["--threads", "1", "--output", &output]].concat());
        without_introduction(processes, &text);
        let mut runs = Vec::new();
        runs_below(&folder.join(output), &mut runs);
        runs.sort();
        runs
    });
    assert_eq!([runs[0].len(), runs[1].len()], [2, 2], "{runs:?}");
    runs[0].iter().zip(&runs[1]).for_each(|(one, two)| assert_same(one, two));
}

/// The run folders below a folder.
fn runs_below(folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.join("checkpoint.eqp").exists() {
        found.push(folder.to_owned());
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).for_each(|entry| runs_below(&entry.path(), found));
}

/// Gradients and parameters together leave a process at most 2.2 times.
#[test]
fn gradients_leave_a_process_twice_at_most() {
    let folder = folder("traffic");
    for (processes, model) in [(2, "resnet32"), (3, "resnet8"), (4, "resnet32"), (8, "resnet8")] {
        let args =
            ["bench", "step", "--model", model, "--batch-size", "32", "--steps", "1", "--threads", "1", "--json"];
        let text = run(processes, &folder, &args);
        let number = |key: &str| -> f64 {
            let rest = text.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key}: {text}")).1;
            rest.split([',', '}']).next().and_then(|number| number.parse().ok()).expect("a number")
        };
        // the gradients of a process's share go in, and its parameters out; batch norm gradients travel with the other sums
        let (sent, all) = (number("summed_bytes") + number("gathered_bytes"), number("gradient_bytes"));
        assert!(sent <= 2.2 * all, "{processes} processes: {sent} of {all}");
        if model == "resnet32" {
            let expected = 2.0 * (processes as f64 - 1.0) / processes as f64;
            assert!((sent / (expected * all) - 1.0).abs() < 0.1, "{processes} processes: {sent} of {all}");
        }
        assert_eq!(number("ranks"), processes as f64);
    }
}

/// Two "hosts", `a` and `b`, with the same images at the same paths, below that of the working folder, and a list of them beside. A file of
/// the second may be cut off.
fn two_hosts(folder: &Path, bad: Option<usize>) {
    let mut list = "path,label\n".to_owned();
    for host in ["a", "b"] {
        for number in 0..60 {
            let class = folder.join(host).join("images").join(["x", "y"][number % 2]);
            fs::create_dir_all(&class).expect("a folder");
            if host == "a" {
                list += &format!("/proc/self/cwd/images/{}/{number}.ppm,{0}\n", ["x", "y"][number % 2]);
            }
            let pixels = (0..16 * 16 * 3).map(|i| (i * (number + 1)) as u8);
            let image = b"P6 16 16 255\n".iter().copied().chain(pixels).collect::<Vec<u8>>();
            let bad = host == "b" && Some(number) == bad;
            fs::write(class.join(format!("{number}.ppm")), if bad { &image[..100] } else { &image }).expect("room");
        }
    }
    fs::write(folder.join("list.csv"), list).expect("room");
}

/// The program with a process on each of the two hosts.
fn on_two_hosts(folder: &Path, args: &[&str]) -> Command {
    let mut command = mpirun(folder);
    for (number, host) in ["a", "b"].into_iter().enumerate() {
        command.args([":"].iter().take(number));
        command.args(["-n", "1", "-wdir", &folder.join(host).display().to_string(), PROGRAM]).args(args);
    }
    command
}

#[test]
fn a_bad_file_of_one_rank_is_named() {
    let folder = folder("bad");
    two_hosts(&folder, Some(7));
    let small = ["--model", "resnet8", "--batch-size", "16", "--epochs", "1", "--threads", "1"];
    let job = |more: &[&str]| {
        let start = now();
        let (code, text) = wait(on_two_hosts(&folder, more).spawn().expect("mpirun is installed"));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {text}", start.elapsed());
        assert!(code != Some(0) && text.contains("rank 1") && text.contains("7.ppm"), "{code:?} {text}");
        assert_eq!(text.matches("equipoise: ").count(), 1 + text.matches("warning: ").count(), "one message: {text}");
    };
    let split = ["--test-fraction", "0.2"];
    // few broken files are left out, but then the ranks have other images; more are an error of one rank
    job(&[&["train", "../list.csv", "-o", "run", "--set", "data.max_broken=0.1"][..], &split, &small].concat());
    job(&[&["train", "../list.csv", "-o", "run", "--set", "data.max_broken=0"][..], &split, &small].concat());
}

/// Files of one length are compared from their first byte to their last.
#[test]
fn files_that_differ_anywhere_are_found() {
    let folder = folder("differ");
    two_hosts(&folder, None);
    for at in [20, 15_000, 30_000] {
        for host in ["a", "b"] {
            let mut image = [&b"P6 100 100 255\n"[..], &[7; 30_000]].concat();
            image[at] = host.as_bytes()[0];
            fs::write(folder.join(host).join("images/x/4.ppm"), image).expect("room");
        }
        let args = ["train", "../list.csv", "--image-size", "16", "--model", "resnet8", "--epochs", "1", "-o", "run"];
        let (code, text) = wait(on_two_hosts(&folder, &args).spawn().expect("mpirun is installed"));
        assert!(code != Some(0) && text.contains("they differ in /proc/self/cwd/images/x/4.ppm"), "{at}: {text}");
        assert!(!folder.join("a/run").exists(), "a refused start leaves nothing");
    }
}

/// A file that one host lacks is named by every command that compares files, and not one that went to another split because of it. Nothing is
/// left behind: with the file back, the same commands work.
#[test]
fn a_missing_file_is_named_and_nothing_is_left() {
    let folder = folder("missing");
    two_hosts(&folder, None);
    let job = |args: &[&str]| wait(on_two_hosts(&folder, args).spawn().expect("mpirun is installed"));
    let small = ["--model", "resnet8", "--batch-size", "16", "--epochs", "1", "--threads", "1", "-o"];
    let train = [&["train", "../list.csv", "--test-fraction", "0.2"][..], &small].concat();
    assert_eq!(job(&[&train[..], &["../run"]].concat()).0, Some(0));
    let commands = [
        [&train[..], &["../new"]].concat(),
        [&["compare", "../list.csv", "--test-fraction", "0.2"][..], &small, &["../comparison"]].concat(),
        [&["train", "../list.csv", "--folds", "3"][..], &small, &["../folds"]].concat(),
        vec!["evaluate", "../run"],
        vec!["evaluate", "../run", "../list.csv"],
        vec!["calibrate", "../run", "../list.csv", "--split", "test"],
    ];
    for host in ["b", "a"] {
        let (image, aside) = (folder.join(host).join("images/y/7.ppm"), folder.join("7.ppm"));
        fs::rename(&image, &aside).expect("it is there");
        let (rank, other) = if host == "b" { (1, 0) } else { (0, 1) };
        for args in &commands {
            let (code, text) = job(args);
            let names = text.contains(&format!("rank {rank} on ")) && text.contains(&format!(" than rank {other} on "));
            assert!(code != Some(0) && names, "{args:?}: {text}");
            assert!(text.contains(": it cannot read /proc/self/cwd/images/y/7.ppm\n"), "{args:?}: {text}");
            let messages = text.matches("equipoise: ").count();
            assert_eq!(messages, 1 + text.matches("warning: ").count(), "one message: {text}");
        }
        fs::rename(&aside, &image).expect("room");
        let left = ["new", "comparison", "folds", "a/runs", "b/runs"].map(|name| folder.join(name).exists());
        assert_eq!(left, [false; 5]);
    }
    for args in &commands {
        let (code, text) = job(args);
        assert_eq!(code, Some(0), "{args:?}: {text}");
    }
}

/// Pixels of datasets that are read into memory are compared too.
#[test]
fn images_in_memory_are_compared() {
    let folder = folder("memory");
    let write_set = |host: &str, pixel: u8| {
        let place = folder.join(host).join("set");
        fs::create_dir_all(&place).expect("a folder");
        for (split, images) in [("train", 90_u32), ("t10k", 30)] {
            let header = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
            let pixels = (0..images * 784).map(|i| if i % 784 == 0 { pixel } else { (i * 7 + i / 784) as u8 });
            let bytes = [header(&[2051, images, 28, 28]), pixels.collect()].concat();
            fs::write(place.join(format!("{split}-images-idx3-ubyte")), bytes).expect("room");
            let bytes = [header(&[2049, images]), (0..images).map(|i| (i % 3) as u8).collect()].concat();
            fs::write(place.join(format!("{split}-labels-idx1-ubyte")), bytes).expect("room");
        }
    };
    [("a", 0), ("b", 1)].iter().for_each(|(host, pixel)| write_set(host, *pixel));
    run(1, &folder, &["train", "a/set", "--model", "resnet8", "--epochs", "1", "--threads", "1", "-o", "run"]);
    let evaluate =
        || wait(on_two_hosts(&folder, &["evaluate", "../run", "/proc/self/cwd/set"]).spawn().expect("mpirun"));
    let (code, text) = evaluate();
    assert!(code != Some(0) && text.contains("equipoise: rank 1 on "), "{code:?} {text}");
    assert!(text.contains(" has other images or features than rank 0 on "), "{text}");
    assert!(text.contains(" in the dataset 'set'\n"), "{text}");
    write_set("b", 0);
    let (code, text) = evaluate();
    assert_eq!(code, Some(0), "{text}");
}

/// A file that goes bad on one host while a run is trained ends all processes with one message. The checkpoint is good: with the file back,
/// the run goes on to the bytes of one that was left alone.
#[test]
fn a_file_that_goes_bad_during_training_is_named() {
    let folder = folder("goes-bad");
    two_hosts(&folder, None);
    let train = ["train", "../list.csv", "--test-fraction", "0.2", "--checkpoint-minutes", "0"];
    let small = ["--model", "resnet8", "--batch-size", "16", "--epochs", "60", "--threads", "1"];
    let job = |args: &[&str]| {
        let mut command = on_two_hosts(&folder, args);
        // files are read again in every epoch
        command.env("EQUIPOISE_CACHE_MB", "0");
        command
    };
    let start = |output: &str| job(&[&train[..], &small, &["-o", output]].concat());
    assert_eq!(wait(start("../whole").spawn().expect("mpirun is installed")).0, Some(0));
    let image = |host: &str| folder.join(host).join("images/y/7.ppm");
    let good = fs::read(image("a")).expect("it was written");
    for (rank, host) in ["a", "b"].into_iter().enumerate() {
        for damage in ["removed", "cut off"] {
            let output = format!("{host} {damage}");
            let child = start(&format!("../{output}")).spawn().expect("mpirun is installed");
            while !folder.join(&output).join("metrics.jsonl").exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
            match damage {
                "removed" => fs::remove_file(image(host)).expect("it is there"),
                _ => fs::write(image(host), &good[..100]).expect("room"),
            }
            let damaged = now();
            let (code, text) = wait(child);
            assert!(damaged.elapsed() < Duration::from_secs(10), "{output}: {:?}: {text}", damaged.elapsed());
            assert_eq!(
                text.matches("equipoise: ").count(),
                1 + text.matches("warning: ").count(),
                "one message: {text}"
            );
            assert!(code != Some(0) && text.contains(&format!("rank {rank}: ")) && text.contains("7.ppm"), "{text}");
            fs::write(image(host), &good).expect("room");
            let resume = ["train", "--resume", &format!("../{output}"), "--threads", "1"];
            let (code, text) = wait(job(&resume).spawn().expect("mpirun is installed"));
            assert_eq!(code, Some(0), "{output}: {text}");
            assert_same(&folder.join("whole"), &folder.join(output));
        }
    }
}

/// Predictions are shared out, and are those of one process. Files that only rank 0 can read are predicted, and files that nobody can read
/// are named once.
#[test]
fn predictions_are_shared_out() {
    let folder = folder("predict");
    two_hosts(&folder, None);
    let small = ["--test-fraction", "0.2", "--model", "resnet8", "--epochs", "1", "--threads", "1", "-o", "../run"];
    let args = [&["train", "../list.csv"][..], &small].concat();
    assert_eq!(wait(on_two_hosts(&folder, &args).spawn().expect("mpirun is installed")).0, Some(0));
    // more than two batches
    let images = folder.join("images");
    fs::create_dir_all(&images).expect("a folder");
    for number in 0..200 {
        let class = ["x", "y"][number % 2];
        let from = folder.join(format!("a/images/{class}/{}.ppm", number % 60 / 2 * 2 + number % 2));
        fs::copy(from, images.join(format!("{number:03}.ppm"))).expect("room");
    }
    let predict = |processes: usize, more: &[&str]| {
        let args = ["predict", "run", "images", "--csv", "--top", "2", "--tta", "flip", "--threads", "1"];
        let args = [&args[..], more].concat();
        let (code, text) = wait(command(processes, &folder, &args).spawn().expect("mpirun is installed"));
        (code, without_introduction(processes, &text))
    };
    let one = predict(1, &[]);
    assert!(one.0 == Some(0) && one.1.lines().count() == 201, "{one:?}");
    for processes in [2, 3, 4, 8] {
        assert_eq!(predict(processes, &[]), one, "{processes} processes");
    }
    fs::write(images.join("150.ppm"), "nothing").expect("room");
    let (code, text) = predict(3, &[]);
    assert!(code == Some(1) && text.matches("150.ppm").count() == 1, "{text}");
    assert!(text.contains("1 of 200 images cannot be read"), "{text}");
    // mpirun adds lines of its own
    let rows =
        |text: &str| text.lines().filter(|line| line.starts_with("images/")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&text), rows(&predict(1, &[]).1));
    // rank 1 looks for them in a folder of its own
    fs::create_dir_all(folder.join("a/only")).expect("a folder");
    for number in 0..130 {
        fs::copy(images.join("000.ppm"), folder.join(format!("a/only/{number}.ppm"))).expect("room");
    }
    let mut alone = on_two_hosts(&folder, &["predict", "../run", "/proc/self/cwd/only", "--csv"]);
    let (code, text) = wait(alone.spawn().expect("mpirun is installed"));
    assert!(code == Some(0) && text.lines().count() == 132, "{code:?} {text}");
    // and finds another one there
    fs::create_dir_all(folder.join("b/only")).expect("a folder");
    for number in 0..130 {
        let from = if number == 129 { "001.ppm" } else { "000.ppm" };
        fs::copy(images.join(from), folder.join(format!("b/only/{number}.ppm"))).expect("room");
    }
    let mut alone = on_two_hosts(&folder, &["predict", "../run", "/proc/self/cwd/only", "--csv"]);
    let (code, text) = wait(alone.spawn().expect("mpirun is installed"));
    assert!(code != Some(0) && text.contains("they differ in /proc/self/cwd/only/129.ppm"), "{code:?} {text}");
    assert!(text.contains("rank 1 on ") && text.matches("equipoise: ").count() == 1, "{text}");
}

/// A wrong option ends all processes with the message of the program.
#[test]
fn wrong_options_end_all() {
    let folder = folder("wrong");
    let (code, text) =
        wait(command(2, &folder, &["train", "--model", "resnet9"]).spawn().expect("mpirun is installed"));
    assert!(code == Some(2) && text.matches("unknown model 'resnet9'").count() == 1, "{code:?} {text}");
    let (code, text) = wait(command(3, &folder, &["train", "nowhere/at/all"]).spawn().expect("mpirun is installed"));
    assert!(code == Some(2) && text.matches("nowhere/at/all").count() == 1, "{code:?} {text}");
}
