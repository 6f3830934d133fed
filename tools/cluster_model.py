#!/usr/bin/env python3
"""Predicts how much faster several machines train; docs/cluster.md says how batches are shared out, and has the tables.

A step of n machines, with `one` the seconds of a step on one machine, `fixed` the part of it that every machine repeats whatever its
images (packing of weights), `update` the part that is divided among them (norm and optimizer), G the bytes of the gradients, which are
those of the parameters, and `share` the images of the machine that has most of them:

    compute   = (one - fixed - update) share / batch, a third of it in the forward pass
    copies    = 2 (n - 1) / n G x MESSAGE + (3 n - 2) / n G x COPY                on the core that computes: those of MPI, and our own
    exchanges = E ceil(log2 n) latency + (n - 1) exchanged bytes / bandwidth      batch norm sums, logits, decisions: all wait
    sums      = (n - 1) / n G / bandwidth                                         of gradients, while earlier layers are computed
    gathers   = (n - 1) / n G / bandwidth                                         of parameters, while the next forward pass begins
    step      = fixed + update / n + compute + copies + exchanges
                + what is left of the sums when the backward pass ends, and of the gathers when the forward pass does

On paper, this is added up as it stands. The simulation goes through the layers in their order, with buckets of gradients and parameters that
leave one after the other, exchanges that wait for the fragment on its way, and machines that each take a little more or less time for
every layer.

    tools/cluster_model.py                tables for 1 to 64 machines
    tools/cluster_model.py --measured     predictions for two processes, beside what was measured
    tools/cluster_model.py --check FILE.. compares the counts of exchanges and bytes with those of `equipoise-mpi bench step --json`
"""

import argparse
import json
import math
import random

# values from which on a bucket of gradients begins to travel (mpi/src/peers.rs)
BUCKET = 1 << 16
# values of a part of the parameters, which one machine updates, if there are enough of them (crates/nn/src/slices.rs)
PART = 1 << 13
# bytes of a large message that leave at once
FRAGMENT = 1 << 17
# seconds per byte of a message that MPI takes on the core that computes, and of a copy from memory to memory (tools/ping_pong.c)
MESSAGE = 0.98e-9
COPY = 0.23e-9
# how much a machine's time for a layer varies from one to the next: assumed
JITTER = 0.03


