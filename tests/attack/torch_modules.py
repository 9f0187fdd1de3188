"""Small PyTorch modules, each with one feature that a reader may get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any


def torch_module(name: str, seed: int) -> Any:
    """The module of that name with three inputs, in double precision and evaluation mode."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    base = _base(torch, generator)
    own = name in _FORWARDS
    made = _wrapped(torch, base, partial(_FORWARDS[name], torch)) if own else _TRAPS[name](torch, base, generator)
    return made.double().eval()


def _base(torch: Any, generator: Any) -> Any:
    """A stack of linear layers with some common activation."""
    nn = torch.nn
    acts = [nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.3), nn.ELU(0.5), nn.SiLU(), nn.GELU(), nn.Softplus(2.0), nn.Hardtanh()]
    act = acts[int(torch.randint(len(acts), (1,), generator=generator))]
    model = nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 2)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def _wrapped(torch: Any, base: Any, forward: Callable[..., Any], *parts: Any) -> Any:
    """A module with a forward of its own, from the base, the input and other parts."""

    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.base = base
            self.parts = torch.nn.ModuleList(parts)

        def forward(self, x: Any) -> Any:
            return forward(self.base, x, *self.parts)

    return Wrapped()


def _plain(torch: Any, base: Any, generator: Any) -> Any:
    return base


def _alone(torch: Any, base: Any, generator: Any) -> Any:
    """A module of a class of its own that only hands on."""
    return _wrapped(torch, base, lambda b, x: b(x))


def _root_hook(torch: Any, base: Any, generator: Any) -> Any:
    made = _alone(torch, base, generator)
    made.register_forward_hook(lambda module, given, result: 2.0 * result)
    return made


def _root_pre_hook(torch: Any, base: Any, generator: Any) -> Any:
    made = _alone(torch, base, generator)
    made.register_forward_pre_hook(lambda module, given: (given[0] + 1.0,))
    return made


def _inner_hook(torch: Any, base: Any, generator: Any) -> Any:
    base[0].register_forward_hook(lambda module, given, result: result.abs())
    return base


def _instance_forward(torch: Any, base: Any, generator: Any) -> Any:
    made = _alone(torch, base, generator)
    old = made.forward
    made.forward = lambda x: old(x) * 3.0
    return made


def _own_call(torch: Any, base: Any, generator: Any) -> Any:
    class Called(torch.nn.Sequential):  # type: ignore[misc]
        def __call__(self, x: Any) -> Any:
            return super().__call__(x) * 2.0

    return Called(*base)


def _in_place_unused(torch: Any, b: Any, x: Any) -> Any:
    h = b(x)
    h.clamp_(max=0.5)
    return h


def _in_place_clone(torch: Any, b: Any, x: Any) -> Any:
    h = b(x)
    g = h.clone()
    g.clamp_(max=1e6)
    return g


def _in_place_alias(torch: Any, b: Any, x: Any) -> Any:
    h = b(x)
    g = h.view(-1, 2)
    g.mul_(2.0)
    return h


def _in_place_module(torch: Any, base: Any, generator: Any) -> Any:
    def forward(b: Any, x: Any, clamp: Any) -> Any:
        h = b[0](x)
        clamp(h)
        return b[2](h)

    return _wrapped(torch, base, forward, torch.nn.Hardtanh(-0.5, 0.5, inplace=True))


def _in_place_relu(torch: Any, base: Any, generator: Any) -> Any:
    def forward(b: Any, x: Any, act: Any) -> Any:
        h = b[0](x)
        return b[2](act(h) + h)

    return _wrapped(torch, base, forward, torch.nn.ReLU(inplace=True))


def _softplus(torch: Any, base: Any, generator: Any) -> Any:
    return _wrapped(torch, base, lambda b, x, act: 1e9 * (act(x) - x), torch.nn.Softplus())


def _softplus_early(torch: Any, base: Any, generator: Any) -> Any:
    return _wrapped(torch, base, lambda b, x, act: act(x), torch.nn.Softplus(1.0, 5.0))


