"""Every reader of the package: a good file of its kind, how it is damaged, and what is done with what it returns."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image

import dpstride
from dpstride import ForwardProcess

Mutation = Callable[[bytes], st.SearchStrategy[bytes]]
ROOT = Path(__file__).parents[2]
IMAGES = torch.randint(0, 256, (6, 1, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


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


# --- our own artefacts -------------------------------------------------------------------------------------------------


def denoiser(learned: bool = False) -> Any:
    def network(x: Any, time: Any) -> Any:
        estimate = 0.1 * x
        return torch.cat([estimate, estimate.tanh()], dim=1) if learned else estimate

    variance: Any = "learned_range" if learned else "posterior"
    return dpstride.Denoiser(network, ForwardProcess.linear(6), variance=variance, name="small")


def make_statistics(folder: Path) -> None:
    dpstride.estimate(denoiser(), IMAGES, progress=False).save(folder / "a.safetensors")
    dpstride.estimate(denoiser(learned=True), IMAGES, seed=1, progress=False).save(folder / "b.safetensors")


def use_statistics(found: list[Any]) -> None:
    for statistics in found:
        for decoder in ("upper", "optimal"):
            dpstride.schedules_from(statistics, decoder=decoder)


def make_schedules(folder: Path) -> None:
    statistics = dpstride.estimate(denoiser(), IMAGES, progress=False)
    dpstride.schedules_from(statistics, "optimal", "optimal").save(folder / "schedules.json")


def use_schedules(schedules: Any) -> None:
    from dpstride.evaluate.comparison import compare

    for schedule in schedules:
        assert schedule.times[-1] == 0.0
    assert schedules.best_budget in schedules
    schedules.within(0.1)
    repr(schedules)
    compare(schedules, dpstride.estimate(denoiser(), IMAGES[:2], seed=3, progress=False))


def make_masked(folder: Path) -> None:
    model = dpstride.MaskedDenoiser(lambda tokens: torch.zeros(*tokens.shape, 3), 3, 3, 6, name="small")
    statistics = dpstride.estimate_masked(model, np.zeros((2, 6), dtype=np.int64), progress=False)
    statistics.save(folder / "a.safetensors")
    dpstride.masked_schedules(statistics).save(folder / "schedules.json")


def make_characters(folder: Path) -> None:
    from dpstride.zoo.characters import Architecture, CharacterTransformer, save_characters

    save_characters(CharacterTransformer(Architecture(8, 8, 1, 2)), folder, {})


def read_characters(folder: Path) -> Any:
    from dpstride.zoo.characters import load_characters

    return load_characters(folder)


def make_comparison(folder: Path) -> None:
    from dpstride.evaluate.comparison import compare

    schedules = dpstride.schedules_from(dpstride.estimate(denoiser(), IMAGES, progress=False))
    compare(schedules, dpstride.estimate(denoiser(), IMAGES[:3], seed=3, progress=False)).save(
        folder / "comparison.json"
    )


def read_comparison(folder: Path) -> Any:
    from dpstride.evaluate.comparison import Comparison

    return Comparison.load(folder / "comparison.json")


def use_comparison(comparison: Any) -> None:
    from dpstride.report.text import comparison_table

    comparison_table(comparison)
    comparison.sentence()
    comparison.save("/dev/null")


def make_study(folder: Path) -> None:
    from dpstride.evaluate.ablation import Ablation
    from dpstride.study.agreement import Agreement
    from dpstride.study.results import Distance, StudyResults

    curve = {K: (4.0 / K, 0.1) for K in (1, 2, 6)}
    distance = Distance("dp", 2, 64, 3.0, 0.5, 0.1, 2.0, 0.1)
    StudyResults(
        model={"name": "small"},
        process={"T": 6, "name": "linear", "kind": "discrete"},
        data={"choosing": {"samples": 4, "seed": 0}, "heldout": {"samples": 4, "seed": 1}, "reference": {"images": 9}},
        options={"variance": "posterior", "decoder": "upper"},
        settings={"samples": 64, "sampler": "ancestral"},
        curves={"even": curve, "quadratic": curve, "dp": curve},
        paths={1: (6.0, 0.0), 2: (6.0, 2.0, 0.0)},
        features={"distance": "Fréchet distance", "name": "small features"},
        distances=(distance,),
        floor=distance,
        ablation=Ablation((2, 4), (1, 2), (((2.0, 1.0), (2.1, 1.1)), ((2.0, 1.0),)), "sample", 1.0),
        agreement=Agreement(0.9, 6, 5, 6),
        notes=("a note",),
    ).save(folder / "results.json")


def read_study(folder: Path) -> Any:
    from dpstride.study.results import StudyResults

    return StudyResults.load(folder / "results.json")


def use_study(results: Any) -> None:
    assert results.comparison.sentence()
    assert results.sentence is None or isinstance(results.sentence, str)
    from dpstride.report.tables import study_tables

    for table in study_tables(results):
        assert table.text()
        assert table.markdown()
        assert table.latex()


def make_adaptive(folder: Path) -> None:
    from dpstride.adaptive.report import AdaptiveReport, Regret

    report = AdaptiveReport(6, 4, (6, 3, 1), 2, 0.1, {2: Regret(0.01, 0.0, 0.05)}, "noise", 30)
    report.save(folder / "adaptive.json")


def read_adaptive(folder: Path) -> Any:
    from dpstride.adaptive.report import AdaptiveReport

    return AdaptiveReport.load(folder / "adaptive.json")


def make_trajectory(folder: Path) -> None:
    process = ForwardProcess.linear(6)
    denoiser = dpstride.Denoiser(lambda x, time: 0.5 * x, process, predicts="x0", shape=(1, 2, 2))
    dpstride.estimate_trajectory(denoiser, 2, checkpoint=folder / "a.safetensors", progress=False)


def use_trajectory(trajectory: Any) -> None:
    for sampler in ("ddim", "dpmpp_2m"):
        dpstride.solve(dpstride.trajectory_costs(trajectory, sampler))


def make_run(folder: Path) -> None:
    from dpstride.runs.record import Run

    Run.of(["find", "a", "b"], "a", "b", None).save(folder)


def read_run(folder: Path) -> Any:
    from dpstride.runs.record import Run

    return Run.load(folder / "run.json")


def make_front(folder: Path) -> None:
    from dpstride.report.front import Front, FrontPoint

    Front(
        5.0, {2: (FrontPoint(3.0, 3.1, 0.5, 0.0, 4.0, (4, 2, 0)), FrontPoint(3.2, 3.3, 0.2, 4.0, None, (4, 1, 0)))}
    ).save(folder)


def read_front(folder: Path) -> Any:
    from dpstride.report.front import Front

    return Front.load(folder / "front.json")


def use_front(front: Any) -> None:
    from dpstride.report.page.document import _front

    json.dumps(_front(front), allow_nan=False)


def make_features(folder: Path) -> None:
    from dpstride.evaluate.stream import FORMAT
    from dpstride.runs.storage import write_arrays

    arrays = {"features": np.random.default_rng(0).normal(size=(6, 3)), "images": IMAGES.numpy()}
    write_arrays(folder / "a.safetensors", arrays, {"format": FORMAT, "identity": '{"kind": "images"}'})


def read_features(folder: Path) -> Any:
    from dpstride.evaluate.stream import load_features

    return load_features(folder / "a.safetensors")


# --- data --------------------------------------------------------------------------------------------------------------


def read_named(name: str) -> Callable[[Path], Any]:
    return lambda folder: dpstride.read_data(folder / name)


def use_data(data: Any) -> None:
    from dpstride.statistics.data import Samples

    assert Samples.read(data).fingerprint


def make_npz(folder: Path) -> None:
    np.savez(folder / "a.npz", images=IMAGES.numpy(), class_labels=np.arange(6))


def make_tensors(folder: Path) -> None:
    torch.save({"images": IMAGES, "class_labels": torch.arange(6), "scale": torch.ones(6, 2).half()}, folder / "a.pt")


def make_old_tensors(folder: Path) -> None:
    saved = {"images": IMAGES, "class_labels": torch.arange(6)}
    torch.save(saved, folder / "a.pt", _use_new_zipfile_serialization=False)


def make_safetensors(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({"images": IMAGES, "class_labels": torch.arange(6)}, folder / "a.safetensors")


IMAGE_NAMES = ("a.png", "b.jpg", "c.bmp", "d.gif", "e.tif", "f.webp", "g.pgm", "h.ppm", "i.png", "j.tif")


def make_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for name in IMAGE_NAMES:
        image = Image.fromarray(pixels if name not in ("a.png", "g.pgm") else pixels[..., 0])
        if name == "i.png":
            image = image.convert("P")
        image.save(folder / name, **({"compression": "tiff_lzw"} if name == "j.tif" else {}))


def make_idx(folder: Path) -> None:
    pixels = bytes(range(256)) * 10
    (folder / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 10, 16, 16) + pixels)
    )
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 10) + pixels[:10])
    )


def read_idx(folder: Path) -> Any:
    from dpstride.zoo.idx import read_fashion_mnist

    return read_fashion_mnist("train", folder)


def make_cifar(folder: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    (folder / "data_batch_1.bin").write_bytes(rows.tobytes())


def make_cifar_batch(folder: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = {"batch_label": "training batch 1 of 5", "labels": [3, 0, 9, 1], "data": rows, "filenames": ["a.png"] * 4}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch, 2))


# --- models ------------------------------------------------------------------------------------------------------------


def small_unet() -> Any:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(8, 8),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        attention_head_dim=4,
    )


def make_pipeline(folder: Path, safe: bool = True) -> None:
    from diffusers import DDPMPipeline, DDPMScheduler

    DDPMPipeline(small_unet(), DDPMScheduler(20)).save_pretrained(folder / "model", safe_serialization=safe)


def make_dit(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    import pipelines
    from diffusers import DDIMScheduler

    pipelines.dit(DDIMScheduler(20)).save_pretrained(folder / "model")


def read_model(folder: Path) -> Any:
    from dpstride.integrations.loading import load_model

    return load_model(folder / "model")


def use_model(model: Any) -> None:
    """Not run: what a network of a damaged config computes is its author's affair (SECURITY.md)."""
    assert model.describe()
    assert model.denoiser.describe()


