"""Every reader of the package: a good file of its kind, how it is damaged, and what is done with what it returns."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import draws
import mutations
import numpy as np
import pickle_mutations
from data_files import (
    IMAGE_NAMES,
    make_cifar,
    make_cifar_batch,
    make_hub,
    make_idx,
    make_images,
    make_npz,
    make_old_tensors,
    make_safetensors,
    make_tensors,
    read_hub,
    read_idx,
    read_named,
    use_data,
    use_hub,
)
from hypothesis import strategies as st
from model_files import (
    make_characters,
    make_dit,
    make_openai,
    make_own_scheduler,
    make_pipeline,
    make_scheduler,
    make_torchscript,
    make_training,
    make_zoo_model,
    read_characters,
    read_model,
    read_openai,
    read_own_scheduler,
    read_scheduler_file,
    read_torchscript_file,
    read_zoo_model,
    run_training,
    use_model,
    use_network,
    use_own_scheduler,
    use_tensors,
    use_training,
)
from result_files import (
    IMAGES,
    make_adaptive,
    make_comparison,
    make_features,
    make_front,
    make_masked,
    make_published,
    make_race,
    make_run,
    make_schedules,
    make_statistics,
    make_study,
    make_trajectory,
    read_adaptive,
    read_comparison,
    read_features,
    read_front,
    read_race,
    read_run,
    read_study,
    use_comparison,
    use_front,
    use_published,
    use_race,
    use_schedules,
    use_statistics,
    use_study,
    use_trajectory,
)

import dpstride

Mutation = Callable[[bytes], st.SearchStrategy[bytes]]


@dataclass(frozen=True)
class Reader:
    """``make(folder)`` writes good files, ``read(folder)`` reads them; ``targets`` says which are damaged, and how."""

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    use: Callable[[Any], Any]
    targets: dict[str, Mutation]
    share: int  # files of every 1000
    quick: int = 20  # files in `make test`
    names_the_file: bool = True


def blind(content: bytes) -> st.SearchStrategy[bytes]:
    return draws.damaged(content, content) | draws.NOISE


def both(known: Mutation) -> Mutation:
    """Two thirds knowing the format, which gets past the first check; one third blind."""
    return lambda content: st.one_of(known(content), known(content), draws.damaged(content, content))


def json_with(*names: str) -> Mutation:
    return both(lambda content: mutations.edited_json(content, names))


CODE_NAMES = ("auto_map", "custom_pipelines", "_class_name", "trust_remote_code", "unet", "vae", "../x", "scheduler")
WEIGHTS = "model/unet/diffusion_pytorch_model"
nothing: Callable[[Any], Any] = lambda _: None


READERS: dict[str, Reader] = {
    "masked statistics .safetensors": Reader(
        make_masked,
        lambda folder: dpstride.MaskedStatistics.load(folder / "a.safetensors"),
        lambda statistics: dpstride.masked_schedules(statistics, 2),
        {"a.safetensors": both(mutations.edited_safetensors)},
        share=40,
    ),
    "masked schedules.json": Reader(
        make_masked,
        lambda folder: dpstride.MaskedScheduleSet.load(folder / "schedules.json"),
        lambda schedules: [schedule.num_transfer_tokens([3]) for schedule in schedules],
        {"schedules.json": json_with("steps", "mask", "bits", "length")},
        share=40,
    ),
    "characters model": Reader(
        make_characters,
        read_characters,
        lambda model: model.describe(),
        {
            "model.safetensors": both(mutations.edited_safetensors),
            "dpstride.json": json_with("length", "width", "heads"),
        },
        share=40,
    ),
    "statistics .safetensors": Reader(
        make_statistics,
        lambda folder: [dpstride.Statistics.load(folder / f"{name}.safetensors") for name in "ab"],
        use_statistics,
        dict.fromkeys(("a.safetensors", "b.safetensors"), both(mutations.edited_safetensors)),
        share=90,
    ),
    "schedules.json": Reader(
        make_schedules,
        lambda folder: dpstride.ScheduleSet.load(folder / "schedules.json"),
        use_schedules,
        {"schedules.json": json_with("f_function", "steps", "mask", "bpd")},
        share=90,
    ),
    "comparison.json": Reader(
        make_comparison, read_comparison, use_comparison, {"comparison.json": json_with("dp", "name", "1")}, share=90
    ),
    "study results.json": Reader(
        make_study, read_study, use_study, {"results.json": json_with("dp", "name", "T", "samples")}, share=50
    ),
    "adaptive report": Reader(
        make_adaptive,
        read_adaptive,
        lambda report: report.sentence(),
        {"adaptive.json": json_with("2", "believed")},
        share=20,
    ),
    "trajectory .safetensors": Reader(
        make_trajectory,
        lambda folder: dpstride.Trajectory.load(folder / "a.safetensors"),
        use_trajectory,
        {"a.safetensors": both(mutations.edited_safetensors)},
        share=40,
    ),
    "front.json": Reader(make_front, read_front, use_front, {"front.json": json_with("2", "low", "steps")}, share=20),
    "race.json": Reader(
        make_race,
        read_race,
        use_race,
        {"race.json": json_with("entries", "heats", "enough", "lead", "steps")},
        share=40,
    ),
    "published.json": Reader(
        make_published,
        lambda folder: dpstride.PublishedSchedules.load(folder / "published.json"),
        use_published,
        {"published.json": json_with("timesteps", "sigmas", "training_steps", "3")},
        share=20,
    ),
    "run.json": Reader(make_run, read_run, nothing, {"run.json": json_with("command", "versions")}, share=20),
    "features .safetensors": Reader(
        make_features,
        read_features,
        nothing,
        {"a.safetensors": both(mutations.edited_safetensors)},
        share=20,
        quick=10,
    ),
    "data .npy": Reader(
        lambda folder: np.save(folder / "a.npy", IMAGES.numpy()),
        read_named("a.npy"),
        use_data,
        {"a.npy": both(mutations.edited_npy)},
        share=90,
    ),
    "data .npz": Reader(make_npz, read_named("a.npz"), use_data, {"a.npz": both(mutations.edited_npz)}, share=90),
    "data .pt": Reader(
        make_tensors, read_named("a.pt"), use_data, {"a.pt": both(pickle_mutations.edited_checkpoint)}, share=110
    ),
    "data .pt of old torch": Reader(
        make_old_tensors, read_named("a.pt"), use_data, {"a.pt": both(pickle_mutations.edited_old_checkpoint)}, share=50
    ),
    "TorchScript .pt": Reader(
        make_torchscript,
        read_torchscript_file,
        use_tensors,
        {"a.pt": both(pickle_mutations.edited_checkpoint)},
        share=50,
    ),
    "data .safetensors": Reader(
        make_safetensors,
        read_named("a.safetensors"),
        use_data,
        {"a.safetensors": both(mutations.edited_safetensors)},
        share=80,
    ),
    "folder of images": Reader(
        make_images,
        dpstride.read_data,
        use_data,
        dict.fromkeys(IMAGE_NAMES, both(mutations.edited_image)),
        share=120,
        quick=50,
    ),
    "data sets of the hub": Reader(
        make_hub,
        read_hub,
        use_hub,
        {
            "table/train.parquet": blind,
            "table/README.md": blind,
            "lines/train.json": blind,
        },
        share=40,
    ),
    "Fashion-MNIST .gz": Reader(
        make_idx,
        read_idx,
        nothing,
        dict.fromkeys(("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"), both(mutations.edited_idx)),
        share=60,
    ),
    "CIFAR .bin": Reader(
        make_cifar,
        read_named("data_batch_1.bin"),
        use_data,
        {"data_batch_1.bin": lambda content: draws.damaged(content, content)},
        share=30,
    ),
    "CIFAR Python batch": Reader(
        make_cifar_batch,
        read_named("data_batch_1"),
        use_data,
        {"data_batch_1": both(pickle_mutations.edited_pickle)},
        share=60,
    ),
    "OpenAI .pt": Reader(
        make_openai, read_openai, use_network, {"ema.pt": both(pickle_mutations.edited_checkpoint)}, share=60, quick=6
    ),
    "training checkpoint.pt": Reader(
        make_training,
        run_training,
        use_training,
        {"checkpoint.pt": both(pickle_mutations.edited_checkpoint)},
        share=40,
        quick=6,
    ),
    "scheduler config": Reader(
        make_scheduler,
        read_scheduler_file,
        nothing,
        {"scheduler_config.json": json_with("trained_betas", "variance_type", "use_flow_sigmas", "thresholding")},
        share=80,
        names_the_file=False,
    ),
    "diffusers folder": Reader(
        make_pipeline,
        read_model,
        use_model,
        {
            "model/model_index.json": json_with(*CODE_NAMES),
            "model/unet/config.json": json_with("auto_map", "num_layers", "quantization_config"),
            "model/scheduler/scheduler_config.json": json_with("trained_betas", "variance_type"),
            f"{WEIGHTS}.safetensors": both(mutations.edited_safetensors),
        },
        share=40,
        quick=8,
    ),
    "diffusers folder, latents": Reader(
        make_dit,
        read_model,
        use_model,
        {
            "model/model_index.json": json_with(*CODE_NAMES),
            "model/transformer/config.json": json_with("pos_embed_max_size", "num_layers", "patch_size"),
            "model/vae/config.json": json_with("layers_per_block", "sample_size"),
        },
        share=20,
        quick=3,
    ),
    "diffusers folder, .bin": Reader(
        lambda folder: make_pipeline(folder, safe=False),
        read_model,
        use_network,
        {f"{WEIGHTS}.bin": both(pickle_mutations.edited_checkpoint)},
        share=20,
        quick=4,
    ),
    "zoo folder": Reader(
        make_zoo_model,
        read_zoo_model,
        nothing,
        {"model/dpstride.json": json_with("process"), "model/unet/config.json": json_with("num_layers")},
        share=30,
        quick=5,
    ),
    "DPStrideScheduler folder": Reader(
        make_own_scheduler,
        read_own_scheduler,
        use_own_scheduler,
        {
            "scheduler_config.json": json_with("trained_betas", "variance_type"),
            "dpstride_scheduler.json": json_with("schedules", "config"),
            "dpstride_schedules.json": json_with("f_function"),
        },
        share=30,
        quick=8,
    ),
}


def restore(good: dict[str, bytes], folder: Path) -> None:
    """The good files again, and nothing else."""
    if not folder.exists():
        folder.mkdir(parents=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_symlink() or (path.is_file() and str(path.relative_to(folder)) not in good):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            shutil.rmtree(path)
    for name, content in good.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
