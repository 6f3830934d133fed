"""Equipoise in Lightning: the criterion in the module, and a callback that ends its epochs and records the run.

Usage: python lightning_callback.py [runs/lightning]
"""

import sys

import lightning
import torch
from plain_loop import network

import equipoise.torch


class Classifier(lightning.LightningModule):
    def __init__(self, channels: int, counts: list[int]) -> None:
        super().__init__()
        self.model = network(channels, len(counts))
        self.criterion = equipoise.torch.Criterion("balanced-softmax", counts)
        self.metrics = equipoise.torch.Metrics(counts)

    def training_step(self, batch, _):
        loss = self.criterion(self.model(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        self.metrics.update(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class EquipoiseCallback(lightning.Callback):
    """Ends the criterion's epochs, and records every epoch in a run folder. Only the first process has a run."""

    def __init__(self, run: equipoise.Run | None) -> None:
        self.run = run

    def on_train_epoch_end(self, trainer, module):
        module.criterion.end_epoch()
        module.metrics.compute()  # all processes take part; the validation of the epoch is over
        if self.run is not None:
            loss, rate = trainer.callback_metrics["loss"], trainer.optimizers[0]
            self.run.epoch(loss, learning_rate=rate, test=module.metrics)
        module.metrics.reset()


def main(output: str = "runs/lightning", epochs: int = 10) -> None:
    train, test = (equipoise.torch.Dataset("fashion-mini", split) for split in ("train", "test"))
    module = Classifier(train.shape[0], train.counts)
    run = equipoise.Run(output, dataset=test, criterion=module.criterion, model="three-layer", epochs=epochs)
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, num_sanity_val_steps=0,
                                enable_checkpointing=False, callbacks=[EquipoiseCallback(run)])  # fmt: skip
    trainer.fit(module, equipoise.torch.Loader(train, 64), torch.utils.data.DataLoader(test, 256))
    print(run.finish())


if __name__ == "__main__":
    main(*sys.argv[1:])
