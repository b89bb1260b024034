"""Residual networks and MobileNets for small images, with GroupNorm.

They are the usual ones for CIFAR: the first convolution is 3x3 and doesn't shrink the image. BatchNorm is
replaced by GroupNorm, so the parameters are as many as with BatchNorm. Width scales all channels, depth the
blocks of every stage. Stages are nested, so that a shallower network's names are among a deeper one's.
"""

from collections.abc import Callable
from functools import partial

from torch import nn

from potluck.models.registry import register
from potluck.models.zoo.blocks import Residual
from potluck.models.zoo.small import Shape, image, scale_units

Block = Callable[[int, int, int], nn.Module]  # channels before and after, stride
Stage = tuple[Block, int, int, int]  # block, channels at width 1, blocks at depth 1, stride of the first


def resnet8(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """ResNet of 6n+2 layers, n = 1: 78,042 parameters for 28x28x1 and 10 classes, 78,330 for 32x32x3.

    Stages of 16, 32 and 64 channels; every shortcut is a 1x1 convolution with a norm (option C of He et al.).
    """
    return _resnet("resnet8", shape, classes, width, depth, 16, (1, 1, 1), project=True)


def resnet18(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """ResNet-18: 11,173,962 parameters for 32x32x3 and 10 classes."""
    return _resnet("resnet18", shape, classes, width, depth, 64, (2, 2, 2, 2))


def resnet34(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """ResNet-34: 21,282,122 parameters for 32x32x3 and 10 classes."""
    return _resnet("resnet34", shape, classes, width, depth, 64, (3, 4, 6, 3))


def mobilenetv1(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """MobileNet, which shrinks an image 16 times in all: 3,217,226 parameters for 32x32x3 and 10 classes."""
    table = ((64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 6, 2), (1024, 2, 2))
    stages: list[Stage] = [(_separable, *row) for row in table]
    return _stack_stages("mobilenetv1", shape, classes, width, depth, 32, nn.ReLU, stages)


def mobilenetv2(shape: Shape, classes: int, width: float, depth: float) -> nn.Module:
    """MobileNetV2, which shrinks an image 8 times in all: 2,236,682 parameters for 32x32x3 and 10 classes."""
    table = ((24, 2, 1), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
    stages: list[Stage] = [(partial(_invert, expand=1), 16, 1, 1)]
    stages += [(partial(_invert, expand=6), *row) for row in table]
    return _stack_stages("mobilenetv2", shape, classes, width, depth, 32, nn.ReLU6, stages, top=1280)


def _resnet(
    name: str,
    shape: Shape,
    classes: int,
    width: float,
    depth: float,
    first: int,
    blocks: tuple[int, ...],
    project: bool = False,
) -> nn.Module:
    block = partial(_basic, project=project)
    stages: list[Stage] = [(block, first << i, n, 2 if i else 1) for i, n in enumerate(blocks)]
    return _stack_stages(name, shape, classes, width, depth, first, nn.ReLU, stages)


def _stack_stages(
    name: str,
    shape: Shape,
    classes: int,
    width: float,
    depth: float,
    stem: int,
    act: Callable[[], nn.Module],
    stages: list[Stage],
    top: int = 0,
) -> nn.Module:
    before, _, layers = image(name, shape)
    layers.append(nn.Sequential(*_conv(before, before := scale_units(stem, width)), act()))
    for block, units, blocks, stride in stages:
        after = scale_units(units, width)
        rest = (block(after, after, 1) for _ in range(scale_units(blocks, depth) - 1))
        layers.append(nn.Sequential(block(before, after, stride), *rest))
        before = after
    if top:
        layers.append(nn.Sequential(*_conv(before, before := scale_units(top, width), 1), act()))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def _basic(before: int, after: int, stride: int, project: bool) -> nn.Module:
    body = nn.Sequential(*_conv(before, after, 3, stride), nn.ReLU(), *_conv(after, after))
    same = not project and stride == 1 and before == after
    shortcut = nn.Identity() if same else nn.Sequential(*_conv(before, after, 1, stride))
    return nn.Sequential(Residual(body, shortcut), nn.ReLU())


def _separable(before: int, after: int, stride: int) -> nn.Module:
    depthwise = _conv(before, before, 3, stride, groups=before)
    return nn.Sequential(*depthwise, nn.ReLU(), *_conv(before, after, 1), nn.ReLU())


def _invert(before: int, after: int, stride: int, expand: int) -> nn.Module:
    inner = expand * before
    wide = [*_conv(before, inner, 1), nn.ReLU6()] if expand > 1 else []
    depthwise = _conv(inner, inner, 3, stride, groups=inner)
    body = nn.Sequential(*wide, *depthwise, nn.ReLU6(), *_conv(inner, after, 1))
    return Residual(body) if stride == 1 and before == after else body


def _conv(before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    # Groups of 8 channels, or of the next number above that divides them: a constant size, so that the
    # first channels of a wide network are normalised alike in a narrow one; and not fewer, for a channel of
    # one pixel normalised by itself is nothing.
    parts = max((n for n in range(1, after // 8 + 1) if after % n == 0), default=1)
    return [conv, nn.GroupNorm(parts, after)]


for _build in (resnet8, resnet18, resnet34, mobilenetv1, mobilenetv2):
    register(_build.__name__, _build)
