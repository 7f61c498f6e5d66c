"""Schedules carry the shape of the samples that they were chosen for, so that another model's are refused for that reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dpstride
from small_network import IMAGES, denoiser_of, run

OTHERS = torch.randint(0, 256, (12, 3, 2), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
REFUSED = r"chosen for samples of shape \(2, 3\), and these have shape \(3, 2\): it belongs to another model\. Use"


def schedules(folder: Path) -> dpstride.ScheduleSet:
    dpstride.schedules_from(run(denoiser=denoiser_of())).save(folder / "schedules.json")
    return dpstride.ScheduleSet.load(folder / "schedules.json")


def test_they_are_in_the_file_and_refused_by_models_of_another_shape(tmp_path: Path) -> None:
    found = schedules(tmp_path)
    assert found.shape == found[4].shape == (2, 3)
    other = denoiser_of(shape=(3, 2))
    with pytest.raises(ValueError, match=REFUSED):
        dpstride.sample(other, found[4], n=2)
    with pytest.raises(ValueError, match=REFUSED):
        dpstride.bits_per_dim(other, OTHERS, found[4])
    with pytest.raises(ValueError, match=REFUSED):  # of a model that learns its shape from the data
        dpstride.bits_per_dim(denoiser_of(), OTHERS, found[4])
    heldout = run(data=OTHERS, denoiser=other)
    with pytest.raises(ValueError, match=REFUSED):
        dpstride.score(heldout, [found[4]])
    with pytest.raises(ValueError, match=REFUSED):
        dpstride.compare(found, heldout)


def test_their_own_model_takes_them(tmp_path: Path) -> None:
    found, denoiser = schedules(tmp_path), denoiser_of(shape=(2, 3))
    assert dpstride.sample(denoiser, found[3], n=2).shape == (2, 2, 3)
    assert dpstride.bits_per_dim(denoiser, IMAGES[:8], found[3]).samples == 8


def test_older_files_and_hand_made_paths_say_no_shape_and_are_taken(tmp_path: Path) -> None:
    schedules(tmp_path)
    path = tmp_path / "schedules.json"
    document = json.loads(path.read_text())
    del document["provenance"]["shape"]
    path.write_text(json.dumps(document))
    older = dpstride.ScheduleSet.load(path)
    assert older.shape is None
    other = denoiser_of(shape=(3, 2))
    assert dpstride.sample(other, older[3], n=1).shape == (1, 3, 2)
    stride = dpstride.even_stride(other.process, 3)
    assert stride.shape is None
    assert dpstride.sample(other, stride, n=1).shape == (1, 3, 2)


def test_trajectories_know_the_shape_too(tmp_path: Path) -> None:
    trajectory = dpstride.estimate_trajectory(denoiser_of(shape=(2, 3)), samples=2, progress=False)
    trajectory.save(tmp_path / "trajectory.safetensors")
    loaded = dpstride.Trajectory.load(tmp_path / "trajectory.safetensors")
    assert loaded.shape == trajectory.shape == (2, 3)
    assert dpstride.trajectory_schedules(loaded).shape == (2, 3)
