"""Stage 8. `report.html`: one self-contained page on which a reader looks through every budget.

saved.py      what a results folder holds
document.py   what of it the page is given, as one compact JSON document
pack.py       long arrays in that document
pictures.py   sample grids in it
write.py      templates, styles, scripts and document → one file without any external request
"""

from .write import write_page

__all__ = ["write_page"]
