"""A picture of a terminal: runs a command in one, and draws what it shows at the end as SVG.

python docs/assets/terminal.py docs/figures/terminal.svg dpstride demo mixture -o mixture
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from html import escape
from pathlib import Path

COLUMNS, LINES = 106, 40
CELL, LINE, SIZE, EDGE = 8.0, 19, 13.3, 16  # pixels
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#f2cc60", "36": "#76e3ea"}
NBSP = "\N{NO-BREAK SPACE}"  # SVG would make one space of many
TOKEN = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|(.)", re.DOTALL)

Cell = tuple[str, str]  # a character, and its style


def run(command: list[str]) -> str:
    """What ``command`` writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # how Linux says that nobody has the other end any more
                break
            written += chunk
    if process.returncode:
        sys.exit(written.decode())
    return written.decode()


def screen(text: str) -> list[list[Cell]]:
    """The lines that stand on the terminal after ``text``: carriage returns write over what was there."""
    lines: list[list[Cell]] = [[]]
    row, column, style = 0, 0, ""
    for codes, letter, character in TOKEN.findall(text):
        if letter == "m":
            kept = [code for code in codes.split(";") if code not in ("", "0")]
            style = " ".join(filter(None, [style, *kept])) if kept else ""
        elif letter == "A":
            row = max(0, row - int(codes or 1))
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
        elif character:
            if column == COLUMNS:
                row, column = row + 1, 0
            while len(lines) <= row:
                lines.append([])
            line = lines[row]
            line += [(" ", "")] * (column + 1 - len(line))
            line[column] = (character, style)
            column += 1
        while len(lines) <= row:
            lines.append([])
    return lines


def drawn(lines: list[list[Cell]], title: str) -> str:
    """The lines as SVG, in dark colours on any page."""
    width, height = COLUMNS * CELL + 2 * EDGE, len(lines) * LINE + 2 * EDGE + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f"font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" "
        f'font-size="{SIZE}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#12161c"/>',
        *(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="#4a5361"/>' for i in range(3)),
    ]
    for row, line in enumerate(lines):
        y = EDGE + 24 + row * LINE + 14
        start = 0
        while start < len(line):
            end = next((i for i in range(start, len(line)) if line[i][1] != line[start][1]), len(line))
            text = "".join(character for character, _ in line[start:end])
            codes = line[start][1].split()
            fill = next((COLOURS[code] for code in codes if code in COLOURS), "#dde3ea")
            weight = ' font-weight="bold"' if "1" in codes else ""
            if text.strip():
                x, length = EDGE + start * CELL, len(text) * CELL
                parts.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{fill}"{weight} textLength="{length:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs">{escape(text).replace(" ", NBSP)}</text>'
                )
            start = end
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    target, *words = sys.argv[1:]
    shown = screen("$ " + " ".join(words) + "\r\n" + run(words))
    while shown and not shown[-1]:
        shown.pop()
    Path(target).write_text(drawn(shown, " ".join(words)), encoding="utf-8")
