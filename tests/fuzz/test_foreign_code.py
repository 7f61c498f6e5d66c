"""Folders of diffusers that bring code along, name it, or ask for more than they hold: refused before anything is loaded."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")
import model_files

from dpstride.integrations.folders import check_index
from dpstride.integrations.loaded import LoadedModel, UnsupportedModelError
from dpstride.integrations.loading import load_model
from dpstride.reading.limits import UnreadableFileError
from dpstride.zoo.models import load_folder

pytestmark = pytest.mark.attack("files that bring code")

SOURCE = Path(model_files.ROOT) / "src" / "dpstride"
MARK = "open('{}', 'w').close()\n"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline")
    model_files.make_pipeline(folder)
    return folder / "model"


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    for path in good.rglob("*"):
        if path.is_file():
            target = tmp_path / "model" / path.relative_to(good)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return tmp_path / "model"


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def index_with(**entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "model_index.json", **entries)


def config_with(**entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "unet" / "config.json", **entries)


def scheduler_with(**entries: Any) -> Callable[[Path], None]:
    return lambda folder: change(folder / "scheduler" / "scheduler_config.json", **entries)


def code_in(place: str) -> Callable[[Path], None]:
    return lambda folder: (folder / place).write_text(MARK.format(folder.parent / "ran"))  # type: ignore[return-value]


def custom_component(folder: Path) -> None:
    code_in("unet/my_unet.py")(folder)
    index_with(unet=["my_unet", "UNet"])(folder)


def custom_pipeline(folder: Path) -> None:
    code_in("my_pipeline.py")(folder)
    index_with(_class_name=["my_pipeline", "Pipeline"])(folder)


def shards(folder: Path) -> None:
    (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"conv_in.weight": "../../../elsewhere.safetensors"}})
    )


def pickled_weights(folder: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return (open, (str(folder.parent / "ran"), "w"))

    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({"conv_in.weight": Runs()}, folder / "unet" / "diffusion_pytorch_model.bin")


def adapter(folder: Path) -> None:
    (folder / "unet" / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere/model"}')


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "an installed module": (index_with(unet=["subprocess", "Popen"]), r"the part 'unet' is \['subprocess', 'Popen'\]"),
    "a module of the folder": (custom_component, r"the part 'unet' is \['my_unet', 'UNet'\]"),
    "a pipeline of the folder": (
        custom_pipeline,
        r"\['my_pipeline', 'Pipeline'\] is not a pipeline that dpstride knows",
    ),
    "an unknown pipeline": (
        index_with(_class_name="OnnxPipeline"),
        "'OnnxPipeline' is not a pipeline that dpstride knows",
    ),
    "code named like a library": (
        code_in("unet/diffusers.py"),
        r"diffusers\.py: code next to a model's files is not run",
    ),
    "auto_map in the index": (
        index_with(auto_map={"AutoModel": "x.py"}),
        "'auto_map' names code that comes with the model",
    ),
    "auto_map of a part": (config_with(auto_map={"AutoModel": "evil--repo/x"}), "'auto_map' names code"),
    "a part outside": (index_with(**{"../unet": ["diffusers", "UNet2DModel"]}), "is not the name of a part"),
    "a part that is an object": (index_with(vae={"a": 1}), r"is \{.*\}, not \[library, class\]"),
    "shards outside": (shards, r"'\.\./\.\./\.\./elsewhere\.safetensors' is not the name of a file next to it"),
    "a pickle as weights": (pickled_weights, "no code in it is run: it names"),
    "an adapter": (adapter, "adapters are loaded from elsewhere"),
    "a million layers": (config_with(layers_per_block=10**6), "layers_per_block = 1000000, but its weights have only"),
    "endless steps": (
        scheduler_with(num_train_timesteps=10**12),
        "num_train_timesteps must be a whole number from 1 to",
    ),
    "a fraction of a step": (scheduler_with(num_train_timesteps=20.5), "num_train_timesteps must be a whole number"),
    "positions without bound": (config_with(patch_size=2, sample_size=10**6), "a table of too many positions"),
    "wider than its weights": (config_with(block_out_channels=[10**6, 10**6]), "could not load it"),
    "no numbers": (config_with(sample_size="large"), r"model: .*"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_brings_code_or_asks_too_much_is_refused(folder: Path, case: str) -> None:
    edit, match = REFUSED[case]
    edit(folder)
    with pytest.raises(UnsupportedModelError, match=match) as refusal:
        load_model(folder)
    assert str(folder) in str(refusal.value)
    assert not (folder.parent / "ran").exists()


def test_the_good_folder_is_read_with_either_kind_of_weights(folder: Path, tmp_path: Path) -> None:
    assert isinstance(load_model(folder), LoadedModel)
    model_files.make_pipeline(tmp_path / "bin", safe=False)
    assert list((tmp_path / "bin" / "model" / "unet").glob("*.bin"))
    model = load_model(tmp_path / "bin" / "model").denoiser
    x = torch.zeros(1, 1, 8, 8)
    with torch.inference_mode():
        # float32 kernels differ by where weights lie in memory
        torch.testing.assert_close(model(x, 3).x0_hat, load_model(folder).denoiser(x, 3).x0_hat, rtol=1e-5, atol=1e-6)


def test_parts_of_real_pipelines_pass() -> None:
    """The index of Stable Diffusion 1.5 as it is on the hub, in which the safety checker comes from a pipeline's module."""
    index = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.6.0",
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
        "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "image_encoder": [None, None],
        "requires_safety_checker": True,
        "text_encoder": ["transformers", "CLIPTextModel"],
    }
    check_index(index, ("StableDiffusionPipeline",), "here")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"process": "__init__"}, "a process of its own, '__init__'"),
        ({"process": "from_functions"}, "a process of its own"),
        ({"T": 10**12}, "T must be a whole number from 1 to 1,000,000"),
        ({"T": "20"}, "T must be a whole number"),
        ({"predicts": ["eps"]}, r"predicts is \['eps'\], not one of eps"),
        ({"clip": ["a", "b"]}, "clip must be null or"),
        ({"clip": [1.0]}, "do not describe a model"),
        ({"format": "\x1b[2J"}, r"format '\\x1b\[2J' is not"),
    ],
)
def test_a_zoo_folder_is_checked(tmp_path: Path, entries: dict[str, Any], match: str) -> None:
    model_files.make_zoo_model(tmp_path)
    load_folder(tmp_path / "model")
    change(tmp_path / "model" / "dpstride.json", **entries)
    with pytest.raises(UnreadableFileError, match=match):
        load_folder(tmp_path / "model")


# --- the rule, in the source ---------------------------------------------------------------------------------------------

FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}


def test_nothing_in_the_package_unpickles_or_trusts_remote_code() -> None:
    """By the source itself: no pickle but torch.save's own writing, no eval, no exec, and trust_remote_code never on.

    Whatever is loaded by diffusers is loaded from safetensors.
    """
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
                assert not {name.partition(".")[0] for name in names} & FORBIDDEN, where
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ("eval", "exec", "torch.load", "np.load", "numpy.load", "torch.jit.load"), where
                said = [each.value for each in node.keywords if each.arg in ("trust_remote_code", "allow_pickle")]
                assert all(ast.unparse(value) == "False" for value in said), where
                if name.endswith((".DiffusionPipeline.from_pretrained", "Model.from_pretrained")):
                    given = {keyword.arg: keyword.value for keyword in node.keywords}
                    assert ast.unparse(given["use_safetensors"]) == "True", where
