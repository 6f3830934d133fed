import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import equipoise

COUNTS = [60, 20, 6]


def logits_of(epoch, rows=90, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(rows) % 3
    logits = random.normal(size=(rows, 3)).astype(np.float32)
    logits[np.arange(rows), labels] += 0.5 * epoch
    return logits, labels


def loop(folder, epochs=3, seed=0, val=False, **options):
    about = {"counts": COUNTS, "classes": ["a", "b", "c"], "dataset": "own"}
    run = equipoise.Run(folder, epochs=epochs, seed=seed, **about, **options)
    for epoch in range(run.epochs_done, epochs):
        metrics = run.metrics()
        metrics.update(*logits_of(epoch, seed=seed))
        best = logits_of(9 if epoch == 1 else 0) if val else None
        run.epoch(1.0 / (epoch + 1), learning_rate=0.1, test=metrics, val=best)
    return run


def test_the_program_makes_the_same_page(tmp_path, binary, monkeypatch):
    monkeypatch.chdir(tmp_path)
    criterion = equipoise.Criterion("cwap", COUNTS)
    for seed in range(3):
        loop(f"runs/cwap-{seed}", seed=seed, criterion=criterion, settings={"optimizer": "adam"}).finish()
        loop(f"runs/ce-{seed}", seed=seed, criterion="softmax", settings={"optimizer": "adam"}).finish()
    page = equipoise.report(["runs"], output="ours.html")
    subprocess.run([binary, "report", "runs", "-o", "theirs.html"], check=True, capture_output=True)
    assert page.read_text() == (tmp_path / "theirs.html").read_text()
    table = subprocess.run([binary, "report", "runs", "--format", "json"], check=True, capture_output=True, text=True)
    rows = json.loads(table.stdout)
    rows = (rows[0] if isinstance(rows, list) else rows)["rows"]
    assert [row["criterion"] for row in rows] == ["softmax", "cwap"]
    assert [row["seeds"] for row in rows] == [[0, 1, 2], [0, 1, 2]]
    assert "equipoise train --config" not in page.read_text() and "pytest" in page.read_text()
    refused = subprocess.run([binary, "train", "--resume", "runs/ce-0"], capture_output=True, text=True)
    assert refused.returncode != 0 and "a training loop of its own recorded this run" in refused.stderr


def test_the_folder_holds_what_was_recorded(tmp_path):
    run = loop(tmp_path / "run", val=True)
    page = run.finish()
    assert page == tmp_path / "run" / "report.html" and "own" in page.read_text()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3] and lines == run.history
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["best"]["epoch"] == 2 and result["best_selected_on"] == "val" and result["last"]["epoch"] == 3
    details = json.loads((tmp_path / "run" / "details.json").read_text())
    metrics = equipoise.Metrics(COUNTS)
    metrics.update(*logits_of(1))
    assert details["epoch"] == 2 and sum(map(sum, details["confusion"])) == 90
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "config.toml",
        "details.json",
        "lock",
        "metrics.jsonl",
        "report.html",
        "result.json",
        "times.jsonl",
    ]


def test_images_of_a_dataset_are_named_and_shown(tmp_path):
    test = equipoise.Dataset("fashion-mini", "test", imbalance=20)
    with equipoise.Run(tmp_path / "run", dataset=test, criterion="softmax", model="guess", epochs=1) as run:
        logits = np.random.default_rng(0).normal(size=(len(test), 10)).astype(np.float32)
        run.epoch(2.3, learning_rate=0.1, test=(logits, test.labels))
        run.finish()
    details = json.loads((tmp_path / "run" / "details.json").read_text())
    assert details["hardest"][0]["thumbnail"] and details["hardest"][0]["name"].startswith("number ")
    assert "imbalance 20" in (tmp_path / "run" / "report.html").read_text()
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'dataset = "fashion-mini"' in text and "imbalance = 20" in text


