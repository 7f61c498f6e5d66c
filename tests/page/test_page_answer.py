"""The answer on the page, and what its buttons copy."""

from __future__ import annotations

import json
import re
from pathlib import Path

from browser import Browser
from folders import T, rewrite, save_formula

from dpstride import ForwardProcess, ScheduleSet
from dpstride.evaluate.comparison import Comparison
from dpstride.integrations.export import sigmas, timestep_respacing, timesteps
from dpstride.report.page import write_page

# --- the answer ---------------------------------------------------------------------------------------------------------


def test_the_answer_follows_the_tolerance(browser: Browser, demo: Path, comparison: Comparison) -> None:
    browser.open(demo)
    curve = {int(K): pair for K, pair in json.loads((demo / "comparison.json").read_text())["curves"]["dp"].items()}
    least = min(bpd for bpd, _ in curve.values())
    for tolerance in ("0", "0.01", "0.1", "0.35", "5"):
        field = browser.find("#tolerance")
        field.clear()
        field.send_keys(tolerance)
        expected = min(K for K, (bpd, _) in curve.items() if bpd <= least + float(tolerance))
        said = browser.text("#answer")
        assert said.startswith("1 step is within" if expected == 1 else f"{expected} steps are within")
        # word by word what `find` prints
        sentence = comparison.sentence(float(tolerance))
        words, numbers = sentence.split(" (")
        assert said == f"{words}."
        assert browser.text("#against").startswith(numbers.removesuffix(").") + " bits/dim")
    browser.find("#tolerances button[data-tolerance='0.05']").click()
    assert "within 0.05 bits/dim" in browser.text("#answer")
    before = browser.text("#answer")
    field = browser.find("#tolerance")
    field.clear()
    field.send_keys("-1")
    assert field.get_attribute("aria-invalid") == "true"
    assert "within -1" not in browser.text("#answer")
    assert before.split()[1] in ("step", "steps")


def test_commands_in_sentences_are_code_without_backquotes(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    codes = browser.script("return [...document.querySelectorAll('#caveat code')].map((code) => code.textContent)")
    assert codes == ["dpstride find", "--for samples"]
    assert "`" not in browser.script("return document.body.innerText")


def test_all_steps_that_are_worse_are_said_to_be(browser: Browser, copied: Path) -> None:
    """With a curve that rises again, and with one that falls: no cost table either, since the numbers are made up."""
    (copied / "heldout.safetensors").unlink()
    for curve, words, hurts in (
        ({K: 3.0 + abs(K - 20) / 40 for K in range(1, T + 1)}, "of the least of any budget on", True),
        ({K: 3.0 + 1.0 / K for K in range(1, T + 1)}, f"of all {T} on", False),
    ):
        made_up = {stride: {str(K): [bpd, 0.01] for K, bpd in curve.items()} for stride in ("even", "quadratic", "dp")}
        rewrite(copied / "comparison.json", curves=made_up)
        write_page(copied)
        browser.open(copied)
        assert browser.complaints() == []
        found = Comparison.load(copied / "comparison.json")
        if not hurts:
            assert words in browser.text("#answer")
        assert browser.text("#answer") == found.sentence().split(" (")[0] + "."
        assert ("are worse" in browser.text("#against")) == hurts
        assert browser.script(
            "return document.getElementById('heat-part').hidden && document.getElementById('losses-part').hidden"
        )


def test_a_model_worse_than_none_has_no_number_of_steps_on_top(browser: Browser, copied: Path) -> None:
    rewrite(copied / "comparison.json", raw=0.5)
    write_page(copied)
    browser.open(copied)
    assert browser.complaints() == []
    words, numbers = Comparison.load(copied / "comparison.json").sentence().split(" (")
    assert words == "This model describes held-out data worse than no model at all, so no number of steps is enough"
    assert browser.text("#answer") == f"{words}."
    assert browser.text("#against") == numbers.removesuffix(").") + "."
    # Nothing below says that some budget is close enough after all.
    assert not browser.find("#tolerances").is_displayed()
    assert browser.script("return document.querySelector('#curves .close')") is None
    assert browser.budget == Comparison.load(copied / "comparison.json").best_budget


# --- copying ------------------------------------------------------------------------------------------------------------


def copied_text(browser: Browser, row: int) -> str:
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.driver.execute_cdp_cmd("Browser.grantPermissions", grant)
    button = browser.find(f"#forms tr:nth-child({row}) button")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    browser.wait(f"return document.querySelector('#forms tr:nth-child({row}) button').textContent === 'Copied'")
    return str(browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))


def test_copy_buttons_give_what_export_gives(browser: Browser, demo: Path, schedules: ScheduleSet) -> None:
    browser.open(demo)
    schedule = schedules[31]
    browser.choose(31)
    assert json.loads(copied_text(browser, 1)) == timesteps(schedule) == schedule.for_diffusers()
    assert (
        set(json.loads(copied_text(browser, 2).replace("{", "[").replace("}", "]")))
        == schedule.for_improved_diffusion()
    )
    assert copied_text(browser, 3) == timestep_respacing(schedule)
    assert json.loads(copied_text(browser, 4)) == sigmas(schedule)
    assert json.loads(copied_text(browser, 5)) == [*sigmas(schedule), 0.0]
    assert copied_text(browser, 6) == schedule.for_comfyui()
    assert json.loads(copied_text(browser, 7)) == json.loads(schedule.for_a1111())
    assert browser.text("#announce").startswith("Copied")
    assert browser.text("#export") == "dpstride export schedules.json --budget 31 --to diffusers"
    browser.choose(5)
    assert json.loads(copied_text(browser, 1)) == timesteps(schedules[5])


def test_what_was_not_copied_is_not_said_to_be(browser: Browser, demo: Path) -> None:
    browser.open(demo)
    browser.script("navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false")
    browser.script("document.querySelector('#forms button').click()")
    browser.wait("return document.querySelector('#forms button').textContent === 'Not allowed'")
    assert browser.text("#announce").startswith("This browser does not allow the page to copy")


def test_a_flow_has_its_times_and_no_training_steps(browser: Browser, tmp_path: Path) -> None:
    folder = save_formula(tmp_path / "flow", ForwardProcess.rectified_flow(24))
    write_page(folder)
    browser.open(folder)
    browser.choose(6)
    schedule = ScheduleSet.load(folder / "schedules.json")[6]
    assert json.loads(copied_text(browser, 1)) == schedule.for_diffusers()
    assert schedule.for_diffusers()[0] == 1.0
    assert json.loads(copied_text(browser, 7)) == json.loads(schedule.for_a1111())
    for row in (2, 3, 5):
        assert not browser.find(f"#forms tr:nth-child({row}) button").is_enabled()
    assert "no training steps" in browser.text("#forms tr:nth-child(2) code")
    assert browser.complaints() == []
    # log-SNR is infinite at both ends here, and everything is still drawn inside the figure.
    marks = browser.script("return document.querySelector('#path .marks.dp').getAttribute('d')")
    assert "NaN" not in marks
    assert len(re.findall("M", marks)) == 7