def use_network(model: Any) -> None:
    use_model(model)
    if model.denoiser.shape == (1, 8, 8):
        with torch.inference_mode():
            model.denoiser(torch.zeros(1, 1, 8, 8), 1)


def make_scheduler(folder: Path) -> None:
    from diffusers import DDIMScheduler

    DDIMScheduler(50).save_pretrained(folder)


def read_scheduler_file(folder: Path) -> Any:
    from dpstride.integrations.scheduler_config import read_scheduler
    from dpstride.reading.documents import read_json_object

    return read_scheduler(read_json_object(folder / "scheduler_config.json"))


def make_own_scheduler(folder: Path) -> None:
    from diffusers import DDPMScheduler

    from dpstride.integrations.diffusers_scheduler import DPStrideScheduler

    process = ForwardProcess.linear(1000).subset(range(0, 1001, 100))
    schedules = dpstride.ScheduleSet.of([dpstride.even_stride(process, K) for K in (2, 5)])
    config = DDPMScheduler(1000).config
    DPStrideScheduler.from_config(config, schedules=schedules).save_pretrained(folder)


def read_own_scheduler(folder: Path) -> Any:
    from dpstride.integrations.diffusers_scheduler import DPStrideScheduler

    return DPStrideScheduler.from_pretrained(folder)


