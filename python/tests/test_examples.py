"""The examples run with the real libraries, and their folders are reported."""

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    import torch

    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    # threads that spin for work make a busy machine slow
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def load(name, library=None):
        if library is not None:
            pytest.importorskip(library)
        return importlib.import_module(name)

    yield load
    torch.set_num_threads(threads)
    for name in [path.stem for path in EXAMPLES.glob("*.py")]:
        sys.modules.pop(name, None)


def learned(folder, epochs, method):
    """Checks the records: the loss falls, and every group of the embedded dataset is measured."""
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [*range(1, epochs + 1)]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["test"]["top1"] > 20
    assert [group["name"] for group in lines[-1]["test"]["groups"]] == ["Many", "Medium", "Few", "Rare"]
    assert json.loads(Path(folder, "result.json").read_text())["criterion"] == method
    assert "fashion-mini" in Path(folder, "report.html").read_text()


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path.name


def test_plain_loop(example, capsys):
    example("plain_loop").main("run", epochs=3)
    learned("run", 3, "cwap")
    assert "epoch 3: loss" in capsys.readouterr().out
    details = json.loads(Path("run", "details.json").read_text())
    assert all(image["thumbnail"] for image in details["hardest"])


@pytest.mark.filterwarnings("ignore")
def test_lightning(example):
    module = example("lightning_callback", "lightning")
    ended = []
    original = module.equipoise.torch.Criterion.end_epoch
    module.equipoise.torch.Criterion.end_epoch = lambda self: (ended.append(1), original(self))[1]
    try:
        module.main("run", epochs=2)
    finally:
        module.equipoise.torch.Criterion.end_epoch = original
    assert len(ended) == 2
    learned("run", 2, "balanced-softmax")


@pytest.mark.filterwarnings("ignore")
def test_hugging_face(example, monkeypatch):
    module = example("hf_trainer", "transformers")
    epochs = []
    kind = module.equipoise.torch.Dataset
    read = kind.__getitems__

    def reading(self, indices):
        if self.split == "train":
            epochs.append(self.epoch)
        return read(self, indices)

    monkeypatch.setattr(kind, "__getitems__", reading)
    module.main("run", epochs=3)
    learned("run", 3, "seesaw")
    # every epoch has an augmentation of its own
    assert sorted(set(epochs)) == [0, 1, 2] and epochs == sorted(epochs)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_divides_once(example):
    """Two accumulated batches have the gradient of one batch of both."""
    module = example("hf_trainer", "transformers")
    import torch

    images, labels = torch.randn(8, 1, 8, 8), torch.arange(8) % 3
    gradients = []
    for parts in ([slice(0, 8)], [slice(0, 3), slice(3, 8)]):
        torch.manual_seed(0)
        model = module.Model(1, [5, 3, 2])
        # a row's loss in `seesaw` depends on the rows beside it
        model.criterion = module.equipoise.torch.Criterion("balanced-softmax", [5, 3, 2], reduction="none")
        model.eval()
        for part in parts:
            outputs = model(images[part])
            model.loss(outputs, labels[part], num_items_in_batch=torch.tensor(8)).backward()
        gradients.append(model.network[-1].weight.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.filterwarnings("ignore")
def test_timm(example):
    example("timm_loop", "timm").main("run", epochs=4, method="balanced-softmax")
    learned("run", 4, "balanced-softmax")
