#!/usr/bin/env python3
"""A model of the time of a training step on several machines; see docs/cluster.md for how batches are shared out.

On paper: a process computes its slices of the batch; every batch norm waits for a short exchange in both passes; the logits are
gathered; gradients of weights travel, 2 (n - 1) / n of their bytes from each process, while earlier layers are computed.

By simulation: the layers of the network in their order, with one network card per process that sends messages one after the other.

    tools/cluster_model.py                              a table for 1 to 64 machines, from assumed seconds of one
    tools/cluster_model.py --check SECONDS LATENCY GBPS prediction for two processes of ResNet-32 at batch 128 from the seconds of one
"""

import argparse
import math


def resnet32(classes=10):
    """Convolutions as (weights, output channels, multiply-adds per image, has a batch norm)."""
    layers = [(27 * 16, 16, 27 * 16 * 1024)]
    width, side = 16, 32
    for stage in range(3):
        for block in range(5):
            inputs = width
            if stage and block == 0:
                width, side = 2 * width, side // 2
            layers.append((9 * inputs * width, width, 9 * inputs * width * side * side))
            layers.append((9 * width * width, width, 9 * width * width * side * side))
    return layers, 64 * classes, classes


def resnet50(classes=1000):
    layers = [(147 * 64, 64, 147 * 64 * 112 * 112)]
    inputs, side = 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            before = side
            if stage and block == 0:
                side //= 2
            layers.append((inputs * width, width, inputs * width * before * before))
            layers.append((9 * width * width, width, 9 * width * width * side * side))
            layers.append((4 * width * width, 4 * width, 4 * width * width * side * side))
            if block == 0:
                layers.append((4 * inputs * width, 4 * width, 4 * inputs * width * side * side))
            inputs = 4 * width
    return layers, 2048 * classes, classes


def slices(batch, processes):
    """Images of the largest share: slices are whole (crates/nn/src/slices.rs)."""
    number = 8
    while number > 1 and batch < 4 * number:
        number //= 2
    if processes > 8:
        number = max(number, 1 << (processes - 1).bit_length())
    share = max(1, number // (1 << (processes.bit_length() - 1)))
    return min(batch, share * math.ceil(batch / number))


def step(network, batch, seconds, processes, latency, bandwidth):
    """Seconds of a step, and bytes that leave a process. `seconds` is the step of one process, bandwidth is in bytes per second."""
    layers, head, classes = network
    if processes == 1:
        return seconds, 0
    compute = seconds * slices(batch, processes) / batch
    total = sum(macs for _, _, macs in layers)
    rounds = math.ceil(math.log2(processes))
    sent = 0.0

    def gather(size):
        """Everyone's `size` bytes to everyone."""
        nonlocal sent
        sent += size * (processes - 1)
        return rounds * latency + size * (processes - 1) / bandwidth

    now = 0.0
    for _, channels, macs in layers:
        now += compute / 3 * macs / total
        now += gather(16 * channels)
    now += gather(4 * classes * batch / processes) + 3 * gather(8)
    card = now
    for index, (weights, channels, macs) in enumerate([(head, 0, 0)] + layers[::-1]):
        now += compute * 2 / 3 * macs / total
        size = 4 * weights * 2 * (processes - 1) / processes
        sent += size
        # the card is busy with one message at a time; a batch norm's sums wait for it
        card = max(card, now) + 2 * rounds * latency + size / bandwidth
        if index < len(layers):
            now += gather(16 * (channels or 64))
    return max(now, card), sent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs=3, type=float, metavar=("SECONDS", "LATENCY", "GBPS"))
    parser.add_argument("--network", choices=["resnet32", "resnet50"], default="resnet32")
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    if args.check:
        seconds, latency, gbps = args.check
        network = resnet32() if args.network == "resnet32" else resnet50()
        predicted, sent = step(network, args.batch, seconds, 2, latency, gbps / 8 * 1e9)
        print(f"two processes: {predicted:.4f} s, {seconds / predicted:.2f} x one, {sent / 1e6:.1f} MB leave each")
        return
    cases = [
        ("ResNet-32, batch 128", resnet32(), 128, 0.25),
        ("ResNet-50 at 224, batch 256", resnet50(), 256, 60.0),
    ]
    links = [("1 Gbit/s, 50 us", 50e-6, 1), ("10 Gbit/s, 20 us", 20e-6, 10), ("100 Gbit/s, 2 us", 2e-6, 100)]
    for name, network, batch, seconds in cases:
        print(f"\n{name}, {seconds} s a step on one machine: times as fast as one machine\n")
        print("| machines | " + " | ".join(link for link, _, _ in links) + " | MB sent by each |")
        print("|---|---|---|---|---|")
        for processes in [1, 2, 4, 8, 16, 32, 64]:
            results = [step(network, batch, seconds, processes, latency, gbps / 8 * 1e9) for _, latency, gbps in links]
            row = " | ".join(f"{seconds / time:.1f}" for time, _ in results)
            print(f"| {processes} | {row} | {results[0][1] / 1e6:.1f} |")


if __name__ == "__main__":
    main()
