"""Files of arrays: they come back as they were written, and a flipped bit is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as st_numpy
from safetensors.numpy import load_file

from dpstride.runs.storage import DamagedFileError, read_arrays, write_arrays

ARRAYS = st_numpy.arrays(
    st.sampled_from(["<f8", ">f8", "f4", "f2", "i8", "i4", "u1", "u8", "?"]),
    st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@settings(max_examples=40)
@given(st.dictionaries(st.text("abc/.é", min_size=1), ARRAYS, max_size=4))
def test_arrays_come_back_and_the_library_agrees(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("storage") / "file"
    write_arrays(path, arrays, {"format": "mine"})
    found, header = read_arrays(path)
    assert header["format"] == "mine"
    for read in (found, load_file(path)):
        assert read.keys() == arrays.keys()
        for name, array in arrays.items():
            assert read[name].shape == array.shape
            np.testing.assert_array_equal(read[name], array)
    assert [inside.name for inside in path.parent.iterdir()] == ["file"]


def test_a_flipped_bit_of_any_byte_is_found_unless_it_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    arrays = {"a": np.linspace(0, 1, 5), "b": np.array([True, False])}
    write_arrays(path, arrays, {"format": "mine"})
    whole, header = path.read_bytes(), read_arrays(path)[1]
    found = harmless = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(bytes(damaged))
        try:
            read, read_header = read_arrays(path)
        except DamagedFileError:
            found += 1
            continue
        # The name of the checksum itself may have changed: whoever asks for one finds none.
        assert read_header == header or "sha256" not in read_header, place
        if "sha256" in read_header:
            for name, array in arrays.items():
                np.testing.assert_array_equal(read[name], array, strict=True)
            assert read.keys() == arrays.keys()
            harmless += 1
    assert found > 0.95 * len(whole)
    assert harmless < 10  # spaces that became other white space
