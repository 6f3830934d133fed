"""Equipoise in the Trainer of Hugging Face: `compute_loss_func`, and a callback that counts epochs.

Usage: python hf_trainer.py [runs/hf]
"""

import sys

import torch
from plain_loop import network
from transformers import Trainer, TrainerCallback, TrainingArguments

import equipoise.torch


class Model(torch.nn.Module):
    def __init__(self, channels: int, counts: list[int]) -> None:
        super().__init__()
        self.network = network(channels, len(counts))
        self.criterion = equipoise.torch.Criterion("seesaw", counts, reduction="none")  # saved with the model

    def forward(self, pixel_values):
        return {"logits": self.network(pixel_values)}

    def loss(self, outputs, labels, num_items_in_batch=None):
        """Trainer says how many examples all accumulated batches have, and then divides no more."""
        losses = self.criterion(outputs["logits"], labels)
        return losses.sum() / (len(labels) if num_items_in_batch is None else num_items_in_batch)


class Epochs(TrainerCallback):
    def on_epoch_end(self, args, state, control, model, train_dataloader, **_):
        model.criterion.end_epoch()
        train_dataloader.dataset.set_epoch(model.criterion.epoch)  # augments the next epoch anew


def collate(examples):
    return dict(zip(("pixel_values", "labels"), torch.utils.data.default_collate(examples), strict=True))


def main(output: str = "runs/hf", epochs: int = 5) -> None:
    train, test = (equipoise.torch.Dataset("fashion-mini", split) for split in ("train", "test"))
    model = Model(train.shape[0], train.counts)
    run = equipoise.Run(output, dataset=test, criterion=model.criterion, model="three-layer", epochs=epochs)

    def record(evaluated):
        log = trainer.state.log_history[-1]
        return run.epoch(log["loss"], learning_rate=log["learning_rate"], test=tuple(evaluated)[:2])["test"]

    arguments = TrainingArguments(
        f"{output}-trainer", num_train_epochs=epochs, per_device_train_batch_size=32, gradient_accumulation_steps=2,
        learning_rate=3e-3, logging_strategy="epoch", eval_strategy="epoch", save_strategy="no", report_to=[],
        use_cpu=True, remove_unused_columns=False, label_names=["labels"])  # fmt: skip
    trainer = Trainer(model, arguments, collate, train, test, callbacks=[Epochs()],
                      compute_loss_func=model.loss, compute_metrics=record)  # fmt: skip
    trainer.train()
    print(run.finish())


if __name__ == "__main__":
    main(*sys.argv[1:])
