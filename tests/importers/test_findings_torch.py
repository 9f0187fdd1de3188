"""Holes that attacks found in the reader of PyTorch modules, and the comparison that is to notice the next one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.importers import examine, signals
from lipcert.importers.faithful import DOUBLE, SINGLE, Original, at_kinks, confirm, sample
from lipcert.model.arrays import Array

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from lipcert.importers import torch_ops as ops  # noqa: E402 - needs PyTorch
from modules import Wrapped  # noqa: E402

nn = torch.nn
F = torch.nn.functional


def _made(function: Callable[..., Any]) -> Any:
    """A forward with two linear layers and a buffer at hand."""
    torch.manual_seed(1)
    return Wrapped(function, a=nn.Linear(3, 3), b=nn.Linear(3, 3), offset=torch.zeros(3)).double().eval()


def _plain(s: Any, x: Any) -> Any:
    return s.b(F.relu(s.a(x)))


def _refused(module: Any, reason: str = ".") -> str:
    with pytest.raises(lc.UnreadableModel, match=reason) as caught:
        lc.load(module, input_shape=(3,))
    return str(caught.value)


FAR = 1e290
"""A limit that no sample comes near."""


def _right(module: Any) -> None:
    """What is read agrees with the module at inputs around a limit beyond every sample; importing compared others."""
    network = lc.load(module, input_shape=(3,))
    with torch.no_grad():
        for x in FAR * 10.0 ** np.arange(-2, 3)[:, None] * np.random.default_rng(0).standard_normal((5, 3)):
            wanted = module(torch.from_numpy(x)[None]).numpy().ravel()
            np.testing.assert_allclose(network(x), wanted, rtol=0, atol=1e-9 * (FAR + np.abs(wanted).max()))


# what is not in the module's own forward ------------------------------------------------------------------------


def _hooked() -> Any:
    module = _made(_plain)
    module.register_forward_hook(lambda *parts: 2 * parts[2])
    module.register_forward_pre_hook(lambda _, inputs: (10 * inputs[0].clamp(max=FAR),))
    module.a.register_forward_hook(lambda *parts: -parts[2])
    return module


def _with(function: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[[], Any]:
    """A module that is changed after it was made."""

    def make() -> Any:
        module = _made(function)
        change(module)
        return module.double().eval()

    return make


class Loud(Wrapped):
    def __call__(self, *parts: Any) -> Any:
        return 5 * super().__call__(*parts).clamp(max=FAR)


class Counter:
    calls = 0


def _in_place(s: Any, x: Any) -> Any:
    h = F.relu(s.a(x), inplace=True)
    out = s.b(h)
    out += h
    return s.act(out).mul_(2.0)


def _swallows(s: Any, x: Any) -> Any:
    try:
        x = x if x.abs().max() < FAR else x.sign()
    except torch.fx.proxy.TraceError:
        x = x * 1.0
    return _plain(s, x)


def _counts(s: Any, x: Any) -> Any:
    s.offset += 1.0
    return s.b(s.a(x) + s.offset)


def _remembers(s: Any, x: Any) -> Any:
    s.calls = getattr(s, "calls", 0) + 1
    return _plain(s, x)


def _counting(s: Any, x: Any) -> Any:
    s.counter.calls += 1
    return _plain(s, x)


def _noisy(noise: Callable[[], Any]) -> Any:
    return _made(lambda s, x: _plain(s, x) + noise())


def _casting(cast: Callable[[Any], Any]) -> Any:
    return _made(lambda s, x: s.b(s.a(x)) + cast(x).sum())


def _replaced(h: Any) -> Any:
    h.data = h.data.clamp(max=FAR)
    return h


def _forged() -> Any:
    """A layer that only bears the name of one."""
    parts = {"forward": lambda self, x: x.clamp(0.0, FAR), "__module__": "torch.nn.modules.activation"}
    return nn.Sequential(nn.Linear(3, 3), type("ReLU", (nn.Module,), parts)()).double().eval()


TYPES: dict[str, Callable[[Any], bool]] = {
    "isinstance": lambda x: isinstance(x, torch.Tensor),
    "is_tensor": lambda x: bool(torch.is_tensor(x)),
    "type": lambda x: type(x) is torch.Tensor,
    "proxy": lambda x: not isinstance(x, torch.fx.Proxy),
    "hasattr": lambda x: hasattr(x, "data_ptr") and not hasattr(x, "tracer"),
    "grad mode": lambda x: not torch.is_grad_enabled(),
    "no grad mode": lambda x: torch.is_grad_enabled() and isinstance(x, torch.Tensor),
    "requires grad": lambda x: isinstance(x, torch.Tensor) and x.requires_grad,
    "inference mode": lambda x: torch.is_inference_mode_enabled(),
    "leaf": lambda x: isinstance(x, torch.Tensor) and x.is_leaf and x.requires_grad,
}
"""Questions that forward may ask of its input."""


def _asked(test: str) -> Any:
    """The two ways differ beyond 1e290 only: no sample shows that, the list of operations does."""
    return _made(lambda s, x: _plain(s, x.clamp(max=FAR)) if TYPES[test](x) else _plain(s, x))


READS: dict[str, Callable[[Any], Any]] = {
    "tolist": lambda x: max(x.tolist()[0]),
    "numpy": lambda x: x.detach().numpy().max(),
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0, 0]),
    "pointer": lambda x: float(np.asarray(x.detach()).max()),
    "repr": lambda x: float(len(repr(x))),
    "format": lambda x: float(len(f"{x.sum():g}")),
}
"""Ways to look at values."""


def _looks(read: str) -> Any:
    def forward(s: Any, x: Any) -> Any:
        large = isinstance(x, torch.Tensor) and READS[read](x) > FAR
        return _plain(s, x.sign() if large else x)

    return _made(forward)


def _steps(*steps: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that takes h = a(x) through some steps, whose results it throws away, and returns b(h)."""

    def forward(s: Any, x: Any) -> Any:
        h = s.a(x)
        for step in steps:
            step(h)
        return s.b(h)

    return forward


