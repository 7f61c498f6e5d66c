"""Templates, style, script and document → one HTML file.

Foreign text (names of models, messages) reaches the page in two ways only: inside the JSON document, where <, > and & are
escaped and which the script shows as text, never as markup; and as escaped text for readers without scripts. In addition,
the page's content security policy allows only the one script and the one style whose hashes it lists, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from ...reading.text import printable_lines
from ...runs.writing import write_text
from ..text import comparison_table
from .document import page_document
from .saved import Saved

NAME = "report.html"
POLICY = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
SHARED = ("data.js", "charts.js", "budgets.js")  # scripts of every page


@dataclass(frozen=True)
class Layout:
    """Files of a page for one kind of results: its main part, and styles and scripts besides the shared ones.

    ``unit`` is the unit of scores, ``scores`` the scripts that show them, ``step`` the thing that a budget counts, and ``more``
    the end of the hint on keys.
    """

    main: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ()
    unit: str = "bits/dim"
    scores: tuple[str, ...] = ("curves.js", "scores.js")
    step: str = "step"
    more: str = ""


GAUSSIAN = Layout(
    "page.html",
    ("noise.js", "forms.js", "paths.js", "figures.js", "page.js"),
    more=' <a href="#words">What the words mean</a>',
)


def write_page(folder: str | Path, saved: Saved | None = None) -> Path:
    """Write report.html into a results folder, from its contents; return its path."""
    found = saved or Saved.read(folder)
    text = page_text(page_document(found), found.headline, comparison_table(found.comparison))
    return write_text(Path(folder) / NAME, text)


def page_text(document: Mapping[str, Any], sentence: str, table: str, layout: Layout = GAUSSIAN) -> str:
    """The whole page; ``sentence`` and ``table`` are for readers without scripts."""
    step = layout.step
    main = Template(part(layout.main)).substitute(
        control=Template(part("control.html")).substitute(
            step=step, steps=f"{step}s", Steps=f"{step}s".capitalize(), more=layout.more
        ),
        path_heading=part("path-heading.html"),
        provenance=part("provenance.html"),
    )
    scripts = "\n".join(map(part, (*SHARED, *layout.scores, *layout.scripts)))
    script = f"(() => {{\n'use strict';\n{scripts}\n}})();\n"
    body = Template(part("frame.html")).substitute(
        main=main,
        unit=layout.unit,
        title=html.escape(str(document["title"])),
        script=script,
        document=_json(document),
        sentence=html.escape(printable_lines(sentence)),
        caveat=html.escape(str(document["caveat"])),
        table=html.escape(printable_lines(table)),
    )
    return whole(str(document["title"]), body, ("page.css", *layout.styles), script)


def whole(title: str, body: str, styles: Sequence[str], script: str | None = None) -> str:
    """A document with this body and these styles, which runs no script but ``script``."""
    style = "\n".join(map(part, styles))
    policy = f"{POLICY}; style-src {_hash(style)}" + ("" if script is None else f"; script-src {_hash(script)}")
    return Template(part("document.html")).substitute(
        title=html.escape(title), policy=html.escape(policy, quote=True), style=style, body=body
    )


def _json(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    """The hash of a style or script, as in the page's policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def part(name: str) -> str:
    """A file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
