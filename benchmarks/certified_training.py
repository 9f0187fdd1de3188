"""Training for certified radii: plain, Jacobian regularisation (the paper's weight, and the best of some), product of
norms, and the loss with local bounds, side by side.

Run: python benchmarks/certified_training.py MNIST --log runs.jsonl         (40 minutes; MNIST holds the four idx files)
     python benchmarks/certified_training.py MNIST --log runs.jsonl --networks mlp --radii 0.3 --losses norms,local
     python benchmarks/certified_training.py MNIST --cost                 (time and memory of a step beside a plain one)

Each training gets the same processor seconds on one core. A line of the log is one training: the shares of test images
that are classified rightly (all 10,000), that are certified within the radius by ``certified_radius``, and that survive
an attack (every 20th). Trainings that are in the log are not repeated; the table at the end is made from the log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile

import lipcert as lc
from lipcert.reproduce.classifiers import read_images
from lipcert.training import certified_margin_loss, growing, local_bound

Data = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor, float, float], torch.Tensor]

BATCH = 128
RATE = 1e-2
"""At the start; it falls evenly to zero. Against 0.002 the losses with gradients gain half a point, others nothing."""
PENALTY = {0.3: 0.003, 1.0: 0.03}
"""Weight of the Jacobian: the best of 0.003, 0.01 and 0.1 at radius 0.3, of 0.03 and 0.1 at 1.0, by one seed each."""
PAPER = 1.0
"""The weight in the paper's study of MNIST (``lipcert reproduce mnist``)."""
AIM = {0.3: 2.5, 1.0: 1.4}
"""Radii to train for, in radii to certify: chosen among 1 to 4 at 0.3 and 1 to 1.6 at 1.0, by one seed each."""
LATE = 0.7
"""For large radii the rest of the time is for bounds over balls; before, and for small radii, gradients do."""


def network(name: str) -> nn.Module:
    if name == "mlp":
        layers = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 10)]
        return nn.Sequential(nn.Flatten(), *layers)
    convolutions = [nn.Conv2d(1, 4, 5, stride=3), nn.ReLU(), nn.Conv2d(4, 8, 4, stride=2), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(72, 10))


def nearest(radius: float) -> float:
    """The radius for which weights were chosen that is nearest."""
    return min(PENALTY, key=lambda known: abs(known - radius))


