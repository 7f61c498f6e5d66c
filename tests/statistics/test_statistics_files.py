"""Files of statistics: round trips, and every way to damage one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from dpstride import ForwardProcess, Statistics, StatisticsFileError, estimate
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics import artefact
from small_network import KINDS, PROCESS, assert_identical, denoiser_of, run

Array = NDArray[Any]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["linear", "thinned", "rectified_flow", "ve"])
def test_every_field_comes_back_from_its_file(kind: str, learned: bool, name: str, tmp_path: Path) -> None:
    process = {
        "linear": PROCESS,
        "thinned": PROCESS.subset([2, 5]),
        "rectified_flow": ForwardProcess.rectified_flow(3),
        "ve": ForwardProcess.ve([0.0, 0.5, 7.0]),
    }[name]
    saved = run(kind, denoiser=denoiser_of(learned, process, name="mine"), seed=5, samples=6)
    path = tmp_path / "new folder" / "statistics.safetensors"
    saved.save(path)
    loaded = Statistics.load(path)
    assert_identical(loaded, saved)
    assert loaded.process.fingerprint == saved.process.fingerprint
    assert (loaded.process.name, loaded.process.kind) == (saved.process.name, saved.process.kind)
    assert loaded.data_range == saved.data_range
    assert (loaded.model, loaded.data, loaded.version) == (saved.model, saved.data, saved.version)
    assert loaded.model["name"] == "mine"
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no temporary file stays


def test_levels_with_their_own_range_come_back(tmp_path: Path) -> None:
    data = torch.arange(12).reshape(4, 3)
    saved = estimate(denoiser_of(clip=(0, 2)), data, data_range=("levels", 12, 0, 2), progress=False)
    saved.save(tmp_path / "s")
    assert Statistics.load(tmp_path / "s").data_range == artefact.DataRange(12, 0.0, 2.0)


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("statistics") / "whole"
    run(learned=True, samples=4).save(path)
    return path.read_bytes()


def test_a_truncated_file_is_refused_wherever_it_was_cut(whole_file: bytes, tmp_path: Path) -> None:
    header = 8 + int.from_bytes(whole_file[:8], "little")
    cuts = {0, 1, 7, 8, 9, header - 1, header, header + 1, len(whole_file) - 1}
    cuts |= {int(c) for c in np.linspace(10, len(whole_file) - 2, 60)}
    path = tmp_path / "cut"
    for cut in sorted(cuts):
        path.write_bytes(whole_file[:cut])
        with pytest.raises(
            StatisticsFileError,
            match=r"cut: not a whole safetensors file .* not a statistics file, or it is truncated or damaged",
        ):
            Statistics.load(path)
    path.write_bytes(whole_file)
    Statistics.load(path)


def test_a_flipped_bit_is_found_wherever_it_is(whole_file: bytes, tmp_path: Path) -> None:
    """What is still read is what was written: white space of the header may change and mean the same."""
    header = 8 + int.from_bytes(whole_file[:8], "little")
    path, expected = tmp_path / "flipped", run(learned=True, samples=4)
    places = [*range(0, header, 5), *np.linspace(header, len(whole_file) - 1, 100).astype(int).tolist()]
    read = 0
    for place in places:
        damaged = bytearray(whole_file)
        damaged[place] ^= 1 << (place % 7)
        path.write_bytes(bytes(damaged))
        try:
            found = Statistics.load(path)
        except StatisticsFileError:
            continue
        assert_identical(found, expected)
        read += 1
    assert read < 10


def test_a_damaged_file_tells_the_remedy(whole_file: bytes, tmp_path: Path) -> None:
    damaged = bytearray(whole_file)
    damaged[-4] ^= 1
    (tmp_path / "flipped").write_bytes(bytes(damaged))
    with pytest.raises(StatisticsFileError, match=r"flipped: its contents do not match its checksum\. .*remove it and"):
        Statistics.load(tmp_path / "flipped")


def rewrite(
    source: Path,
    target: Path,
    header: dict[str, str] | None = None,
    metadata: dict[str, Any] | None = None,
    change: Callable[[dict[str, Array]], Any] = lambda tensors: None,
) -> None:
    """A file with other contents and the checksum that belongs to them."""
    tensors, found = read_arrays(source)
    change(tensors)
    if metadata is not None:
        found["metadata"] = json.dumps(json.loads(found["metadata"]) | metadata)
    del found["sha256"]
    write_arrays(target, tensors, found | (header or {}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"header": {"format": "pt"}}, r"format 'pt' is not 'dpstride-statistics'; it is not a statistics file"),
        ({"header": {"format_version": "1"}}, r"format version 1 is not 2; estimate again .* version that wrote it"),
        ({"header": {"metadata": "{"}}, r"not a valid statistics file"),
        ({"header": {"metadata": "[]"}}, r"not a valid statistics file"),
        ({"header": {"metadata": "{}"}}, r"not a valid statistics file \(KeyError\('process'\)\)\. It is damaged"),
        ({"change": lambda tensors: tensors.pop("evaluated")}, r"KeyError\('evaluated'\)"),
        ({"metadata": {"data_range": "int7"}}, r"not a valid statistics file .*data_range must be"),
        ({"metadata": {"dims": "many"}}, r"not a valid statistics file"),
        (
            {"metadata": {"data": {"samples": 10**15}}},
            r"squared_error has shape \(10, 4\), not \(10, 1000000000000000\)",
        ),
        ({"metadata": {"data": {"samples": 4, "skipped": [7]}}}, r"not a valid statistics file"),
        ({"metadata": {"data": {"samples": 4, "skipped": "all"}}}, r"not a valid statistics file"),
        (
            {"change": lambda tensors: tensors.pop("squared_error")},
            r"not a valid statistics file \(KeyError\('squared_error'\)\)",
        ),
        ({"change": lambda tensors: tensors.pop("residual_bins.bins")}, r"KeyError\('residual_bins\.bins'\)"),
        (
            {"change": lambda tensors: tensors.update(decoder_upper=tensors["decoder_upper"][1:])},
            r"decoder_upper has shape \(9, 4\), not \(10, 4\)",
        ),
        (
            {"change": lambda tensors: tensors.update({"process.g": tensors["process.g"][::-1].copy()})},
            r"not a valid statistics file .*clean data",
        ),
        (
            {
                "change": lambda tensors: tensors.update(
                    {"residual_bins.offsets": tensors["residual_bins.offsets"][::-1].copy()}
                )
            },
            r"not a valid statistics file",
        ),
    ],
)
def test_other_formats_versions_and_contents_are_refused(
    changes: dict[str, Any], message: str, whole_file: bytes, tmp_path: Path
) -> None:
    (tmp_path / "whole").write_bytes(whole_file)
    rewrite(tmp_path / "whole", tmp_path / "changed", **changes)
    with pytest.raises(StatisticsFileError, match=message):
        Statistics.load(tmp_path / "changed")


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("once upon a time " * 100)
    with pytest.raises(StatisticsFileError, match="not a whole safetensors file"):
        Statistics.load(tmp_path / "text")
    save_file({"weight": np.zeros(3)}, tmp_path / "model")
    with pytest.raises(StatisticsFileError, match=r"format None is not 'dpstride-statistics'"):
        Statistics.load(tmp_path / "model")
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StatisticsFileError, match="there is no such file"):
            Statistics.load(missing)


def test_statistics_of_one_process_are_not_used_with_another() -> None:
    statistics = run()
    statistics.check_process(ForwardProcess.linear(9))
    for other in (ForwardProcess.cosine(9), ForwardProcess.linear(8), PROCESS.subset([3, 9])):
        with pytest.raises(
            ValueError, match=r"estimated on the process 'linear' \(T = 9.*not on .*Estimate them again"
        ):
            statistics.check_process(other)
