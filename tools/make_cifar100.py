#!/usr/bin/env python3
"""Writes CIFAR-100 in its binary layout, from a folder per class with PNG files.

    make_cifar100.py FOLDER OUT

FOLDER has train/CLASS/*.png and test/CLASS/*.png, as the repository cyizhuo/CIFAR-100-dataset has them; OUT becomes the dataset's folder
under `--data-root`. Classes are numbered by name, as the official files number them. Images are ordered by class and file name, which is not
the official order: a long-tailed subset has the same number of images in every class as that of the official files, but other images.
Coarse labels, which Equipoise does not read, are 0. Needs Pillow.
"""

import sys
from pathlib import Path

from PIL import Image

IMAGES = {"train": 500, "test": 100}


def records(split: Path, per_class: int):
    """Yields the record of every image: coarse label, fine label, and the planes of red, green and blue."""
    classes = sorted(folder for folder in split.iterdir() if folder.is_dir())
    if len(classes) != 100:
        sys.exit(f"{split}: {len(classes)} classes; CIFAR-100 has 100")
    for label, folder in enumerate(classes):
        files = sorted(folder.glob("*.png"))
        if len(files) != per_class:
            sys.exit(f"{folder}: {len(files)} images; CIFAR-100 has {per_class}")
        for file in files:
            image = Image.open(file).convert("RGB")
            if image.size != (32, 32):
                sys.exit(f"{file}: {image.size}; images of CIFAR-100 are 32 x 32")
            planes = b"".join(plane.tobytes() for plane in image.split())
            yield bytes([0, label]) + planes


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, per_class in IMAGES.items():
        with open(out / f"{name}.bin", "wb") as file:
            for record in records(source / name, per_class):
                file.write(record)
    names = sorted(folder.name for folder in (source / "train").iterdir() if folder.is_dir())
    (out / "fine_label_names.txt").write_text("\n".join(names) + "\n")


if __name__ == "__main__":
    main()