def _added_to(s: Any, x: Any) -> Any:
    h = skip = s.a(x)
    h += s.offset + 1.0
    return s.b(h + skip)


IN_PLACE: dict[str, Callable[..., Any]] = {
    "the input": lambda s, x: (x.clamp_(max=FAR), s.b(s.a(x)))[-1],
    "a constant": lambda s, x: (w := s.a.bias.clone(), w.add_(F.relu(x[0] - FAR)), s.b(w[None]))[-1],
    "a view of a constant": lambda s, x: ((w := s.a.bias.clone()).view(3).add_(F.relu(x[0] - FAR)), s.b(w[None]) + x)[
        -1
    ],
    "a module": _steps(lambda h: nn.Hardtanh(-FAR, FAR, inplace=True)(h)),
    "read before": lambda s, x: s.b(F.hardtanh(h := s.a(x), -FAR, FAR, inplace=True) + h),
    "added to": _added_to,
    "an item": _steps(lambda h: h.__setitem__((slice(None), 0), 0.0)),
    "given out": _steps(lambda h: torch.clamp(h, max=FAR, out=h)),
}


RIGHT: dict[str, Callable[[], Any]] = {
    **{
        name: partial(_asked, name) for name in ("isinstance", "is_tensor", "proxy", "hasattr")
    },  # stand-ins are tensors
    **{f"in place: {name}": partial(_made, function) for name, function in IN_PLACE.items()},
    "hooks": _hooked,
    "an overridden call": _with(_plain, lambda m: setattr(m, "__class__", Loud)),
    "a forward on the instance": _with(_plain, lambda m: setattr(m.a, "forward", lambda x: x.relu().clamp(max=FAR))),
    "a false _orig_mod": _with(lambda s, x: s._orig_mod(x), lambda m: setattr(m, "_orig_mod", nn.Linear(3, 3))),
    "a false ReLU": _forged,
    "a generator": _with(_plain, lambda m: setattr(m, "generator", (n for n in range(3)))),
    "in place, harmless": _with(_in_place, lambda m: setattr(m, "act", nn.Hardtanh(-0.5, 0.7, inplace=True))),
    "threads": lambda: _made(lambda s, x: _plain(s, x) * (5.0 if torch.get_num_threads() > 1 else 1.0)),
    "a cast to the type at hand": lambda: _made(lambda s, x: s.b(s.a(x.double()))),
    "parameters in a list": _with(
        lambda s, x: s.b(F.relu(s.a(x) * s.extra[0])),
        lambda m: setattr(m, "extra", nn.ParameterList([nn.Parameter(torch.full((3,), 2.0))])),
    ),
}
"""What an old reader got wrong, and is read now."""


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_module_really_does_is_read(name: str) -> None:
    _right(RIGHT[name]())


