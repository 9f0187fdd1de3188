"""PyTorch modules in: options, kinds of calls, what is refused before anything is read, saved programs."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lipcert as lc
from lipcert.errors import InvalidInput, UnreadableModel

torch = pytest.importorskip("torch", reason="PyTorch is an extra")
from test_zoo import READ, fn, made, same  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from modules import GroupSort2, Wrapped  # noqa: E402 - needs PyTorch


def dense(*middle: Any) -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), *middle, nn.Linear(4, 2)).eval()


def test_the_shape_is_found_where_the_module_tells_it() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.ReLU(), nn.Linear(12, 2)).eval()
    assert lc.load(module).inputs == 12
    with pytest.raises(lc.InvalidInput, match=r"give input_shape, such as \(3, 32, 32\)"):
        lc.load(nn.Sequential(nn.Conv2d(1, 2, 3)).eval())
    with pytest.raises(lc.UnreadableModel, match=r"fails on an input of shape \(1, 3, 8, 8\)"):
        lc.load(nn.Sequential(nn.Conv2d(1, 2, 3)).eval(), input_shape=(3, 8, 8))
    with pytest.raises(lc.InvalidInput, match="positive sizes"):
        lc.load(nn.Linear(2, 2).eval(), input_shape=(0,))


def test_residual_streams_are_carried_at_their_own_width() -> None:
    """One copy of the stream (6) passes each activation, or the input (5) where that is enough."""
    module, shape = made(READ["PreActivation"]), (5,)
    assert lc.load(module, input_shape=shape).sizes == (5, 11, 14, 12, 15, 12, 15, 3)


def test_the_module_is_not_changed() -> None:
    module, shape = made(READ["Residual"]), (2, 6, 7)
    before = copy.deepcopy(module.state_dict())
    lc.load(module.float(), input_shape=shape)
    assert all(value.dtype == torch.float32 for value in module.state_dict().values() if value.is_floating_point())
    module.double()
    for key, value in before.items():
        assert torch.equal(module.state_dict()[key].to(value.dtype), value.float().to(value.dtype))


def test_a_module_without_parameters_has_the_precision_that_it_computes_in() -> None:
    assert lc.load(fn(lambda x: x @ torch.ones(4, 2)).eval(), input_shape=(4,))(np.ones(4)).tolist() == [4.0, 4.0]


def test_training_mode_is_refused() -> None:
    with pytest.raises(lc.UnreadableModel, match=r"training mode .*call module\.eval\(\)"):
        lc.load(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))


def test_every_offender_is_listed() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = s.norm(s.a(x))
        y = y * s.b(x)
        z = torch.lgamma(y)
        return F.softmax(torch.round(z), dim=1)

    module = Wrapped(forward, a=nn.Linear(4, 3), norm=nn.LayerNorm(3), b=nn.Linear(4, 3)).eval()
    with pytest.raises(lc.UnreadableModel) as caught:
        lc.load(module, input_shape=(4,))
    text = str(caught.value)
    assert text.startswith("2 operations have no exact translation")
    first = forward.__code__.co_firstlineno + 1
    for name, number, rest in (
        ("lgamma", first + 2, "lgamma of shape (1, 3): unknown operation"),
        ("round_1", first + 3, "round of shape (1, 3): it jumps where its operand"),
    ):
        assert f"  {name} (test_torch.py:{number}): {rest}" in text


def test_final_softmax_is_dropped_when_asked() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4))
    module = nn.Sequential(body, nn.Softmax(1)).double().eval()
    assert lc.load(module)(np.ones(3)).sum() == pytest.approx(1.0)
    network = lc.load(module, drop_softmax=True)
    x = np.ones(3)
    np.testing.assert_allclose(network(x), body(torch.from_numpy(x)).detach().numpy())
    with pytest.raises(lc.InvalidInput, match="not a softmax"):
        lc.load(body.eval(), drop_softmax=True)


def orthogonal(outputs: int, inputs: int) -> Any:
    layer = nn.Linear(inputs, outputs).double()
    nn.init.orthogonal_(layer.weight)
    return layer


@pytest.mark.parametrize("make", [READ["MaxMin"][0], GroupSort2, READ["SortedPairs"][0]])
def test_orthogonal_networks_that_sort_are_seen_to_be_1_lipschitz(make: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    parts = [orthogonal(20, 8), make(), orthogonal(20, 20), make(), orthogonal(20, 20), make(), orthogonal(5, 20)]
    module = nn.Sequential(*parts).eval()
    network = lc.load(module)
    same(network, module, (8,), jacobian=False)
    assert lc.certify(network, method=lc.Scalar()).bound <= 1.0 + 1e-6


def test_a_maximum_with_the_minimum_of_other_pairs_is_not_a_sorting() -> None:
    """Then both cannot be one rotation: max(a, b) and min(a, c) of (1, 0, 0) move by more than the input."""
    module = fn(lambda x: torch.cat([torch.maximum(x[:, :1], x[:, 1:2]), torch.minimum(x[:, :1], x[:, 2:])], 1)).eval()
    network = lc.load(module, input_shape=(3,))
    same(network, module, (3,), jacobian=False)
    assert lc.certify(network).bound >= math.sqrt(2.0) - 1e-9


class Mixed(nn.Module):
    """A mask, numbers with defaults, and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Any, mask: Any, scale: float = 2.0, flag: bool = True) -> Any:
        z = torch.relu(self.first(x)) * mask
        return {"logits": self.last(z) * scale if flag else z, "features": z}


