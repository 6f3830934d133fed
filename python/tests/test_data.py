import json
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

import equipoise

LABELS = np.repeat(np.arange(10), 100)


@pytest.fixture
def folder(tmp_path):
    """Two classes of PNG and JPEG files, with a split of their own."""
    random = np.random.default_rng(0)
    for split, number in (("train", 12), ("test", 4)):
        for label, name in enumerate(("cat", "dog")):
            place = tmp_path / "pets" / split / name
            place.mkdir(parents=True)
            for i in range(number - 4 * label if split == "train" else number):
                pixels = random.integers(0, 256, (40 + i, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{i}.{'png' if i % 2 else 'jpg'}")
    return tmp_path / "pets"


def published(labels, imbalance, seed):
    """The images that the code of LDAM keeps."""
    random = np.random.RandomState(seed)
    classes = labels.max() + 1
    kept = []
    for label in range(classes):
        number = int(len(labels) / classes * (1 / imbalance) ** (label / (classes - 1)))
        indices = np.where(labels == label)[0]
        random.shuffle(indices)
        kept.extend(indices[:number])
    return kept


@pytest.mark.parametrize(("imbalance", "seed"), [(10, 0), (100, 0), (50, 7)])
def test_subsets_are_the_published_ones(imbalance, seed):
    shuffled = np.random.default_rng(1).permutation(LABELS)
    assert equipoise.long_tailed(shuffled, imbalance, seed=seed).tolist() == published(shuffled, imbalance, seed)


@pytest.mark.parametrize("options", [{}, {"profile": "step", "seed": 3}])
def test_subsets_are_those_of_the_program(binary, options):
    named = {"profile": "--profile", "seed": "--subset-seed"}
    given = [text for key, value in options.items() for text in (named[key], str(value))]
    command = [binary, "data", "index", "fashion-mini", "--imbalance", "20", *given]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    want = [int(line) for line in text.splitlines() if not line.startswith("#")]
    labels = equipoise.Dataset("fashion-mini").labels
    assert equipoise.long_tailed(labels, 20, **options).tolist() == want


def test_bad_subsets_are_refused():
    with pytest.raises(ValueError, match="imbalance"):
        equipoise.long_tailed(LABELS, 0.5)
    with pytest.raises(ValueError, match="profile"):
        equipoise.long_tailed(LABELS, 10, "linear")
    with pytest.raises(ValueError, match=r"labels\[900\] is 9; there are 5 classes"):
        equipoise.long_tailed(LABELS, 10, classes=5)
    with pytest.raises(ValueError, match=r"labels\[1\] is -1"):
        equipoise.long_tailed([0, -1], 10)
    with pytest.raises(TypeError, match="labels must be whole numbers"):
        equipoise.long_tailed([0.5, 1.0], 10)
    with pytest.raises(ValueError, match="1 dimension"):
        equipoise.long_tailed([[1, 2]], 10)
    with pytest.raises(ValueError, match="seed is -1"):
        equipoise.long_tailed(LABELS, 10, seed=-1)


def test_groups():
    counts = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    want = {"Many": [0, 1], "Medium": [2, 3, 4], "Few": [5, 6, 7], "Rare": [8, 9]}
    assert equipoise.groups(counts) == want
    assert equipoise.groups(counts, want) == want
    assert equipoise.groups([11, 10, 10, 0]) == {"All": [0, 1, 2, 3]}
    assert list(equipoise.groups([1, 2], {"b": [1], "a": [0]})) == ["b", "a"]
    assert equipoise.groups([101, 100, 19], "threshold") == {"Many": [0], "Medium": [1], "Few": [2]}
    with pytest.raises(ValueError, match="groups = size"):
        equipoise.groups(counts, "size")
    with pytest.raises(ValueError, match="class 1 must be in one group"):
        equipoise.groups([1, 2], {"all": [0]})
    with pytest.raises(ValueError, match="there are 2 classes"):
        equipoise.groups([1, 2], {"all": [0, 1, 2]})
    with pytest.raises(TypeError, match="groups must be a rule"):
        equipoise.groups([1, 2], 4)
    with pytest.raises(ValueError, match=r"counts\[1\] is -2"):
        equipoise.groups([1, -2])


def test_inspect_is_what_the_program_prints(binary, folder):
    (folder / "train" / "cat" / "broken.jpg").write_bytes((folder / "train" / "cat" / "0.jpg").read_bytes()[:200])
    for data, options in (("fashion-mini", {"imbalance": 20}), (folder, {})):
        given = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        command = [binary, "inspect", data, "--json", *given]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = equipoise.inspect(data, **options)
        assert found == json.loads(text)
    assert [problem["path"] for problem in found["problems"]] == [str(folder / "train" / "cat" / "broken.jpg")]
    with pytest.raises(FileNotFoundError, match="no-such-set"):
        equipoise.inspect("no-such-set")
    with pytest.raises(ValueError, match="did you mean 'data.imbalance'"):
        equipoise.inspect("fashion-mini", settings={"data": {"imbalanc": 3}})


@pytest.mark.parametrize("kind", ["uniform", "class-balanced", "square-root", "progressive"])
def test_shards_are_the_order_of_one_process(kind):
    labels = LABELS[: 900 + 30 + 3]
    whole = equipoise.Sampler(labels, kind, epochs=5, seed=3)
    for epoch in (0, 4):
        whole.set_epoch(epoch)
        for size in (2, 7):
            for uneven, length in (("pad", -(-len(labels) // size)), ("drop", len(labels) // size), ("keep", None)):
                shards = [
                    equipoise.Sampler(labels, kind, epochs=5, seed=3, rank=rank, world_size=size, uneven=uneven)
                    for rank in range(size)
                ]
                for shard in shards:
                    shard.set_epoch(epoch)
                    assert len(list(shard)) == len(shard) and length in (None, len(shard))
                joined = [shards[i % size].indices()[i // size] for i in range(sum(len(s) for s in shards))]
                order = list(whole)
                want = (order + order[: len(joined) - len(order)])[: len(joined)]
                assert joined == want
    if kind == "uniform":
        assert sorted(whole) == list(range(len(labels)))
        again = pickle.loads(pickle.dumps(whole))
        assert list(again) == list(whole) and again.epoch == 4


def test_a_class_balanced_epoch_is_balanced():
    labels = np.repeat([0, 1], [990, 10])
    drawn = labels[list(equipoise.Sampler(labels, "class-balanced"))]
    assert 400 < drawn.sum() < 600


def test_bad_samplers_are_refused():
    for options, message in (
        ({"kind": "random"}, "unknown sampler `random`"),
        ({"rank": 2, "world_size": 2}, "rank is 2"),
        ({"uneven": "maybe"}, "uneven is 'maybe'"),
        ({"epochs": 0}, "epochs is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            equipoise.Sampler(LABELS, **options)


@pytest.mark.parametrize("sampler", ["uniform", "sequential"])
def test_every_pass_is_an_epoch(sampler):
    dataset = equipoise.Dataset("fashion-mini")

    def first(loader):
        return next(iter(loader))[0]

    wanted = []
    for epoch in range(5):
        loader = equipoise.Loader(dataset, 16, sampler=sampler)
        loader.set_epoch(epoch)
        wanted.append(first(loader))
    loader = equipoise.Loader(dataset, 16, sampler=sampler)
    # passes that end early: by leaving the loop, by zip, by nobody asking for more
    for images, _ in loader:
        assert (images == wanted[0]).all()
        break
    assert loader.epoch == 1
    assert [(images == wanted[1]).all() for (images, _), _ in zip(loader, range(1), strict=False)] == [True]
    assert (first(loader) == wanted[2]).all()
    early, late = iter(loader), iter(loader)
    assert (next(late)[0] == wanted[4]).all() and (next(early)[0] == wanted[3]).all()
    loader.set_epoch(1)
    assert (first(loader) == wanted[1]).all() and (first(loader) == wanted[2]).all()


def test_a_second_pass_without_set_epoch_is_warned_of_once():
    sampler = equipoise.Sampler(LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(sampler))
        list(sampler)
    with pytest.warns(UserWarning, match=r"call set_epoch\(epoch\) of the sampler"):
        list(sampler)
    dataset = equipoise.Dataset("fashion-mini")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(sampler)
        for index in range(len(dataset)):
            dataset[index]
    with pytest.warns(UserWarning, match=r"call set_epoch\(epoch\) of the dataset"):
        dataset[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset[0]
        other, plain, order = (
            equipoise.Dataset("fashion-mini"),
            equipoise.Dataset("fashion-mini", "test"),
            equipoise.Sampler(LABELS),
        )
        for epoch in range(2):
            other.set_epoch(epoch)
            order.set_epoch(epoch)
            list(order)
            for index in range(len(other)):
                other[index]
            for index in range(len(plain)):
                plain[index]


def test_labels_that_cannot_be_used():
    with pytest.raises(ValueError, match="labels: class 1 has no images; all 6 classes"):
        equipoise.long_tailed([0, 0, 5, 5], 2)
    for call in (equipoise.Sampler, lambda labels: equipoise.long_tailed(labels, 2)):
        with pytest.raises(ValueError, match=r"labels\[1\] is -1; it must be at least 0"):
            call([0, -1, 1])
        with pytest.raises(ValueError, match=r"labels\[0\] is 18446744073709551615"):
            call(np.array([2**64 - 1, 0], np.uint64))


def test_settings_may_have_dotted_names():
    nested = equipoise.Dataset("fashion-mini", settings={"data": {"imbalance": 50}, "augment": {"flip": False}})
    dotted = equipoise.Dataset("fashion-mini", settings={"data.imbalance": 50, "augment.flip": False})
    assert dotted.settings == nested.settings and dotted.counts == nested.counts
    with pytest.raises(ValueError, match="data.imbalence|imbalence"):
        equipoise.Dataset("fashion-mini", settings={"data.imbalence": 50})


def test_images_do_not_depend_on_how_they_are_asked_for():
    dataset = equipoise.Dataset("fashion-mini", augment={"randaugment": [2, 9], "cutout": 8}, seed=5)
    dataset.set_epoch(3)
    loader = equipoise.Loader(dataset, 50, with_indices=True, threads=2)
    loader.set_epoch(3)
    seen = []
    for images, labels, indices in loader:
        assert images.dtype == np.float32 and images.shape[1:] == dataset.shape
        assert (labels == dataset.labels[indices]).all()
        assert (images == dataset.images(indices)).all()
        assert (images[0] == dataset[int(indices[0])][0]).all()
        seen.extend(indices)
    assert sorted(seen) == list(range(len(dataset)))
    assert loader.epoch == 4


@pytest.mark.parametrize("augment", [None, {"mixup_alpha": 0.3}, {"cutmix": 0.5}, {"cmo": 0.5}])
def test_batches_do_not_depend_on_threads(augment):
    dataset = equipoise.Dataset("fashion-mini", augment=augment)

    def batches(**options):
        loader = equipoise.Loader(dataset, 96, epochs=20, dtype="uint8", **options)
        loader.set_epoch(5)
        return list(loader)

    one, three = batches(threads=1, prefetch=0), batches(threads=3, prefetch=5)
    assert len(one) == len(three) == len(equipoise.Loader(dataset, 96))
    for (images, target), (others, other_target) in zip(one, three, strict=True):
        assert images.dtype == np.uint8 and (images == others).all()
        if augment is None:
            assert (target == other_target).all()
        else:
            labels, partners, shares = target
            assert labels.shape == partners.shape == shares.shape and ((shares >= 0) & (shares <= 1)).all()
            assert all((a == b).all() for a, b in zip(target, other_target, strict=True))


def test_levels_are_normalized_later(folder):
    for options, rounding in (({}, 1e-4), ({"image_size": 64, "photographs": True}, 0.502)):
        floats = equipoise.Dataset(folder, normalize=([0.5, 0.4, 0.3], [0.2, 0.3, 0.25]), **options)
        levels = equipoise.Dataset(folder, normalize=(floats.mean, floats.std), dtype="uint8", **options)
        for epoch in range(3):
            floats.set_epoch(epoch)
            levels.set_epoch(epoch)
            scale, offset = (np.array(x, np.float32).reshape(3, 1, 1) for x in levels._core.normalization)
            for (image, label), (bytes_, other) in zip(floats, levels, strict=True):
                assert label == other
                assert np.abs((image - offset) / scale - bytes_).max() <= rounding


def test_any_format_is_read(folder, tmp_path):
    dataset = equipoise.Dataset(folder)
    assert dataset.classes == ["cat", "dog"] and dataset.counts == [12, 8] and dataset.shape == (3, 32, 32)
    assert dataset.groups == {"Many": [0], "Few": [1]}
    test = equipoise.Dataset(folder, "test", image_size=48)
    assert len(test) == 8 and test.counts == [12, 8] and test.shape == (3, 48, 48)
    assert test.file(0).endswith("test/cat/0.jpg")
    lines = ["image,class", *(f"{file},{file.parent.name}" for file in sorted(folder.rglob("*.png")))]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    named = {"data": {"path_column": "image", "label_column": "class", "test_fraction": 0.0}}
    listed = equipoise.Dataset(tmp_path / "list.csv", settings=named, cache_bytes=None)
    assert len(listed) == len(lines) - 1 and (listed[0][0] == listed.images([0])[0]).all()
    val = equipoise.Dataset("fashion-mini", "val", settings={"data": {"val_fraction": 0.1}})
    train = equipoise.Dataset("fashion-mini", settings={"data": {"val_fraction": 0.1}})
    assert len(val) + len(train) == len(equipoise.Dataset("fashion-mini"))


def test_files_that_cannot_be_read(folder):
    broken = folder / "train" / "dog" / "1.png"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.warns(UserWarning, match=r"dog/1\.png"):
        dataset = equipoise.Dataset(folder, settings={"data": {"max_broken": 0.1}})
    assert len(dataset) == 19
    with pytest.raises(OSError, match=r"max_broken.*dog/1\.png.*In Python: settings=\{.data.: \{.max_broken."):
        equipoise.Dataset(folder, settings={"data": {"max_broken": 0.0}})
    late = equipoise.Dataset(folder, cache_bytes=None, image_size=32)
    index = next(i for i in range(len(late)) if late.file(i) == str(broken))
    with pytest.raises(OSError, match=r"dog/1\.png"):
        late[index]
    with pytest.raises(OSError, match=r"dog/1\.png"):
        list(equipoise.Loader(late, 4))
    assert late[0][0].shape == (3, 32, 32)


def test_bad_datasets_are_refused(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        equipoise.Dataset(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="cifar10 is not in"):
        equipoise.Dataset("cifar10", data_root=tmp_path)
    for options, message in (
        ({"split": "dev"}, "split: 'dev' must be train, val or test"),
        ({"split": "val"}, "no validation split"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"augment": {"flp": True}}, "did you mean 'augment.flip'"),
        ({"augment": {"mixup_alpha": -1.0}}, "mixup_alpha"),
        ({"normalize": ([0.5], [0.0])}, "std = 0"),
        ({"normalize": ([0.5], [0.5])}, "normalize has 1 means; the images have 3 channels"),
        ({"seed": -1}, "seed is -1"),
        ({"imbalance": 0.1}, "imbalance"),
    ):
        with pytest.raises(ValueError, match=message):
            equipoise.Dataset(folder, **options)
    dataset = equipoise.Dataset(folder)
    for index in (20, -21):
        with pytest.raises(IndexError, match="there are 20 images"):
            dataset[index]
    with pytest.raises(TypeError):
        dataset["0"]
    with pytest.raises(TypeError, match="dataset must be"):
        equipoise.Loader([1, 2])
    for options, message in (
        ({"batch_size": 0}, "batch_size is 0"),
        ({"sampler": "random"}, "sampler is 'random'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"threads": -1}, "threads is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            equipoise.Loader(dataset, **options)
    with pytest.raises(IndexError, match="index 99"):
        list(equipoise.Loader(dataset, sampler=[1, 99]))


def test_loaders_end_early_and_run_side_by_side():
    dataset = equipoise.Dataset("fashion-mini")
    test = equipoise.Dataset("fashion-mini", "test")
    loader = equipoise.Loader(dataset, 64, drop_last=True)
    for _ in range(20):
        next(iter(loader))
    both = list(zip(loader, equipoise.Loader(test, 64), strict=False))
    assert len(both) > 2
    assert all(len(labels) == 64 for _, labels in loader) and len(list(loader)) == len(dataset) // 64
    sequence = np.concatenate([labels for _, labels in equipoise.Loader(test, 100)])
    assert (sequence == test.labels).all()


def test_pickling_reads_the_same_images_again():
    dataset = equipoise.Dataset("fashion-mini", imbalance=50, seed=2)
    dataset.set_epoch(7)
    again = pickle.loads(pickle.dumps(dataset))
    assert again.epoch == 7 and again.counts == dataset.counts
    assert (again[11][0] == dataset[11][0]).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_its_own_threads():
    dataset = equipoise.Dataset("fashion-mini")
    loader = equipoise.Loader(dataset, 64, threads=2)
    running = iter(loader)
    want = next(running)[0].sum(dtype=np.float64)
    loader.set_epoch(0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fresh = next(iter(loader))[0].sum(dtype=np.float64)
            try:
                next(running)
            except RuntimeError as error:
                code = 0 if fresh == want and "another process" in str(error) else 2
            del running
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(1 for _ in running) == len(loader) - 1


def test_no_torch_is_needed():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import equipoise\n"
        "dataset = equipoise.Dataset(augment=False)\n"
        "print(sum(len(labels) for _, labels in equipoise.Loader(dataset)) == len(dataset))\n"
        "try: import equipoise.torch\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "True\nequipoise.torch needs PyTorch: pip install torch\n"