def plain(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return cross_entropy(module(x), y)


def penalised(module: nn.Module, x: torch.Tensor, y: torch.Tensor, weight: float) -> torch.Tensor:
    """Cross-entropy and E‖vᵀJ‖² = ‖J‖²_F, v a random vector of signs."""
    x = x.requires_grad_()
    outputs = module(x)
    signs = 2.0 * torch.randint(0, 2, outputs.shape) - 1.0
    (slopes,) = torch.autograd.grad((outputs * signs).sum(), x, create_graph=True)
    return cross_entropy(outputs, y) + weight * slopes.square().flatten(1).sum(dim=1).mean()


def paper(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return penalised(module, x, y, PAPER)


def jacobian(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return penalised(module, x, y, PENALTY[nearest(radius)])


def norms(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    return certified_margin_loss(module, x, y, growing(radius, 1000)(int(1000 * part)), ball=np.inf)


def local(module: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float, part: float) -> torch.Tensor:
    """Gradients at the images; for large radii, bounds over small balls at the end."""
    aim = AIM[nearest(radius)] * growing(radius, 1000, 0.3)(int(1000 * part))
    return certified_margin_loss(module, x, y, aim, ball=0.3 * radius if radius >= 1.0 and part > LATE else 0.0)


LOSSES: dict[str, Loss] = {"plain": plain, "paper": paper, "jacobian": jacobian, "norms": norms, "local": local}


def trained(name: str, loss: Loss, data: Data, radius: float, seconds: float) -> tuple[nn.Module, float]:
    """A network after so many processor seconds, and how many epochs these were."""
    module = network(name)
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    x, y = data
    begin, seen = time.process_time(), 0
    while True:
        for index in torch.randperm(len(x)).split(BATCH):
            part = (time.process_time() - begin) / seconds
            if part >= 1.0:
                return module.eval(), seen / len(x)
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1.0 - part)
            optimizer.zero_grad()
            loss(module, x[index], y[index], radius, part).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 5.0)
            optimizer.step()
            seen += len(index)


def judged(module: nn.Module, test: Data, radius: float, every: int) -> dict[str, float]:
    """Shares in percent: right of all images, and certified and left by an attack of some."""
    x, y = test
    with torch.no_grad():
        right = module(x).argmax(dim=1) == y
    net = lc.load(module, input_shape=(1, 28, 28))
    points, labels = x[::every].flatten(1).double().numpy(), y[::every].numpy()
    safe = right[::every].numpy() & ~lc.attack(net, points, labels, radius=radius).found
    sure = sum(
        lc.certified_radius(net, point, int(label), radii=[radius], seconds=1).radius >= radius
        for point, label in zip(points[safe], labels[safe], strict=True)
    )
    shares = {"clean": float(right.float().mean()), "certified": sure / len(points), "attacked": float(safe.mean())}
    return {name: round(100 * share, 2) for name, share in shares.items()}


def cost(test: Data) -> None:
    """Fastest of some steps, and the most memory that a step holds, beside a plain one; trained at radius 0.3 first."""
    x, y = (part[:BATCH] for part in test)
    module, _ = trained("mlp", norms, test, 0.3, 5.0)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "plain": lambda: cross_entropy(module(x), y),
        "Jacobian": lambda: penalised(module, x, y, PAPER),
        "product of norms": lambda: certified_margin_loss(module, x, y, 0.3, ball=np.inf),
        "gradients": lambda: certified_margin_loss(module, x, y, 0.3, ball=0.0),
        "local bounds of all": lambda: certified_margin_loss(module, x, y, 0.3),
        "local_bound": lambda: local_bound(module, x, 0.3, margins=y, relaxation=False).sum(),
    }
    found = {name: (fastest(way), memory(way)) for name, way in ways.items()}
    (seconds, held), *_ = found.values()
    for name, (time_, most) in found.items():
        print(
            f"{name:22s} {1e3 * time_:7.2f} ms ({time_ / seconds:5.1f} ×)  {most / 1e6:6.1f} MB ({most / held:5.1f} ×)"
        )


def fastest(way: Callable[[], torch.Tensor], times: int = 20) -> float:
    """Processor seconds of a step, of which the first is not counted."""
    seconds = []
    for _ in range(times + 1):
        begin = time.process_time()
        way().backward()
        seconds.append(time.process_time() - begin)
    return min(seconds[1:])


def memory(way: Callable[[], torch.Tensor]) -> int:
    """The most bytes of tensors that a step holds at once, beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        way().backward()
    events = [event for event in found.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def table(runs: list[dict[str, object]]) -> None:
    """One line per network, radius and loss: means over the seeds, and the certified shares of each."""
    print(
        "| network | radius | loss | epochs | clean | certified (each seed) | attacked |\n|---|---|---|---|---|---|---|"
    )
    groups = itertools.groupby(
        sorted(runs, key=lambda run: (run["network"] != "mlp", run["radius"], list(LOSSES).index(str(run["loss"])))),
        key=lambda run: (run["network"], run["radius"], run["loss"]),
    )
    for (name, radius, loss), group in groups:
        seeds = list(group)
        epochs, clean, certified, attacked = (
            float(np.mean([run[key] for run in seeds])) for key in ("epochs", "clean", "certified", "attacked")
        )
        each = ", ".join(f"{run['certified']:.1f}" for run in seeds)
        print(
            f"| {name} | {radius} | {loss} | {epochs:.0f} | {clean:.2f} | {certified:.1f} ({each}) | {attacked:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--log", type=Path, default=Path("certified_training.jsonl"))
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--radii", default="0.3,1.0")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--networks", default="mlp,cnn")
    parser.add_argument("--losses", default=",".join(LOSSES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    read = read_images(given.mnist)
    data, test = ((torch.tensor(x.reshape(-1, 1, 28, 28)).float(), torch.tensor(y)) for x, y in (read.train, read.test))
    if given.cost:
        cost(test)
        return
    runs = [json.loads(line) for line in given.log.read_text().splitlines()] if given.log.exists() else []
    done = {(run["seed"], run["network"], run["loss"], run["radius"]) for run in runs}
    radii = [float(radius) for radius in given.radii.split(",")]
    for seed, name, loss in itertools.product(
        map(int, given.seeds.split(",")), given.networks.split(","), given.losses.split(",")
    ):
        for group in [radii] if loss in ("plain", "paper") else [[radius] for radius in radii]:
            left = [radius for radius in group if (seed, name, loss, radius) not in done]
            if left:
                torch.manual_seed(seed)
                module, epochs = trained(name, LOSSES[loss], data, left[0], given.seconds)
            for radius in left:
                run = {"seed": seed, "network": name, "loss": loss, "radius": radius, "seconds": given.seconds}
                runs.append({**run, "epochs": round(epochs, 1), **judged(module, test, radius, given.every)})
                with given.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
    table(runs)


if __name__ == "__main__":
    main()
