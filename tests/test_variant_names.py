"""A variant costs one file: no other source file knows its name, but for the list in options.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from code_shape import files_naming, names_of, parsed, string_constants

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dpstride"
KINDS = names_of(ROOT)
MOST = 2  # the variant's own file, and options.py
# Words that are names of other things too. Every file in which such a word means the other thing is listed with what it
# means there, so that a new use of the word must be judged.
KIND_OF_PROCESS = "the kind of a process, or data of any value"
PREDICTED = "what a network predicts"
OTHER_MEANINGS = {
    "continuous": dict.fromkeys(
        (
            "checking/run.py",
            "cli/options.py",
            "cli/sample.py",
            "evaluate/likelihood.py",
            "integrations/latents.py",
            "integrations/wavegrad.py",
            "process.py",
            "process_rules.py",
            "statistics/artefact.py",
            "training/objectives/flow.py",
            "training/objectives/terms.py",
            "training/settings.py",
            "training/train.py",
            "zoo/models.py",
        ),
        KIND_OF_PROCESS,
    ),
    "flow": {
        **dict.fromkeys(
            (
                "checking/kinds/readings.py",
                "denoiser.py",
                "integrations/diffusers_flow.py",
                "racing/diffusers_sampler.py",
                "statistics/coordinate.py",
                "training/objectives/terms.py",
                "zoo/models.py",
            ),
            PREDICTED,
        ),
        "report/page/document.py": "whether the page shows times of a flow",
    },
    "samples": dict.fromkeys(
        (
            "adaptive/report.py",
            "cli/evaluate.py",
            "cli/sample.py",
            "cli/sample_masked.py",
            "report/compare.py",
            "cli/study.py",
            "racing/halving.py",
            "racing/outcome.py",
            "racing/teacher.py",
            "racing/wish.py",
            "evaluate/comparison.py",
            "evaluate/frechet.py",
            "evaluate/stream.py",
            "finding/teacher.py",
            "finding/trajectory.py",
            "masked/comparison.py",
            "masked/costs.py",
            "masked/estimate.py",
            "finding/masked.py",
            "pipeline.py",
            "report/page/document.py",
            "report/study_figures.py",
            "runs/folder.py",
            "statistics/artefact.py",
            "statistics/identity.py",
            "statistics/rows.py",
            "statistics/trajectory.py",
            "statistics/trajectory_artefact.py",
            "study/results.py",
        ),
        "a number of samples, or samples themselves",
    ),
    "trajectory": {
        "statistics/trajectory.py": "the kind of a file of progress",
        "objectives/mixed.py": "one of the two parts of its costs",
    },
    "mixed": {"evaluate/features/inception.py": "the blocks of the network"},
    "even": {"masked/strides.py": "as many tokens in every round"},
    "log_snr": {"integrations/export.py": "a column of the table"},
    "diffusers": dict.fromkeys(
        (
            "integrations/forms.py",
            "integrations/folders.py",
            "integrations/parts.py",
            "runs/record.py",
            "zoo/library.py",
        ),
        "the package of that name, or the format to export to",
    ),
}
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