def test_fixed_inputs_and_chosen_outputs() -> None:
    torch.manual_seed(1)
    module = Mixed().eval()
    mask = torch.tensor([1.0, 0.0, 0.5, 2.0])
    network = lc.load(module, fixed={"mask": mask.numpy()}, output="logits")
    x = torch.randn(1, 4)
    with torch.no_grad():
        np.testing.assert_allclose(network(x.numpy()[0]), module(x, mask)["logits"].numpy()[0], rtol=1e-5, atol=1e-6)
        other = lc.load(module, fixed={"mask": mask, "flag": False}, output="logits")
        np.testing.assert_allclose(other(x.numpy()[0]), module(x, mask)["features"].numpy()[0], rtol=1e-5, atol=1e-6)
    assert module.first.weight.requires_grad
    assert not module.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes 2 inputs .x, mask.; a network has one: give the others as fixed"),
        ({"fixed": {"mask": torch.ones(4)}}, "a dict with 'logits', 'features'.*choose one with output"),
        ({"fixed": {"mask": torch.ones(4)}, "output": "nope"}, "there is no output 'nope' in it"),
        ({"fixed": {"nask": 1.0}}, "fixed names nask; forward takes x, mask, scale, flag"),
        ({"fixed": {"mask": object()}}, "must be an array, a tensor, a number"),
        ({"fixed": [1]}, "fixed must be a dictionary"),
        ({"fixed": {"mask": torch.ones(4)}, "output": 1.5}, "output must be the name or the number"),
    ],
)
def test_fixed_inputs_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises((UnreadableModel, InvalidInput), match=message):
        lc.load(Mixed().eval(), **options)


@dataclass
class Output:
    logits: Any
    features: Any


def test_tuples_dataclasses_spare_arguments_and_sizes() -> None:
    class Free(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
            if x.dim() != 2 or x.shape[1] != 4 or len(x) < 1:
                raise ValueError("wrong shape")
            y = self.layer(x) + torch.zeros(x.shape[0], 3) + x.size(0)
            return Output(y if mask is None else y * mask, x)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x).view(x.shape[0], -1), x

    module = Free().eval()
    network = lc.load(module, input_shape=(4,), output="logits")
    x = torch.randn(1, 4)
    with torch.no_grad():
        np.testing.assert_allclose(network(x.numpy()[0]), module(x).logits.numpy()[0], rtol=1e-5, atol=1e-6)
    assert lc.load(Both().eval(), output=0).outputs == 3
    assert lc.load(Both().eval(), output=1).outputs == 4