CHANGES = "changes what the module holds"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    **{name: (partial(_asked, name), "not what the module does") for name in TYPES if name not in RIGHT},
    **{name: (partial(_looks, name), "looks at|hand them to Python") for name in READS},
    **{
        f"noise {k}": (partial(_noisy, noise), "random")
        for k, noise in enumerate(
            (
                lambda: 0.0 * torch.randn(3),
                lambda: torch.zeros(3).normal_(),
                lambda: F.dropout(torch.ones(3), 0.5),
                lambda: torch.native_dropout(torch.ones(3), 0.5, None)[0],
            )
        )
    },
    "noise of Python": (lambda: _made(lambda s, x: _plain(s, x) + random.random()), "not what the module does"),
    "an error that is swallowed": (lambda: _made(_swallows), "looks at"),
    "a buffer that counts": (lambda: _made(_counts), f"{CHANGES} .*offset"),
    "an attribute that counts": (lambda: _made(_remembers), f"{CHANGES} .*calls"),
    "an object that counts": (_with(_counting, lambda m: setattr(m, "counter", Counter())), CHANGES),
    "data replaced": (
        lambda: _made(lambda s, x: (h := s.a(x), _replaced(h), s.b(h))[-1]),
        r"behind PyTorch's back, as \.data does; use detach",
    ),
    "through data": (
        lambda: _made(lambda s, x: (h := s.a(x), h.data.clamp_(max=FAR), s.b(h))[-1]),
        r"behind PyTorch's back, as \.data does; use detach",
    ),
    **{
        f"cast {k}": (partial(_casting, cast), "round|unknown")
        for k, cast in enumerate(
            (
                lambda x: x.float().double(),
                lambda x: x.to(torch.float32).to(torch.float64),
                lambda x: x.type_as(torch.zeros(1, dtype=torch.float32)).double(),
                lambda x: x.to(torch.bfloat16).double(),
                lambda x: x.half().double(),
                lambda x: x.to(torch.int64).double(),
                lambda x: x.sum(dtype=torch.float32).double(),
                lambda x: x.mean(1, dtype=torch.float32).double(),
            )
        )
    },
    "overflow": (lambda: _made(lambda s, x: s.a(x).clamp(max=1e308)), "overflow"),
    "not initialised": (lambda: nn.Sequential(nn.LazyLinear(3)).eval(), "initial"),
}
"""What is refused, and why."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_graph_cannot_show_is_refused(name: str) -> None:
    make, reason = REFUSED[name]
    module = make()
    before = torch.get_rng_state()
    _refused(module, reason)
    assert torch.equal(before, torch.get_rng_state())  # that of the caller is left alone


@pytest.fixture
def global_hook() -> Iterator[None]:
    handle = nn.modules.module.register_module_forward_hook(lambda *parts: 2 * parts[2])
    yield
    handle.remove()


@pytest.mark.usefixtures("global_hook")
def test_hooks_for_every_module_are_refused() -> None:
    _refused(_made(_plain), "every module of this process")


STEPS: tuple[Callable[..., Any], ...] = (
    lambda s, h, g: s.a(h),
    lambda s, h, g: F.relu(h),
    lambda s, h, g: h.relu_(),
    lambda s, h, g: h.clamp(max=FAR),
    lambda s, h, g: h.clamp_(max=FAR),
    lambda s, h, g: F.hardtanh(h, -FAR, FAR, inplace=True),
    lambda s, h, g: h.view(-1).clamp_(min=-FAR),
    lambda s, h, g: h[:, :2].mul_(0.5),
    lambda s, h, g: h + g,
    lambda s, h, g: h.add_(g),
    lambda s, h, g: h.clone(),
    lambda s, h, g: h.detach(),
    lambda s, h, g: h.view(1, 3),
)


def _program(seed: int) -> Callable[..., Any]:
    """A random forward that changes values in place and keeps others."""
    draw = random.Random(seed)
    plan = [(draw.randrange(len(STEPS)), draw.random() ** 0.2, draw.random(), draw.random() < 0.8) for _ in range(5)]

    def forward(s: Any, x: Any) -> Any:
        values = [s.a(x)]
        for step, one, two, kept in plan:
            h, g = (values[int(part * len(values))] for part in (one, two))
            result = STEPS[step](s, h, g)
            if kept and step not in (6, 7):  # those have another shape
                values.append(result)
        return s.b(values[-1])

    return forward


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (15, 30))])
def test_finding_4_random_programs_that_work_in_place(first: int) -> None:
    """They are read, and agree with the module far beyond every sample."""
    for seed in range(first, first + 15):
        _right(_made(_program(seed)))


@pytest.mark.parametrize("module", [nn.Softplus(), nn.Softplus(beta=2.0), nn.Softplus(threshold=15.0)])
def test_a_softplus_is_the_mathematical_function_and_its_deviation_is_stated(module: Any) -> None:
    """At 20 softplus(x) - x is 2e-9: nothing in single precision, but 1e9·(softplus(x) - x) is off by 2 in double."""
    stack = nn.Sequential(nn.Linear(3, 3), module, nn.Linear(3, 1)).double().eval()
    network, imported = examine(stack)
    assert imported is not None
    (label,) = imported.origins[0].applied
    assert "as log(1 + exp(x)): the module is below it by up to" in label
    assert network.layers[0].neurons is not None
    assert network.layers[0].neurons.describe() == "softplus"


def test_single_precision_hides_the_switch_of_a_softplus_and_more() -> None:
    lc.load(nn.Sequential(nn.Linear(3, 3), nn.Softplus(threshold=40.0)).double().eval())
    module = _made(lambda s, x: s.b(s.a(x.float())).float()).float()
    wanted = module(torch.ones(1, 3)).detach().numpy().ravel()
    np.testing.assert_allclose(lc.load(module, input_shape=(3,))(np.ones(3)), wanted, rtol=1e-5)
    for function in (lambda s, x: s.b(torch.sin(30.0 * s.a(x))), lambda s, x: torch.sin(s.a(x))):
        assert (
            lc.load(_made(function).float(), input_shape=(3,)).inputs == 3
        )  # at 1e30 a sine is what rounding makes it
    module = _made(_plain).float()
    with torch.no_grad():
        module.a.weight.mul_(1e37)
    assert lc.load(module, input_shape=(3,)).sizes == (3, 3, 3)  # and without a warning


def test_finding_4_types_that_a_module_mixes() -> None:
    module = _made(lambda s, x: s.b(s.a((x - s.offset).float()))).float()
    module.offset = torch.rand(3, dtype=torch.float64)
    _refused(module, "rounds to numbers of type torch.float32")


def test_finding_9_points_that_require_grad_are_taken() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()
    lc.load(module, points=torch.ones(2, 3, requires_grad=True))
    with pytest.raises(lc.InvalidInput, match="points must"):
        lc.load(module, points=torch.ones(2, 3, dtype=torch.complex64))


@pytest.mark.parametrize(
    "shape", [("a",), 3.5, (10**400,), [[3], [4]], "3", (True, 2), (np.nan,), (), (0,), (-1,), (2**20,) * 2]
)
def test_finding_9_strange_input_shapes_are_named(shape: Any) -> None:
    with pytest.raises(lc.InvalidInput, match="input_shape"):
        lc.load(nn.Sequential(nn.Linear(3, 2)).eval(), input_shape=shape)


def test_finding_9_strange_parameters_are_refused_and_listed() -> None:
    module = _made(_plain)
    module.register_parameter("c", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    module.register_buffer("h", torch.zeros(2, dtype=torch.float16))
    module.register_buffer("s", torch.eye(2).to_sparse())
    module.register_buffer("m", torch.zeros(2, device="meta"))
    text = _refused(module)
    for name in ("c", "h", "s", "m"):
        assert f"\n  {name}: " in text


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_its_copy_in_single_precision(dtype: Any) -> None:
    lines: list[str] = []
    module: Any = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).eval().to(dtype)
    network = lc.load(module, progress=lines.append)
    assert any(line.startswith("half precision: the module is read as its copy") for line in lines)
    assert module[0].weight.dtype == dtype
    np.testing.assert_array_equal(network.layers[0].weight, module[0].weight.detach().float().numpy())


def test_finding_9_a_module_that_ignores_its_input() -> None:
    with pytest.raises(lc.InvalidInput, match="give input_shape"):
        lc.load(_made(lambda s, x: s.a.weight))
    assert not lc.load(_made(lambda s, x: s.a.weight), input_shape=(3,)).layers[0].weight.any()


def _identity() -> lc.Network:
    return lc.Network.from_weights([[[1.0, 0.0], [0.0, 1.0]]])


UNFAITHFUL: dict[str, tuple[Callable[[Any], Any], str]] = {
    **{
        f"{limit:g}": (partial(np.minimum, limit), "not faithful")
        for limit in (30.0, 1e6, 3e12, 1e29, 1e38, 1e150, 1e250)
    },
    "single precision": (lambda x: x.astype(np.float32).astype(float) if np.abs(x).max() < 3e38 else x, "not faithful"),
    "infinities": (lambda x: np.where(np.abs(x) > 50.0, np.inf, x), "finite"),
    "more outputs": (lambda x: x if np.abs(x).max() < 50.0 else np.r_[x, 0.0], "has 2 outputs, the test gives 2 or 3"),
}
"""Functions that are the identity but for a lost limit, rounding, infinities or the number of outputs."""


@pytest.mark.parametrize("name", UNFAITHFUL)
def test_findings_9_and_11_what_differs_from_the_model_is_seen(name: str) -> None:
    function, message = UNFAITHFUL[name]
    with pytest.raises(lc.UnreadableModel, match=message):
        confirm(_identity(), [Original(function, DOUBLE, "the test")])


@pytest.mark.parametrize("limit", [1e6, 1e30, 1e45, 1e200])
def test_finding_11_an_importer_that_drops_a_limit_is_caught(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: limits are read as if they were not there, whatever their size."""

    def dropped(b: Any, input: Any, *limits: Any, **named: Any) -> Any:
        return input

    for name in ("clamp", "minimum", "hardtanh"):
        monkeypatch.setitem(ops.HANDLERS, name, dropped)
    module = _made(lambda s, x: s.b(s.a(x).clamp(max=limit)))
    _refused(module, "not faithful")
    module = _made(lambda s, x: s.b(torch.minimum(s.a(x), s.offset)))
    module.offset.fill_(limit)
    _refused(module, "not faithful")
    _refused(nn.Sequential(nn.Linear(3, 3), nn.Hardtanh(-limit, limit)).double().eval(), "not faithful")


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_an_epsilon_that_is_dropped_is_caught(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: norms are read as if nothing were added to the variance."""
    known = signals.normalised
    monkeypatch.setattr(signals, "normalised", lambda b, x, axes, _, *center: known(b, x, axes, 0.0, *center))
    for module in (
        nn.LayerNorm(3, epsilon),
        nn.RMSNorm(3, epsilon),
        nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4, epsilon)),
    ):
        _refused(module.double().eval(), "not faithful")


def test_finding_11_a_limit_that_is_moved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: the limit is read a little too low, where no random point falls."""
    known = ops.HANDLERS["clamp"]

    def moved(b: Any, input: Any, min: Any = None, max: Any = None) -> Any:
        return known(b, input, max=max * (1 - 1e-9))

    monkeypatch.setitem(ops.HANDLERS, "clamp", moved)
    _refused(_made(lambda s, x: torch.tanh(s.a(x)).clamp(max=0.75)), "not faithful")


@pytest.mark.parametrize("shift", [1e-3, 1e-6, 1e-9])
def test_finding_11_a_moved_threshold_is_seen(shift: float) -> None:
    """Both sides of every kink are compared; a kink that jumps by little is far from every random point."""
    weights, biases = [[[1.0]], [[1.0]]], [[0.3], [0.0]]
    network = lc.Network.from_weights(weights, biases, "relu")

    def moved(x: Any) -> Any:
        v = x + 0.3
        return np.where(np.abs(v) < shift, shift, np.maximum(v, 0.0))

    with pytest.raises(lc.UnreadableModel, match="not faithful"):
        confirm(network, [Original(moved, DOUBLE, "the test")])


def test_finding_11_kinks_are_straddled_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal((6, 4)), rng.standard_normal((5, 6)), rng.standard_normal((2, 5))]
    network = lc.Network.from_weights(weights, [rng.standard_normal(len(w)) for w in weights], ["relu", "relu6"])
    tests = sample(4, 0)
    points = at_kinks(network, tests, np.random.default_rng(0))
    first = network.preactivations(points)[0]
    nearest = np.abs(first).min(axis=0)
    assert (nearest < 1e-14).all()  # every neuron of the first layer
    for k in range(6):
        close = first[np.abs(first[:, k]) < 1e-14, k]
        assert (close < 0).any()
        assert (close >= 0).any()
    second = network.preactivations(points)[1]
    assert (np.minimum(np.abs(second), np.abs(second - 6.0)).min(axis=0) < 1e-13).all()


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_layers_without_inputs_are_refused() -> None:
    with pytest.raises(lc.LipcertError):
        lc.load(nn.Linear(0, 3).eval())


