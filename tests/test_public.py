"""The public names, the order of the stages, and what importing the package costs, as architecture.md promises."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpstride

PACKAGE = Path(dpstride.__file__).parent
# architecture.md's stages; schedule stands below costs and solver, which make schedules.
STAGES = {
    "options": 0,
    "reading": 0,
    "runs": 0,
    "process_rules": 1,
    "process": 1,
    "fingerprint": 2,
    "calling": 2,
    "compiling": 2,
    "devices": 2,
    "given": 2,
    "denoiser": 2,
    "samplers": 3,
    "statistics": 3,
    "checking": 3,
    "fitted": 4,
    "schedule": 4,
    "paths": 4,
    "strides": 4,
    "variances": 5,
    "decoders": 5,
    "solver": 5,
    "objectives": 6,
    "adaptive": 6.5,
    "evaluate": 7,
    "masked": 7,
    "report": 8,
    "cli": 9,
}
ABOVE_ALL = {"pipeline", "finding", "racing", "study", "cli", "report", "__init__", "__main__"}
OUTSIDE = {"integrations", "training", "zoo"}  # not stages: the method works without them
# The one way up from a stage: schedules[32].for_diffusers(), schedules.plot() and their kin, methods that only delegate.
DELEGATES = {
    ("schedule.py", "dpstride.integrations.diffusers_code"),
    ("schedule.py", "dpstride.integrations.export"),
    ("schedule.py", "dpstride.report.notebook"),
    ("solver/__init__.py", "dpstride.report.notebook"),
    ("evaluate/comparison.py", "dpstride.report.notebook"),
    ("masked/schedule.py", "dpstride.integrations.llada"),
}
TORCH = {
    "reading",
    "fingerprint",
    "calling",
    "compiling",
    "devices",
    "given",
    "denoiser",
    "statistics",
    "runs",
    "checking",
    "evaluate",
    "masked",
    "finding",
    "racing",
    "study",
    "cli",
    *OUTSIDE,
}
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The folder or file right below the package: the stage."""
    return path.parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names of everything that a module imports, anywhere in it, with line numbers."""
    package = ("dpstride", *path.parts[:-1])
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import zoo` names a module, `from .zoo import x` a thing in one
            yield from ((f"{start}.{alias.name}", node.lineno) for alias in node.names)


def inside(path: Path) -> Iterator[tuple[str, str, int]]:
    """Parts of the package that a module imports, with the full name and the line."""
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] == "dpstride" and len(parts) > 1:
            part = PACKAGE / parts[1]
            if part.is_dir() or part.with_suffix(".py").is_file():
                yield parts[1], name, line


def loaded_after(code: str) -> set[str]:
    """Top-level modules in memory after running ``code`` in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", dpstride.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dpstride, name) is not None
    assert name in dir(dpstride)


def test_public_names_have_no_duplicates_and_unknown_ones_are_refused() -> None:
    assert len(set(dpstride.__all__)) == len(dpstride.__all__)
    with pytest.raises(AttributeError, match="module 'dpstride' has no attribute 'optimize'"):
        dpstride.optimize  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    """The lazy table and the TYPE_CHECKING block say the same."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(dpstride.__all__) - {"__version__"}


def test_every_public_name_says_what_it_is() -> None:
    for name in dpstride.__all__:
        if name != "__version__":
            assert (getattr(dpstride, name).__doc__ or "").strip(), name


# --- what is imported when -----------------------------------------------------------------------------------------------

HEAVY = {"torch", "numba", "scipy", "matplotlib", "diffusers", "numpy"}


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not loaded_after("import dpstride") & HEAVY


def test_the_help_of_the_command_line_imports_nothing_heavy() -> None:
    code = "import dpstride.cli\ntry:\n    dpstride.cli.main(['--help'])\nexcept SystemExit:\n    pass"
    assert not loaded_after(code) & (HEAVY - {"numpy"})


@pytest.mark.parametrize(
    "module",
    [
        "process",
        "schedule",
        "strides",
        "objectives.elbo",
        "solver",
        "statistics.artefact",
        "statistics.bins",
        "statistics.decoder",
        "masked.process",
        "masked.schedule",
        "masked.statistics",
        "masked.strides",
        "masked.costs",
    ],
)
def test_stages_of_numbers_work_without_torch(module: str) -> None:
    assert "torch" not in loaded_after(f"import dpstride.{module}")


def test_statistics_to_schedules_works_without_torch(tmp_path: Path) -> None:
    """Load, cost, solve, save: none of it needs the network's library."""
    import torch

    process = dpstride.ForwardProcess.linear(4)
    images = torch.randint(0, 256, (6, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    denoiser = dpstride.Denoiser(lambda x, time: torch.zeros_like(x), process)
    dpstride.estimate(denoiser, images, progress=False).save(tmp_path / "statistics")
    code = (
        "import dpstride\n"
        f"statistics = dpstride.Statistics.load({str(tmp_path / 'statistics')!r})\n"
        "for decoder in ('upper', 'optimal', 'respaced'):\n"
        "    dpstride.schedules_from(statistics, decoder=decoder)\n"
        f"dpstride.schedules_from(statistics).save({str(tmp_path / 'schedules.json')!r})"
    )
    assert "torch" not in loaded_after(code)
    assert dpstride.ScheduleSet.load(tmp_path / "schedules.json").budgets == [1, 2, 3, 4]


# --- the order of the stages -----------------------------------------------------------------------------------------------


def test_every_part_of_the_package_has_its_place() -> None:
    parts = {part_of(path) for path in MODULES}
    assert parts <= STAGES.keys() | ABOVE_ALL | OUTSIDE


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_stage_imports_only_stages_below_it(path: Path) -> None:
    """pipeline, cli and report may import all; integrations, training and zoo any stage; no stage below 8 imports them."""
    part = part_of(path)
    if part in ABOVE_ALL:
        return
    for imported, name, line in inside(path):
        where = f"{path}:{line} imports {imported}"
        if part in OUTSIDE:
            assert imported in STAGES.keys() | OUTSIDE | {"pipeline"}, where
        elif (str(path), name.rpartition(".")[0]) not in DELEGATES:
            assert imported in STAGES, where
            assert STAGES[imported] <= STAGES[part], where


def test_delegates_import_only_when_called() -> None:
    """At module level they would make a circle, and a stage that needs what stands outside the method."""
    for module, name in DELEGATES:
        tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
        top = {ast.unparse(node) for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
        assert not [line for line in top if name.rpartition("dpstride")[2].strip(".") in line]
    for module in {module for module, _ in DELEGATES}:
        package = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert not {"torch", "diffusers", "matplotlib"} & loaded_after(f"import dpstride.{package}")


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_torch_is_imported_only_where_networks_and_samples_are(path: Path) -> None:
    uses = [line for name, line in imports_of(path) if name.partition(".")[0] in ("torch", "torchvision")]
    assert not uses or part_of(path) in TORCH, f"{path}: torch in lines {uses}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_foreign_conventions_are_known_in_one_place(path: Path) -> None:
    """diffusers is imported by integrations, and by training and zoo, whose networks are diffusers'; accelerate starts
    networks there and spreads work here.
    """
    foreign = ("diffusers", "k_diffusion") if path.name == "workers.py" else ("diffusers", "accelerate", "k_diffusion")
    uses = [line for name, line in imports_of(path) if name.partition(".")[0] in foreign]
    assert not uses or part_of(path) in OUTSIDE, f"{path}: foreign library in lines {uses}"


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    assert not [path for path in MODULES if path.name in ("utils.py", "helpers.py", "misc.py", "common.py")]
