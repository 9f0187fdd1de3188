"""Wrong use of the command line: exit code 2, nothing printed, nothing written, and a message that says what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command import NETWORK, Command, silent

CASES = [
    ("bound nothing.npz", "nothing.npz does not exist"),
    ("bound model.pkl", "has the suffix '.pkl'; networks are read from"),
    ("bound silent.npz", "--activation relu"),
    ("bound silent.npz --activation rleu", "unknown activation 'rleu'; known are"),
    ("bound model.npz --activation relu", "says its activation is tanh"),
    ("bound model.npz --center zeros", "--center needs --radius"),
    ("bound model.npz --radius 1", "--radius needs --center"),
    ("bound model.npz --clip 0 1", "--clip needs a ball to clip"),
    ("bound model.npz --center zeros --radius 1 --box 0 1", "--box describes the whole region"),
    ("bound model.npz --center 1,2 --radius 1", "--center must have 3 numbers, as the network has"),
    ("bound model.npz --center 1 --radius 1", "--center must have 3 numbers"),
    ("bound model.npz --center a,b,c --radius 1", "--center must be numbers separated by commas"),
    ("bound model.npz --center c.npy --radius 1", "--center: there is no file c.npy"),
    ("bound model.npz --center broken.npy --radius 1", "--center: broken.npy is not a NumPy file"),
    ("bound model.npz --center named.csv --radius 1", "named.csv must hold numbers separated by"),
    ("bound model.npz --center empty.csv --radius 1", "empty.csv must hold numbers separated by"),
    ("bound model.npz --center model.npz --radius 1", "model.npz must hold one array, it holds"),
    ("bound model.npz --center complex.npy --radius 1", "complex.npy must hold real numbers, got comp"),
    ("bound model.npz --center wide.npy --radius 1", "wide.npy holds 2 points; say which, from 0"),
    ("bound model.npz --center nan,0,0 --radius 1", "center must be finite"),
    ("bound model.npz --center zeros --radius -1", "radius must be at least 0, got -1.0"),
    ("bound model.npz --center zeros --radius nan", "radius must be finite"),
    ("bound model.npz --center zeros --radius big", "Invalid value for '--radius'"),
    ("bound model.npz --box 1 0", "the limits are swapped"),
    ("bound model.npz --center 0,0,5 --radius 1 --clip 0 1", "center must lie inside clip"),
    ("bound model.npz --method exact", "unknown method 'exact'; known are closed-form,"),
    ("bound model.npz --inputs a", "--inputs must be whole numbers separated by commas"),
    ("bound model.npz --inputs 3", "inputs must be indices from 0 to 2"),
    ("bound model.npz --outputs 1,1", "outputs must not repeat an index"),
    ("bound model.npz --layers 1-2", "--layers must be P:I, as in 2:5; got '1-2'"),
    ("bound model.npz --layers 2:9", "layers must be (p, i) with 0 <= p < i <= 3"),
    ("bound model.npz --exact --method joint", "leave out --method"),
    ("bound model.npz --exact", "bounded region"),
    ("bound model.npz --seconds nan --method scalar", "must be above 0"),
    ("bound model.npz --seconds 0", "must be above 0"),
    ("bound model.npz --input-norm l7", "--input-norm must be one of l1, l2, linf"),
    ("bound model.npz --norm linf", "--norm is that of a ball"),
    ("bound model.npz --input-scale 1,2", "scale of 2 numbers for 3 coordinates"),
    ("bound model.npz --std 0", "std must be positive"),
    ("bind model.npz", "No such command 'bind'"),
    ("bound model.npz --raduis 1", "No such option: --raduis"),
    ("bound", "Missing argument 'MODEL'"),
    ("demo --save model.npz", "--save must name a new .npz file"),
    ("reach model.npz", "bounded region"),
    ("reach model.npz BALL --layer 9", "layer must be from 1 to 3"),
    ("reach model.npz BALL --plot reach.doc", "--plot must name a .png"),
    ("reach model.npz BALL --plot reach.png --axes 0,7", "two different ones from 0 to 2"),
    ("sensitivity model.npz BALL --inputs 5", "inputs must be indices from 0 to 2"),
    ("sweep model.npz --radii 1", "sweep needs --center"),
    ("sweep model.npz --center zeros", "sweep needs --radii, as in 1,0.5,0.1, or --from and --to"),
    ("sweep model.npz --center zeros --from 1", "or --from and --to"),
    ("sweep model.npz --center zeros --radii 1 --count 3", "leave out --from, --to and --count"),
    ("sweep model.npz --center zeros --radii one,two", "--radii must be numbers separated by commas"),
    ("sweep model.npz --center zeros --radii -1", "radius must be at least 0"),
    ("sweep model.npz --center zeros --from 2 --to 1", "0 < from <= to, got 2.0 and 1.0"),
    ("sweep model.npz --center zeros --from 1 --to 2 --count 0", "--count must be at least 1, got 0"),
    ("sweep model.npz --center zeros --radii 1 --seconds 0", "--seconds must be above 0"),
    ("sweep model.npz --center zeros --radii 1 --plot curve.gif", "--plot must name a .png, .pdf or .svg file"),
    ("robust model.npz nothing.npz --radii 1 OUT", "nothing.npz does not exist"),
    ("robust model.npz none.npz --radii 1 OUT", "none.npz"),
    ("robust model.npz empty.csv --radii 1 OUT", "empty.csv"),
    ("robust model.npz data.npz --radii x OUT", "--radii must be numbers"),
    ("robust model.npz data.npz --radii -1 OUT", "radii must be positive"),
    ("robust model.npz data.npz --radii 1 OUT --methods best", "unknown method 'best'"),
    ("robust model.npz data.npz --radii 1 OUT --workers 2 --dask x", "give one of them"),
    ("robust model.npz data.npz OUT", "--radii must say how large the balls are"),
    ("robust model.npz data.npz OUT --search --points 5:2", "points must name at least one"),
    ("robust model.npz data.npz OUT --search --points all", "--points must be a number or a range"),
    ("robust model.npz data.npz OUT --search --points 100:", "points must name at least one"),
    ("robust model.npz data.npz OUT --search --restarts 0", "restarts must be at least 1"),
    ("results model.npz", "not a results file"),
    ("results none.sqlite", "none.sqlite does not exist"),
]


@pytest.mark.parametrize(("line", "message"), CASES, ids=[line for line, _ in CASES])
def test_wrong_use_is_exit_code_2_and_a_message(lipcert: Command, line: str, message: str) -> None:
    silent(NETWORK)
    Path("broken.npy").write_bytes(b"not an array")
    Path("named.csv").write_text("x,y,z\n1,2,3\n")
    Path("empty.csv").write_text("")
    np.save("complex.npy", np.full(3, 1j))
    np.save("wide.npy", np.ones((2, 3)))
    np.savez("none.npz", x=np.zeros((0, 3)))
    before = set(Path().iterdir())
    line = line.replace("BALL", "--center 0.1,-0.2,0.3 --radius 0.5").replace("OUT", "--out a.sqlite")
    outcome = lipcert(*line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.words
    assert "Traceback" not in outcome.words
    assert set(Path().iterdir()) == before
