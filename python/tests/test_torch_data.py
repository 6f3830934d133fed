import numpy as np
import pytest

torch = pytest.importorskip("torch")

import equipoise  # noqa: E402
from equipoise.torch.data import Dataset, Loader, Normalize  # noqa: E402
from equipoise.torch.samplers import Sampler  # noqa: E402


def test_workers_give_the_images_of_one_process():
    dataset = Dataset("fashion-mini", imbalance=100, dtype="uint8", seed=3)
    sampler = Sampler(torch.from_numpy(dataset.labels), "class-balanced", seed=3)
    loaders = [
        torch.utils.data.DataLoader(dataset, 32, sampler=sampler),
        torch.utils.data.DataLoader(dataset, 32, sampler=sampler, num_workers=2, persistent_workers=True),
    ]
    for epoch in range(3):
        # workers that are already there see the epoch too
        dataset.set_epoch(epoch)
        sampler.set_epoch(epoch)
        plain, workers = ([*loader] for loader in loaders)
        own = equipoise.Loader(dataset, 32, sampler="class-balanced")
        own.set_epoch(epoch)
        for (images, labels), (others, other_labels), (arrays, array_labels) in zip(plain, workers, own, strict=True):
            assert images.dtype == torch.uint8
            assert torch.equal(images, others) and torch.equal(labels, other_labels)
            assert (images.numpy() == arrays).all() and (labels.numpy() == array_labels).all()


def test_normalizing_on_the_device_gives_the_same_bits():
    floats = Dataset("fashion-mini", "test")
    levels = Dataset("fashion-mini", "test", dtype="uint8")
    normalize = Normalize(levels)
    images, want = (torch.stack([dataset[i][0] for i in range(9)]) for dataset in (levels, floats))
    assert torch.equal(normalize(images), want)
    assert not normalize.state_dict()
    on_device = Loader(levels, 64, device="cpu", channels_last=True)
    for (images, labels), (want, want_labels) in zip(on_device, Loader(floats, 64), strict=True):
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, want) and torch.equal(labels, want_labels)


def test_every_pass_is_an_epoch():
    dataset = Dataset("fashion-mini")
    loader, own = Loader(dataset, 16, device="cpu"), equipoise.Loader(dataset, 16)
    for epoch in (0, 1, 2, 7, 8):
        if epoch == 7:
            loader.set_epoch(7)
        own.set_epoch(epoch)
        for images, labels in loader:
            arrays, array_labels = next(iter(own))
            assert (images.numpy() == arrays).all() and (labels.numpy() == array_labels).all()
            break
    assert loader.epoch == 9


def test_a_data_loader_that_augments_nothing_new_is_warned_of():
    dataset = Dataset("fashion-mini")
    batches = torch.utils.data.DataLoader(dataset, 256, sampler=Sampler(dataset.labels))
    for _ in batches:
        pass
    with pytest.warns(UserWarning) as seen:
        for _ in batches:
            pass
    said = sorted(str(warning.message) for warning in seen)
    assert len(said) == 2 and "set_epoch(epoch) of the sampler" in said[0] and "of the dataset" in said[1]


def test_mixtures_are_tensors():
    dataset = Dataset("fashion-mini", augment={"mixup_alpha": 1.0})
    images, (labels, partners, shares) = next(iter(Loader(dataset, 32)))
    assert images.dtype == shares.dtype == torch.float32 and labels.dtype == partners.dtype == torch.int64


def test_samplers_take_the_shard_of_their_process(tmp_path):
    labels = np.arange(10) % 3
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert Sampler(labels).world_size == 1
    finally:
        torch.distributed.destroy_process_group()
    shards = [list(Sampler(labels, rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(shards[0] + shards[1]) == list(range(10))
