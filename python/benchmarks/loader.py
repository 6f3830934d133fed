"""Measures loaders alone, in images per second: Equipoise against torchvision's DataLoader on the same images.

Usage: python loader.py [--workers 1 2] [--rounds 3]

Three datasets: images of 32 x 32 in memory, the same as PNG files, and photographs of 500 x 375 as JPEG files.
Both crop at random, mirror and give batches of tensors. Loaders take turns; the median over the rounds is shown.
Workers are threads for us and processes for torchvision.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import transforms

import equipoise
import equipoise.torch
from equipoise.torch.data import Loader


def photograph(random: np.random.Generator, width: int = 500, height: int = 375) -> Image.Image:
    """An image with the spectrum of a photograph: about 110 kB as a JPEG file of quality 90."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    amplitude = 1 / np.maximum(frequency, 1 / width) ** 1.1
    phases = random.random((3, height, width // 2 + 1))
    planes = np.fft.irfft2(amplitude * np.exp(2j * np.pi * phases), s=(height, width))
    planes /= planes.std(axis=(1, 2), keepdims=True)
    pixels = 128 + 50 * (planes[:1] + 0.3 * planes)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8).transpose(1, 2, 0))


def make_files(folder: Path, small: int, photographs: int) -> np.ndarray:
    """Writes both datasets, in the layout of ImageFolder, and returns the small images."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (small, 8, 8, 3), dtype=np.uint8)
    pixels = noise.repeat(4, axis=1).repeat(4, axis=2)
    for number in range(small):
        place = folder / "small" / "train" / str(number % 10)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[number]).save(place / f"{number}.png")
    for number in range(photographs):
        place = folder / "photographs" / "train" / str(number % 10)
        place.mkdir(parents=True, exist_ok=True)
        photograph(random).save(place / f"{number}.jpg", quality=90)
    for name in ("small", "photographs"):
        for label in range(10):
            target = folder / name / "test" / str(label)
            target.mkdir(parents=True)
            file = next((folder / name / "train" / str(label)).iterdir())
            (target / file.name).write_bytes(file.read_bytes())
    return pixels


class InMemory(torch.utils.data.Dataset):
    """Images in memory, as torchvision's CIFAR10 treats them."""

    def __init__(self, pixels: np.ndarray, transform: transforms.Compose) -> None:
        self.pixels, self.transform = pixels, transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), index % 10


def write_cifar(folder: Path, pixels: np.ndarray) -> None:
    """The small images as CIFAR-10's binary files, which both programs hold in memory."""
    folder.mkdir()
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    rows = np.concatenate([(np.arange(len(pixels)) % 10).astype(np.uint8)[:, None], planes], axis=1)
    # the format has 10,000 images per file
    rows = np.resize(rows, (10_000, rows.shape[1]))
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"class {k}" for k in range(10)) + "\n")


def speed(batches, limit: float) -> float:
    """Images per second of complete passes, after a first batch that starts workers."""
    iterator = iter(batches)
    next(iterator)
    images, start = 0, time.perf_counter()
    while True:
        for batch, _ in iterator:
            images += len(batch)
        if (elapsed := time.perf_counter() - start) > limit:
            return images / elapsed
        iterator = iter(batches)


def candidates(folder: Path, pixels: np.ndarray, workers: int):
    small = transforms.Compose([transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    large = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )

    def theirs(dataset, batch_size):
        return torch.utils.data.DataLoader(
            dataset, batch_size, shuffle=True, num_workers=workers, persistent_workers=True
        )

    def ours(name, batch_size, **options):
        dataset = equipoise.Dataset(folder / name, **options)
        return Loader(dataset, batch_size, threads=workers)

    files = torchvision.datasets.ImageFolder
    yield "32 px in memory", "torchvision", theirs(InMemory(pixels, small), 128)
    for dtype in ("uint8", "float32"):
        yield "32 px in memory", f"equipoise {dtype}", ours("cifar", 128, dtype=dtype)
    yield "32 px, PNG files", "torchvision", theirs(files(folder / "small" / "train", small), 128)
    for dtype in ("uint8", "float32"):
        options = {"dtype": dtype, "image_size": 32, "cache_bytes": None}
        yield "32 px, PNG files", f"equipoise {dtype}", ours("small", 128, **options)
    yield "224 px, JPEG files", "torchvision", theirs(files(folder / "photographs" / "train", large), 32)
    for dtype in ("uint8", "float32"):
        options = {"dtype": dtype, "image_size": 224, "cache_bytes": None}
        yield "224 px, JPEG files", f"equipoise {dtype}", ours("photographs", 32, **options)
    cached = {"dtype": "uint8", "image_size": 224}
    yield "224 px, JPEG files", "equipoise uint8, decoded once", ours("photographs", 32, **cached)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="shortest measurement")
    parser.add_argument("--folder", type=Path, help="where files are kept between measurements")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        if not (folder / "pixels.npy").exists():
            folder.mkdir(exist_ok=True, parents=True)
            pixels = make_files(folder, 2000, 300)
            write_cifar(folder / "cifar", pixels)
            np.save(folder / "pixels.npy", pixels)
        pixels = np.load(folder / "pixels.npy")
        for workers in arguments.workers:
            found: dict[tuple[str, str], list[float]] = {}
            loaders = list(candidates(folder, pixels, workers))
            for _ in range(arguments.rounds):
                for data, name, batches in loaders:
                    found.setdefault((data, name), []).append(speed(batches, arguments.seconds))
            for (data, name), speeds in found.items():
                median = statistics.median(speeds)
                ratio = median / statistics.median(found[data, "torchvision"])
                row = {
                    "data": data,
                    "loader": name,
                    "workers": workers,
                    "images/s": round(median),
                    "times": round(ratio, 2),
                }
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
