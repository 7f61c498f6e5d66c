"""Words that a page uses are explained on it, as text that is always there: hints on hovering are none on touch and paper."""

from __future__ import annotations

import re

from dpstride.report.page.write import page_text


def test_words_of_the_page_are_explained_on_it() -> None:
    page = page_text({"title": "a model", "caveat": ""}, "The answer.", "the table")
    words = page.split('<section id="words"')[1].split("</section>")[0]
    explained = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", words))
    assert {"Budget", "Stride", "Bits/dim", "Decoder", "Regret"} <= explained.keys()
    assert "upper decoder" in explained["Decoder"]
    assert "hidden" not in words
    assert page.count('href="#words"') == 1