def _buffer(torch: Any, base: Any, generator: Any) -> Any:
    """A counter that changes with every call."""
    base.register_buffer("calls", torch.zeros(1, dtype=torch.float64))

    def forward(b: Any, x: Any) -> Any:
        b.calls.add_(1.0)
        return b(x) + b.calls

    return _wrapped(torch, base, forward)


def _state(torch: Any, base: Any, generator: Any) -> Any:
    """Python state that changes with every call."""
    seen: list[int] = []

    def forward(b: Any, x: Any) -> Any:
        seen.append(1)
        return b(x) * (1.0 + 0.1 * len(seen))

    return _wrapped(torch, base, forward)


def _parametrized(torch: Any, base: Any, generator: Any) -> Any:
    torch.nn.utils.parametrizations.weight_norm(base[0])
    return base


def _batch_norm(torch: Any, base: Any, generator: Any) -> Any:
    norm = torch.nn.BatchNorm1d(4, eps=1e-3).double()
    with torch.no_grad():
        norm.running_mean.copy_(torch.randn(4, generator=generator))
        norm.running_var.copy_(torch.rand(4, generator=generator))
    return torch.nn.Sequential(base[0], norm, base[1], base[2])


def _batch_norm_live(torch: Any, base: Any, generator: Any) -> Any:
    """Statistics of the batch at hand, also in evaluation."""
    norm = torch.nn.BatchNorm1d(4, track_running_stats=False).double()
    return torch.nn.Sequential(base[0], norm, base[1], base[2])


def _threshold(torch: Any, base: Any, generator: Any) -> Any:
    return torch.nn.Sequential(base[0], torch.nn.Threshold(0.5, 3.0), base[2])


def _prelu(torch: Any, base: Any, generator: Any) -> Any:
    act = torch.nn.PReLU(4).double()
    with torch.no_grad():
        act.weight.copy_(torch.randn(4, generator=generator))
    return torch.nn.Sequential(base[0], act, base[2])


_FORWARDS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "random": lambda torch, b, x: b(x) + torch.randn(1, 2, dtype=torch.float64),
    "bernoulli": lambda torch, b, x: b(x) + torch.rand(2).double(),
    "functional_dropout": lambda torch, b, x: torch.nn.functional.dropout(b(x), 0.5, training=True),
    "grad_mode": lambda torch, b, x: b(x) if torch.is_grad_enabled() else b(x) * 2.0,
    "is_instance": lambda torch, b, x: b(x / x.norm()) if isinstance(x, torch.Tensor) else b(x),
    "is_tensor": lambda torch, b, x: b(x.abs()) if torch.is_tensor(x) else b(x),
    "casts": lambda torch, b, x: 1e9 * (b(x.float().double()) - b(x)),
    "half": lambda torch, b, x: b(x.half().double()),
    "clip_huge": lambda torch, b, x: (1e35 * b(x)).clamp(max=2e35) * 1e-35,
    "selection": lambda torch, b, x: torch.where(b(x) > 100.0, b(x) * 0.0, b(x)),
    "maximum": lambda torch, b, x: torch.maximum(b(x), -2.0 * b(x)),
    "in_place_unused": _in_place_unused,
    "in_place_clone": _in_place_clone,
    "in_place_alias": _in_place_alias,
}
"""What a module does with the base and the input."""

_TRAPS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "plain": _plain,
    "root_hook": _root_hook,
    "root_pre_hook": _root_pre_hook,
    "inner_hook": _inner_hook,
    "alone": _alone,
    "global_hook": _alone,
    "instance_forward": _instance_forward,
    "own_call": _own_call,
    "in_place_module": _in_place_module,
    "in_place_relu": _in_place_relu,
    "softplus": _softplus,
    "softplus_early": _softplus_early,
    "buffer": _buffer,
    "state": _state,
    "parametrized": _parametrized,
    "batch_norm": _batch_norm,
    "batch_norm_live": _batch_norm_live,
    "threshold": _threshold,
    "prelu": _prelu,
}
"""Modules that take more than a forward of their own."""

NAMES = (*_TRAPS, *_FORWARDS)
