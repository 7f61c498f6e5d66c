"""Stage 0. Text from files, as it may be shown: nothing in it moves a cursor, hides a word or starts markup."""

from __future__ import annotations

SHOWN = 200  # characters of a name; longer ones are cut, so that a name cannot be a page


def printable(text: object, most: int = SHOWN) -> str:
    r"""``text`` on one line of at most ``most`` characters, with control and invisible characters as escapes (\x1b)."""
    whole = str(text)
    shown = whole[:most] + ("…" if len(whole) > most else "")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def printable_lines(text: str) -> str:
    """``text`` with its line breaks kept and every other control or invisible character as an escape."""
    return "\n".join(printable(line, len(line)) for line in text.split("\n"))
