"""Parameters that aren't trained: constants of a model, which everybody has and nobody sends.

So adapters, probes and the like work as published modules write them, with `requires_grad_(False)`.
"""

from torch import Tensor, nn


def fix_frozen(module: nn.Module) -> list[str]:
    """Make buffers of frozen parameters, under their names; gives these. Tied ones stay tied."""
    constants: dict[int, Tensor] = {}
    names = []
    for path, part in module.named_modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and not parameter.requires_grad:
                del part._parameters[name]
                part.register_buffer(name, constants.setdefault(id(parameter), parameter.detach()))
                names.append(f"{path}.{name}" if path else name)
    return names


def describe_frozen(module: nn.Module, names: list[str], model: str) -> str:
    """What is said of them; nothing if there are none."""
    if not names:
        return ""
    some, more = ", ".join(map(repr, names[:2])), f" and {len(names) - 2} more" if len(names) > 2 else ""
    count = sum({id(b): b.numel() for n, b in module.named_buffers() if n in set(names)}.values())
    return (
        f"model {model!r}: {count:,} numbers are frozen ({some}{more}): constants that every device has, "
        "neither trained nor sent"
    )