def test_a_dropped_bias_is_caught() -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((6, 4)), rng.standard_normal((3, 6))]
    biases = [0.01 * rng.standard_normal(6), 0.01 * rng.standard_normal(3)]
    full = lc.Network.from_weights(weights, biases, "tanh")
    for single in (False, True):
        run: Callable[[Array], Array] = lambda x: full(x).astype(np.float32 if single else float)  # noqa: B023, E731
        original = Original(run, SINGLE if single else DOUBLE, "the test")
        confirm(full, [original])
        for k in range(2):
            without = [b if i != k else None for i, b in enumerate(biases)]
            with pytest.raises(lc.UnreadableModel, match="not faithful"):
                confirm(lc.Network.from_weights(weights, without, "tanh"), [original])


def test_given_points_are_compared_too() -> None:
    """A difference that no random point shows is found at a given one."""
    network = lc.Network.from_weights([[[1.0]], [[1.0]]], [[-1e295], [0.0]], "relu")
    original = Original(lambda x: np.zeros(1), DOUBLE, "the test")
    confirm(network, [original])
    with pytest.raises(lc.UnreadableModel, match="not faithful"):
        confirm(network, [original], [[2e295]])
    with pytest.raises(lc.InvalidInput, match="points must have 2 numbers"):
        lc.load(nn.Linear(2, 1).eval(), points=[1.0, 2.0, 3.0])
