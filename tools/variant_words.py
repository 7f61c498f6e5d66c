"""Names of variants that also have other meanings: the files in which each has another meaning, and that meaning.

`code_shape.py` and tests/test_variant_names.py skip these files when they count the files that name a variant.
"""

from __future__ import annotations

# Every file in which a word has another meaning is listed with that meaning, so that each new use has to be judged.
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
        "report/page/document.py": "a fact about the page: it shows times of a flow",
    },
    "samples": dict.fromkeys(
        (
            "adaptive/report.py",
            "cli/evaluate.py",
            "cli/find.py",
            "cli/sample.py",
            "cli/sample_masked.py",
            "report/compare.py",
            "report/race_page.py",
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
        "statistics/trajectory_artefact.py": "the name of such a file",
        "objectives/mixed.py": "one of the two parts of its costs",
    },
    "mixed": {"evaluate/features/inception.py": "the blocks of the network"},
    "even": {"masked/strides.py": "the same number of tokens in every round"},
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
