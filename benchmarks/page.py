"""Run the benchmarks and write their results to docs/performance.md: `make bench`.

    python benchmarks/page.py                 all but bench_adaptive, about ten minutes on two idle cores
    python benchmarks/page.py bench_solver    some of them; the page's other sections are kept
    python benchmarks/page.py --quick         tiny sizes, to check that everything runs; the page is printed, not written
    python benchmarks/page.py --page-only     rewrite the page from the last measurements

Each script runs in its own process, one after the other, and writes its tables and verdicts to runs/bench.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import VARIABLE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures"
RUNS = ROOT / "runs" / "bench"
# In the order of the page. bench_adaptive takes hours and has its own make target and section.
SCRIPTS = ("bench_network", "bench_accelerator", "bench_costs", "bench_solver", "bench_workers")
BUSY = 0.5  # load per core above which figures are not worth keeping

Entry = dict[str, Any]


def run(name: str, folder: Path, quick: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    result, partial = folder / f"{name}.jsonl", folder / f"{name}.jsonl.partial"
    partial.write_text(json.dumps({"kind": "machine"} | machine()) + "\n", encoding="utf-8")
    words = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *(["--quick"] if quick else [])]
    if name == "bench_solver":
        words += ["--figures", str(folder if quick else FIGURES)]
    print("$", *words[1:], flush=True)
    subprocess.run(words, check=True, env=os.environ | {VARIABLE: str(partial)})
    partial.replace(result)  # a script that fails leaves the last measurement in place


def machine() -> dict[str, Any]:
    """Return the hardware, load and versions that measurements depend on."""
    processor = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).is_file():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "numba")},
        "date": datetime.date.today().isoformat(),
    }


def read(folder: Path) -> dict[str, list[Entry]]:
    """Return the entries of each script that has run."""
    files = {name: folder / f"{name}.jsonl" for name in SCRIPTS}
    return {
        name: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for name, file in files.items()
        if file.is_file()
    }


def body(found: dict[str, list[Entry]]) -> str:
    """Return the measured part of the page."""
    lines = ["### Targets", "", *verdicts([entry for entries in found.values() for entry in entries])]
    for name, entries in found.items():
        on = next(entry for entry in entries if entry["kind"] == "machine")
        packages = ", ".join(f"{package} {number}" for package, number in on["versions"].items())
        lines += [
            f"### `python benchmarks/{name}.py`",
            "",
            f"{on['date']}, {on['processor']}, {on['cores']} cores, load {on['load']:.1f} at the start, Python {on['python']}, "
            f"{packages}.",
            "",
        ]
        lines += tables(entries)
        if name == "bench_solver":
            lines += [f"![Time against {x}](figures/performance-{x}.png)" for x in "TK"] + [""]
    return "\n".join(lines)


def section(entries: list[Entry]) -> str:
    """Return the verdicts and tables of one script that has its own section."""
    return "\n".join([f"{datetime.date.today().isoformat()}.", "", *verdicts(entries), *tables(entries)])


def verdicts(entries: list[Entry]) -> list[str]:
    targets = [entry for entry in entries if entry["kind"] == "target"]
    rows = [
        [entry["what"], entry["target"], entry["measured"], "met" if entry["met"] else "**not met**"]
        for entry in targets
    ]
    met = sum(entry["met"] for entry in targets)
    return [f"{met} of {len(targets)} are met.", "", *markdown(["what", "target", "measured", ""], rows), ""]


def tables(entries: list[Entry]) -> list[str]:
    lines = []
    for entry in entries:
        if entry["kind"] == "table":
            lines += [entry["title"].replace("\n", " ") + ".", "", *markdown(entry["head"], entry["rows"]), ""]
    return lines


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def write(section: str, text: str, file: Path = PAGE) -> None:
    """Write text between the markers of a page's section."""
    page = file.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {section}:begin.*?-->\n).*?(<!-- {section}:end -->)", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{file} has no markers for {section}.")
    file.write_text(pattern.sub(lambda match: match[1] + text + match[2], page), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=list(SCRIPTS), metavar="script", help=", ".join(SCRIPTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.scripts if name not in SCRIPTS]:
        parser.error(f"there is no {unknown[0]} among {', '.join(SCRIPTS)}")
    folder = RUNS / "quick" if options.quick else RUNS
    now = machine()
    if now["load"] > BUSY * now["cores"]:
        print(f"Load {now['load']:.1f} on {now['cores']} cores: the machine is busy, and seconds will not mean much.")
    if not options.page_only:
        for name in options.scripts:
            run(name, folder, options.quick)
    text = body(read(folder))
    if options.quick:
        print(text)
    else:
        write("bench", text)
        print(f"Written to {PAGE.relative_to(ROOT)}.")


if __name__ == "__main__":
    main()
