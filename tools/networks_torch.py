#!/usr/bin/env python3
"""Measures steps of networks in PyTorch or onnxruntime, for comparison with `equipoise bench step`.

    networks_torch.py MODEL [--batch 128] [--size 32] [--channels 3] [--steps 15] [--threads 2] [--evaluate] [--bf16] [--compile]
    networks_torch.py MODEL --onnxruntime [--batch 1] [--size 224] [--channels 3] [--steps 15] [--threads 2]

MODEL is resnet8, 14, 20, 32, 44 or 56 (written out in make_networks.py), or resnet18 or resnet50 (torchvision's). Needs torch, and
torchvision for the large ones. --bf16 is autocast, --compile torch.compile: compare with the fastest combination. --onnxruntime exports the
network (pip install onnx onnxruntime) and evaluates it in f32; compare with `bench step --evaluate`. Run both programs in turn and compare
medians.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn.functional as F

from make_networks import Small

BLOCKS = {"resnet8": 1, "resnet14": 2, "resnet20": 3, "resnet32": 5, "resnet44": 7, "resnet56": 9}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
for name in ("evaluate", "bf16", "compile", "onnxruntime"):
    parser.add_argument(f"--{name}", action="store_true")
for name, value in [("batch", 128), ("size", 32), ("channels", 3), ("steps", 15), ("threads", 2)]:
    parser.add_argument(f"--{name}", type=int, default=value)
args = parser.parse_args()
args.evaluate |= args.onnxruntime

torch.set_num_threads(args.threads)
torch.manual_seed(0)
if args.model in BLOCKS:
    model = Small(BLOCKS[args.model], 10, channels=args.channels)
else:
    import torchvision
    model = getattr(torchvision.models, args.model)(num_classes=10)
model = model.to(memory_format=torch.channels_last).train(not args.evaluate)
images = torch.randn(args.batch, args.channels, args.size, args.size).to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (args.batch,))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
network = torch.compile(model) if args.compile else model


def onnx_session():
    """The network in onnxruntime, which folds batch norms into the weights."""
    import io

    import onnxruntime

    file = io.BytesIO()
    torch.onnx.export(model, (images,), file, input_names=["images"], dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    return session, {"images": images.contiguous().numpy()}


session, inputs = onnx_session() if args.onnxruntime else (None, None)
times = []
for _ in range(args.steps + 3):
    start = time.perf_counter()
    if session is not None:
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
        continue
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16), torch.set_grad_enabled(not args.evaluate):
        loss = F.cross_entropy(network(images), labels)
    if not args.evaluate:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    times.append(time.perf_counter() - start)
median, best = statistics.median(times[3:]), min(times[3:])
print(json.dumps({"model": args.model, "batch": args.batch, "threads": args.threads, "device": f"pytorch {torch.__version__}",
                  "bf16": args.bf16, "compile": args.compile, "onnxruntime": args.onnxruntime, "milliseconds": round(1e3 * median, 2),
                  "images_per_second": round(args.batch / median, 1), "best": round(args.batch / best, 1),
                  "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))
