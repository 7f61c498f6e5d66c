"""What a release promises: versions agree, ranges are those that are tested, archives hold the package and install.

Archives are made from a copy of the repository, the wheel from the sdist, so that neither finds more than a user has.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import dpstride
from test_docs import blocks_of, commands_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NEEDED = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md")
LARGEST = 32_000_000  # bytes of a wheel
RELEASE = pytest.mark.skipif(not os.environ.get("DPSTRIDE_RELEASE"), reason="make test-newest")

# --- versions ---------------------------------------------------------------------------------------------------------


def requirements_of(*extras: str) -> list[Requirement]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    found = [Requirement(line) for lines in lists for line in lines]
    return [requirement for requirement in found if requirement.name != "dpstride"]


def pinned_in(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(package): version for package, version in pairs}


def test_the_versions_of_test_lowest_are_the_floors_of_pyproject() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"dev"}  # what checks the code, in one version
    floors: dict[str, set[Version]] = {}
    for requirement in requirements_of(*sorted(extras)):
        bounds = {bound.operator: bound.version for bound in requirement.specifier}
        assert ">=" in bounds, f"{requirement} has no lowest version"
        floors.setdefault(canonicalize_name(requirement.name), set()).add(Version(bounds[">="]))
    pinned = {name: {Version(version)} for name, version in pinned_in("constraints-lowest.txt").items()}
    assert {name: pinned.get(name) for name in floors} == floors


def test_the_versions_of_make_are_in_the_ranges_of_pyproject() -> None:
    pinned = pinned_in("constraints.txt")
    for requirement in requirements_of(*PROJECT["optional-dependencies"]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["version"] == dpstride.__version__ == citation["version"]


def test_the_changelog_and_the_citation_have_one_date_or_none() -> None:
    """`## Unreleased: 0.2.0` until it is released, then `## 0.2.0, 2026-11-30`."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    released = citation.get("date-released")
    assert newest[1] == (f"{dpstride.__version__}, {released}" if released else f"Unreleased: {dpstride.__version__}")


def test_every_change_stands_once_and_under_a_topic() -> None:
    changes: dict[str, str] = {}
    topic = ""
    for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines():
        if line.startswith(("#", "**")):
            topic = "" if line.startswith("## ") else line
        elif line.startswith("- "):
            assert topic, f"under no topic: {line}"
            assert line not in changes, f"under {changes[line]} and {topic}: {line}"
            changes[line] = topic
    assert changes


def test_the_citation_has_what_readers_of_the_format_ask_for() -> None:
    """Required keys of Citation File Format 1.2.0, and of its references; dates as it writes them."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["license"] == PROJECT["license"]
    for reference in [citation, *citation["references"]]:
        assert reference["authors"]
        assert all(
            {"name"} == set(author) or {"family-names", "given-names"} == set(author) for author in reference["authors"]
        )
    assert all({"type", "title", "authors"} <= set(reference) for reference in citation["references"])


# --- archives ---------------------------------------------------------------------------------------------------------


def build(kind: str, source: Path, target: Path) -> Path:
    """An archive as pip has it made, by the setuptools that is installed."""
    target.mkdir()
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(target)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = target.iterdir()
    return archive


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "copy" / "src", ignore=ignored)
    for name in NEEDED:
        shutil.copy(ROOT / name, folder / "copy")
    return build("sdist", folder / "copy", folder / "archive")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", folder / f"dpstride-{dpstride.__version__}", folder / "archive")


def files_of_the_package() -> set[str]:
    paths = (path for path in (ROOT / "src" / "dpstride").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert {name for name in names if ".dist-info/" not in name} == files_of_the_package()
    assert wheel.stat().st_size <= LARGEST


def test_the_sdist_holds_the_package_and_what_it_is_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {Path(*Path(member.name).parts[1:]).as_posix() for member in archive if member.isfile()}
    own = {name for name in names if ".egg-info/" not in name and name not in ("PKG-INFO", "setup.cfg")}
    assert own == {f"src/{name}" for name in files_of_the_package()} | set(NEEDED)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it, which borrows the packages that the wheel depends on."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (packages,) = folder.glob("lib/*/site-packages")
    # Of a folder that a .pth file names no .pth file is read: an editable dpstride beside these packages stays unseen.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


def run_in(folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment | {"MPLBACKEND": "Agg"}, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_the_ten_lines_of_the_readme_run_where_only_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    (block,) = (block for block in blocks_of(ROOT / "README.md") if block.language == "python")
    (tmp_path / "ten_lines.py").write_text(block.text + "print(dpstride.__file__)\n", encoding="utf-8")
    printed = run_in(tmp_path, str(installed / "python"), "-W", "error", "ten_lines.py").splitlines()
    assert re.fullmatch(r"32 steps: \d+\.\d\d ± \d+\.\d\d bits/dim at \(200, .*, 0\)", printed[-2])
    assert Path(printed[-1]).is_relative_to(installed.parent)
    assert run_in(tmp_path, str(installed / "dpstride"), "--version").split()[-1] == dpstride.__version__


MODEL = """
import torch
import dpstride

process = dpstride.ForwardProcess.linear(T=48)
f, g = torch.tensor(process.f), torch.tensor(process.g)

def network(x, time):
    f_t, g_t = f[time + 1].reshape(-1, 1, 1, 1), g[time + 1].reshape(-1, 1, 1, 1)
    return (f_t * 0.1 / (f_t**2 * 0.1 + g_t**2)) * x

def denoiser():
    return dpstride.Denoiser(network, process, predicts="x0", shape=(1, 8, 8), name="linear")
"""


@RELEASE
def test_the_commands_of_the_readme_run_where_only_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "my_model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "images").mkdir()
    values = np.random.default_rng(0).normal(127.5, 40, (64, 8, 8)).round().clip(0, 255).astype(np.uint8)
    for number, value in enumerate(values):
        Image.fromarray(value).save(tmp_path / "images" / f"{number:02}.png")
    shown = [
        words for block in blocks_of(ROOT / "README.md") if block.language == "sh" for words, _ in commands_of(block)
    ]
    commands = [words for words in shown if words[0] == "dpstride"]
    assert {words[1] for words in commands} >= {"find", "tune", "export"}
    for words in [*commands, ["dpstride", "demo", "-o", "demo"]]:
        run_in(tmp_path, str(installed / words[0]), *words[1:])
    for name in (
        "out/schedules.json",
        "out/report.html",
        "fast/report.html",
        "tuned/report.html",
        "demo/bits_per_dim.png",
    ):
        assert (tmp_path / name).is_file(), name
