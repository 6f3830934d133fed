"""Equipoise in a loop of timm's style: its model, mixup, optimizer, schedule and EMA, with our criterion.

Usage: python timm_loop.py [runs/timm]
"""

import sys

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3

import equipoise.torch


def train_one_epoch(epoch, model, loader, optimizer, criterion, mixup, schedule, ema):
    losses = AverageMeter()
    model.train()
    for step, (images, target) in enumerate(loader):
        images, target = mixup(images, target)  # rows of two classes, which criteria understand
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        losses.update(loss.item(), images.size(0))
        schedule.step_update(epoch * len(loader) + step)
    criterion.end_epoch()
    return losses.avg


@torch.no_grad()
def validate(model, loader, metrics):
    for images, target in loader:
        metrics.update(model(images), target)
    return metrics


def main(output: str = "runs/timm", epochs: int = 10, method: str = "cwap") -> None:
    train, test = (equipoise.Dataset("fashion-mini", split) for split in ("train", "test"))
    model = timm.create_model("test_resnet", num_classes=len(train.classes), in_chans=train.shape[0])
    criterion = equipoise.torch.Criterion(method, train.counts)
    # smoothing belongs to the criterion: targets with more than two classes are refused
    mixup = Mixup(mixup_alpha=0.2, mode="elem", label_smoothing=0.0, num_classes=len(train.classes))
    batches = equipoise.torch.Loader(train, 64, drop_last=True)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=0.05, momentum=0.9, weight_decay=2e-4)
    schedule = CosineLRScheduler(optimizer, t_initial=epochs * len(batches), t_in_epochs=False)
    ema = ModelEmaV3(model, decay=0.9)
    run = equipoise.Run(output, dataset=test, criterion=criterion, model="test_resnet", epochs=epochs)
    for epoch in range(epochs):
        loss = train_one_epoch(epoch, model, batches, optimizer, criterion, mixup, schedule, ema)
        metrics = validate(ema.module.eval(), equipoise.torch.Loader(test, 256), run.metrics())
        run.epoch(loss, learning_rate=optimizer, test=metrics)
    print(run.finish())


if __name__ == "__main__":
    main(*sys.argv[1:])
