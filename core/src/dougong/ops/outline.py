"""The ops a built model consists of."""

from __future__ import annotations

from torch import nn

from dougong.describe import OpSite
from dougong.errors import PluginError
from dougong.ops.custom_op import CustomOp


def outline_ops(module: nn.Module, prefix: str = "") -> tuple[OpSite, ...]:
    """Every op under ``module``, in its order; one used in several places counts once.

    Args:
        module: A model, which may have no memory (torch's ``meta`` device), or a part of it.
        prefix: Put before each path, as in ``"sampler."``.

    Raises:
        PluginError: See `checked_ops`.
    """
    return tuple(
        OpSite(key=op.key, path=prefix + path, properties=op.properties())
        for path, op in checked_ops(module)
    )


def checked_ops(module: nn.Module) -> tuple[tuple[str, CustomOp], ...]:
    """`named_ops`, each of which means what its key says.

    Raises:
        PluginError: A class says with a ``forward_native`` of its own that it means something else
            than the op whose key it inherits. Kernels for that op would compute the other thing.
    """
    found = named_ops(module)
    for path, op in found:
        meant, named = _defining(type(op), "forward_native"), _defining(type(op), "key")
        if meant is not named and issubclass(meant, named):
            raise PluginError(
                f"{meant.__module__}.{meant.__qualname__}, at {path or 'the top'} of the model, "
                f"has a forward_native of its own and the key {op.key!r} of {named.__qualname__}, "
                "whose kernels would run in its place. Give it a key of its own, as in "
                f"key = 'acme/{meant.__name__.lower()}', and mark it with register_op."
            )
    return found


def _defining(cls: type, name: str) -> type:
    """The class that a name of ``cls`` comes from."""
    return next(base for base in cls.__mro__ if name in vars(base))


def named_ops(module: nn.Module) -> tuple[tuple[str, CustomOp], ...]:
    """Path and op of every op under ``module``, itself included."""
    return tuple(
        (path, found) for path, found in module.named_modules() if isinstance(found, CustomOp)
    )
