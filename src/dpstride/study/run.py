"""The experiments of a study, in the paper's order; each leaves a file, and finds what an earlier run left."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ..evaluate.ablation import REPEATS, ablate
from ..evaluate.comparison import TABLE_BUDGETS, Comparison, compare
from ..evaluate.frechet import TooFewSamplesWarning, frechet_distance
from ..evaluate.kernel_distance import kernel_distance
from ..pipeline import schedules_from
from ..schedule import ScheduleSet
from .agreement import agree
from .plan import ALL, Plan, Point, choosing_steps, schedule_of
from .results import Distance, StudyResults

if TYPE_CHECKING:
    from torch import Tensor

    from ..denoiser import Denoiser
    from ..evaluate.features.extractor import FeatureExtractor
    from ..evaluate.sampling import Sampler
    from ..evaluate.stream import ImageFeatures
    from ..statistics.artefact import Statistics
    from ..statistics.data import Samples

PATH_BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
KERNEL_PAIRS = 5000  # samples up to which every pair is used; beyond, subsets as in published values
KERNEL_SUBSET = 1000
KEEP = 64  # images of each path


@dataclass(frozen=True, eq=False)
class Study:
    """A model, its data and what is asked of them.

    Args:
        denoiser: the model.
        choosing: samples that choose the paths.
        scoring: held-out samples that score them.
        plan: from `make_plan`.
        extractor: what gives the features of distances, or None for no distances.
        reference: real images, uint8 [n, C, H, W], from which distances are taken; the training images in the paper.
        heldout_images: other real images, for the distance that perfect samples would have.
        decode: samples → images in [−1, 1], None where they are that.
        variance: reverse variance of costs and of ancestral samples; None is the model's own.
        decoder: of the costs.
        sampler: "ancestral" or "ddim".
        eta: noise of DDIM.
        seed: names all noise.
        batch_size: samples per network pass.
        skip_nonfinite: leave out samples of the data for which the network gives NaN or infinity, and say how many.
        names: how data are called in the results.
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
    decoder: Any = "upper"
    sampler: Sampler = "ancestral"
    eta: float = 0.0
    seed: int = 0
    batch_size: int = 64
    skip_nonfinite: bool = False
    names: tuple[str, str] = ("DATA", "held-out part of DATA")

    def run(
        self, folder: str | Path, say: Callable[[str], None] = lambda text: None, progress: bool = True
    ) -> StudyResults | None:
        """Do, or go on with, every experiment in ``folder`` and write results.json; None in helping processes."""
        from ..statistics.workers import current

        output = Path(folder)
        main = current().main
        if main:
            (output / "features").mkdir(parents=True, exist_ok=True)
        statistics = self._estimate(output / "statistics.safetensors", self.choosing, self.seed, progress, say)
        schedules = schedules_from(statistics, self.variance, self.decoder)
        heldout = self._estimate(output / "heldout.safetensors", self.scoring, self.seed + 1, progress, say)
        comparison = compare(schedules, heldout)
        notes = list(comparison.warnings)
        notes += [each.skipped_note for each in (statistics, heldout) if each.skipped]
        budgets = [budget for budget in TABLE_BUDGETS if budget in schedules and budget < schedules.process.T]
        ablation = None
        if main:
            schedules.save(output / "schedules.json")
            comparison.save(output / "comparison.json")
            ablation = ablate(statistics, heldout, schedules.options, budgets or schedules.budgets[-1:])
            notes += [ablation.note] if ablation.note else []
            say(f"Schedules, table and ablation of {len(self.choosing):,} samples are done.")
        distances, floor = self._distances(output / "features", schedules, comparison, notes, progress, say)
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
        )
        scored = [(each.budget, each.bpd, each.frechet) for each in results.comparable if each.bpd is not None]
        results = replace(results, agreement=agree(scored) if scored else None)
        results.save(output / "results.json")
        return results

    def _estimate(self, path: Path, data: Samples, seed: int, progress: bool, say: Callable[[str], None]) -> Statistics:
        from ..statistics.estimate import estimate

        steps = choosing_steps(self.denoiser.process) if data is self.choosing else None
        start = time.monotonic()
        statistics = estimate(
            self.denoiser,
            data,
            seed=seed,
            batch_size=self.batch_size,
            data_range=data.data_range,
            progress=progress,
            checkpoint=path,
            steps=steps,
            skip_nonfinite=self.skip_nonfinite,
        )
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

    def _distances(
        self,
        folder: Path,
        schedules: ScheduleSet,
        comparison: Comparison,
        notes: list[str],
        progress: bool,
        say: Callable[[str], None],
    ) -> tuple[list[Distance], Distance | None]:
        """Draw every point's samples and measure those that are to be measured."""
        reference = self._real(self.reference, folder / "reference.safetensors", progress)
        heldout = self._real(self.heldout_images, folder / "heldout.safetensors", progress)
        drawn: dict[Point, ImageFeatures | None] = {}
        with tqdm(
            total=self.plan.sampling_evaluations,
            desc="sample",
            unit="evaluation",
            unit_scale=True,
            smoothing=0.05,
            disable=None if progress else True,
            dynamic_ncols=True,
        ) as bar:
            for point in self.plan.points:
                start, made = time.monotonic(), _Count(bar)
                drawn[point] = self._draw(point, schedules, folder, made)
                bar.update(point.evaluations - made.total)  # what was there already
                took = f"{time.monotonic() - start:.0f} s" if made.total else "drawn before"
                with tqdm.external_write_mode():
                    say(f"{point.name}: {point.samples:,} samples, {took}")
        if reference is None:
            return [], None
        distances = []
        for point, found in drawn.items():
            if point.scored and found is not None:
                curve = comparison.curves["dp" if point.stride == ALL else point.stride]
                bpd, error = curve.get(point.budget, (None, None))
                distances.append(self._measure(point.stride, point.budget, found, reference, notes, bpd, error))
        floor = None
        if heldout is not None and len(heldout.features) > 1:
            floor = self._measure("real", 0, heldout, reference, notes, None, None)
        order = {"even": 0, "quadratic": 1, "dp": 2, ALL: 3}
        asked = max((point.samples for point in self.plan.points if point.scored), default=0)
        for every in (point for point in self.plan.points if point.stride == ALL and point.scored):
            if every.samples >= asked:
                continue
            notes.append(
                f"All {every.budget:,} steps were sampled {every.samples:,} times, the others {asked:,} times: its Fréchet "
                "distance is too large beside theirs, by what falls as 1/samples; its kernel distance is not."
            )
        return sorted(distances, key=lambda each: (each.budget, order[each.stride])), floor

    def _real(self, images: Tensor | None, path: Path, progress: bool) -> ImageFeatures | None:
        from ..evaluate.stream import image_features

        if images is None or self.extractor is None:
            return None
        with tqdm(total=len(images), desc="real images", disable=None if progress else True) as bar:
            return image_features(images, self.extractor, path, keep=KEEP, update=_Count(bar))

    def _draw(
        self, point: Point, schedules: ScheduleSet, folder: Path, update: Callable[[int], None]
    ) -> ImageFeatures | None:
        from ..evaluate.sampling import Chain
        from ..evaluate.stream import sample_features

        schedule = schedule_of(point, schedules)
        chain = Chain.along(self.denoiser, schedule, self.seed, None, self.sampler, self.eta)
        conditioning, fingerprint = self._conditioning(point.samples)
        return sample_features(
            chain,
            self.extractor or no_features(),
            point.samples,
            folder / f"{point.name}.safetensors",
            keep=KEEP,
            batch_size=self.batch_size,
            decode=self.decode,
            conditioning=conditioning,
            conditioning_fingerprint=fingerprint,
            update=update,
        )

    def _conditioning(self, samples: int) -> tuple[Any, str | None]:
        """That of the choosing data, over and over: samples are conditioned as real images are."""
        if self.choosing.conditioning is None:
            return None, None
        turned = [i % len(self.choosing) for i in range(samples)]
        return self.choosing.take(turned).conditioning, self.choosing.fingerprint

    def _measure(
        self,
        stride: str,
        budget: int,
        found: ImageFeatures,
        reference: ImageFeatures,
        notes: list[str],
        bpd: float | None,
        error: float | None,
    ) -> Distance:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TooFewSamplesWarning)
            frechet = frechet_distance(found.features, reference.features)
        notes += [str(each.message) for each in caught]
        counts = (len(found.features), len(reference.features))
        subset = KERNEL_SUBSET if max(counts) > KERNEL_PAIRS and min(counts) >= 2 * KERNEL_SUBSET else None
        kernel = kernel_distance(found.features, reference.features, subset)
        return Distance(
            stride=stride,
            budget=budget,
            samples=len(found.features),
            frechet=frechet,
            kernel=kernel.value,
            kernel_standard_error=kernel.standard_error,
            bpd=bpd,
            bpd_standard_error=error,
        )


class _Count:
    """Moves a progress bar on, and knows by how much (a bar that is not shown does not)."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.total = bar, 0

    def __call__(self, count: int) -> None:
        self.total += count
        self.bar.update(count)


def no_features() -> FeatureExtractor:
    """For samples that are only looked at."""
    import torch

    from ..evaluate.features.extractor import FeatureExtractor

    return FeatureExtractor("none", "no distance", 1, "none", lambda images: torch.zeros(len(images), 1))
