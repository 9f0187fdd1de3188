"""Training with the local bound: its numbers are those of ``certify``, its gradients those of finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import lipcert as lc
from lipcert.training import Certification, bound, certified_margin_loss, growing, local_bound
from lipcert.training.layers import layers_of


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.outer, self.last = (
            nn.Linear(5, 12),
            nn.Linear(12, 12),
            nn.Linear(12, 12),
            nn.Linear(12, 2),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.relu(self.first(x))
        last: torch.Tensor = self.last(torch.tanh(z + self.outer(torch.relu(self.inner(z)))))
        return last


def dense(*rows: Callable[[], nn.Module]) -> nn.Module:
    sizes = [6, *(12 for _ in rows)]
    layers = [part for (n, m), row in zip(pairwise(sizes), rows, strict=True) for part in (nn.Linear(n, m), row())]
    return nn.Sequential(*layers, nn.Linear(12, 3))


def convolutions() -> nn.Module:
    kernel = nn.Conv2d(1, 3, 3, stride=2, padding=1)
    head = nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.LeakyReLU(0.1), nn.Dropout(0.5), nn.Linear(12, 4))
    return nn.Sequential(kernel, nn.BatchNorm2d(3), nn.SiLU(), head)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: dense(nn.ReLU, nn.ReLU), (6,)),
    "smooth": (lambda: dense(nn.Tanh, nn.GELU, nn.Sigmoid), (6,)),
    "mixed": (lambda: dense(nn.ELU, nn.Hardtanh), (6,)),
    "conv": (convolutions, (1, 8, 8)),
    "residual": (Residual, (5,)),
}


def made(name: str, count: int = 3) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module = make().double()
    module(torch.randn(40, *shape, dtype=torch.float64))  # statistics of the batch norm
    return module, torch.randn(count, *shape, dtype=torch.float64)


@pytest.mark.parametrize("relaxation", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_the_bound_is_that_of_certify(name: str, relaxation: bool) -> None:
    module, x = made(name)
    network = lc.load(module.eval(), input_shape=tuple(x.shape[1:]))
    module.train()
    enclosures = [lc.Lipschitz(), lc.Linear()] if relaxation else [lc.Lipschitz()]
    for radius in (0.01, 0.3, 1.5):
        found = local_bound(module, x, radius, relaxation=relaxation).detach().numpy()
        balls = [lc.Ball(one.ravel(), radius) for one in x.numpy()]
        proved = [lc.certify(network, ball, lc.ClosedForm(), enclosures=enclosures).bound for ball in balls]
        np.testing.assert_allclose(found, proved, rtol=1e-6)
    assert module.training


@pytest.mark.parametrize("kind", ["exact", "relaxation", "margins", "quick"])
@pytest.mark.parametrize("name", MODULES)
def test_gradients_are_those_of_finite_differences(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the multipliers and the lines held as they are; and near them when they are chosen anew."""
    module, x = made(name)
    module.eval()
    kept: dict[str, list[object]] = {"closed_form": [], "suggested_lines": [], "relax": [], "directions": []}

    def value() -> torch.Tensor:
        if kind in ("exact", "relaxation"):
            return local_bound(module, x, 0.1, relaxation=kind == "relaxation").sum()
        radii = torch.full((len(x),), 0.1, dtype=x.dtype)
        found = bound.Bounds(layers_of(module, x), x, radii, relaxation=False, exact=kind == "margins")
        return found.pairwise(torch.zeros(len(x), dtype=torch.long)).sum()

    def noting(which: str) -> None:
        real = getattr(bound, which)

        def noted(*given: object) -> object:
            kept[which].append(real(*given))
            return kept[which][-1]

        monkeypatch.setattr(bound, which, noted)

    for which in kept:
        noting(which)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(value(), parameters, allow_unused=True)
    slopes = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
    size = torch.sqrt(sum((g * g).sum() for g in slopes))  # type: ignore[arg-type]

    def difference(direction: list[torch.Tensor], held: bool) -> float:
        ends = []
        for step in (1e-6, -1e-6):
            with monkeypatch.context() as patch, torch.no_grad():
                for which, values in kept.items() if held else ():
                    patch.setattr(bound, which, partial(_next, iter(list(values))))
                for parameter, way in zip(parameters, direction, strict=True):
                    parameter.add_(way, alpha=step)
                ends.append(float(value()))
                for parameter, way in zip(parameters, direction, strict=True):
                    parameter.sub_(way, alpha=step)
        return (ends[0] - ends[1]) / 2e-6

    before = {which: list(values) for which, values in kept.items()}
    along = [g / size for g in slopes]
    assert difference(along, held=True) == pytest.approx(float(size), rel=1e-5)
    for seed in range(4):
        torch.manual_seed(seed)
        direction = [torch.randn_like(p) / p.numel() ** 0.5 for p in parameters]
        kept.update({which: list(values) for which, values in before.items()})
        told = float(sum((g * way).sum() for g, way in zip(slopes, direction, strict=True)))
        assert difference(direction, held=True) == pytest.approx(told, abs=1e-5 * float(size))
    assert difference(along, held=False) == pytest.approx(float(size), rel=0.1)


def _next(left: Iterator[object], *_: object) -> object:
    return next(left)


