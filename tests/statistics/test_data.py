"""Data as users have it: what is taken becomes exactly the levels it came from, what is not is refused with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from dpstride.statistics.artefact import DataRange
from dpstride.statistics.data import Samples

CPU = torch.device("cpu")
LEVELS = torch.arange(256, dtype=torch.uint8).reshape(4, 1, 8, 8)  # every level once
IMAGES = torch.randint(0, 256, (10, 2, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
LABELS = torch.arange(10)


def values_of(samples: Samples) -> Tensor:
    return samples.batch(0, len(samples), CPU, torch.float64).x


# --- 8-bit data --------------------------------------------------------------------------------------------------------


def test_uint8_levels_run_from_minus_1_to_1_in_steps_of_2_over_255() -> None:
    samples = Samples.read(LEVELS)
    torch.testing.assert_close(values_of(samples), LEVELS.double() / 127.5 - 1.0, rtol=0, atol=3e-16)
    batch = samples.batch(0, 4, CPU, torch.float64)
    assert batch.edge is not None
    assert batch.low_edge is not None
    assert batch.low_edge.flatten().nonzero().flatten().tolist() == [0]
    assert batch.edge.flatten().nonzero().flatten().tolist() == [0, 255]
    assert float(batch.x.min()) == -1.0
    assert float(batch.x.max()) == pytest.approx(1.0, abs=3e-16)
    assert (len(samples), samples.shape) == (4, (1, 8, 8))


SCALINGS = {
    "x / 127.5 - 1": lambda x: x / 127.5 - 1,
    "2 (x / 255) - 1": lambda x: 2 * (x / 255) - 1,
    "(x / 255 - 0.5) / 0.5": lambda x: (x / 255 - 0.5) / 0.5,  # torchvision's Normalize
    "(x - 127.5) / 127.5": lambda x: (x - 127.5) / 127.5,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_float_images_on_the_lattice_are_exactly_their_8_bits_again(scaling: str, dtype: torch.dtype) -> None:
    """Scaled in their own precision or rounded to it afterwards: the levels, hence all statistics, are the same."""
    for images in (SCALINGS[scaling](LEVELS.to(dtype)), SCALINGS[scaling](LEVELS.double()).to(dtype)):
        assert images.dtype == dtype
        found = Samples.read(images)
        assert torch.equal(found.values, LEVELS)
        assert found.fingerprint == Samples.read(LEVELS).fingerprint


def test_images_in_0_to_1_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"256 levels from -1 to 1, but a value is 0\.500 of a step off .* need 2 x - 1"
    ):
        Samples.read(LEVELS.float() / 255)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_images_off_the_lattice_are_refused_with_the_remedy(dtype: torch.dtype) -> None:
    """Resized images lie between levels; bfloat16 has 8 bits of its own and cannot hold 256 levels of [−1, 1]."""
    resized = torch.nn.functional.interpolate(LEVELS.float() / 127.5 - 1, scale_factor=2, mode="bilinear").to(dtype)
    with pytest.raises(
        ValueError, match=r"off its level\. Resized or augmented .* round them to 8 bits .*'continuous'"
    ):
        Samples.read(resized)


def test_images_in_0_to_255_as_floats_are_refused_with_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"values in \[-1, 1\], but the data spans \[0, 255\]\. Scale it .* x / 127\.5 - 1"
    ):
        Samples.read(LEVELS.float())


# --- other ranges --------------------------------------------------------------------------------------------------------


@given(st.integers(2, 3000), st.floats(-10, 10), st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_levels_with_their_own_range_as_numbers_and_as_values(n: int, low: float, width: float, seed: int) -> None:
    high = low + width
    option = ("levels", n, low, high)
    numbers = torch.randint(0, n, (3, 5), generator=torch.Generator().manual_seed(seed))
    by_number = Samples.read(numbers, data_range=option)
    expected = low + (high - low) * numbers.double() / (n - 1)
    torch.testing.assert_close(values_of(by_number), expected, rtol=1e-13, atol=1e-13)
    by_value = Samples.read(expected, data_range=option)
    assert torch.equal(by_value.values, by_number.values)
    edge = by_number.batch(0, 3, CPU, torch.float64).edge
    assert torch.equal(edge, (numbers == 0) | (numbers == n - 1))
    assert DataRange.parse(by_number.data_range.describe()) == by_number.data_range


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_level_numbers_of_any_integer_type(dtype: type) -> None:
    numbers = np.arange(12, dtype=dtype).reshape(3, 4)
    for data in (numbers, torch.from_numpy(numbers)):
        found = Samples.read(data, data_range=("levels", 12, 0, 1))
        np.testing.assert_array_equal(found.values.numpy(), numbers)


def test_sixteen_bit_images() -> None:
    numbers = np.array([[0, 1, 40000, 65535]], dtype=np.uint16)
    x = values_of(Samples.read(numbers, data_range=("levels", 65536, -1, 1)))
    np.testing.assert_allclose(x.numpy(), numbers / 32767.5 - 1.0, atol=3e-16)


def test_continuous_data_is_kept_as_it_is() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)) * 100
    samples = Samples.read(x, data_range="continuous")
    batch = samples.batch(1, 3, CPU, torch.float64)
    assert torch.equal(batch.x, x[1:3].double())
    assert (batch.edge, batch.low_edge) == (None, None)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("int8", r"data_range must be 'uint8', \('levels', n, low, high\) or 'continuous', not 'int8'"),
        (("levels", 1, 0, 1), r"needs n >= 2 and finite low < high, not \('levels', 1, 0, 1\)"),
        (("levels", 4, 1, 0), r"needs n >= 2 and finite low < high"),
        (("levels", 4, 0, float("inf")), r"needs n >= 2 and finite low < high"),
        (("levels", 4, float("nan"), 1), r"needs n >= 2 and finite low < high"),
        (("levels", 4), r"data_range must be"),
        (("levels", 4.5, 0, 1), r"data_range must be"),
        (None, r"data_range must be .* not None"),
    ],
)
def test_unknown_ranges_are_refused(option: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Samples.read(IMAGES, data_range=option)


# --- containers ------------------------------------------------------------------------------------------------------------


class Pictures(Dataset[Any]):
    """A data set as torchvision makes them: sample by sample, with or without a label."""

    def __init__(self, label: Any = None) -> None:
        self.label = label

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return IMAGES[i] if self.label is None else (IMAGES[i], self.label(i))


def generator(size: int = 4) -> Iterator[Tensor]:
    yield from IMAGES.split(size)


@pytest.mark.parametrize(
    "make",
    [
        lambda: IMAGES,
        lambda: IMAGES.numpy(),
        lambda: (IMAGES, None),
        lambda: Pictures(),
        lambda: TensorDataset(IMAGES),
        lambda: DataLoader(Pictures(), batch_size=3),
        lambda: DataLoader(TensorDataset(IMAGES), batch_size=3),
        lambda: generator(),
        lambda: list(IMAGES.split(7)),
        lambda: [part.numpy() for part in IMAGES.split(7)],
        lambda: Samples.read(IMAGES),
    ],
)
@pytest.mark.parametrize("count", [None, 1, 5, 10])
def test_every_container_gives_the_same_samples(make: Any, count: int | None) -> None:
    samples = Samples.read(make(), samples=count)
    assert torch.equal(samples.values, IMAGES[:count])
    assert samples.conditioning is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: (IMAGES, LABELS),
        lambda: (IMAGES.numpy(), LABELS.numpy()),
        lambda: Pictures(lambda i: i),
        lambda: Pictures(lambda i: torch.tensor(i)),
        lambda: TensorDataset(IMAGES, LABELS),
        lambda: DataLoader(Pictures(lambda i: i), batch_size=3),
        lambda: DataLoader(TensorDataset(IMAGES, LABELS), batch_size=4),
        lambda: ((IMAGES[i : i + 4], LABELS[i : i + 4]) for i in range(0, 10, 4)),
        lambda: [(IMAGES[:5], LABELS[:5]), (IMAGES[5:], LABELS[5:])],
    ],
)
def test_labels_travel_with_their_samples(make: Any) -> None:
    samples = Samples.read(make(), samples=9)
    assert torch.equal(samples.values, IMAGES[:9])
    assert torch.equal(samples.conditioning, LABELS[:9])
    assert torch.equal(samples.batch(2, 5, CPU, torch.float64).conditioning, LABELS[2:5])
    assert torch.equal(samples.take([7, 1]).conditioning, LABELS[[7, 1]])
    assert torch.equal(samples.take([7, 1]).values, IMAGES[[7, 1]])


@pytest.mark.parametrize(
    "make",
    [
        lambda named: (IMAGES, named),
        lambda named: [
            (IMAGES[part], {key: value[part] for key, value in named.items()}) for part in (slice(0, 3), slice(3, 10))
        ],
        lambda named: Pictures(lambda i: {key: value[i] for key, value in named.items()}),
    ],
)
def test_named_conditioning_and_text_travel_too(make: Any) -> None:
    text = [f"caption {i}" for i in range(10)]
    samples = Samples.read(make({"label": LABELS, "text": text}), samples=8)
    batch = samples.batch(6, 9, CPU, torch.float64).conditioning
    assert torch.equal(batch["label"], LABELS[6:8])
    assert batch["text"] == text[6:8]
    assert samples.take([4, 0]).conditioning["text"] == [text[4], text[0]]


def test_arrays_that_torch_cannot_take_directly() -> None:
    """Read-only (a memory map), another byte order, negative strides; an array of strings as conditioning."""
    array = IMAGES.numpy().copy()
    array.setflags(write=False)
    assert torch.equal(Samples.read(array).values, IMAGES)
    assert torch.equal(Samples.read(array[::-1]).values, IMAGES.flip(0))
    swapped = (array / 127.5 - 1).astype(">f4")
    text = np.array([f"caption {i}" for i in range(10)])
    samples = Samples.read((swapped, text))
    assert torch.equal(samples.values, IMAGES)
    assert samples.conditioning == list(text)


def test_a_long_generator_is_read_no_further_than_needed() -> None:
    read: list[int] = []

    def endless() -> Iterator[Tensor]:
        while True:
            read.append(len(read))
            yield IMAGES[:4]

    assert len(Samples.read(endless(), samples=6)) == 6
    assert len(read) == 2


# --- fingerprint -----------------------------------------------------------------------------------------------------------


def test_fingerprint_differs_when_anything_differs() -> None:
    changed = IMAGES.clone()
    changed[9, 1, 2] ^= 1
    prints = [
        Samples.read(data, data_range=option).fingerprint
        for data, option in (
            (IMAGES, "uint8"),
            (changed, "uint8"),
            (IMAGES.reshape(10, 3, 2), "uint8"),
            (IMAGES[:9], "uint8"),
            (IMAGES, ("levels", 256, 0, 1)),
            ((IMAGES, LABELS), "uint8"),
            ((IMAGES, LABELS.flip(0)), "uint8"),
            ((IMAGES, {"label": LABELS}), "uint8"),
            ((IMAGES, {"other": LABELS}), "uint8"),
            ((IMAGES, [str(i) for i in range(10)]), "uint8"),
        )
    ]
    assert len(set(prints)) == len(prints)


class Caption:
    def __init__(self, text: str) -> None:
        self.text = text


EMBEDDINGS = [torch.arange(5000.0) + i for i in range(10)]
CHANGED = [each.clone() for each in EMBEDDINGS]
CHANGED[3][2500] += 1e-3  # in the part that is left out when a tensor is printed


@pytest.mark.attack("edited models on resume, reuse and in workers")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (EMBEDDINGS, CHANGED),
        ({"a": EMBEDDINGS}, {"a": CHANGED}),
        ([e.numpy() for e in EMBEDDINGS], [e.numpy() for e in CHANGED]),
        (torch.ones(10, dtype=torch.int64), torch.ones(10, dtype=torch.int64).view(torch.float64)),
        (torch.zeros(10, 2, 3), torch.zeros(10, 3, 2)),
        (["1"] * 10, [1] * 10),
        ([("ab", "c")] * 10, [("a", "bc")] * 10),
        ([Caption("a")] * 10, [Caption("b")] * 10),
    ],
    ids=["tensors", "in a dict", "arrays", "bits", "shape", "kind", "parts", "objects"],
)
def test_fingerprints_differ_by_conditioning_of_every_kind(one: Any, other: Any) -> None:
    found = [Samples.read((IMAGES, conditioning)).fingerprint for conditioning in (one, other)]
    assert found[0] != found[1]


def test_objects_have_the_fingerprint_of_what_they_hold() -> None:
    """Not of where they lie in memory, by which no run would know the data again."""
    one, other = (Samples.read((IMAGES, [Caption(f"{i}") for i in range(10)])).fingerprint for _ in range(2))
    assert one == other


# --- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "option", "message"),
    [
        (IMAGES[:0], "uint8", r"data is empty: shape \(0, 2, 3\)\. Give at least one sample"),
        (torch.zeros(3, 0, dtype=torch.uint8), "uint8", r"data is empty: shape \(3, 0\)"),
        ([], "uint8", r"data is empty\. .* a generator can be read only once"),
        (iter(()), "uint8", r"data is empty"),
        (torch.zeros(5, dtype=torch.uint8), "uint8", r"\[samples, \*sample shape\], not \(5,\)\. Add a dimension"),
        (
            torch.tensor([[0.0], [float("nan")]]),
            "continuous",
            r"finite, but sample 1 holds NaN or infinity\. Remove it",
        ),
        (torch.tensor([[0.0], [float("inf")]]), "uint8", r"finite, but sample 1 holds NaN or infinity"),
        (
            IMAGES.long(),
            "uint8",
            r"takes uint8 data \(0 to 255\) or floats in \[-1, 1\], not torch\.int64\. Convert it",
        ),
        (IMAGES > 5, ("levels", 2, 0, 1), r"not torch\.bool"),
        (IMAGES, "continuous", r"'continuous' needs floating-point data, not torch\.uint8\. Convert it"),
        (IMAGES, ("levels", 16, 0, 1), r"Level numbers must lie in 0 … 15, but the data spans \d+ … \d+"),
        (-LABELS[:, None], ("levels", 16, 0, 1), r"Level numbers must lie in 0 … 15, but the data spans -9 … 0"),
        (torch.tensor([[2.0]]), ("levels", 4, 0, 1), r"values in \[0, 1\], but the data spans \[2, 2\]"),
        (torch.tensor([[0.5]]), ("levels", 4, 0, 1), r"4 levels from 0 to 1, but a value is 0\.500 of a step"),
        (np.array([["a"]]), "uint8", r"tensors or numeric arrays, not ndarray of dtype <U1"),
        (torch.zeros(2, 2, dtype=torch.complex64), "continuous", r"not Tensor of dtype torch\.complex64"),
        ([IMAGES, [1, 2, 3]], "uint8", r"tensors or numeric arrays, not list"),
        ([IMAGES, IMAGES[:, :1]], "uint8", r"one shape, but found \[\(1, 3\), \(2, 3\)\]"),
        ("images.npy", "uint8", r"an iterable of batches, not str\. Files and folders are read with dpstride"),
        (7, "uint8", r"an iterable of batches, not int"),
        ((IMAGES, LABELS[:9]), "uint8", r"one entry per sample: 10 samples, but 9 entries"),
        ((IMAGES, torch.tensor(3)), "uint8", r"one entry per sample: 10 samples, but a single value"),
        ((IMAGES, 3), "uint8", r"one entry per sample: 10 samples, but a single value"),
        ((IMAGES, {"a": LABELS, "b": LABELS[:2]}), "uint8", r"one entry per sample: 10 samples, but 2 entries"),
        ([(IMAGES, LABELS), (IMAGES, LABELS[:1])], "uint8", r"one entry per sample: 10 samples, but 1 entries"),
        ([(IMAGES, LABELS), IMAGES], "uint8", r"Conditioning must have the same keys in every batch"),
        ([IMAGES, (IMAGES, LABELS)], "uint8", r"Conditioning must have the same keys in every batch"),
        (
            [(IMAGES, {"a": LABELS}), (IMAGES, {"b": LABELS})],
            "uint8",
            r"Conditioning must have the same keys in every batch",
        ),
    ],
)
def test_bad_data_names_rule_value_and_remedy(data: Any, option: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Samples.read(data, data_range=option)


@pytest.mark.parametrize("data", [IMAGES, Samples.read(IMAGES), list(IMAGES.split(3)), Pictures()])
def test_more_samples_than_there_are_and_no_number_of_samples(data: Any) -> None:
    with pytest.raises(ValueError, match=r"samples = 11, but the data has only 10\. Give more data or ask for fewer"):
        Samples.read(data, samples=11)
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=r"samples must be a whole number of at least 1, or None for all, not"):
            Samples.read(data, samples=wrong)  # type: ignore[arg-type]


def test_samples_read_in_one_range_are_not_taken_for_another() -> None:
    samples = Samples.read(IMAGES, data_range=("levels", 256, 0, 1))
    assert Samples.read(samples) is samples
    with pytest.raises(ValueError, match=r"read as \['levels', 256, 0\.0, 1\.0\], not continuous"):
        Samples.read(samples, data_range="continuous")
