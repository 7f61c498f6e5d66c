"""Stage 8. `report.html`: one self-contained page for browsing every budget.

saved.py      the contents of a results folder
document.py   the data of the page, as one compact JSON document
pack.py       long arrays in that document
pictures.py   sample grids in that document
write.py      templates, styles, scripts and document → one file without external requests
"""

from .write import write_page

__all__ = ["write_page"]
