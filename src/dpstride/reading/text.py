"""Stage 0. Text from files made safe to print: nothing in it moves a cursor, begins a line, hides a word or starts markup."""

from __future__ import annotations

import re

SHOWN = 200  # characters of a name; longer ones are cut, so that a name cannot be a page
# Characters that Python calls printable but that are blank on a screen: those that Unicode calls default-ignorable (fillers
# of Hangul and Khmer, joiners, variation selectors), and three symbols with an empty glyph. Control characters, direction
# marks, tags and all spaces but " " are not printable to Python.
BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def printable(text: object, most: int = SHOWN) -> str:
    r"""Return ``text`` on one line of at most ``most`` characters, with control and invisible characters escaped (\x1b)."""
    whole = str(text)
    return one_line(whole[:most] + ("…" if len(whole) > most else ""))


def one_line(text: object) -> str:
    r"""Return all of ``text`` on one line, with line breaks, control and invisible characters escaped (\n, \x1b)."""
    return "".join(c if c.isprintable() and not BLANK.match(c) else _escape(c) for c in str(text))


def printable_lines(text: str) -> str:
    """Return ``text`` with its line breaks kept and every other control or invisible character escaped."""
    return "\n".join(map(one_line, text.split("\n")))


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error's message, or the name of its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:most]


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
