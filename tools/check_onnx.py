"""Compares exported ONNX files in onnxruntime with `equipoise predict`, for every kind of network and head, on images and on features.

    python3 tools/check_onnx.py target/release/equipoise

Trains each network for four epochs on images that it makes, exports it, lets `onnx` check the file, and compares the probabilities of
batches of one and of several images. Needs numpy, Pillow, onnx and onnxruntime. The images have the side that images are resized to, so that
only the computation is compared. Ends with `N passed, M failed`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from PIL import Image

CASES = {
    "linear head": (32, ["--model", "resnet8", "--lr", "0.01"]),
    "cosine head, learned scale, adjusted logits": (
        32,
        [
            "--model",
            "resnet14",
            "--set",
            "model.head=cosine",
            "--set",
            "model.learn_head_scale=true",
            "--set",
            "logit_adjustment=1",
            "--lr",
            "0.01",
        ],
    ),
    "ldam": (32, ["--model", "resnet8", "--criterion", "ldam", "--lr", "0.01"]),
    "projections": (64, ["--model", "resnet18", "--image-size", "64", "--lr", "0.01"]),
    "bottlenecks, odd size": (75, ["--model", "resnet50", "--image-size", "75", "--lr", "0.0003"]),
    "learnable weight scaling": (
        32,
        ["--weights", "linear head/run", "--set", "model.head=lws", "--set", "model.freeze_backbone=true", "--lr", "0.1"],
    ),
    "calibrated, for another prior": (32, ["--model", "resnet8", "--lr", "0.01", "--val-fraction", "0.3"]),
    "padded shortcut, odd size": (27, ["--model", "resnet8", "--image-size", "27", "--lr", "0.01"]),
}
TRAINING = ["--epochs", "4", "--batch-size", "16"]
# enough images for a temperature: at least 20 of validation are needed
CLASSES, IMAGES, BOUND = 3, 32, 1e-4
# shares of the classes, by case
PRIORS = {"calibrated, for another prior": {"class 0": 0.625, "class 1": 0.25, "class 2": 0.125}}


def make_images(folder, side, channels):
    random = np.random.default_rng(side)
    for label in range(CLASSES):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(IMAGES):
            base = random.integers(0, 256, (4, 4, channels), np.uint8).repeat(side // 4 + 1, 0).repeat(side // 4 + 1, 1)
            pixels = (base[:side, :side] // 2 + 40 * label).astype(np.uint8)
            Image.fromarray(pixels.squeeze()).save(folder / f"class {label}" / f"{number}.png")


def run(program, *arguments, folder=None):
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, cwd=folder)
    if result.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: {result.stderr}")
    return result.stdout


def prior(folder):
    """Options of `predict` and `export`, by the name of the case."""
    if folder.name not in PRIORS:
        return []
    file = folder / "prior.json"
    file.write_text(json.dumps(PRIORS[folder.name]))
    return ["--prior", file]


def export(program, folder, run_folder):
    file = folder / "network.onnx"
    run(program, "export", run_folder, "--format", "onnx", "--output", file, *prior(folder))
    onnx.checker.check_model(str(file), full_check=True)
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def pixels(path, side, channels):
    image = np.asarray(Image.open(path).convert("RGB"), np.float32).transpose(2, 0, 1) / 255
    start = round((image.shape[1] - side) / 2)  # as torchvision does
    image = image[:, start : start + side, start : start + side]
    gray = np.tensordot(np.float32([0.299, 0.587, 0.114]), image, 1)[None]
    return gray if channels == 1 else image


def compare(program, folder, run_folder):
    """The largest difference of probabilities, and how much they vary between images."""
    session = export(program, folder, run_folder)
    about = session.get_modelmeta().custom_metadata_map
    if prior(folder) and (float(about["temperature"]) == 1 or json.loads(about["prior"]) != PRIORS[folder.name]):
        sys.exit(f"{folder.name}: the metadata lack the temperature or the prior: {about}")
    classes, channels, side = json.loads(about["classes"]), int(about["channels"]), int(about["height"])
    images = folder / "to predict"
    make_images(images, int(about["resize"]), channels)
    lines = run(program, "predict", run_folder, images, "--json", "--top", len(classes), *prior(folder)).splitlines()
    predictions = [json.loads(line) for line in lines]
    want = [{p["label"]: p["probability"] for p in prediction["predictions"]} for prediction in predictions]
    want = np.array([[row[name] for name in classes] for row in want])
    batch = np.stack([pixels(prediction["path"], side, channels) for prediction in predictions])
    together = session.run(["probabilities"], {"images": batch})[0]
    alone = np.concatenate([session.run(["probabilities"], {"images": image[None]})[0] for image in batch])
    return max(np.abs(together - want).max(), np.abs(alone - want).max()), want.std(0).max()


HEADS = {
    "linear, standardized": ["--model", "linear"],
    "cosine, unit length": ["--model", "cosine", "--set", "data.scaling=normalize"],
    "mlp, as they are": ["--model", "mlp", "--set", "data.scaling=none", "--set", "model.hidden=33"],
    "ldam, adjusted logits": ["--model", "linear", "--criterion", "ldam", "--set", "logit_adjustment=1"],
}


def predictions(program, run_folder, path, classes):
    lines = run(program, "predict", run_folder, path, "--json", "--top", len(classes)).splitlines()
    rows = [{p["label"]: p["probability"] for p in json.loads(line)["predictions"]} for line in lines]
    return np.array([[row[name] for name in classes] for row in rows])


def compare_head(program, folder, options):
    """A head on features alone: the largest difference of probabilities, and how much they vary."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(5)
    labels = np.repeat(np.arange(CLASSES), IMAGES)
    features = (random.normal(size=(labels.size, 21)) + 2 * np.eye(21)[labels] + 3).astype(np.float32)
    np.savez(folder / "features.npz", features=features, labels=labels)
    run(program, "train", folder / "features.npz", *options, *TRAINING, "--output", folder / "run", "--quiet")
    session = export(program, folder, folder / "run")
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    want = predictions(program, folder / "run", folder / "features.npz", classes)
    together = session.run(["probabilities"], {"features": features})[0]
    alone = np.concatenate([session.run(["probabilities"], {"features": row[None]})[0] for row in features])
    return max(np.abs(together - want).max(), np.abs(alone - want).max()), want.std(0).max()


