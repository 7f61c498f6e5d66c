"""Stage 8. Figures of a race: distances against the number of steps, and samples from the same noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import strides
from ..options import DEFAULT_OBJECTIVE, EVEN, KARRAS, STRIDES, TRAJECTORY
from ..racing.finish import INTERVAL, OURS, REFERENCE
from ..racing.outcome import Race
from ..reading.text import printable
from .figures import save_figure
from .images import save_samples

OTHERS = ("#E69F00", "#56B4E9", "#CC79A7", "#F0E442")  # for schedules without a colour of their own
PICTURED = (OURS, EVEN, KARRAS)
REAL = "samples_real.png"
OTHER_WORDS = {OURS: "raced", DEFAULT_OBJECTIVE: "best for the ELBO", TRAJECTORY: "best for the trajectory"}


def save_race(race: Race, folder: str | Path) -> list[Path]:
    """Write distances.svg and .png, and sample grids if samples are images; return their paths."""
    target = Path(folder)
    files = save_figure(target / "distances", (8.2, 4.2), lambda figure: draw_distances(figure.add_subplot(), race))
    for (name, budget), images in race.finish.images.items():
        if name in (*PICTURED, REFERENCE) and len(images):
            files.append(target / grid_name(name, budget))
            save_samples(images / 1.0, files[-1], 0.0, 255.0)
    if len(race.real):
        files.append(target / REAL)
        save_samples(race.real / 1.0, files[-1], 0.0, 255.0)
    return files


def grid_name(name: str, budget: int) -> str:
    """The file of the samples of a schedule."""
    return f"samples_{budget}_steps{'' if name == OURS else f'_{name}'}.png"


def words_of(name: str) -> str:
    """A measured schedule by name, in words."""
    return strides.find(name).words if name in STRIDES else OTHER_WORDS.get(name) or printable(name, 60)


def draw_distances(axes: Any, race: Race) -> None:
    """Draw the distance of every schedule from real data at the numbers of steps that were measured for all."""
    budgets = [heat.budget for heat in race.heats]
    names = list(dict.fromkeys(name for name, _ in race.finish.entries))
    spare = iter(OTHERS)
    for place, name in enumerate(names):
        entries = [race.finish.entries[name, K] for K in budgets if (name, K) in race.finish.entries]
        axes.errorbar(
            # side by side, so that intervals do not hide each other
            [each.budget * 1.02 ** (place - len(names) / 2) for each in entries],
            [race.scale * each.distance for each in entries],
            yerr=[race.scale * INTERVAL * each.standard_error for each in entries],
            capsize=2,
            linewidth=2.0 if name == OURS else 1.0,
            **_style(name, spare),
        )
    reference = race.finish.reference
    axes.axhline(
        race.scale * reference.distance, color="0.6", linewidth=0.8, zorder=0, label=f"{reference.budget:,} even steps"
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [str(K) for K in budgets])
    axes.xaxis.minorticks_off()
    if min(each.distance for each in race.finish.entries.values()) > 0.0:
        axes.set_yscale("log")
    axes.set_xlabel(f"steps, with {printable(race.sampler, 60)}", parse_math=False)
    axes.set_ylabel(f"{printable(race.measure, 60)}{race.times} (bars: 95%)", parse_math=False)
    # Beside the axes, since so many names would hide curves in any corner.
    legend = axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for text in legend.get_texts():
        text.set_parse_math(False)  # names of files may have dollars
    axes.spines[["top", "right"]].set_visible(False)


def _style(name: str, spare: Any) -> dict[str, Any]:
    if name == OURS:
        return {"color": "#009E73", "linestyle": "-", "label": words_of(name)}
    rule = strides.find(name) if name in STRIDES else None
    if rule is not None and rule.colour != "#000000":
        return {"color": rule.colour, "linestyle": rule.line, "label": rule.words}
    return {"color": next(spare, "0.4"), "linestyle": "-.", "label": words_of(name)}
