"""The experiments of a study, in the paper's order; each writes a file and resumes from that of an earlier run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..denoiser import Denoiser
from ..evaluate.ablation import REPEATS, ablate
from ..evaluate.comparison import Comparison, compare, usual_budgets
from ..evaluate.features.extractor import FeatureExtractor
from ..evaluate.frechet import too_few
from ..evaluate.sampling import Chain
from ..evaluate.stream import (
    Conditioning,
    ImageFeatures,
    Pictures,
    check_features,
    identity_of_samples,
    image_features,
    sample_features,
)
from ..options import BEST, COMPARED_STRIDES, DEFAULT_DECODER, DEFAULT_SAMPLER, CostOptions, Sampler
from ..pipeline import schedules_from
from ..runs.bars import progress_bar
from ..runs.execution import Execution
from ..runs.workers import current
from ..schedule import ScheduleSet
from ..statistics.artefact import Statistics
from ..statistics.data import Samples
from ..statistics.estimate import estimate_samples
from .agreement import agree
from .distances import DistanceMeter
from .plan import ALL, Plan, Point, choosing_steps, schedule_of
from .results import Distance, StudyResults

PATH_BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
KEEP = 64  # images of each path


@dataclass(frozen=True, eq=False)
class Study:
    """A model, its data, and the settings of the experiments.

    Args:
        denoiser: the model.
        choosing: samples for choosing the paths.
        scoring: held-out samples for scoring them.
        plan: result of `make_plan`.
        extractor: feature extractor for distances; None for no distances.
        reference: real images, uint8 [n, C, H, W], to measure distances from; the training images in the paper.
        heldout_images: other real images, for the distance that perfect samples would have.
        decode: function from samples to images in [−1, 1]; None if they are images in the data's range.
        variance: reverse variance of costs and of ancestral samples; the model's own when None.
        decoder: decoder of the costs.
        sampler: sampler, as for `sample`.
        eta: noise scale η of DDIM.
        seed: random seed for all noise.
        batch_size: samples per network pass.
        skip_nonfinite: leave out data samples for which the network gives NaN or infinity, and report how many.
        names: names of the data in the results.
        notes: further caveats for the results.
        run_id: id of the run, stored in all results.
    """

    denoiser: Denoiser
    choosing: Samples
    scoring: Samples
    plan: Plan
    extractor: FeatureExtractor | None = None
    reference: Tensor | None = None
    heldout_images: Tensor | None = None
    decode: Callable[[Tensor], Tensor] | None = None
    variance: Any = None
    decoder: Any = DEFAULT_DECODER
    sampler: Sampler = DEFAULT_SAMPLER
    eta: float = 0.0
    seed: int = 0
    batch_size: int = 64
    skip_nonfinite: bool = False
    names: tuple[str, str] = ("DATA", "held-out part of DATA")
    notes: tuple[str, ...] = ()
    run_id: str | None = None

    def run(
        self, folder: str | Path, say: Callable[[str], None] = lambda text: None, progress: bool = True
    ) -> StudyResults | None:
        """Run or resume every experiment in ``folder`` and write results.json; None outside the main process."""
        output = Path(folder)
        main = current().main
        if main:
            (output / "features").mkdir(parents=True, exist_ok=True)
        statistics = self._estimate(output / "statistics.safetensors", self.choosing, self.seed, progress, say=say)
        schedules = schedules_from(statistics, self.variance, self.decoder)
        if self.run_id is not None:
            schedules = replace(schedules, provenance={**schedules.provenance, "run": self.run_id})
        heldout = self._estimate(output / "heldout.safetensors", self.scoring, self.seed + 1, progress, say=say)
        comparison = replace(compare(schedules, heldout), run=self.run_id)
        notes = [*self.notes, *comparison.warnings]
        notes += [each.skipped_note for each in (statistics, heldout) if each.skipped]
        ablation = None
        if main:
            self._check(output / "features", schedules)
            schedules.save(output / "schedules.json")
            comparison.save(output / "comparison.json")
            if budgets := [budget for budget in usual_budgets(schedules.process.T) if budget in schedules]:
                ablation = ablate(
                    statistics,
                    heldout,
                    CostOptions.from_dict(schedules.options),
                    budgets,
                    seed=self.seed,
                    checkpoint=output / "ablation.json",
                    progress=progress,
                )
                notes += [ablation.note] if ablation.note else []
            say(f"Schedules, table and ablation of {len(self.choosing):,} samples are done.")
        distances, floor = self._distances(output / "features", schedules, comparison, progress, say=say)
        notes += self.few
        if not main:
            return None
        results = StudyResults(
            model=dict(comparison.model),
            process={"name": schedules.process.name, "kind": schedules.process.kind, "T": schedules.process.T},
            data=self._data(statistics, heldout),
            options=dict(comparison.options),
            settings={
                "sampler": self.sampler,
                "eta": self.eta,
                "seed": self.seed,
                "batch_size": self.batch_size,
                "ablation_repeats": REPEATS,
            },
            curves=comparison.curves,
            paths={K: schedules[K].times for K in PATH_BUDGETS if K in schedules},
            features=None if self.extractor is None else self.extractor.describe(),
            distances=tuple(distances),
            floor=floor,
            ablation=ablation,
            notes=tuple(dict.fromkeys(notes)),
            run=self.run_id,
        )
        scored = [(each.budget, each.bpd, each.frechet) for each in results.comparable if each.bpd is not None]
        results = replace(results, agreement=agree(scored) if scored else None)
        results.save(output / "results.json")
        return StudyResults.load(output / "results.json")  # with six digits, as in the file

    def _estimate(self, path: Path, data: Samples, seed: int, progress: bool, say: Callable[[str], None]) -> Statistics:
        indices = choosing_steps(self.denoiser.process) if data is self.choosing else None
        start = time.monotonic()
        how = Execution(seed, self.batch_size, progress, path, skip_nonfinite=self.skip_nonfinite)
        statistics = estimate_samples(self.denoiser, data, how, indices)
        say(f"{path}: statistics of {statistics.samples:,} samples, {time.monotonic() - start:.0f} s")
        return statistics

    def _data(self, statistics: Statistics, heldout: Statistics) -> dict[str, Any]:
        times = len(choosing_steps(self.denoiser.process))
        return {
            "choosing": {"name": self.names[0], **statistics.data, "seed": statistics.seed, "times": times},
            "heldout": {"name": self.names[1], **heldout.data, "seed": heldout.seed, "times": heldout.process.T},
            "reference": None if self.reference is None else {"name": self.names[0], "images": len(self.reference)},
        }

    # --- samples and distances -------------------------------------------------------------------------------------------

    @property
    def few(self) -> list[str]:
        """Warnings about numbers of images at which a Fréchet distance says little, known before anything is drawn."""
        if self.extractor is None or self.reference is None:
            return []
        dimension = self.extractor.dimension
        counts = sorted({point.measured for point in self.plan.points if point.scored})
        found = [too_few(count, dimension) for count in counts]
        found.append(too_few(len(self.reference), dimension, "real images"))
        asked = max(counts, default=0)
        found += [
            f"The path of all {each.budget:,} steps is sampled {each.measured:,} times, the others {asked:,} times: its "
            "Fréchet distance is too large in comparison (the bias falls as 1/samples); its kernel distance is unbiased."
            for each in self.plan.points
            if each.stride == ALL and 0 < each.measured < asked
        ]
        return [each for each in found if each]

    def _distances(
        self,
        folder: Path,
        schedules: ScheduleSet,
        comparison: Comparison,
        progress: bool,
        say: Callable[[str], None],
    ) -> tuple[list[Distance], Distance | None]:
        """Draw the samples of every point and measure those of scored points, with one set in memory at a time."""
        meter = floor = None
        reference = self._real(self.reference, folder / "reference.safetensors", progress)
        if self.extractor is not None:
            heldout = self._real(self.heldout_images, folder / "heldout.safetensors", progress)
            meter = None if reference is None else DistanceMeter(reference.features, folder / "distances.json")
            if meter is not None and heldout is not None and len(heldout.features) > 1:
                floor = meter.measure(heldout.features, "real", 0)
        distances = []
        evaluations, options = self.plan.sampling_evaluations, {"unit_scale": True, "smoothing": 0.05}
        with progress_bar(evaluations, "sample", "evaluation", progress, **options) as bar:
            for point in self.plan.points:
                start, made = time.monotonic(), _Count(bar)
                found = self._draw(point, schedules, folder, made)
                bar.update(point.evaluations - made.total)  # cached samples
                if meter is not None and found is not None and point.scored:
                    measured = meter.measure(found.features[: point.measured], point.stride, point.budget)
                    curve = comparison.curves[BEST if point.stride == ALL else point.stride]
                    bpd, error = curve.get(point.budget, (None, None))
                    distances.append(replace(measured, bpd=bpd, bpd_standard_error=error))
                took = f"{time.monotonic() - start:.0f} s" if made.total else "drawn before"
                with bar.external_write_mode():
                    say(f"{point.name}: {point.samples:,} samples, {took}")
        order = (*COMPARED_STRIDES, BEST, ALL)
        return sorted(distances, key=lambda each: (each.budget, order.index(each.stride))), floor

    def _real(self, images: Tensor | None, path: Path, progress: bool) -> ImageFeatures | None:
        """Features of real images; without an extractor, some images for display."""
        if images is None:
            return None
        if self.extractor is None:
            images = images[:KEEP]
        with progress_bar(len(images), "real images", shown=progress) as bar:
            return image_features(images, self.extractor or no_features(), path, keep=KEEP, update=_Count(bar))

    def _chain(self, point: Point, schedules: ScheduleSet) -> Chain:
        return Chain.along(
            self.denoiser, schedule_of(point, schedules), seed=self.seed, sampler=self.sampler, eta=self.eta
        )

    @property
    def _pictures(self) -> Pictures:
        """The conversion of samples to images, from the range of the data or of the decoder's output."""
        data_range = self.choosing.data_range
        return Pictures(KEEP, self.decode, (data_range.low, data_range.high) if self.decode is None else (-1.0, 1.0))

    def _check(self, folder: Path, schedules: ScheduleSet) -> None:
        """Refuse a folder with samples of other work before anything in it is overwritten."""
        conditioning = Conditioning.of(self.choosing, 1)
        for point in self.plan.points:
            if (path := folder / f"{point.name}.safetensors").is_file():
                chain, extractor = self._chain(point, schedules), self.extractor or no_features()
                check_features(path, identity_of_samples(chain, extractor, self._pictures, conditioning))

    def _draw(
        self, point: Point, schedules: ScheduleSet, folder: Path, update: Callable[[int], None]
    ) -> ImageFeatures | None:
        return sample_features(
            self._chain(point, schedules),
            self.extractor or no_features(),
            point.samples,
            folder / f"{point.name}.safetensors",
            pictures=self._pictures,
            batch_size=self.batch_size,
            conditioning=Conditioning.of(self.choosing, point.samples),
            update=update,
        )


class _Count:
    """Advances a progress bar and counts by how much, since a hidden bar does not."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.total = bar, 0

    def __call__(self, count: int) -> None:
        self.total += count
        self.bar.update(count)


def no_features() -> FeatureExtractor:
    """An extractor for samples that are only displayed."""
    return FeatureExtractor("none", "no distance", 1, "none", function=lambda images: torch.zeros(len(images), 1))