def test_batches_are_single_points() -> None:
    module, x = made("mixed", 6)
    radii = torch.linspace(0.0, 2.0, 6, dtype=torch.float64)
    one_by_one = [local_bound(module, x[k : k + 1], radii[k : k + 1]) for k in range(6)]
    torch.testing.assert_close(local_bound(module, x, radii), torch.cat(one_by_one))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_margins_bound_differences_of_outputs(name: str, exact: bool) -> None:
    module, x = made(name, 4)
    module.eval()
    labels, radii = torch.tensor([0, 1, 1, 0]), torch.full((4,), 0.5, dtype=torch.float64)
    found = bound.Bounds(layers_of(module, x), x, radii, relaxation=False, exact=exact).pairwise(labels)
    for k in range(4):
        ways = torch.nn.functional.normalize(torch.randn(300, x[k].numel(), dtype=torch.float64), dim=1)
        f = module(torch.cat([x[k : k + 1], x[k] + 0.5 * ways.reshape(-1, *x.shape[1:])]))
        gap = f[:, labels[k]][:, None] - f
        rise = (gap[1:] - gap[0]).abs() / 0.5
        assert (rise.max(dim=0).values <= found[k] + 1e-12).all()
        assert found[k, labels[k]] == 0.0
    if exact:
        torch.testing.assert_close(local_bound(module, x, 0.5, margins=labels, relaxation=False), found)
        for j in range(1, found.shape[1]):
            row = nn.Linear(found.shape[1], 1, dtype=torch.float64)
            row.weight.data = (torch.eye(found.shape[1])[:1] - torch.eye(found.shape[1])[j]).double()
            network = lc.load(nn.Sequential(module, row).eval(), input_shape=tuple(x.shape[1:]))
            ball, only = lc.Ball(x[0].numpy().ravel(), 0.5), [lc.Lipschitz()]
            proved = lc.certify(network, ball, lc.ClosedForm(), enclosures=only).bound
            assert found[0, j].item() == pytest.approx(proved, rel=1e-6)


def test_weights_are_live() -> None:
    """The module is exported once, and its parameters are read every time."""
    module, x = made("relu")
    before = local_bound(module, x, 0.1)
    with torch.no_grad():
        module[4].weight *= 2.0  # type: ignore[index]
    torch.testing.assert_close(local_bound(module, x, 0.1), 2.0 * before)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.PReLU(), nn.Linear(4, 2)), "without parameters"),
        (nn.Sequential(nn.Unflatten(1, (1, 6)), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(3, 2)), "single operations"),
    ],
)
def test_what_has_no_live_bound_is_refused(module: nn.Module, sentence: str) -> None:
    with pytest.raises(lc.LipcertError, match=sentence):
        local_bound(module, torch.zeros(1, 6), 0.1)


def broken(value: float, module: nn.Module | None = None) -> nn.Module:
    """One weight of the second layer has a value of its own."""
    module = module or dense(nn.ReLU).double()
    module[2].weight.data[0, 0] = value  # type: ignore[index]
    return module


def test_wrong_use() -> None:
    module, x = made("relu")
    with pytest.raises(lc.LipcertError, match="radius must be at least 0"):
        local_bound(module, x, -1.0)
    with pytest.raises(lc.LipcertError, match=r"x must be a tensor \(batch"):
        local_bound(module, x[0], 0.1)
    for labels in (torch.zeros(1, dtype=torch.long), torch.full((len(x),), 99)):
        with pytest.raises(lc.LipcertError, match="margins must be one label"):
            local_bound(module, x, 0.1, margins=labels)
    with pytest.raises(lc.LipcertError, match="layer 2 is not finite"):
        certified_margin_loss(broken(torch.nan), x, torch.zeros(3, dtype=torch.long), 0.1)
    module = broken(1.0)
    local_bound(module, x, 0.1)
    with pytest.raises(lc.LipcertError, match="bound of a layer is not finite"):
        local_bound(broken(1e200, module), x, 0.1)
    with pytest.raises(lc.LipcertError, match="radius and ball must be at least 0"):
        certified_margin_loss(module, x, torch.zeros(3, dtype=torch.long), 0.1, ball=-1.0)
    with pytest.raises(lc.LipcertError, match="share must lie"):
        growing(1.0, 10, share=0.0)
    with pytest.raises(lc.LipcertError, match="every must be at least 1"):
        Certification(module, x, torch.zeros(3), 0.1, every=0)


@pytest.mark.parametrize("ball", [0.0, None, np.inf])
def test_training_makes_radii(ball: float | None, tmp_path: Path) -> None:
    """Two classes on a line: the loss moves the boundary away from the points; plain training is content earlier."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(32, 4) * 0.3 + 0.7, torch.randn(32, 4) * 0.3 - 0.7])
    y = torch.cat([torch.zeros(32), torch.ones(32)]).long()
    module = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    log = Certification(module, x[::8], y[::8], 0.5, every=60, csv=tmp_path / "log.csv", figure=tmp_path / "log.png")
    optimizer, radius = torch.optim.Adam(module.parameters(), 1e-2), growing(0.5, 120)
    for step in range(121):
        log(step)
        optimizer.zero_grad()
        loss = certified_margin_loss(module, x, y, radius(step), ball=ball)
        loss.backward()
        optimizer.step()
    assert [row.epoch for row in log.rows] == [0, 60, 120]
    assert log.rows[-1].certified == 1.0 > log.rows[0].certified
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4
    assert (tmp_path / "log.png").stat().st_size > 5000
