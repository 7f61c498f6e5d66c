"""Records of how a model behaved: old ones, other devices, rounding, damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edited_models import Net, denoiser_of, run

from dpstride import Denoiser, Statistics
from dpstride.runs.behaviour import Behaviour, sketch
from dpstride.runs.identity import OtherWorkError, check_identity
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics.artefact import KIND

pytestmark = pytest.mark.attack("edited models on resume, reuse and in workers")


# --- files without a record, and records -----------------------------------------------------------------------------------


def test_statistics_without_a_record_are_read_but_not_gone_on_from(
    tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    """As version 0.1.0 wrote them."""
    path = tmp_path / "old"
    run(denoiser_of(Net()), checkpoint=path)
    with KIND.read(path) as (tensors, metadata):
        del metadata["behaviour"]
    KIND.write(path, tensors, metadata)
    old = Statistics.load(path)
    assert old.behaviour is None
    message = r"does not say how its model behaved .*could be mixed in\. "
    with pytest.raises(OtherWorkError, match=message + "Give another output, or remove it"):
        run(denoiser_of(Net()), checkpoint=path)
    with pytest.raises(OtherWorkError, match=message + "Estimate without reuse"):
        run(denoiser_of(Net()), reuse=old)
    stopped(denoiser_of(Net()), tmp_path / "begun")
    (shard,) = (tmp_path / "begun.progress").glob("*.safetensors")
    arrays, header = read_arrays(shard)
    identity = json.loads(header["identity"])
    del identity["behaviour"], header["sha256"]
    write_arrays(shard, arrays, header | {"identity": json.dumps(identity)})
    with pytest.raises(OtherWorkError, match=message):
        run(denoiser_of(Net()), checkpoint=tmp_path / "begun")


def record(**changes: Any) -> Behaviour:
    known = run(denoiser_of(Net())).behaviour
    assert known is not None
    return Behaviour.from_dict(known.to_dict() | changes)


def test_another_device_may_round_more_and_is_named() -> None:
    here = record()
    moved = [[1.001 * number for number in each] for each in here.sketches]
    far = [[1.05 * number for number in each] for each in here.sketches]
    assert "differs by 0.001 of its size" in (here.difference(record(sketches=moved)) or "")
    assert here.difference(record(sketches=moved, device="cuda Some Card")) is None
    assert here.difference(record(sketches=moved, torch="99.0")) is None
    told = here.difference(record(sketches=far, device="cuda Some Card")) or ""
    assert "0.05 of its size" in told
    assert "may reach 0.01 (float32, on cuda Some Card with torch" in told
    assert here.difference(record(sketches=moved, rounding=3e-4)) is None  # measured: four times that is allowed


def test_rounding_cannot_add_up_over_runs() -> None:
    """Each run is compared with the first one's record, which goes on."""
    first = {"behaviour": record().to_dict()}
    steps = [{"behaviour": record(sketches=[[k * n for n in each] for each in record().sketches]).to_dict()}
             for k in (1.000006, 1.000012)]  # fmt: skip
    kept = check_identity("f", first, steps[0])
    assert kept == first
    with pytest.raises(OtherWorkError, match="behaves differently"):
        check_identity("f", kept, steps[1])


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [1.0]},
        {"t": "1"},
        {"rounding": float("nan")},
        {"rounding": 1e200},
        {"rounding": -1.0},
        {"sizes": [-1.0, 1.0, 1.0, 1.0]},
        {"precision": "int8"},
        {"sketches": [[0.0]] * 4},
        {"x": 1},
    ],
)
def test_a_damaged_record_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"record of a model's behaviour|, not"):
        record(**change)


@pytest.mark.parametrize("size", [1, 63, 64, 1000])
def test_a_sketch_keeps_distances(size: int) -> None:
    """Exactly up to 64 numbers; beyond, of 64 sums, to a fifth in the mean over pairs."""
    rng = np.random.default_rng(size)
    ratios = []
    for _ in range(40):
        a, b = rng.standard_normal((2, size))
        ratios.append(float(np.linalg.norm(np.subtract(sketch(a), sketch(b))) / np.linalg.norm(a - b)))
    assert np.mean(ratios) == pytest.approx(1.0, rel=1e-12 if size <= 64 else 0.05)
    assert min(ratios) > 0.6