def test_a_module_that_looks_at_sizes_beyond_the_input_still_faces_the_comparison() -> None:
    """Sizes are those of a batch of one; what is read is what runs."""

    class Batch(nn.Module):
        def forward(self, x: Any) -> Any:
            return 2.0 * x if x.shape[0] == 1 else x

    network = lc.load(Batch().eval(), input_shape=(3,))
    assert network(np.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_old_weight_norm_is_read_and_left_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2)).eval()
    before = module[0].weight
    same(lc.load(module), module, (3,), near=1e-5)
    assert module[0].weight.shape == before.shape
    assert list(module[0]._forward_pre_hooks.values())


def test_quantised_modules_are_refused_with_a_sentence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), {nn.Linear})
    with pytest.raises(UnreadableModel, match=r"quantised parts \(0.*pass the module as it was before"):
        lc.load(module)


def test_saved_programs_are_read_and_run_nothing(tmp_path: Path) -> None:
    module, path = (
        dense(nn.GELU(), fn(lambda x: torch.cat([x[:, :2].relu_(), x[:, 2:] * torch.ones(2).double().to(x)], 1))),
        tmp_path / "m.pt2",
    )
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3),)), path)
    same(lc.load(path), module, (3,), near=1e-5)
    members = zipfile.ZipFile(path)
    content = {name: members.read(name) for name in members.namelist()}
    graph = next(name for name in content if name.endswith("model.json"))
    config = next(name for name in content if name.endswith("weights_config.json"))

    def swapped(name: str, old: bytes, new: bytes) -> dict[str, bytes]:
        assert old in content[name]
        return {**content, name: content[name].replace(old, new)}

    for odd, reason in (
        (
            swapped(graph, b"aten.gelu.default", b"aten.from_file.default"),
            "unknown operations: torch.ops.aten.from_file",
        ),
        (swapped(graph, b"torch.ops.aten.gelu.default", b"torch.load"), "unknown operations: torch.load"),
        (swapped(graph, b'{"as_int": 3}', b'{"as_expr": {"expr_str": "print(1)"}}'), "its sizes vary"),
        (swapped(graph, b"builtins.dict", b"collections.defaultdict"), "more than tuples, lists and dictionaries"),
        (swapped(config, b'"use_pickle": false', b'"use_pickle": true'), "pickled objects"),
        ({**content, "m/data/constants/opaque_obj_0": b""}, "unknown member"),
        ({**content, graph: b"{"}, "is no exported program"),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, data in odd.items():
                file.writestr(name, data)
        with pytest.raises(UnreadableModel, match=reason):
            lc.load(path)


def test_exported_programs_are_read() -> None:
    module = dense(nn.GELU())
    for sizes, dynamic in ((1, None), (2, ({0: torch.export.Dim("batch")},))):
        program = torch.export.export(module, (torch.zeros(sizes, 3),), dynamic_shapes=dynamic)
        same(lc.load(program), module, (3,), near=1e-5)
        same(lc.load(program.module(), input_shape=(3,)), module, (3,), near=1e-5)


class TwoInputs(nn.Module):
    def forward(self, x: Any, z: Any) -> Any:
        return torch.cat([x, z], 1)


def test_a_fixed_value_without_its_batch() -> None:
    with pytest.raises(lc.UnreadableModel, match="with a batch of one where it has one"):
        lc.load(TwoInputs().eval(), input_shape=(4,), fixed={"z": np.zeros(3)})


@pytest.mark.parametrize("question", [lc.certify, lc.reach, lc.lower_bound, lc.sensitivity])
def test_a_module_in_the_place_of_a_network(question: Any) -> None:
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        question(nn.Linear(4, 2), lc.Ball([0.0] * 4, 0.1))
    with pytest.raises(lc.InvalidInput, match=r"got Linear; read it with lipcert\.load"):
        lc.certified_radius(nn.Linear(4, 2), [0.0] * 4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("package", "call"), [("torch", "'model.pt2'"), ("onnx", "'model.onnx'")])
def test_a_missing_extra_says_what_to_install(package: str, call: str, tmp_path: Path) -> None:
    for name in ("model.pt2", "model.onnx"):
        (tmp_path / name).touch()
    code = f"import sys; sys.modules['{package}'] = None\nimport lipcert\nlipcert.load({call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert f'pip install "lipcert[{package}]"' in done.stderr
    assert "LipcertError" in done.stderr
