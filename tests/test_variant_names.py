"""A variant costs one file: no other source file knows its name, but for the list in options.py."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from code_shape import files_naming, meant_as, names_of, parsed, string_constants
from variant_words import OTHER_MEANINGS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dpstride"
KINDS = names_of(ROOT)
MOST = 2  # the variant's own file, and options.py
ADAPTERS = ("denoising_diffusion_pytorch", "diffusers", "k_diffusion", "openai", "score_sde", "wavegrad")


@cache
def naming() -> dict[str, list[str]]:
    """The files that hold each name, parsed once."""
    from dpstride.cli import cli

    return files_naming(ROOT, {*(name for names in KINDS.values() for name in names), *ADAPTERS, *cli.commands})


@pytest.mark.parametrize("kind, name", [(kind, name) for kind, names in KINDS.items() for name in names])
def test_a_variants_name_is_known_to_its_own_file_and_the_list(kind: str, name: str) -> None:
    others = OTHER_MEANINGS.get(name, {})
    found = [path for path in naming()[name] if path not in others]
    assert len(found) <= MOST, f"the {kind} {name!r} is named by {found}; take the name from dpstride.options"
    assert "options.py" in found


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapters_name_is_known_to_its_own_file(name: str) -> None:
    assert (SOURCE / "integrations" / f"{name}.py").is_file()
    found = [path for path in naming()[name] if path not in OTHER_MEANINGS.get(name, {})]
    assert len(found) <= 1, f"the adapter {name!r} is named by {found}"


def test_a_verbs_name_is_known_to_its_own_file_and_one_list() -> None:
    """On the command line; `estimate`, `find`, `sample` and `solve` are functions of the library too."""
    from dpstride.cli import cli

    for name, paths in {name: naming()[name] for name in cli.commands}.items():
        found = [path for path in paths if path.startswith("cli/") or path.endswith("/command.py")]
        assert len(found) <= MOST, f"the verb {name!r} is named by {found}"


def test_other_meanings_are_still_there() -> None:
    """A word that is gone from a file must go from the list too, or the list would hide a new use of the name."""
    for name, files in OTHER_MEANINGS.items():
        assert set(files) <= set(naming()[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_of_another_meaning_is_not_the_variant_after_all(kind: str) -> None:
    """In a listed file, it is never compared with, given to or kept as something that is called after the kind."""
    for name in KINDS[kind]:
        for path in OTHER_MEANINGS.get(name, {}):
            assert name not in meant_as(kind, parsed(SOURCE / path)), f"{path} names the {kind} {name!r}"


def test_a_word_is_the_variant_where_its_kind_is_named() -> None:
    source = """
objective = "elbo"
def f(objective="mixed", unit="samples"): ...
f(objective="trajectory", kind="even")
if request.objective == "samples" or "karras" in strides or kind == "flow": ...
match found.objective:
    case "ays": ...
"""
    tree = ast.parse(source)
    assert meant_as("objective", tree) == {"elbo", "mixed", "trajectory", "samples", "ays"}
    assert meant_as("stride", tree) == {"karras"}


def test_every_name_is_a_file_of_its_own() -> None:
    for kind, folder in (
        ("variance", "variances"),
        ("decoder", "decoders"),
        ("sampler", "samplers"),
        ("training objective", "training/objectives"),
    ):
        for name in KINDS[kind]:
            assert (SOURCE / folder / f"{name}.py").is_file(), f"the {kind} {name!r} has no file {folder}/{name}.py"


def test_names_in_docstrings_do_not_count_and_all_others_do(tmp_path: Path) -> None:
    source = '"""ddim"""\n\ndef f():\n    """karras"""\n    return ["even"] if x == "ays" else "a b".split()\n'
    (tmp_path / "file.py").write_text(source, encoding="utf-8")
    assert string_constants(parsed(tmp_path / "file.py")) == {"even", "ays", "a b", "a", "b"}