def write_backbone(path, pooled, opset):
    """A small backbone: a convolution with ReLU, averaged over positions inside or by the reader of its output."""
    random = np.random.default_rng(9)
    weight = onnx.numpy_helper.from_array(random.normal(size=(17, 3, 4, 4)).astype(np.float32) / 4, "conv.weight")
    nodes = [
        onnx.helper.make_node("Conv", ["input", "conv.weight"], ["conv"], strides=[4, 4]),
        onnx.helper.make_node("Relu", ["conv"], ["relu" if pooled else "features"]),
    ]
    if pooled:
        nodes.append(onnx.helper.make_node("GlobalAveragePool", ["relu"], ["pooled"]))
        nodes.append(onnx.helper.make_node("Flatten", ["pooled"], ["features"]))
    value = onnx.helper.make_tensor_value_info
    shape = ["batch", 17] if pooled else ["batch", 17, 8, 8]
    inputs = [value("input", onnx.TensorProto.FLOAT, ["batch", 3, 32, 32])]
    outputs = [value("features", onnx.TensorProto.FLOAT, shape)]
    graph = onnx.helper.make_graph(nodes, "backbone", inputs, outputs, [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, path)


def compare_joined(program, folder, pooled, opset=17, options=()):
    """Images through a head that is joined with its backbone, against the head on the features of `embed`."""
    make_images(folder / "images", 32, 3)
    backbone, features = folder / "backbone.onnx", folder / "features.safetensors"
    write_backbone(backbone, pooled, opset)
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    mean = ["--mean", "0.4,0.5,0.6", "--std", "0.2,0.3,0.25", "--resize", "32"]
    run(program, "embed", backbone, folder / "images", "-o", features, "--onnxruntime", library, *mean)
    run(program, "train", features, *TRAINING, *options, "--output", folder / "run", "--quiet")
    joined = folder / "joined.onnx"
    run(program, "export", folder / "run", "--backbone", backbone, "--output", joined)
    onnx.checker.check_model(str(joined), full_check=True)
    session = onnxruntime.InferenceSession(str(joined), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    lines = run(program, "predict", folder / "run", features, "--json", "--top", CLASSES).splitlines()
    rows = [json.loads(line) for line in lines]
    classes = json.loads(about["classes"])
    want = np.array([[{p["label"]: p["probability"] for p in row["predictions"]}[name] for name in classes] for row in rows])
    batch = np.stack([pixels(row["path"], int(about["height"]), 3) for row in rows])
    got = session.run(["probabilities"], {"images": batch})[0]
    return np.abs(got - want).max(), want.std(0).max()


def main(program):
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        cases = [(name, side, 3, options) for name, (side, options) in CASES.items()]
        for name, side, channels, options in [*cases, ("gray", 28, 1, ["fashion-mini", "--model", "resnet8"])]:
            case = folder / name
            make_images(case / "images", side, channels)
            data = options if options[0] == "fashion-mini" else [case / "images", *options]
            run(program, "train", *data, *TRAINING, "--output", case / "run", "--quiet", folder=folder)
            difference, spread = compare(program, case, case / "run")
            good = difference <= BOUND and spread > 1e-3
            passed, failed = passed + good, failed + (not good)
            print(f"{name}: probabilities differ by at most {difference:.1e} (they vary by {spread:.1e} between images)")
        heads = [(name, lambda case, options=options: compare_head(program, case, options)) for name, options in HEADS.items()]
        heads.append(("joined with its backbone", lambda case: compare_joined(program, case, True)))
        heads.append(("joined with a backbone of maps", lambda case: compare_joined(program, case, False)))
        cosine = ["--model", "cosine"]
        heads.append(("cosine, joined, newer operators", lambda case: compare_joined(program, case, True, 21, cosine)))
        for name, check in heads:
            difference, spread = check(folder / f"features, {name}")
            good = difference <= BOUND and spread > 1e-3
            passed, failed = passed + good, failed + (not good)
            print(f"features, {name}: probabilities differ by at most {difference:.1e} (they vary by {spread:.1e})")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
