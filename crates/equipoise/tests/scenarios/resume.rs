//! Runs that are finished, and runs that get more epochs.

use super::{Place, text};

#[test]
fn a_finished_run_prints_its_result() {
    let place = Place::new();
    let out = place.run(&[&super::TINY[..], &["--output", "run"]].concat());
    assert!(out.status.success(), "{}", text(&out.stderr));
    let before = place.read("run/result.json");
    let again = place.run(&["train", "--resume", "run"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_eq!(text(&again.stdout), text(&out.stdout));
    assert!(text(&again.stderr).contains("run is finished; this is its result"), "{}", text(&again.stderr));
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout(&["train", "--resume", "run", "--json", "--quiet"])).expect("JSON");
    assert_eq!(json["epochs"], 2);
    assert_eq!(place.stdout(&["train", "--resume", "run", "--epochs", "2"]), text(&out.stdout));
    assert_eq!(place.read("run/result.json"), before);
}

#[test]
fn a_run_with_a_constant_schedule_gets_more_epochs_as_if_it_had_always_had_them() {
    let place = Place::new();
    let schedules = [
        "optimizer.schedule=constant",
        "optimizer.schedule={ name = \"multi-step\", milestones = [{ epoch = 2, factor = 0.1 }] }",
    ];
    for (number, schedule) in schedules.iter().enumerate() {
        let (short, long) = (format!("short-{number}"), format!("long-{number}"));
        let more = ["--quiet", "--set", schedule, "--set", "optimizer.ema_decay=0.9"];
        place.train(&short, &more);
        let args = [&super::TINY[..8], &["--epochs", "4", "--threads", "2", "--output", &long], &more[..]].concat();
        place.stdout(&args);
        let out = place.run(&["train", "--resume", &short, "--epochs", "4"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let said = text(&out.stderr);
        assert!(said.contains("4 epochs instead of 2") && said.contains("those of a run with 4 epochs"), "{said}");
        assert!(text(&out.stdout).contains("last epoch (4)"), "{}", text(&out.stdout));
        for name in ["checkpoint.eqp", "metrics.jsonl", "config.toml", "details.json"] {
            let read = |run: &str| std::fs::read(place.path().join(run).join(name)).expect(name);
            assert!(read(&short) == read(&long), "{schedule}: {name} differs");
        }
        let message = place.refused(&["train", "--resume", &short, "--epochs", "3"]);
        assert!(message.contains("--epochs 3: 4 epochs are trained already"), "{message}");
    }
}

#[test]
fn a_schedule_that_is_laid_out_for_its_epochs_is_not_stretched() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    place.train("cosine", &["--quiet", "--set", "optimizer.schedule=cosine"]);
    for (run, schedule) in [("run", "the default schedule"), ("cosine", "the cosine schedule")] {
        let before = place.read(&format!("{run}/config.toml"));
        let message = place.refused(&["train", "--resume", run, "--epochs", "4"]);
        assert!(message.contains(schedule) && message.contains("laid out for 2 epochs"), "{message}");
        assert!(message.contains(&format!("equipoise train --weights {run} --epochs N")), "{message}");
        assert_eq!(place.read(&format!("{run}/config.toml")), before);
        assert!(place.path().join(run).join("result.json").exists());
    }
    assert!(place.refused(&["train", "--resume", "nowhere"]).contains("config.toml"));
}