def padded(channels):
    """Channels as the engine stores them, but those of images."""
    return -(-channels // 16) * 16


def in_buckets(lists):
    """Bytes of the buckets that lists of these lengths make, and the number of the last list in each."""
    found, waiting = [], 0
    for number, length in enumerate(lists):
        waiting += length
        if waiting >= BUCKET:
            found.append((4 * waiting, number))
            waiting = 0
    return found + ([(4 * waiting, len(lists) - 1)] if waiting else [])


class Layer:
    def __init__(self, inputs, outputs, kernel, size, with_next=False):
        self.weights = inputs * outputs * kernel * kernel
        self.channels = outputs
        self.work = self.weights * size * size
        # a projection's batch norm shares the exchange of the block's last one in the backward pass
        self.with_next = with_next


class Network:
    def __init__(self, name, layers, features, classes):
        self.name, self.layers, self.classes = name, layers, classes
        self.head = features * padded(classes)
        # batch norms and the bias of the head among them
        self.parameters = sum(layer.weights + 2 * layer.channels for layer in layers) + self.head + padded(classes)
        self.work = sum(layer.work for layer in layers)

    def forward(self):
        """Bytes of the exchange after each layer."""
        return [16 * layer.channels for layer in self.layers]

    def backward(self):
        """Bytes of the exchange before each layer goes back, from the last one on: of sums by channel, two or three of 8 bytes."""
        sizes = []
        for layer, after in zip(self.layers, [*self.layers[1:], None], strict=True):
            joint = after is not None and after.with_next
            sizes.append(0 if layer.with_next else (24 if joint else 16) * layer.channels)
        return sizes[::-1]

    def exchanges(self):
        """Number and bytes of the engine's exchanges: the number of images first, bias and scales of the head in between, the squares of the
        gradients last."""
        sizes = [16, *self.forward(), 16 * self.classes, *self.backward(), self.squares()]
        return sum(size > 0 for size in sizes), sum(sizes)

    def squares(self):
        """Bytes of the squares of all parts of the gradients."""
        return 8 * math.ceil(self.parameters / PART)

    def buckets(self):
        """Bytes of the buckets of gradients, and the number of layers that have gone back when each leaves."""
        return in_buckets([self.head, *(layer.weights for layer in self.layers[::-1])])

    def gathers(self):
        """Bytes of the buckets of parameters, and the last layer in each."""
        return in_buckets([*(layer.weights + 2 * layer.channels for layer in self.layers), self.head + padded(self.classes)])


def resnet32(classes=10):
    layers, width, size = [Layer(3, 16, 3, 32)], 16, 32
    for stage in range(3):
        for block in range(5):
            inputs = width
            if stage and not block:
                width, size = 2 * width, size // 2
            layers += [Layer(inputs, width, 3, size), Layer(width, width, 3, size)]
    return Network("ResNet-32", layers, 64, classes)


def resnet50(classes=1000):
    layers, inputs, size = [Layer(3, 64, 7, 112)], 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            before = size
            if stage and not block:
                size //= 2
            layers += [Layer(inputs, width, 1, before), Layer(width, width, 3, size), Layer(width, 4 * width, 1, size)]
            if not block:
                layers.append(Layer(inputs, 4 * width, 1, size, with_next=True))
            inputs = 4 * width
    return Network("ResNet-50", layers, 2048, classes)


def share(batch, machines):
    """Images of the machine that has most: slices are whole (crates/nn/src/slices.rs)."""
    slices = 8
    while slices > 1 and batch < 4 * slices:
        slices //= 2
    if machines > 8:
        slices = max(slices, 1 << (machines - 1).bit_length())
    own = max(1, slices >> (machines.bit_length() - 1))
    return min(batch, own * math.ceil(batch / slices))


class Link:
    def __init__(self, name, latency, gbps):
        self.name, self.latency, self.bandwidth = name, latency, gbps * 1e9 / 8


def outer_exchanges(network, batch, machines):
    """Bytes of what the trainer gathers in a step: logits, and two decisions."""
    return [4 * network.classes * batch / machines, 8, 8]


def copies(network, machines):
    """Seconds that a machine copies gradients and parameters."""
    return (MESSAGE * 2 * (machines - 1) + COPY * (3 * machines - 2)) / machines * 4 * network.parameters


def on_paper(network, batch, one, fixed, update, machines, link):
    """Seconds of a step by the formulas."""
    if machines == 1:
        return one
    compute = (one - fixed - update) * share(batch, machines) / batch
    number, size = network.exchanges()
    outer = outer_exchanges(network, batch, machines)
    rounds = math.ceil(math.log2(machines))
    waits = (number + len(outer)) * rounds * link.latency + (machines - 1) * (size + sum(outer)) / link.bandwidth
    sent = (machines - 1) / machines / link.bandwidth
    sums, gathers = (sent * sum(size for size, _ in buckets) for buckets in (network.buckets(), network.gathers()))
    last, first = (sent * size + link.latency for size in (network.buckets()[-1][0], network.gathers()[0][0]))
    left = max(last, sums - 2 / 3 * compute) + max(first, gathers - compute / 3)
    return fixed + update / machines + compute + copies(network, machines) + waits + left


class Simulation:
    """A step of some machines: when each of them is where, and how long their network cards have to send."""

    def __init__(self, machines, link, draws):
        self.clocks, self.card = [0.0] * machines, 0.0
        self.machines, self.link, self.draws = machines, link, draws
        self.rounds = math.ceil(math.log2(machines))

    def work(self, seconds):
        self.clocks = [clock + seconds * max(0.0, self.draws.gauss(1.0, JITTER)) for clock in self.clocks]

    def exchange(self, size):
        """All wait for the last one, and for the fragment on its way; what comes after that is overtaken."""
        start = max(self.clocks)
        busy = min(max(self.card - start, 0.0), FRAGMENT / self.link.bandwidth)
        took = size * (self.machines - 1) / self.link.bandwidth
        self.card += took
        self.clocks = [start + busy + self.rounds * self.link.latency + took] * self.machines

    def send(self, size):
        """A bucket leaves after those before it; when it has arrived."""
        sent = (self.machines - 1) / self.machines * size / self.link.bandwidth
        self.card = max(self.card, *self.clocks) + self.link.latency + sent
        return self.card

    def wait(self, time):
        self.clocks = [max(clock, time) for clock in self.clocks]

    def end(self):
        return max(self.card, *self.clocks)


def simulated(network, batch, one, fixed, update, machines, link, steps=20):
    """Seconds of a step by simulation, the mean of some."""
    if machines == 1:
        return one
    draws = random.Random(machines)
    compute = (one - fixed - update) * share(batch, machines) / batch
    buckets = {done: size for size, done in network.buckets()}
    total = 0.0
    for _ in range(steps):
        step = Simulation(machines, link, draws)
        arrivals = [(last, step.send(size)) for size, last in network.gathers()]
        step.exchange(16)
        for number, (layer, size) in enumerate(zip(network.layers, network.forward(), strict=True)):
            step.wait(next(time for last, time in arrivals if last >= number))
            step.work(compute / 3 * layer.work / network.work)
            step.exchange(size)
        step.wait(arrivals[-1][1])
        for size in [*outer_exchanges(network, batch, machines), 16 * network.classes]:
            step.exchange(size)
        if 0 in buckets:
            step.send(buckets[0])
        for done, (layer, size) in enumerate(zip(network.layers[::-1], network.backward(), strict=True), start=1):
            if size:
                step.exchange(size)
            step.work(compute * 2 / 3 * layer.work / network.work)
            if done in buckets:
                step.send(buckets[done])
        step.wait(step.end())
        step.exchange(network.squares())
        total += step.end() + fixed + update / machines + copies(network, machines)
    return total / steps


# Seconds of a step, and of a message, on two cores of an AMD EPYC with AVX-512, one thread per process; docs/cluster.md says how they were
# measured. The predictions for two processes are made from runs of one process and from tools/ping_pong.c alone.
MEASURED = {
    # seconds of packing, and of norm and optimizer: `perf` of one process of ResNet-50; for ResNet-32, an earlier sum, divided alike
    "parts": {"resnet32": (0.0021, 0.0010), "resnet50": (0.077, 0.035)},
    # batch sizes; the last one is calculated from the one before
    "one": [("resnet32", 128, 0.2323), ("resnet50", 64, 14.94), ("resnet50", 256, 59.4)],
    # latency in seconds and bandwidth in Gbit/s
    "links": {"shared memory": (0.5e-6, 8.1)},
    # network, batch size, link, one process, two processes; not a number where two were not measured
    "two": [
        ("resnet32", 128, "shared memory", 0.2323, math.nan),
        ("resnet50", 16, "shared memory", 3.628, 1.946),
        ("resnet50", 64, "shared memory", 14.94, math.nan),
    ],
}
MACHINES = [1, 2, 4, 8, 16, 32, 64]
LINKS = [Link("1 Gbit/s, 50 us", 50e-6, 1), Link("10 Gbit/s, 20 us", 20e-6, 10), Link("100 Gbit/s, 2 us", 2e-6, 100)]


def tables(cases):
    for network, batch, one, fixed, update in cases:
        size, (number, short) = sum(size for size, _ in network.buckets()), network.exchanges()
        print(f"\n{network.name}, batch size {batch}, {one:.3f} s a step on one machine, {fixed:.3f} s of them fixed;", end=" ")
        size = 4 * network.parameters
        print(f"{number} exchanges of {short / 1e3:.0f} KB, gradients of {size / 1e6:.1f} MB\n")
        print("| machines | images of each | MB sent by each | " + " | ".join(link.name for link in LINKS) + " |")
        print("|---|---|---|" + "---|" * len(LINKS))
        best = {link.name: [1, 1.0] for link in LINKS}
        for machines in MACHINES:
            row = []
            for link in LINKS:
                paper, simulation = (one / f(network, batch, one, fixed, update, machines, link) for f in (on_paper, simulated))
                row.append(f"{paper:.1f} / {simulation:.1f}")
                if simulation >= machines / 2:
                    best[link.name] = [machines, simulation]
            sent = (2 * (machines - 1) / machines * size + (machines - 1) * short) / 1e6
            print(f"| {machines} | {share(batch, machines)} | {sent:.1f} | " + " | ".join(row) + " |")
        text = "; ".join(f"{name}: {n} ({speed:.1f} x)" for name, (n, speed) in best.items())
        print(f"\nThe most machines of which each is still used for half of the time (simulation): {text}.")


def check(paths):
    """Compares what is counted here with what the program counts."""
    failed = 0
    for path in paths:
        with open(path) as file:
            seen = json.loads(file.read().strip().splitlines()[-1])
        network = {"resnet32": resnet32, "resnet50": resnet50}[seen["model"]](seen["classes"])
        number, size = network.exchanges()
        machines, buckets, gathers = seen["ranks"], network.buckets(), network.gathers()
        good = (number, size * (machines - 1)) == (seen["exchanges"], seen["exchanged_bytes"])
        good &= (len(buckets), len(gathers), 4 * network.parameters) == (seen["sums"], seen["gathers"], seen["gradient_bytes"])
        sent = [(machines - 1) / machines * sum(size for size, _ in lists) for lists in (buckets, gathers)]
        # a machine may have a part more or less than others, of which it sends one to each
        counts = zip(sent, [seen["summed_bytes"], seen["gathered_bytes"]], strict=True)
        good &= all(abs(counted - expected) <= 4 * PART * machines for expected, counted in counts)
        failed += not good
        print(f"{'ok' if good else 'FAILED'}: {path}: {number} exchanges, {size} bytes; {len(buckets)} sums, {len(gathers)} gathers, {sum(sent):.0f} bytes")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--check", nargs="+", metavar="FILE")
    args = parser.parse_args()
    if args.check:
        raise SystemExit(check(args.check) > 0)
    networks = {"resnet32": resnet32(), "resnet50": resnet50()}
    if args.measured:
        print("| network, batch size | link | one process, s | two, predicted (paper / simulation) | two, measured |\n|---|---|---|---|---|")
        for name, batch, link, one, two in MEASURED["two"]:
            network, parts, link = networks[name], MEASURED["parts"][name], Link(link, *MEASURED["links"][link])
            paper, simulation = (one / f(network, batch, one, *parts, 2, link) for f in (on_paper, simulated))
            row = f"| {network.name}, {batch} | {link.name} | {one:.3f} | {paper:.2f} x / {simulation:.2f} x |"
            print(f"{row} {'not measured' if math.isnan(two) else f'{two:.3f} s, {one / two:.2f} x'} |")
        return
    cases = [(networks[name], batch, one, *MEASURED["parts"][name]) for name, batch, one in MEASURED["one"]]
    tables(cases)


if __name__ == "__main__":
    main()
