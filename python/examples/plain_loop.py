"""A plain PyTorch loop with a criterion, group accuracy and a report of Equipoise.

Usage: python plain_loop.py [runs/plain]
"""

import sys

import torch
from torch import nn

import equipoise
import equipoise.torch


def network(channels: int, classes: int) -> nn.Module:
    def block(c_in: int, c_out: int) -> list[nn.Module]:
        return [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(), nn.MaxPool2d(2)]

    layers = [*block(channels, 16), *block(16, 32), *block(32, 64)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def main(output: str = "runs/plain", epochs: int = 20, method: str = "cwap", seed: int = 0) -> None:
    torch.manual_seed(seed)
    train = equipoise.Dataset("fashion-mini", seed=seed)
    test = equipoise.Dataset("fashion-mini", "test")
    model = network(train.shape[0], len(train.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    criterion = equipoise.torch.Criterion(method, train.counts)

    run = equipoise.Run(output, dataset=test, criterion=criterion, model="three-layer", epochs=epochs, seed=seed)
    train_batches, test_batches = equipoise.torch.Loader(train, 64), equipoise.torch.Loader(test, 256)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for images, labels in train_batches:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        criterion.end_epoch()

        model.eval()
        metrics = run.metrics()
        with torch.no_grad():
            for images, labels in test_batches:
                metrics.update(model(images), labels)
        record = run.epoch(total / len(train), learning_rate=optimizer, test=metrics)
        schedule.step()
        print(f"epoch {epoch + 1}: loss {record['loss']:.3f}, balanced {record['test']['balanced']:.1f} %")
    print(run.finish())


if __name__ == "__main__":
    main(*sys.argv[1:])