def use_own_scheduler(scheduler: Any) -> None:
    scheduler.set_timesteps(2)
    scheduler.step(torch.zeros(1, 1, 2, 2), scheduler.timesteps[0], torch.zeros(1, 1, 2, 2))


def make_zoo_model(folder: Path) -> None:
    from dpstride.training.export import export_model
    from dpstride.training.objectives import setting_of

    export_model(small_unet(), ForwardProcess.linear(20), setting_of("simple"), folder / "model", {"seed": 0})


def read_zoo_model(folder: Path) -> Any:
    from dpstride.zoo.models import load_folder

    return load_folder(folder / "model")


OPENAI_FLAGS = (
    "--image_size 8 --num_channels 32 --num_res_blocks 1 --channel_mult 1 --attention_resolutions 8 --num_heads 2"
)


def make_openai(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "integrations"))
    from openai_network import Walk

    from dpstride.integrations.openai_flags import OpenAIFlags

    walk = Walk(OpenAIFlags.parse(OPENAI_FLAGS))
    walk(torch.zeros(1, 1, 8, 8), torch.zeros(1))
    torch.save(walk.state, folder / "ema.pt")


def read_openai(folder: Path) -> Any:
    from dpstride.integrations.openai import load_openai

    return load_openai(folder / "ema.pt", OPENAI_FLAGS)


