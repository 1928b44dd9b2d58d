"""Models of images and films of torchvision: small ones, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.gpu.zoo.world import Model, numbers

PICTURE, SMALL = {"x": numbers(3, 64, 64)}, {"x": numbers(3, 32, 32)}
TWO_PICTURES = {
    "image1": numbers(3, 128, 128),
    "image2": numbers(3, 128, 128),
    "num_flow_updates": lambda _generator, _rows: 2,
}


def _listed(generator: torch.Generator, rows: int) -> Any:
    return list(torch.rand(rows, 3, 64, 64, generator=generator))


def _named(name: str, **sizes: Any) -> Callable[[], Any]:
    """Return what makes a model of torchvision by its name."""

    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **sizes)

    return make


def _resnet() -> Any:
    from torchvision.models import resnet

    return resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)


def _densenet() -> Any:
    from torchvision.models import DenseNet

    return DenseNet(growth_rate=8, block_config=(2, 2, 2), num_init_features=16, num_classes=10)


def _vgg() -> Any:
    from torchvision.models import vgg

    layers = vgg.make_layers([16, "M", 32, "M", 32, 32, "M"], batch_norm=True)
    net = vgg.VGG(layers, num_classes=10)
    net.avgpool = torch.nn.AdaptiveAvgPool2d(2)
    net.classifier = torch.nn.Sequential(
        torch.nn.Linear(128, 64),
        torch.nn.ReLU(inplace=True),
        torch.nn.Dropout(),
        torch.nn.Linear(64, 10),
    )
    return net


def _vit() -> Any:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 4, 32, 64, dropout=0.1, num_classes=10)


def _swin() -> Any:
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)


def _convnext() -> Any:
    from torchvision.models import ConvNeXt
    from torchvision.models.convnext import CNBlockConfig

    blocks = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)]
    return ConvNeXt(blocks, stochastic_depth_prob=0.1, num_classes=10)


def _segmented(kind: str, head: str) -> Any:
    from torchvision.models import segmentation
    from torchvision.models._utils import IntermediateLayerGetter

    module = getattr(segmentation, kind.lower())
    backbone = IntermediateLayerGetter(_resnet(), {"layer2": "out"})
    return getattr(module, kind)(backbone, getattr(module, head)(128, 5))


def _video() -> Any:
    from torchvision.models.video import resnet

    convolutions = [resnet.Conv3DSimple] * 4
    return resnet.VideoResNet(
        resnet.BasicBlock, convolutions, [1, 1, 1, 1], resnet.BasicStem, num_classes=10
    )


PICTURES = {
    "ResNet (torchvision)": Model(_resnet, PICTURE, compiles=True),
    "MobileNetV3": Model(_named("mobilenet_v3_small", num_classes=10), PICTURE),
    "EfficientNet": Model(_named("efficientnet_b0", num_classes=10), PICTURE),
    "DenseNet": Model(_densenet, PICTURE),
    "VGG with batch norm": Model(_vgg, SMALL),
    "ShuffleNetV2": Model(_named("shufflenet_v2_x0_5", num_classes=10), PICTURE),
    "SqueezeNet": Model(_named("squeezenet1_1", num_classes=10), PICTURE),
    "RegNet": Model(_named("regnet_y_400mf", num_classes=10), PICTURE),
    "ViT (torchvision)": Model(_vit, SMALL),
    "Swin (torchvision)": Model(_swin, PICTURE),
    "ConvNeXt (torchvision)": Model(_convnext, PICTURE),
    "DeepLabV3": Model(partial(_segmented, "DeepLabV3", "DeepLabHead"), PICTURE),
    "FCN": Model(partial(_segmented, "FCN", "FCNHead"), PICTURE),
    "LR-ASPP": Model(
        _named("lraspp_mobilenet_v3_large", weights_backbone=None), {"input": PICTURE["x"]}
    ),
    "Faster R-CNN": Model(
        _named("fasterrcnn_mobilenet_v3_large_320_fpn", weights_backbone=None, min_size=64),
        {"images": _listed},
    ),
    "RAFT": Model(_named("raft_small"), TWO_PICTURES, loss=1e-4),
    "video ResNet": Model(_video, {"x": numbers(3, 4, 32, 32)}),
}
