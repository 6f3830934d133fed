//! Records that are damaged or missing are noticed before training, and runs without an evaluation are left out of reports.

use super::{Place, text, write_tree};

/// A run that was stopped after its first epoch: as if the process had been killed.
fn half_a_run(place: &Place) {
    place.train("run", &["--quiet"]);
    std::fs::remove_file(place.path().join("run/result.json")).expect("a result");
}

#[test]
fn damaged_records_are_noticed_at_the_start() {
    let place = Place::new();
    half_a_run(&place);
    for name in ["metrics.jsonl", "norms.jsonl", "times.jsonl"] {
        let file = format!("run/{name}");
        let good = place.read(&file);
        let checkpoint = std::fs::read(place.path().join("run/checkpoint.eqp")).expect("a checkpoint");
        place.write(&file, good.replacen("\"epoch\":1", "\"epoch\":!", 1));
        let message = place.refused(&["train", "--resume", "run"]);
        assert!(message.contains(&format!("{name}: line 1 is damaged")) && message.contains("remove it"), "{message}");
        assert!(std::fs::read(place.path().join("run/checkpoint.eqp")).expect("a checkpoint") == checkpoint);
        place.write(&file, &good);
    }
    // what the message says works
    std::fs::remove_file(place.path().join("run/metrics.jsonl")).expect("metrics");
    place.stdout(&["train", "--resume", "run", "--quiet"]);
    assert_eq!(place.epochs("run").len(), 2);
}

#[test]
fn a_missing_checkpoint_is_told_and_nothing_starts_over() {
    let place = Place::new();
    half_a_run(&place);
    for name in ["checkpoint.eqp", "previous.eqp"] {
        std::fs::remove_file(place.path().join("run").join(name)).expect("a checkpoint");
    }
    let before = place.read("run/metrics.jsonl");
    let message = place.refused(&["train", "--resume", "run"]);
    assert!(message.contains("no checkpoint is left, although 2 epochs are recorded"), "{message}");
    assert_eq!(place.read("run/metrics.jsonl"), before);
    // a run that has not finished its first epoch may start again
    for name in ["metrics.jsonl", "norms.jsonl", "times.jsonl"] {
        std::fs::remove_file(place.path().join("run").join(name)).expect("a record");
    }
    place.stdout(&["train", "--resume", "run", "--quiet"]);
}

#[test]
fn changed_pixels_are_noticed() {
    let place = Place::new();
    write_tree(&place, "tree", &["a", "b"]);
    let args =
        ["train", "tree", "--model", "resnet8", "--image-size", "8", "--epochs", "1", "--output", "run", "--quiet"];
    place.stdout(&args);
    std::fs::remove_file(place.path().join("run/result.json")).expect("a result");
    place.write("tree/train/a/0.ppm", super::ppm(255));
    let message = place.refused(&["train", "--resume", "run"]);
    assert!(message.contains("the pixels of the dataset have changed"), "{message}");
    assert!(place.refused(&["evaluate", "run"]).contains("have changed since the run"));
    place.stdout(&["evaluate", "run", "tree"]);
}

#[test]
fn reports_skip_runs_without_an_evaluation() {
    let place = Place::new();
    place.train("runs/good", &["--quiet"]);
    place.train("runs/empty", &["--quiet", "--seed", "1"]);
    for name in ["metrics.jsonl", "result.json", "details.json"] {
        std::fs::remove_file(place.path().join("runs/empty").join(name)).expect("a file");
    }
    place.write("runs/notes.txt", "of a user");
    place.write("runs/other/photo.jpg", "no run");
    place.train("runs/damaged", &["--quiet", "--seed", "2"]);
    place.write("runs/damaged/config.toml", "no settings");
    let out =
        place.run(&["report", "runs/good", "runs/empty", "runs/notes.txt", "runs/other", "runs/damaged", "--plain"]);
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert!(said.contains("skipped: runs/empty has nothing to report yet: no epoch has been evaluated"), "{said}");
    assert!(said.contains("skipped: cannot read runs/notes.txt"), "{said}");
    assert!(said.contains("skipped: runs/other is not a run"), "{said}");
    assert!(said.contains("skipped: runs/damaged/config.toml: "), "{said}");
    assert!(place.refused(&["report", "runs/good", "runs/gone"]).contains("runs/gone"));
    assert!(text(&out.stdout).contains("\nbalanced-softmax "), "{}", text(&out.stdout));
    assert!(place.refused(&["report", "runs/empty"]).contains("nothing to report yet"));
}

/// With several criteria, only runs with the same network are compared: a difference must not be the network's.
#[test]
fn runs_with_different_networks_are_compared_network_by_network() {
    let place = Place::new();
    for (output, criterion, model) in
        [("a", "softmax", "resnet8"), ("b", "balanced-softmax", "resnet8"), ("c", "balanced-softmax", "resnet14")]
    {
        let args =
            ["train", "fashion-mini", "--imbalance", "200", "--epochs", "1", "--quiet", "--criterion", criterion];
        place.stdout(&[&args[..], &["--model", model, "--output", &format!("runs/{output}")]].concat());
    }
    let table = place.stdout(&["report", "runs", "--plain"]);
    let titles: Vec<&str> = table.lines().filter(|line| line.contains("accuracy in %")).collect();
    assert_eq!(titles.len(), 2, "{table}");
    assert!(titles[0].contains("resnet8") && titles[1].contains("resnet14"), "{table}");
    // networks with one criterion stand side by side
    let table = place.stdout(&["report", "runs/b", "runs/c", "--plain"]);
    assert_eq!(table.matches("accuracy in %").count(), 1, "{table}");
    assert!(table.contains("balanced-softmax, model resnet14") || table.contains("model resnet8"), "{table}");
}

#[test]
fn unknown_tables_cells_and_methods_get_the_nearest_name() {
    let place = Place::new();
    for (args, want) in [
        (&["tabel1"][..], "did you mean 'table1'?"),
        (&["table1", "--only", "cifar10/10O"], "unknown cell 'cifar10/10O'; did you mean 'cifar10/100'?"),
        (&["table1", "--criteria", "softmax,sesaw"], "unknown method 'sesaw'; did you mean 'seesaw'?"),
        (&["table1", "--schedule", "shrot"], "unknown schedule 'shrot'; did you mean 'short'?"),
        (&["table1", "--criteria", "xyzzy"], "unknown method 'xyzzy'; the table has softmax, "),
    ] {
        let message = place.refused(&[&["reproduce"], args, &["--dry-run"]].concat());
        assert!(message.contains(want), "{args:?}: {message}");
    }
}

/// A terminal that is closed stops a run as SIGTERM does: everything is saved, and the run continues.
#[cfg(unix)]
#[test]
fn a_closed_terminal_saves_the_run() {
    let place = Place::new();
    let args = ["train", "--model", "resnet20", "--epochs", "50", "--threads", "2", "--output", "run", "--quiet"];
    let child = place.command(&args).stderr(std::process::Stdio::piped()).spawn().expect("starts");
    while !place.path().join("run/checkpoint.eqp").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let out = child.wait_with_output().expect("ends");
    assert_eq!(out.status.code(), Some(129), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    assert!(said.contains("equipoise train --resume run") || said.contains("can be resumed"), "{said}");
}