TRAINING: dict[str, Any] = {"batch_size": 2, "channels": (8,), "steps": 4, "warmup": 1}


def run_training(folder: Path) -> Any:
    from dpstride.training.settings import TrainingSettings
    from dpstride.training.train import Run

    settings = TrainingSettings(objective="vlb", **TRAINING)
    return Run(IMAGES, folder, settings, ForwardProcess.cosine(8))


def make_training(folder: Path) -> None:
    run = run_training(folder)
    for _ in range(2):
        run.advance()
    run.evaluate()
    run.save()


def use_training(run: Any) -> None:
    run.advance()


def blind(content: bytes) -> st.SearchStrategy[bytes]:
    return mutations.damaged(content, content) | mutations.NOISE


def both(known: Mutation) -> Mutation:
    """Two thirds knowing the format, which gets past the first check; one third blind."""
    return lambda content: st.one_of(known(content), known(content), mutations.damaged(content, content))


def json_with(*names: str) -> Mutation:
    return both(lambda content: mutations.edited_json(content, names))


CODE_NAMES = ("auto_map", "custom_pipelines", "_class_name", "trust_remote_code", "unet", "vae", "../x", "scheduler")
WEIGHTS = "model/unet/diffusion_pytorch_model"
nothing: Callable[[Any], Any] = lambda _: None


def make_torchscript(folder: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, whose archives are still about
        torch.jit.script(torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))).save(folder / "a.pt")


def read_torchscript_file(folder: Path) -> Any:
    from dpstride.reading.torchscript import is_torchscript, read_torchscript

    return read_torchscript(folder / "a.pt") if is_torchscript(folder / "a.pt") else {}


def use_tensors(state: Any) -> None:
    assert all(isinstance(name, str) and float(value.double().sum()) is not None for name, value in state.items())


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
        make_tensors, read_named("a.pt"), use_data, {"a.pt": both(mutations.edited_checkpoint)}, share=110
    ),
    "data .pt of old torch": Reader(
        make_old_tensors, read_named("a.pt"), use_data, {"a.pt": both(mutations.edited_old_checkpoint)}, share=50
    ),
    "TorchScript .pt": Reader(
        make_torchscript, read_torchscript_file, use_tensors, {"a.pt": both(mutations.edited_checkpoint)}, share=50
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
        {"data_batch_1.bin": lambda content: mutations.damaged(content, content)},
        share=30,
    ),
    "CIFAR Python batch": Reader(
        make_cifar_batch,
        read_named("data_batch_1"),
        use_data,
        {"data_batch_1": both(mutations.edited_pickle)},
        share=60,
    ),
    "OpenAI .pt": Reader(
        make_openai, read_openai, use_network, {"ema.pt": both(mutations.edited_checkpoint)}, share=60, quick=6
    ),
    "training checkpoint.pt": Reader(
        make_training,
        run_training,
        use_training,
        {"checkpoint.pt": both(mutations.edited_checkpoint)},
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
        {f"{WEIGHTS}.bin": both(mutations.edited_checkpoint)},
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
