"""Checks `equipoise embed` with onnxruntime: features, interruptions, and messages for models that cannot be used.

    python3 tools/check_embed.py target/release/equipoise [target/release/equipoise-mpi]

With the second program, also whether several processes under `mpirun` write the same bytes.

Makes small models with `onnx` and images with Pillow. The images have the side that images are resized to, so that only the computation is
compared. Needs numpy, Pillow, onnx, onnxruntime and safetensors. Ends with `N passed, M failed`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors import safe_open

LIBRARY = Path(onnxruntime.__file__).parent / "capi"
SIDE, RESIZE, WIDTH, IMAGES = 24, 28, 6, 400
RANDOM = np.random.default_rng(0)
RESULTS = []


def check(name, good, detail=""):
    RESULTS.append(bool(good))
    print(f"{'ok' if good else 'FAILED'}: {name}{'' if good else f': {detail}'}")


def model(path, output="map", shape=("batch", 3, SIDE, SIDE), kind=TensorProto.FLOAT, repeats=1):
    """A convolution with stride 2, and what follows it: `map`, `rows`, `tokens`, `nan` or `several`."""
    channels_last = shape[3] == 3
    nodes, x = [], "images"
    if kind != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", [x], ["cast"], to=TensorProto.FLOAT))
        x = "cast"
    if channels_last:
        nodes.append(helper.make_node("Transpose", [x], ["first"], perm=[0, 3, 1, 2]))
        x = "first"
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(WIDTH, 3, 3, 3)).astype("float32"), "weight")
    nodes.append(helper.make_node("Conv", [x, "weight"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]))
    square = numpy_helper.from_array((np.random.default_rng(2).normal(size=(WIDTH, WIDTH, 3, 3)) / 10).astype("float32"), "square")
    for i in range(repeats):
        nodes.append(helper.make_node("Conv", [f"c{i}", "square"], [f"c{i + 1}"], pads=[1, 1, 1, 1]))
    last, constants = f"c{repeats}", [weight, square]
    if output == "tokens":
        constants.append(numpy_helper.from_array(np.array([0, WIDTH, -1]), "flat"))
    nodes += {
        "map": [helper.make_node("Identity", [last], ["y"])],
        "rows": [helper.make_node("GlobalAveragePool", [last], ["p"]), helper.make_node("Flatten", ["p"], ["y"])],
        "tokens": [helper.make_node("Reshape", [last, "flat"], ["f"]), helper.make_node("Transpose", ["f"], ["y"], perm=[0, 2, 1])],
        "nan": [helper.make_node("Sub", [last, last], ["z"]), helper.make_node("Div", ["z", "z"], ["y"])],
        "several": [helper.make_node("Identity", [last], ["y"]), helper.make_node("Relu", [last], ["other"])],
    }[output]
    outputs = ["y", "other"] if output == "several" else ["y"]
    graph = helper.make_graph(
        nodes,
        "backbone",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, path)
    about = {"image_size": SIDE, "resize": RESIZE, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
    path.with_suffix(".json").write_text(json.dumps(about))
    return path


def make_images(folder):
    for label in range(3):
        (folder / f"class {label}").mkdir(parents=True)
        for number in range(IMAGES // 3):
            pixels = RANDOM.integers(0, 256, (RESIZE, RESIZE, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"class {label}" / f"{number:03}.png")


def embed(program, arguments, kill_after=None, start=()):
    command = [*start, program, "embed", *map(str, arguments), "--onnxruntime", str(LIBRARY)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kill_after:
        kill_after(process)
    out, err = process.communicate()
    return process.returncode, out + err


def features(path):
    with safe_open(path, "np") as file:
        return file.get_tensor("features"), json.loads(file.metadata()["paths"]), file.get_tensor("labels")


def reference(path, images, last=False):
    start = (RESIZE - SIDE) // 2
    batch = np.stack([np.asarray(Image.open(image), np.float32) for image in images]) / 255
    batch = batch[:, start : start + SIDE, start : start + SIDE]
    batch = (batch - np.float32([0.5, 0.4, 0.3])) / np.float32([0.2, 0.3, 0.4])
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    batch = np.ascontiguousarray(batch if last else batch.transpose(0, 3, 1, 2))
    rows = session.get_inputs()[0].shape[0]
    step = rows if isinstance(rows, int) else len(batch)
    return np.concatenate([session.run(["y"], {"images": batch[i : i + step]})[0] for i in range(0, len(batch), step)])


def compare(program, folder, images):
    pools = {"map": lambda y: y.mean((2, 3)), "rows": lambda y: y, "tokens": lambda y: y[:, 0]}
    cases = [(output, ("batch", 3, SIDE, SIDE)) for output in pools]
    cases += [("rows", ("batch", SIDE, SIDE, 3)), ("rows", (1, 3, SIDE, SIDE)), ("rows", ("b", "c", "h", "w"))]
    for number, (output, shape) in enumerate(cases):
        path = model(folder / f"{number}.onnx", output, shape)
        code, text = embed(program, [path, images, "-o", folder / f"{number}.safetensors"])
        if code:
            check(f"{output} {shape}", False, text)
            continue
        got, paths, labels = features(folder / f"{number}.safetensors")
        want = pools[output](reference(path, paths, last=shape[3] == 3))
        difference = np.abs(got - want).max()
        right_labels = all(f"class {label}" in path for label, path in zip(labels, paths, strict=True))
        check(
            f"{output}, input {shape}: features differ by {difference:.1e}",
            difference < 1e-5 and right_labels and len(got) == IMAGES // 3 * 3,
        )


def without_labels(program, folder, images):
    """All images below a folder, whatever its folders are called, have the features they have with labels."""
    path = folder / "1.onnx"
    code, text = embed(program, [path, images / "class 0", "--unlabeled", "-o", folder / "new.safetensors"])
    with safe_open(folder / "new.safetensors", "np") as file:
        got, paths, tensors = file.get_tensor("features"), json.loads(file.metadata()["paths"]), sorted(file.keys())
    same = np.abs(got - reference(path, paths)).max() < 1e-5
    check("images without labels", code == 0 and same and len(got) == IMAGES // 3 and tensors == ["features", "split"], text)


def send(signal_number, partial, rows):
    """Sends a signal when a partial file has this many rows."""

    def wait(process):
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if partial.exists() and partial.stat().st_size > 64 + 4 * WIDTH * rows:
                os.kill(process.pid, signal_number)
                return

    return wait


def interrupted(text, partial):
    said = f"equipoise: interrupted; the rows so far are in {partial}, from where the same command goes on\n"
    return text.count(said) == 1 and text.count("interrupted") == 1


def interrupt(program, folder, images):
    """A killed command continues and ends with the same bytes, also when an image has become unreadable before."""
    path = model(folder / "slow.onnx", "rows", repeats=150)
    (images / "class 1" / "broken.png").write_bytes(b"\x89PNG broken")
    whole, killed = folder / "whole.safetensors", folder / "killed.safetensors"
    code, text = embed(program, [path, images, "-o", whole, "--augmented-copies", 1])
    check("an unreadable image is named", code == 1 and "broken.png" in text and "1 image cannot be read and was left out" in text, text)
    partial = Path(f"{killed}.partial")

    code, _ = embed(program, [path, images, "-o", killed, "--augmented-copies", 1], send(signal.SIGKILL, partial, 100))
    check("a killed command leaves its rows", code == -signal.SIGKILL and partial.exists() and not killed.exists(), str(code))
    others = []

    def start_second(process):
        send(0, partial, 200)(process)
        others.append(embed(program, [path, images, "-o", killed, "--augmented-copies", 1]))
        send(signal.SIGINT, partial, 200)(process)

    code, text = embed(program, [path, images, "-o", killed, "--augmented-copies", 1], start_second)
    check("a second command is refused", others[0][0] == 1 and "killed.safetensors.partial: another process is computing" in others[0][1], str(others))
    check("Ctrl-C is told", code == 130 and interrupted(text, partial), f"{code} {text}")
    code, text = embed(program, [path, images, "-o", killed, "--augmented-copies", 1])
    check("it continues", code == 1 and "computed before" in text, text)
    check("with the same bytes", killed.read_bytes() == whole.read_bytes() and not partial.exists())


def refuse(program, folder, images):
    cases = {
        "integers": (model(folder / "int.onnx", kind=TensorProto.INT64), "must be float32"),
        "four channels": (model(folder / "four.onnx", shape=("batch", 4, SIDE, SIDE)), ""),
        "NaN": (model(folder / "nan.onnx", "nan"), "it returns NaN for"),
        "several outputs": (model(folder / "several.onnx", "several"), "choose one with --tensor: y, other"),
        "another size": (model(folder / "size.onnx", shape=("batch", 3, 32, 32)), "takes images of 32 x 32 only"),
    }
    (folder / "no.onnx").write_bytes(b"not a model")
    cases["no model"] = (folder / "no.onnx", "no.onnx: it is not an ONNX model, or not a complete one")
    whole = cases["another size"][0].read_bytes()
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    cases["half a model"] = (folder / "cut.onnx", "cut.onnx: it is not an ONNX model, or not a complete one")
    for name, (path, message) in cases.items():
        code, text = embed(program, [path, images, "-o", folder / "refused.safetensors"])
        lines = [line for line in text.splitlines() if "images resized to" not in line]
        check(f"{name} is refused in one line", code == 2 and len(lines) == 1 and message in text, text)


def several(program, folder, images):
    """Several processes write what one does."""
    path, whole = folder / "slow.onnx", folder / "whole.safetensors"
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    os.environ.update(root)
    for processes in [2, 3]:
        output = folder / f"several{processes}.safetensors"
        arguments = [path, images, "-o", output, "--augmented-copies", 1, "--threads", 1]
        start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(processes)]
        code, text = embed(program, arguments, start=start)
        check(f"{processes} processes write the same bytes", output.exists() and output.read_bytes() == whole.read_bytes(), text)
        check("and name the unreadable image once", code == 1 and text.count("broken.png") == 1, text)
        check("and say how many they are", text.count(f"{processes} processes with 1 thread each\n") == 1, text)
        output = folder / f"stopped{processes}.safetensors"
        partial = Path(f"{output}.partial")
        # mpirun waits for a second before it passes the signal on, so there is work for some ten seconds
        arguments = [path, images, "-o", output, "--augmented-copies", 200, "--threads", 1]
        code, text = embed(program, arguments, send(signal.SIGINT, partial, 100), start)
        check("Ctrl-C at mpirun is told", code != 0 and interrupted(text, partial), f"{code} {text}")
        _, text = embed(program, arguments, start=start)
        check("and the command goes on", output.exists() and "computed before" in text, text)
    other, output = model(folder / "other.onnx", "rows", repeats=2), folder / "refused.safetensors"
    first = [str(program), "embed", str(path), str(images), "-o", str(output), "--onnxruntime", str(LIBRARY)]
    start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "1", *first, ":", "-n", "1"]
    code, text = embed(program, [other, images, "-o", output], start=start)
    said = f"equipoise: rank 1: it has another model, other images or other options than rank 0 (on {os.uname().nodename})\n"
    check("another model of a rank is refused, and nothing is left", code and said in text and not list(folder.glob("refused*")), text)


def main(program, under_mpi=None):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_images(folder / "images")
        compare(program, folder, folder / "images")
        without_labels(program, folder, folder / "images")
        interrupt(program, folder, folder / "images")
        if under_mpi:
            several(under_mpi, folder, folder / "images")
        refuse(program, folder, folder / "images")
    print(f"{sum(RESULTS)} passed, {len(RESULTS) - sum(RESULTS)} failed")
    sys.exit(0 if RESULTS and all(RESULTS) else 1)


if __name__ == "__main__":
    main(*(Path(program).resolve() for program in sys.argv[1:3]))