def test_a_run_is_continued(tmp_path):
    whole = loop(tmp_path / "whole", epochs=4)
    whole.finish()
    part = loop(tmp_path / "part", epochs=4)
    part.close()
    with (tmp_path / "part" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 5, "lear')  # a process that was killed while it wrote
    again = equipoise.Run(tmp_path / "part", counts=COUNTS, classes=["a", "b", "c"], dataset="own", epochs=4, resume=2)
    assert again.epochs_done == 2
    again.close()
    loop(tmp_path / "part", epochs=4, resume=2).finish()
    names = ("metrics.jsonl", "details.json")
    assert all((tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)
    longer = loop(tmp_path / "part", epochs=5, resume=True)
    assert longer.epochs_done == 5 and not (tmp_path / "part" / "result.json").exists()
    longer.finish()
    fresh = loop(tmp_path / "new", resume=True)
    assert fresh.epochs_done == 3


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_finished_run_that_is_opened_again_keeps_everything(tmp_path):
    folder = tmp_path / "run"
    loop(folder, val=True).finish(stopped_early=True)
    before = contents(folder)
    again = loop(folder, resume=True)
    assert again.epochs_done == 3 and contents(folder) == before
    again.close()
    assert contents(folder) == before
    loop(folder, resume=True).finish()
    assert contents(folder) == before
    # so does one that is opened at an earlier epoch, until that epoch is the last
    early = equipoise.Run(folder, counts=COUNTS, classes=["a", "b", "c"], dataset="own", epochs=3, resume=2)
    assert contents(folder) == before
    early.epoch(0.5, learning_rate=0.1, test=logits_of(5))
    assert not (folder / "result.json").exists() and not (folder / "details.json").exists()
    early.finish()
    assert [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [1, 0.5, 0.5]
    # epochs that were cut off are not in the result
    equipoise.Run(folder, counts=COUNTS, classes=["a", "b", "c"], dataset="own", epochs=3, resume=1).finish()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    assert json.loads((folder / "result.json").read_text())["last"]["epoch"] == 1


def test_another_number_of_epochs_keeps_the_details(tmp_path):
    folder = tmp_path / "run"
    loop(folder, epochs=3).finish()
    before = contents(folder)
    options = {"counts": COUNTS, "classes": ["a", "b", "c"], "dataset": "own"}
    equipoise.Run(folder, epochs=5, resume=True, **options).finish(stopped_early=True)
    after = contents(folder)
    assert after["details.json"] == before["details.json"] and b"epochs = 5" in after["config.toml"]
    old, new = (json.loads(files["result.json"]) for files in (before, after))
    assert new == {**old, "epochs": 5, "stopped_early": True}


def test_a_run_without_metrics_has_no_page(tmp_path):
    run = equipoise.Run(tmp_path / "run", counts=COUNTS, epochs=1)
    with pytest.raises(RuntimeError, match="nothing to report: no epoch was recorded with test="):
        run.finish()
    assert not (tmp_path / "run" / "result.json").exists()
    run.epoch(1.0, learning_rate=0.1, test=logits_of(0))
    assert run.finish().exists()


def test_epochs_that_cannot_be_recorded(tmp_path):
    run = equipoise.Run(tmp_path / "run", counts=COUNTS, epochs=1)
    with pytest.raises(ValueError, match="seconds is -4.0; it must be at least 0"):
        run.epoch(1.0, learning_rate=0.1, seconds=-4)
    assert run.epochs_done == 0
    run.epoch(1.0, learning_rate=0.1, test=logits_of(0))
    with pytest.raises(RuntimeError, match=r"all 1 planned epochs are recorded; Run\(..., epochs=N\)"):
        run.epoch(1.0, learning_rate=0.1)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1


def test_settings_may_have_dotted_names(tmp_path):
    for name, settings in (
        ("a", {"optimizer.lr": 0.1, "data.crop": 3}),
        ("b", {"optimizer": {"lr": 0.1}, "data": {"crop": 3}}),
    ):
        equipoise.Run(tmp_path / name, counts=COUNTS, epochs=1, settings=settings).close()
    a, b = ((tmp_path / name / "config.toml").read_text() for name in "ab")
    assert a == b and "[optimizer]" in a
    for settings, what in (
        ({"optimizer.lr": 1, "optimizer": {"lr": 2}}, "'optimizer.lr' is given twice"),
        ({"optimizer": 1, "optimizer.lr": 2}, "'optimizer' in 'optimizer.lr' is a value"),
    ):
        with pytest.raises(ValueError, match=what):
            equipoise.Run(tmp_path / "c", counts=COUNTS, epochs=1, settings=settings)
    with pytest.raises(TypeError, match="settings must be a mapping, not int"):
        equipoise.Run(tmp_path / "c", counts=COUNTS, epochs=1, settings=3)


def test_nothing_is_overwritten(tmp_path):
    loop(tmp_path / "run").finish()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(FileExistsError, match="already exists and is not empty; resume=True continues the run in it"):
        loop(tmp_path / "run")
    with pytest.raises(ValueError, match="another 'seed'"):
        loop(tmp_path / "run", seed=1, resume=True)
    with pytest.raises(ValueError, match="another 'criterion.method'"):
        loop(tmp_path / "run", criterion="seesaw", resume=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("keep")
    for resume in (False, True):
        with pytest.raises(FileExistsError):
            loop(tmp_path / "notes", resume=resume)
    assert os.listdir(tmp_path / "notes") == ["todo.txt"]


def test_other_folders_are_refused(tmp_path, binary):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        equipoise.report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is not a run"):
        equipoise.report([tmp_path / "empty"])
    with pytest.raises(ValueError, match="runs is empty"):
        equipoise.report([])
    run = loop(tmp_path / "run")
    with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()}"):
        loop(tmp_path / "run", resume=True)
    run.close()
    with pytest.raises(RuntimeError, match="the run is closed"):
        run.epoch(1.0, learning_rate=0.1)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"epoch": "one"}\n')
    with pytest.raises(ValueError, match="line 1 is damaged"):
        loop(tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"metrics\.jsonl"):
        equipoise.report(tmp_path / "run")
    options = ["--epochs", "1", "--model", "resnet8", "--imbalance", "100", "--output", tmp_path / "theirs"]
    subprocess.run([binary, "train", *options], check=True, capture_output=True)
    with pytest.raises(ValueError, match="is a run of `equipoise train`"):
        loop(tmp_path / "theirs", resume=True)
    assert equipoise.report(tmp_path / "theirs").exists()


def test_bad_arguments_are_named(tmp_path):
    run = equipoise.Run(tmp_path / "run", counts=COUNTS, epochs=1)
    for options, kind, message in (
        ({"loss": float("nan")}, ValueError, "loss is nan"),
        ({"loss": "low"}, TypeError, "loss must be a number"),
        ({"learning_rate": float("inf")}, ValueError, "learning_rate is inf"),
        ({"test": 3}, TypeError, "test must be Metrics"),
        ({"test": equipoise.Metrics([1, 2])}, ValueError, "test has 2 classes; the run has 3"),
        ({"val": (np.zeros((2, 3)), [0, 5])}, ValueError, r"labels\[1\] is 5"),
        ({"images": -1}, ValueError, "images is -1"),
    ):
        with pytest.raises(kind, match=message):
            run.epoch(**{"loss": 1.0, "learning_rate": 0.1, **options})
    assert run.epochs_done == 0
    run.close()
    for options, kind, message in (
        ({}, TypeError, "counts is missing"),
        ({"counts": [3, -1]}, ValueError, r"counts\[1\] is -1"),
        ({"counts": COUNTS, "classes": ["a"]}, ValueError, "classes has 1 names"),
        ({"counts": COUNTS, "groups": "big"}, ValueError, "groups = big"),
        ({"counts": COUNTS, "criterion": 3}, TypeError, "criterion must be a name"),
        ({"counts": COUNTS, "epochs": 0}, ValueError, "epochs is 0"),
        ({"counts": COUNTS, "resume": 3}, ValueError, "holds no run"),
    ):
        with pytest.raises(kind, match=message):
            equipoise.Run(tmp_path / "other", **{"epochs": 1, **options})
    assert not (tmp_path / "other").exists()


KILLED = """
import sys, numpy as np, equipoise
run = equipoise.Run(sys.argv[1], counts=[60, 20, 6], dataset="own", epochs=10**6, resume=True)
print("ready", flush=True)
while True:
    run.epoch(1.0, learning_rate=0.1, test=(np.eye(3, dtype=np.float32), np.arange(3)))
"""


def test_a_kill_leaves_a_readable_folder(tmp_path, binary):
    done = 0
    for wait in (0.02, 0.05, 0.1, 0.15):
        process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path / "run"], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        process.wait()
        subprocess.run([binary, "report", tmp_path / "run", "--plain"], check=True, capture_output=True)
        assert equipoise.report(tmp_path / "run").exists()
        run = equipoise.Run(tmp_path / "run", counts=[60, 20, 6], dataset="own", epochs=10**6, resume=True)
        assert run.epochs_done >= done and [epoch["epoch"] for epoch in run.history] == [*range(1, run.epochs_done + 1)]
        done = run.epochs_done
        run.close()
    assert done > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_own_the_run(tmp_path):
    run = equipoise.Run(tmp_path / "run", counts=COUNTS, epochs=1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run.epoch(1.0, learning_rate=0.1)
        except RuntimeError:
            code = 0
        del run
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # the lock is still held
    with pytest.raises(BlockingIOError):
        equipoise.Run(tmp_path / "run", counts=COUNTS, epochs=1, resume=True)
    run.epoch(1.0, learning_rate=0.1, test=(np.eye(3, dtype=np.float32), np.arange(3)))
