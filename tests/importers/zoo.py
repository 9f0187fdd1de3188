"""PyTorch modules as people write them, one class each, grouped by idiom; :mod:`test_zoo` says what happens to each."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

try:
    import einops
    from einops.layers.torch import Rearrange, Reduce
except ImportError:  # no test needs it; then these modules are left out
    einops = None  # type: ignore[assignment]

torch.manual_seed(5)


class Zoo(nn.Module):
    """A module with the parts that its class names, which are copied; tensors become buffers.

    ``shape`` is that of an input, ``says`` what the refusal says; without it the module is read.
    """

    kinds: ClassVar[dict[str, type[Zoo]]] = {}
    parts: ClassVar[dict[str, Any]] = {}
    shape: tuple[int, ...]
    says: str

    def __init_subclass__(cls, shape: tuple[int, ...] = (4,), says: str = "", **parts: Any) -> None:
        cls.shape, cls.says, cls.parts = shape, says, {**cls.parts, **parts}
        cls.kinds[cls.__name__] = cls

    def __init__(self) -> None:
        super().__init__()
        for name, part in self.parts.items():
            part = copy.deepcopy(part)
            self.register_buffer(name, part) if type(part) is torch.Tensor else setattr(self, name, part)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


def members(group: type) -> list[type[Zoo]]:
    """The modules of one idiom."""
    return [kind for kind in vars(group).values() if isinstance(kind, type) and issubclass(kind, Zoo)]


def rows(*shape: int) -> Any:
    return torch.linspace(-1.0, 1.0, math.prod(shape)).reshape(shape)


def chain(*sizes: int) -> nn.Sequential:
    """A multilayer perceptron."""
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


class Perceptrons:
    class Functional(Zoo, a=nn.Linear(4, 6), b=nn.Linear(6, 3)):
        def forward(self, x: Any) -> Any:
            return self.b(F.relu(self.a(x)))

    class Listed(Zoo, layers=nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)])):
        def forward(self, x: Any) -> Any:
            for k, layer in enumerate(self.layers):
                x = layer(x) if k == len(self.layers) - 1 else torch.tanh(layer(x))
            return x

    class Dictionary(Zoo, layers=nn.ModuleDict({"first": nn.Linear(4, 3), "act": nn.SiLU(), "last": nn.Linear(3, 2)})):
        def forward(self, x: Any) -> Any:
            for name in ("first", "act", "last"):
                x = self.layers[name](x)
            return x

    class Parameters(Zoo, w=nn.ParameterDict({"a": weight(3, 4), "b": weight(3)})):
        def forward(self, x: Any) -> Any:
            return F.linear(x, self.w["a"], self.w["b"]).sigmoid()

    class Inherited(Functional):
        def forward(self, x: Any) -> Any:
            return super().forward(x) / 2.0

    class Tied(Zoo, w=weight(3, 4), b=weight(4)):
        def forward(self, x: Any) -> Any:
            return F.linear(torch.relu(F.linear(x, self.w)), self.w.t(), self.b)

    class Twice(Zoo, layer=nn.Linear(4, 4)):
        def forward(self, x: Any) -> Any:
            return self.layer(torch.relu(self.layer(x)))

    class MadeInForward(Zoo):
        def forward(self, x: Any) -> Any:
            return nn.ReLU()(x)

    class OfAConstant(Zoo, shape=(3,), a=nn.Linear(3, 2), b=nn.Linear(3, 2), held=rows(3)):
        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(self.held)

    class Standardised(Zoo, w=weight(3, 4)):
        def forward(self, x: Any) -> Any:
            w = self.w - self.w.mean(1, keepdim=True)
            return F.linear(x, w / (w.std(1, keepdim=True) + 1e-5))

    class Ensemble(Zoo, nets=nn.ModuleList([chain(4, 5, 2) for _ in range(3)])):
        def forward(self, x: Any) -> Any:
            return torch.stack([net(x) for net in self.nets]).mean(0)

    class Convex(Zoo, w=weight(3, 4), u=weight(1, 3)):
        """Input-convex: weights behind the first layer are made positive."""

        def forward(self, x: Any) -> Any:
            return F.linear(F.softplus(F.linear(x, self.w), threshold=40.0), F.softplus(self.u)) + x.sum(1, True)

    class DeepSet(Zoo, shape=(3, 2), inner=chain(2, 4, 3), outer=nn.Linear(3, 1)):
        def forward(self, x: Any) -> Any:
            return self.outer(self.inner(x).sum(1))

    class OnGraph(Zoo, shape=(3, 2), edges=torch.tensor([[0, 1.0, 0], [1, 0, 1], [0, 1, 0]]), w=nn.Linear(2, 4)):
        def forward(self, x: Any) -> Any:
            return F.elu(self.w(self.edges @ x / self.edges.sum(1, keepdim=True)))

    class Heads(Zoo, shape=(2, 3), w=rows(2, 3, 4)):
        def forward(self, x: Any) -> Any:
            return torch.einsum("bhd,hdk->bhk", x, self.w)

    class Masked(Zoo, shape=(3,), a=nn.Linear(3, 2), mask=torch.tensor([True, False, True])):
        def forward(self, x: Any) -> Any:
            return self.a(input=F.relu(x * self.mask))


class Residuals:
    class Residual(
        Zoo,
        shape=(2, 6, 7),
        one=nn.Conv2d(2, 3, 3, padding=1),
        bn=nn.BatchNorm2d(3),
        two=nn.Conv2d(3, 3, 3, padding=1),
        head=nn.Linear(126, 4),
    ):
        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn(self.one(x)))
            return self.head((y + self.two(y)).flatten(1))

    class PreActivation(
        Zoo,
        shape=(5,),
        stem=nn.Linear(5, 6),
        head=nn.Linear(6, 3),
        a=nn.ModuleList([nn.Linear(6, 9) for _ in range(3)]),
        b=nn.ModuleList([nn.Linear(9, 6) for _ in range(3)]),
    ):
        def forward(self, x: Any) -> Any:
            stream = self.stem(x)
            for a, b in zip(self.a, self.b):
                stream = stream + b(torch.tanh(a(F.relu(stream))))
            return self.head(stream)

    class Dense(Zoo, shape=(2, 3, 4), a=nn.Conv2d(2, 2, 1), b=nn.Conv2d(4, 3, 1), c=nn.Linear(84, 3)):
        def forward(self, x: Any) -> Any:
            one = F.relu(self.a(x))
            two = F.relu(self.b(torch.cat([x, one], 1)))
            return self.c(torch.cat([x, one, two], dim=1).view(x.size(0), -1))

    class Euler(Zoo, net=chain(4, 6, 4)):
        """A neural differential equation, five steps of it."""

        def forward(self, x: Any) -> Any:
            for _ in range(5):
                x = x + 0.1 * self.net(x)
            return x

    class Equilibrium(Zoo, w=nn.Linear(4, 4, bias=False), u=nn.Linear(4, 4)):
        def forward(self, x: Any) -> Any:
            z = torch.zeros_like(x)
            for _ in range(4):
                z = torch.tanh(0.3 * self.w(z) + self.u(x))
            return z

    class Deepest(Zoo, scale=weight(4), net=chain(4, 5, 4)):
        """Layer scale, and a path that training drops."""

        def forward(self, x: Any) -> Any:
            return x + F.dropout(self.scale * self.net(x), 0.2, self.training)


class Images:
    class Normalised(
        Zoo,
        shape=(2, 4, 5),
        mean=rows(2, 1, 1),
        std=1.5 + rows(2, 1, 1),
        net=nn.Sequential(nn.Conv2d(2, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)),
    ):
        def forward(self, x: Any) -> Any:
            return self.net((x - self.mean) / self.std)

    class Inception(Zoo, shape=(2, 4, 4), a=nn.Conv2d(2, 2, 1), b=nn.Conv2d(2, 3, 3, padding=1)):
        def forward(self, x: Any) -> Any:
            return torch.cat([self.a(x), self.b(x), F.max_pool2d(x, 3, 1, 1)], 1).relu()

    class UNet(
        Zoo,
        shape=(1, 4, 6),
        down=nn.Conv2d(1, 3, 2, stride=2),
        up=nn.ConvTranspose2d(3, 2, 2, stride=2),
        last=nn.Conv2d(3, 1, 1),
    ):
        def forward(self, x: Any) -> Any:
            return self.last(torch.cat([x, self.up(F.leaky_relu(self.down(x), 0.1))], 1))

    class Separable(Zoo, shape=(2, 5, 4), depth=nn.Conv2d(2, 2, 3, padding=1, groups=2), point=nn.Conv2d(2, 4, 1)):
        def forward(self, x: Any) -> Any:
            return F.adaptive_avg_pool2d(F.relu6(self.point(F.hardswish(self.depth(x)))), 1).squeeze(-1).squeeze(-1)

    class Coordinates(Zoo, shape=(1, 3, 4), conv=nn.Conv2d(3, 2, 3)):
        def forward(self, x: Any) -> Any:
            i, j = torch.meshgrid(torch.arange(3.0), torch.arange(4.0), indexing="ij")
            return self.conv(torch.cat([x, torch.stack([i, j])[None].to(x)], 1))

    class Mixer(Zoo, shape=(3, 4), tokens=chain(3, 5, 3), channels=chain(4, 5, 4)):
        def forward(self, x: Any) -> Any:
            x = x + self.tokens(x.transpose(1, 2)).transpose(1, 2)
            return x + self.channels(x)

    class Merging(Zoo, shape=(4, 4, 2), reduce=nn.Linear(8, 3, bias=False)):
        def forward(self, x: Any) -> Any:
            return self.reduce(torch.cat([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1))

    class Points(Zoo, shape=(2, 5), conv=nn.Conv1d(2, 4, 1), head=nn.Linear(4, 2)):
        def forward(self, x: Any) -> Any:
            return self.head(F.relu(self.conv(x)).max(dim=-1).values)

    class Causal(Zoo, shape=(2, 6), conv=nn.Conv1d(2, 2, 2, dilation=2)):
        def forward(self, x: Any) -> Any:
            return F.elu(self.conv(F.pad(x, (2, 0)))) + x

    class AsABatch(Zoo, shape=(2, 4, 5), w=rows(3, 1, 2, 2)):
        def forward(self, x: Any) -> Any:
            return F.conv2d(x.view(2, 1, 4, 5), self.w).relu()

    class Indices(Zoo, shape=(2, 4)):
        def forward(self, x: Any) -> Any:
            return F.max_pool1d(x, 2, return_indices=True)[0]

    class Patches(Zoo, shape=(1, 4, 4), w=weight(9, 2)):
        def forward(self, x: Any) -> Any:
            return x.unfold(2, 3, 1).unfold(3, 3, 1).flatten(-2) @ self.w

    class Resized(Zoo, shape=(1, 3, 4)):
        def forward(self, x: Any) -> Any:
            kinds = (((6, 12), "nearest-exact"), ((5, 4), "nearest"), ((6, 8), "area"))
            return torch.cat([F.interpolate(x, size, mode=mode).flatten(1) for size, mode in kinds], 1)

    class Statistics(Zoo, shape=(2, 6, 6), w=rows(4, 26)):
        def forward(self, x: Any) -> Any:
            y = torch.cat([x.mean(dim=(2, 3)), x.sum(dim=3).flatten(1), x.mean(2).flatten(1)], dim=1)
            return F.linear(torch.atan(y), self.w) + torch.sin(y).mean(dim=1, keepdim=True)


class Elements:
    class Methods(Zoo, shape=(12,), scale=rows(12)):
        def forward(self, x: Any) -> Any:
            y = x.reshape(x.shape[0], 4, 3).transpose(1, 2).contiguous().permute(0, 2, 1)
            y = y.unsqueeze(1).squeeze(1).flatten(start_dim=1)
            y = 2.0 - 3.0 * y / 4.0 + (-y) * self.scale
            left, right = y.chunk(2, dim=1)
            parts = left.sigmoid() + right.tanh(), y[:, 1::3].clamp(min=-0.5), y[:, :2].clamp(-1.0, 0.3)
            return torch.cat(parts, 1)

    class OtherNames(Zoo):
        def forward(self, x: Any) -> Any:
            y = torch.subtract(torch.multiply(x, 2.0), torch.negative(x).absolute()).divide(3.0).clip(-1.0, 2.0)
            return y + torch.rsub(x, 1.0).fliplr().arctan() + torch.hstack([x[:, 1:], x[:, :1]])

    class TakenApart(Zoo):
        def forward(self, x: Any) -> Any:
            y = torch.addcmul(x, x, torch.arange(4.0).to(x), value=0.5).diag_embed().tril().flatten(1)
            return y + torch.trapezoid(x)[:, None] + torch.kron(x, torch.ones(1, 4).to(x))

    class Matrices(Zoo, shape=(5, 3), right=rows(3, 4), low=rows(4, 3), left=rows(5, 5)):
        def forward(self, x: Any) -> Any:
            return torch.matmul(torch.relu(x @ self.right), self.low) + self.left @ F.silu(x)

    class Einsums(Zoo, shape=(3, 4), heads=rows(2, 4, 3), last=rows(2, 18), stacked=rows(2, 1, 4, 2)):
        def forward(self, x: Any) -> Any:
            y = torch.einsum("bij,njk->bnik", x, self.heads).flatten(1)
            return torch.einsum("bi,oi->bo", y, self.last) + (x @ self.stacked).sum((0, 1, 2))

    class Batched(Zoo, shape=(3, 4), w=rows(1, 2, 3)):
        def forward(self, x: Any) -> Any:
            return torch.bmm(self.w, x)

    class Sizes(Zoo, shape=(3,), a=nn.Linear(3, 3)):
        def forward(self, x: Any) -> Any:
            return self.a(x)[:, [2, 0, 1]] * x.shape.numel() * x.stride(1) + x.shape.index(3)

    class Loops(Zoo, shape=(3, 2)):
        def forward(self, x: Any) -> Any:
            return torch.stack([x[:, k] * (k + 1) / len(x) for k in range(x.shape[1])], 1).view(len(x), -1)

    class Masks(Zoo):
        def forward(self, x: Any) -> Any:
            return torch.where(torch.arange(4) % 2 == 0, x, -x).masked_fill(torch.arange(4) > 2, 1.5)

    class NestedMasks(Zoo):
        def forward(self, x: Any) -> Any:
            place = torch.arange(4)
            return torch.where(place < 1, x, torch.where(place < 3, 0.5 * torch.relu(x), torch.zeros(())))

    class SetItems(Zoo):
        def forward(self, x: Any) -> Any:
            y = x.clone()
            y[:, 0] = 2.0 * y[:, 1]
            y[:, 2:] += 1.0
            y[:, torch.tensor([1])] = x[:, [3]]
            return y

    class Scattered(Zoo, place=torch.tensor([[2, 0, 5, 1]])):
        def forward(self, x: Any) -> Any:
            return torch.zeros(1, 6).to(x).scatter(1, self.place, x).scatter_add(1, self.place, x.tanh())

    class Pooled(Zoo, place=torch.tensor([0, 1, 1, 0])):
        """Sums over the nodes of each graph."""

        def forward(self, x: Any) -> Any:
            return torch.zeros(1, 2).to(x).index_add(1, self.place, torch.relu(x))

    class Extremes(Zoo, shape=(5,), a=nn.Linear(5, 5), limit=rows(5)):
        def forward(self, x: Any) -> Any:
            pairs = torch.maximum(x, self.a(x)), torch.minimum(x, self.a(x)), torch.max(x, self.limit)
            return torch.cat([*pairs, x.abs(), x.amax(1, keepdim=True)], 1)

    class Largest(Zoo):
        def forward(self, x: Any) -> Any:
            return x.max(1)[0] + x.view(-1, 2).max(-1).values.sum() + x.min()

    class MaxMin(Zoo):
        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, 1)
            return torch.cat([torch.maximum(a, b), torch.minimum(a, b)], 1)

    class SortedPairs(Zoo):
        def forward(self, x: Any) -> Any:
            return torch.sort(x.reshape(-1, 2))[0].reshape(x.shape)

    class Maxout(Zoo, a=nn.Linear(4, 6)):
        def forward(self, x: Any) -> Any:
            return self.a(x).view(-1, 2, 3).amax(-1)

    class Cumulative(Zoo):
        def forward(self, x: Any) -> Any:
            return torch.lerp(x, torch.relu(x), 0.25).cumsum(1).roll(1, 1).repeat(1, 2)

    class SpeltOut(Zoo, shape=(5,), a=nn.Linear(5, 5)):
        def forward(self, x: Any) -> Any:
            y = x * torch.sigmoid(1.5 * x) + self.a(x)
            y = y * 0.5 * (1.0 + torch.erf(y / 2.0**0.5))
            y = y * torch.tanh(F.softplus(y, threshold=40.0))
            return y * F.relu6(y + 3.0) / 6.0

    class Periodic(Zoo, b=weight(4, 3), net=chain(6, 5, 2)):
        """Random Fourier features."""

        def forward(self, x: Any) -> Any:
            return self.net(torch.cat([torch.sin(x @ self.b), torch.cos(x @ self.b)], -1))

    class Siren(Zoo, a=nn.Linear(4, 5), b=nn.Linear(5, 2)):
        def forward(self, x: Any) -> Any:
            return self.b(torch.sin(3.0 * self.a(x)))

    class SquarePlus(Zoo):
        def forward(self, x: Any) -> Any:
            return (x + torch.sqrt(x**2 + 4.0)) / 2.0


class Control:
    class Limited(Zoo, net=chain(4, 6, 1)):
        def forward(self, x: Any) -> Any:
            return torch.clamp(2.0 * torch.tanh(self.net(x)) - x @ torch.ones(4, 1).to(x), -1.5, 1.5)

    class Dueling(Zoo, body=nn.Linear(4, 5), value=nn.Linear(5, 1), advantage=nn.Linear(5, 3)):
        def forward(self, x: Any) -> Any:
            h = F.relu(self.body(x))
            a = self.advantage(h)
            return self.value(h) + a - a.mean(1, keepdim=True)

    class Angle(Zoo, shape=(2,), net=chain(3, 4, 1)):
        def forward(self, x: Any) -> Any:
            return self.net(torch.stack([x[:, 0].sin(), x[:, 0].cos(), x[:, 1]], 1))

    class Pendulum(Zoo, shape=(2,), net=chain(2, 4, 1)):
        def forward(self, x: Any) -> Any:
            angle, rate = x.unbind(-1)
            return torch.stack([angle + 0.05 * rate, rate + 0.05 * (angle.sin() + self.net(x).squeeze(-1))], -1)

    class CartPole(Zoo, shape=(3,)):
        """A step of the pole on a cart, with divisions."""

        def forward(self, x: Any) -> Any:
            angle, rate, force = x[..., 0], x[..., 1], x[..., 2]
            sine, cosine = torch.sin(angle), torch.cos(angle)
            push = (force + 0.05 * rate**2 * sine) / 1.1
            turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1))
            return torch.stack([angle + 0.02 * rate, rate + 0.02 * turn, push - 0.05 * turn * cosine / 1.1], -1)

    class Scheduled(Zoo):
        def forward(self, x: Any) -> Any:
            return x[..., :2] * torch.tanh(x[..., 2:3]) / (1.0 + x[..., 3:] ** 2)

    class Quadratic(Zoo, p=rows(4, 4)):
        """A Lyapunov function."""

        def forward(self, x: Any) -> Any:
            return (x @ self.p * x).sum(-1, keepdim=True) + 0.1 * x.pow(2).sum(-1, keepdim=True)


class Gates:
    class Highway(Zoo, a=nn.Linear(4, 4), gate=nn.Linear(4, 4)):
        def forward(self, x: Any) -> Any:
            g = torch.sigmoid(self.gate(x))
            return g * torch.relu(self.a(x)) + (1.0 - g) * x

    class WaveNet(Zoo, shape=(2, 5), conv=nn.Conv1d(2, 4, 2)):
        def forward(self, x: Any) -> Any:
            a, b = self.conv(x).chunk(2, 1)
            return torch.tanh(a) * torch.sigmoid(b)

    class SwiGLU(Zoo, w=nn.Linear(4, 6), v=nn.Linear(4, 6), out=nn.Linear(6, 3)):
        def forward(self, x: Any) -> Any:
            return self.out(F.silu(self.w(x)) * self.v(x))

    class Linear(Zoo, a=nn.Linear(4, 8), b=nn.Linear(4, 2)):
        def forward(self, x: Any) -> Any:
            return self.b(F.glu(self.a(x)))

    class Squeeze(Zoo, shape=(1, 4, 4), conv=nn.Conv2d(1, 4, 3, padding=1), gate=chain(4, 2, 4)):
        def forward(self, x: Any) -> Any:
            x = torch.relu(self.conv(x))
            return x * torch.sigmoid(self.gate(x.mean((2, 3))))[:, :, None, None]

    class Experts(Zoo, gate=nn.Linear(4, 2), experts=nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])):
        def forward(self, x: Any) -> Any:
            weights = self.gate(x).softmax(-1)
            return sum(w[:, None] * expert(x) for w, expert in zip(weights.unbind(-1), self.experts))

    class Film(Zoo, a=nn.Linear(2, 3), film=nn.Linear(2, 6)):
        def forward(self, x: Any) -> Any:
            scale, shift = self.film(x[:, 2:]).chunk(2, -1)
            return scale * self.a(x[:, :2]) + shift

    class Bilinear(Zoo, pair=nn.Bilinear(2, 2, 3)):
        def forward(self, x: Any) -> Any:
            return self.pair(x[:, :2], x[:, 2:])

    class Operator(Zoo, branch=chain(3, 4, 2), trunk=nn.Linear(1, 2)):
        """DeepONet: a function, sampled, and a place."""

        def forward(self, x: Any) -> Any:
            return (self.branch(x[:, :3]) * torch.tanh(self.trunk(x[:, 3:]))).sum(-1, keepdim=True)

    class Hyper(Zoo, shape=(8,)):
        def forward(self, x: Any) -> Any:
            return F.linear(x[:, :2], x[0, 2:].view(3, 2))

    class Rbf(Zoo, shape=(3,), centres=rows(5, 3), out=nn.Linear(5, 2)):
        def forward(self, x: Any) -> Any:
            return self.out(torch.exp(-((x[:, None, :] - self.centres) ** 2).sum(-1)))

    class Distances(Zoo, shape=(3,), centres=rows(5, 3), out=nn.Linear(5, 2)):
        def forward(self, x: Any) -> Any:
            return self.out(torch.exp(-(torch.cdist(x, self.centres) ** 2)))


class Attention:
    class ByHand(
        Zoo,
        shape=(3, 4),
        token=weight(1, 4),
        place=weight(4, 4),
        q=nn.Linear(4, 4),
        k=nn.Linear(4, 4),
        v=nn.Linear(4, 4),
    ):
        def forward(self, x: Any) -> Any:
            x = torch.cat([self.token.expand(len(x), 1, 4), x], 1) + self.place
            return torch.softmax(self.q(x) @ self.k(x).mT / 2.0, -1) @ self.v(x) + x

    class MultiHead(Zoo, shape=(3, 4), inner=nn.MultiheadAttention(4, 2, batch_first=True)):
        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x, need_weights=False)[0]

    class LooksBack(Zoo, shape=(3, 4), qkv=nn.Linear(4, 12)):
        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).chunk(3, -1)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    class LanguageModel(Zoo, shape=(3, 4), qkv=nn.Linear(4, 12), seen=torch.tril(torch.ones(3, 3))):
        """Scores of later places are replaced by -inf."""

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).split(4, dim=-1)
            scores = (q @ k.transpose(-2, -1)).masked_fill(self.seen == 0, float("-inf"))
            return torch.softmax(scores, dim=-1) @ v

    class Encoder(Zoo, shape=(2, 4), layer=nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, norm_first=True)):
        def forward(self, x: Any) -> Any:
            return self.layer(x).mean(1)

    class Vision(
        Zoo,
        shape=(1, 4, 4),
        patch=nn.Conv2d(1, 4, 2, 2),
        layer=nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, activation="gelu"),
        head=nn.Linear(4, 2),
    ):
        def forward(self, x: Any) -> Any:
            return self.head(self.layer(self.patch(x).flatten(2).transpose(1, 2))[:, 0])

    class Pooling(Zoo, shape=(3, 4), query=weight(4)):
        def forward(self, x: Any) -> Any:
            return torch.einsum("bt,btd->bd", torch.softmax(x @ self.query, 1), x)

    class SoftArgmax(Zoo, shape=(1, 2, 3)):
        def forward(self, x: Any) -> Any:
            return (x.flatten(1).softmax(-1) * torch.arange(6.0).to(x)).sum(-1, keepdim=True)


class Norms:
    class ConvNext(
        Zoo,
        shape=(4, 2, 2),
        depth=nn.Conv2d(4, 4, 3, padding=1, groups=4),
        norm=nn.LayerNorm(4, eps=0.1),
        mlp=chain(4, 6, 4),
    ):
        def forward(self, x: Any) -> Any:
            return x + self.mlp(self.norm(self.depth(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)

    class LayerByHand(Zoo):
        def forward(self, x: Any) -> Any:
            x = (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 0.1)
            return (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 0.1)

    class RootMeanSquare(Zoo, gain=weight(4)):
        def forward(self, x: Any) -> Any:
            return self.gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)

    class Deviations(Zoo):
        def forward(self, x: Any) -> Any:
            return (x / (1.0 + x.std())) @ torch.ones(4, 1).to(x) + x.var((0, 1))

    class OnTheSphere(Zoo, shape=(3,)):
        def forward(self, x: Any) -> Any:
            return F.normalize(x, dim=-1)

    class Cosine(Zoo, shape=(3,)):
        def forward(self, x: Any) -> Any:
            return torch.cosine_similarity(x, torch.ones(1, 3).to(x))

    class Length(Zoo, shape=(3,)):
        def forward(self, x: Any) -> Any:
            return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 0.1)

    class Logarithms(Zoo, shape=(3,)):
        def forward(self, x: Any) -> Any:
            return x.logsumexp(-1) + torch.log1p(x * x).sum() + torch.expm1(x**4).sum()


class Recurrent:
    class Rnn(Zoo, shape=(5, 4), part=nn.RNN(4, 3, num_layers=2, bidirectional=True, batch_first=True)):
        def forward(self, x: Any) -> Any:
            return self.part(x)[0][:, -1]

    class Relu(Zoo, shape=(5, 4), part=nn.RNN(4, 3, nonlinearity="relu", bias=False)):
        def forward(self, x: Any) -> Any:
            return self.part(x)[0][:, -1]

    class Cell(Zoo, shape=(5, 4), cell=nn.RNNCell(4, 3), head=nn.Linear(3, 2)):
        def forward(self, x: Any) -> Any:
            h = x.new_zeros(len(x), 3)
            for step in range(x.shape[1]):
                h = self.cell(x[:, step], h)
            return self.head(h)

    class Lstm(Zoo, shape=(4, 3), part=nn.LSTM(3, 4, num_layers=2, batch_first=True)):
        def forward(self, x: Any) -> Any:
            return self.part(x)[0][:, -1]

    class Gru(Zoo, shape=(3, 3), part=nn.GRU(3, 4, batch_first=True, bidirectional=True)):
        def forward(self, x: Any) -> Any:
            return self.part(x)[0][:, -1]

    class LstmCell(Zoo, shape=(3,), cell=nn.LSTMCell(3, 4)):
        def forward(self, x: Any) -> Any:
            return self.cell(x, self.cell(x))[0]

    class MinimalGate(Zoo, shape=(3, 2), f=nn.Linear(5, 3), c=nn.Linear(5, 3)):
        def forward(self, x: Any) -> Any:
            h = torch.zeros(1, 3).to(x)
            for step in x.unbind(1):
                f = torch.sigmoid(self.f(torch.cat([step, h], 1)))
                h = (1.0 - f) * h + f * torch.tanh(self.c(torch.cat([step, f * h], 1)))
            return h


if einops is not None:

    class Einops:
        class Layer(
            Zoo, shape=(2, 4, 4), cut=Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2), w=nn.Linear(8, 3)
        ):
            def forward(self, x: Any) -> Any:
                return self.w(self.cut(x))

        class Function(Zoo, shape=(3, 4), qkv=nn.Linear(4, 12)):
            def forward(self, x: Any) -> Any:
                q, k, v = einops.rearrange(self.qkv(x), "b n (s h d) -> s b h n d", s=3, h=2)
                return einops.rearrange((q @ k.transpose(-2, -1)).softmax(-1) @ v, "b h n d -> b n (h d)")

        class Reduced(Zoo, shape=(2, 4, 6), pool=Reduce("b c (h 2) (w 2) -> b c h w", "max")):
            def forward(self, x: Any) -> Any:
                return einops.reduce(self.pool(x), "b c h w -> b c", "mean")

        class Repeated(Zoo, w=rows(3, 4, 2)):
            def forward(self, x: Any) -> Any:
                return einops.einsum(einops.repeat(torch.relu(x), "b d -> b n d", n=3), self.w, "b n d, n d o -> b n o")


_JUMPS = "it jumps where its operand crosses a limit; write choices with relu, clamp"


class Decisions:
    class Branch(Zoo, a=nn.Linear(4, 2), says=r"zoo\.py:{0}.*looks at values.*load the part .* that does not decide"):
        def forward(self, x: Any) -> Any:
            return self.a(x) if x.sum() > 0 else -self.a(x)

    class While(Zoo, a=nn.Linear(4, 4), says=r"zoo\.py:{1}.*looks at values"):
        def forward(self, x: Any) -> Any:
            x = self.a(x)
            while x.norm() > 1.0:
                x = x / 2.0
            return x

    class Early(Zoo, a=nn.Linear(4, 4), b=nn.Linear(4, 4), says=r"zoo\.py:{1}.*looks at values"):
        def forward(self, x: Any) -> Any:
            y = self.a(x)
            if bool((y.softmax(-1).max() > 0.9).item()):
                return y
            return self.b(y)

    class Choice(Zoo, says="2 operations have no exact translation(.|\n)*" + _JUMPS):
        def forward(self, x: Any) -> Any:
            return torch.where(x > 0, x, 0.1 * x)

    class TwoChoices(Zoo, says="4 operations have no exact translation"):
        def forward(self, x: Any) -> Any:
            return torch.where(x > 0, x, torch.where(x < -1, -x, 0 * x))

    class Comparison(Zoo, says=r"gt .*zoo\.py:{0}.*gt of shape .*" + _JUMPS):
        def forward(self, x: Any) -> Any:
            return x * (x > 0)

    class HardAttention(Zoo, shape=(3, 2), says="argmax of shape .*unknown operation|which elements it takes"):
        def forward(self, x: Any) -> Any:
            return x[:, x.sum(-1).argmax(1)]

    class Filter(Zoo, says="which elements it takes depends on their values"):
        def forward(self, x: Any) -> Any:
            return x[x > 0]

    class Quantised(Zoo, a=nn.Linear(4, 2), says="round of shape .*" + _JUMPS):
        def forward(self, x: Any) -> Any:
            return (self.a(x) * 16.0).round() / 16.0

    class FourSorted(Zoo, says="only the sorting of pairs"):
        def forward(self, x: Any) -> Any:
            return x.sort(-1)[0]

    class Places(Zoo, says="positions of sorted values"):
        def forward(self, x: Any) -> Any:
            return x[:, :2].sort(-1)[1].to(x.dtype) + x[:, :2]

    class OnlyPlaces(Zoo, says="positions of sorted values|rounds|float"):
        def forward(self, x: Any) -> Any:
            return x[:, :2].sort(-1).indices


class Unread:
    class Noise(Zoo, says="it is random; keep random numbers in a buffer"):
        def forward(self, x: Any) -> Any:
            return x + 0.1 * torch.randn_like(x)

    class Counts(Zoo, calls=torch.zeros(1), says="changes what the module holds"):
        def forward(self, x: Any) -> Any:
            self.calls += 1.0
            return x * self.calls

    class Tokens(Zoo, table=nn.Embedding(5, 4), says="takes whole numbers"):
        def forward(self, x: Any) -> Any:
            return self.table(x)

    class Bicubic(Zoo, says="interpolations only nearest"):
        def forward(self, x: Any) -> Any:
            return F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic")

    class Bilinearly(Zoo, shape=(1, 3, 4), says="only nearest is read; a transposed"):
        def forward(self, x: Any) -> Any:
            return F.interpolate(x, (6, 8), mode="bilinear")

    class Grid(Zoo, shape=(1, 3, 4), says="grid_sampler_2d .*unknown operation; load"):
        def forward(self, x: Any) -> Any:
            return F.grid_sample(x, torch.zeros(1, 2, 2, 2).to(x))

    class Spectrum(Zoo, says="fft_rfft|unknown operation"):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x).abs()

    class AnotherNorm(Zoo, says="linalg_vector_norm of shape .*: unknown operation"):
        def forward(self, x: Any) -> Any:
            return x.norm(p=3, dim=1)

    class OddPower(Zoo, says="of powers only 1, 2, 3.* and even ones"):
        def forward(self, x: Any) -> Any:
            return x**7

    class SeveralEnds(Zoo, says="returns a tuple"):
        def forward(self, x: Any) -> Any:
            return x, x

    class AxisOfANumber(Zoo, says="mean of shape .*: it is used in an"):
        def forward(self, x: Any) -> Any:
            return x.sum().mean(0).reshape(1)

    class LargestOfANumber(Zoo, says="amax of shape .*: it is used in an"):
        def forward(self, x: Any) -> Any:
            return x.sum().amax(0).reshape(1)

    class NotANumber(Zoo, w=torch.full((2, 4), math.nan), says="w: it holds 8 NaN"):
        def forward(self, x: Any) -> Any:
            return F.linear(x, self.w)
