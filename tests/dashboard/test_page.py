"""The page as a person meets it, in a real browser: it opens, follows a real training, and can be used by keys."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, choose_size, choose_theme, missing
from made_runs import add_the_rest, make_run
from processes import SIZES, Training, wait_until

from pronk.config import load_config
from pronk.dashboard.server import open_folder
from pronk.starting import train
from pronk.watching import watch
from pronk.watching.film import can_mp4

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing())), pytest.mark.timeout(400)]

PATIENCE = 120  # seconds: the machine may be busy


class Visitor:
    """A browser at one folder's pages."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self._url = driver, url

    def open(self, page: str = "") -> None:
        """Until it has shown its first answers."""
        self.driver.get(self._url + page)
        self.wait(lambda: self.run("return document.body.dataset.ready") == "yes", f"{page or 'the runs'} to be ready")

    def run(self, program: str, *arguments: Any) -> Any:
        return self.driver.execute_script(program, *arguments)

    def text(self, selector: str) -> str:
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        return self.run("const at = document.activeElement; return at.id || at.innerText || at.ariaLabel || at.tagName")

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        wait_until(condition, PATIENCE, f"{what}\n{self.text('body')[:2000]}")

    def complaints(self) -> list[str]:
        """What the browser's console holds since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        choose_size(driver, 1200, 900)
        yield driver


@contextlib.contextmanager
def visit(driver: Any, folder: Path) -> Iterator[Visitor]:
    """Whatever a test does, the console stays empty."""
    with open_folder(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        visitor = Visitor(driver, server.url)
        try:
            yield visitor
            assert visitor.complaints() == []
            driver.get("about:blank")
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs: one with everything, one of another version, one that is torn, one that failed."""
    whole = make_run(tmp_path / "whole <b>&", 150, "solved")
    add_the_rest(whole)
    (whole / "videos").mkdir()
    gif = "47494638396101000100800000ff8000ffffff2c00000000010001000002024401003b"
    (whole / "videos" / "final.gif").write_bytes(bytes.fromhex(gif))
    other = make_run(tmp_path / "other", 60, "finished", ("run.seed=9", "loss.discount=0.5"))
    (other / "metrics.jsonl").write_text('{"env_steps": 5, "glow": 0.5}\n{"env_steps": 9, "glow": 0.7}\n')
    (other / "summary.json").write_text('{"outcome": "transcended", "updates": 3}')
    torn = make_run(tmp_path / "torn", 60, None)
    with open(torn / "metrics.jsonl", "ab") as file:
        file.write(b'\xff\xfe{"env_steps": 12, "loss"\n{"env_steps": 99999999, "los')
    (torn / "config.yaml").write_text("env: [")
    failed = make_run(tmp_path / "failed", 60, "failed")
    summary = json.loads((failed / "summary.json").read_text())
    failure = "actor 0: Traceback (most recent call last):\n  line 7, in step\nValueError: no <i>bananas</i>"
    (failed / "summary.json").write_text(json.dumps({**summary, "failure": failure}))
    (failed / "logs" / "actor-000.log").write_text("all <b>gone</b>\n")
    return tmp_path


def test_every_page_of_every_kind_of_run_opens_without_a_complaint(driver: Any, folder: Path) -> None:
    with visit(driver, folder) as page:
        page.open()
        assert page.text("#folder").startswith("4 in ")
        assert {"solved", "unknown", "killed", "failed"} <= set(page.text("#runs").split())
        page.open("run?run=whole%20%3Cb%3E%26")
        assert page.text("h1") == "whole <b>&"
        assert "of the machine's limit" in page.text("#tiles")
        assert "95% at most 2" in page.text("#lag")
        page.run("document.querySelector('#notes details').open = true")
        assert page.text("#notes li") == "the learner waits", "no advice: the run has ended"
        assert page.run("return document.querySelectorAll('#actors tbody tr').length") == 2
        assert "000000696320.pt" in page.text("#evaluation")
        page.run("document.querySelector('#clips').scrollIntoView()")
        page.wait(lambda: page.run("return document.querySelector('#clips img').naturalWidth") == 1, "the clip")
        page.open("run?run=other")
        assert "glow" in page.text("#more")
        page.open("run?run=torn")
        assert "config.yaml cannot be read" in page.text("#config")
        assert page.run("return document.body.dataset.steps") == str(59 * 4096)
        assert page.text("#failure") == ""
        page.open("run?run=failed")
        assert page.text("#failure .cause") == "actor 0: ValueError: no <i>bananas</i>"
        assert "line 7" in page.run("return document.querySelector('#failure pre').textContent")
        page.run("document.querySelector('#failure button').click()")
        page.wait(lambda: "all <b>gone</b>" in page.text("#log-text"), "the log")
        with open(folder / "failed/logs/actor-000.log", "a") as log:
            log.write("and more\n")
        page.wait(lambda: "and more" in page.text("#log-text"), "the log to be followed")
        page.open("compare?run=whole%20%3Cb%3E%26&run=other")
        assert "loss.discount" in page.text("#settings")


@pytest.mark.skipif(not can_mp4(), reason="PyAV is not installed")
def test_the_clips_of_a_real_run_play(driver: Any, tmp_path: Path) -> None:
    settings = [*SIZES, "transport=local", "run.total_steps=2000", "run.stop_return=null", "run.video=true"]
    run = train(load_config("catch", settings), run_dir=tmp_path / "filmed", say=pytest.fail)["run"]
    watch(run, Path(run, "videos", "again.gif"), steps=20)
    with visit(driver, tmp_path) as page:
        page.open("run?run=filmed")
        assert page.run("return [...document.querySelectorAll('#clips a')].map((one) => one.download).sort()") == [
            "again.gif",
            "final.mp4",
        ]
        page.run("document.querySelector('#clips').scrollIntoView()")
        page.wait(lambda: page.run("return document.querySelector('#clips img').naturalWidth") > 100, "the GIF")
        if not page.run(PLAYS_H264):
            pytest.skip("this browser was built without H.264")
        page.run(f"{VIDEO}; video.muted = true; video.play().catch(() => {{}})")
        page.wait(lambda: page.run(f"{VIDEO}; return video.error !== null || video.currentTime > 0.2"), "it to play")
        error, ready, duration, width = page.run(
            f"{VIDEO}; return [video.error?.message ?? null, video.readyState, video.duration, video.videoWidth]"
        )
        assert error is None
        assert (ready >= 2, duration > 1, width > 100) == (True, True, True)
        page.run(f"{VIDEO}; video.currentTime = arguments[0]", duration - 0.1)
        page.wait(lambda: page.run(f"{VIDEO}; return !video.seeking && video.readyState >= 2"), "a jump to its end")


VIDEO = "const video = document.querySelector('#clips video')"
PLAYS_H264 = """return document.createElement('video').canPlayType('video/mp4; codecs="avc1.64001f"') !== ''"""


def test_an_empty_folder_says_what_to_do_and_fills_by_itself(driver: Any, tmp_path: Path) -> None:
    with visit(driver, tmp_path) as page:
        page.open()
        assert "pronk train cartpole" in page.text("#nothing")
        make_run(tmp_path / "first", 5)
        page.wait(lambda: "first" in page.text("#runs"), "the first run to appear")
        page.open("run?run=first")
        assert "Not evaluated" in page.text("#evaluation")
        assert "pronk bench" in page.text("#bottleneck")


def test_a_run_that_is_gone_is_said(driver: Any, tmp_path: Path) -> None:
    with visit(driver, tmp_path) as page:
        page.driver.get(page._url + "run?run=gone")
        page.wait(lambda: "there is no run 'gone'" in page.text("#pulse"), "the words")
        assert all("404" in complaint for complaint in page.complaints())


def test_a_real_training_advances_on_the_page(driver: Any, tmp_path: Path) -> None:
    settings = (*SIZES, "actors.count=1", "run.log_every_seconds=0.2", "run.total_steps=1e9", "run.stop_return=null")
    with Training(tmp_path / "live", "faulty:SlowCatch", *settings) as training, visit(driver, tmp_path) as page:
        training.wait_until(training.metrics, "the first line of metrics", PATIENCE)
        page.open("run?run=live")
        assert page.text("#state") == "running"
        seen = [page.run(WHAT_MOVES)]
        for _ in range(2):
            page.wait(
                lambda: all(now != then for now, then in zip(page.run(WHAT_MOVES), seen[-1], strict=True)), "news"
            )
            seen.append(page.run(WHAT_MOVES))
        steps = [int(one[0]) for one in seen]
        assert steps == sorted(set(steps))
        page.wait(lambda: "playing" in page.text("#actors") or "waits" in page.text("#actors"), "the actor at play")
        training.send(signal.SIGKILL)
        page.wait(lambda: page.text("#state") == "killed", "its death to be seen")


WHAT_MOVES = """return [document.body.dataset.steps, document.querySelector('#tiles').innerText,
  document.querySelector('#speed .plot .line').getAttribute('d')]"""


def test_a_resumed_run_is_read_anew(driver: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 100, "interrupted")
    with visit(driver, tmp_path) as page:
        page.open("run?run=run")
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run / "aside").write_text("".join(lines[:10]))
        (run / "aside").rename(run / "metrics.jsonl")
        page.wait(lambda: page.run("return document.body.dataset.steps") == str(9 * 4096), "the rewritten record")
        assert page.text("#learning .legend b") == f"{json.loads(lines[9])['episode_return']:.3g}"


def test_all_of_it_can_be_done_by_keys(driver: Any, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    with visit(driver, folder) as page:
        page.open()
        page.press(Keys.TAB)
        assert page.focused() == "Skip to the content"
        page.press("/", "other")
        assert page.focused() == "filter"
        page.wait(lambda: page.run("return document.querySelectorAll('#runs tbody tr').length") == 1, "the filter")
        page.press(*[Keys.BACKSPACE] * 5)
        page.run("document.querySelector('#runs th button').focus()")
        page.press(Keys.ENTER)
        assert page.run("return document.querySelector('#runs th[aria-sort]').ariaSort") == "ascending"
        assert page.focused() == "Run"
        page.run("document.querySelector('#runs tbody input').focus()")
        page.press(Keys.SPACE)
        page.run("document.querySelectorAll('#runs tbody input')[2].focus()")
        page.press(Keys.SPACE)
        assert page.text("#compare") == "Compare 2 runs"
        page.run("document.querySelector('#compare').focus()")
        page.press(Keys.ENTER)
        page.wait(lambda: "loss.discount" in page.text("#settings"), "the comparison")


def test_a_chart_speaks_and_is_walked_with_arrows(driver: Any, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    with visit(driver, folder) as page:
        page.open("run?run=whole%20%3Cb%3E%26")
        told = page.run("return document.querySelector('#learning .plot').ariaLabel")
        assert told.startswith("Chart of Return over steps: recent episodes from ")
        page.run("document.querySelector('#learning .plot').focus()")
        page.press(Keys.HOME)
        assert page.text("#learning .where") == "at 0 steps"
        page.press(Keys.ARROW_RIGHT)
        assert page.text("#learning .where") != "at 0 steps"
        assert "recent episodes" in page.run("return document.querySelector('#learning [aria-live]').textContent")
        assert page.text("#speed .where") == page.text("#learning .where"), "one cursor for all charts"
        page.run("document.querySelector('#learning details summary').click()")
        rows = "return document.querySelectorAll('#learning details tbody tr').length"
        page.wait(lambda: page.run(rows) == 150, "a row for each sample that was recorded")
        page.run("document.querySelector('#evaluation details summary').click()")
        page.wait(lambda: page.run(rows.replace("learning", "evaluation")) == 10, "one for each evaluation")
        page.run(
            "const axis = document.querySelector('#axis'); axis.value = 'wall_seconds'; axis.onchange?.();"
            "axis.dispatchEvent(new Event('change'))"
        )
        page.wait(lambda: "over time" in page.run("return document.querySelector('#learning .plot').ariaLabel"), "time")
        page.run("localStorage.clear()")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_either_theme_and_on_a_phone(driver: Any, folder: Path, theme: str) -> None:
    with visit(driver, folder) as page:
        choose_theme(driver, theme)
        choose_size(driver, 390, 800, phone=True)
        try:
            for address in ("", "run?run=whole%20%3Cb%3E%26", "compare?run=whole%20%3Cb%3E%26&run=other"):
                page.open(address)
                assert page.run("return document.documentElement.dataset.theme") == theme
                assert page.run("return document.documentElement.scrollWidth") == 390, "nothing sticks out"
                assert [pair for pair in page.run(CONTRASTS) if pair[0] < 4.5] == []
        finally:
            choose_size(driver, 1200, 900)
            choose_theme(driver, "light")


# The contrast of every text with what is behind it, as WCAG counts it.
CONTRASTS = """
const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
function numbers(colour) { paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
  return [...paint.getImageData(0, 0, 1, 1).data]; }
function light(colour) { const [r, g, b] = colour.slice(0, 3).map((v) => { v /= 255;
  return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }
function behind(element) { for (let at = element; at; at = at.parentElement) {
  const colour = numbers(getComputedStyle(at).backgroundColor); if (colour[3] > 250) return colour; }
  return [255, 255, 255]; }
const found = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !element.checkVisibility() || element.closest('.unseen, .skip, noscript')) continue;
  const style = getComputedStyle(element);
  const ink = numbers(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
  const [high, low] = [light(ink), light(behind(element))].sort((a, b) => b - a);
  found.push([(high + 0.05) / (low + 0.05), element.tagName + ' ' + element.textContent.slice(0, 60)]);
}
return found;
"""


def test_fifty_runs_are_one_short_answer(driver: Any, tmp_path: Path) -> None:
    for number in range(50):
        make_run(tmp_path / f"run-{number:02d}", 300, "finished", (f"run.seed={number}",))
    with visit(driver, tmp_path) as page:
        page.open()
        assert page.run("return document.querySelectorAll('#runs tbody tr').length") == 50
        assert page.run("return performance.getEntriesByName(location.origin + '/api/runs?').length") >= 1


def test_a_sweep_is_a_table_of_groups_whose_runs_can_be_compared(driver: Any, tmp_path: Path) -> None:
    members = []
    for seed in (1, 2):
        make_run(tmp_path / f"mine/rate=0.1,seed={seed}", 30, "finished", (f"run.seed={seed}",))
        name = f"rate=0.1,seed={seed}"
        members.append({"name": name, "run": name, "settings": {"rate": 0.1}, "state": "finished"})
    group = {"label": "rate=<b>0.1", "settings": {"rate": 0.1}, "mean": 2.0, "interval": [1.0, 3.0]}
    content = {"state": "finished", "metric": "episode_return", "members": members, "groups": [group]}
    (tmp_path / "mine/sweep.json").write_text(json.dumps(content))
    with visit(driver, tmp_path) as page:
        page.open()
        shown = page.text("#sweeps")
        assert "Sweep mine" in shown
        assert "2 of 2 done" in shown
        assert "rate=<b>0.1" in shown
        assert "1 to 3" in shown
        page.open(page.run("return document.querySelector('#sweeps a').getAttribute('href')").lstrip("/"))
        assert "seed=2" in page.text("main")


def test_a_stretch_of_a_long_run_is_read_again_when_it_is_looked_at_closely(driver: Any, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    make_run(tmp_path / "long", 3000)
    with visit(driver, tmp_path) as page:
        page.open("run?run=long")
        page.run("document.querySelector('#learning .plot').scrollIntoView({ block: 'center' })")
        before = page.run(POINTS)
        plot = driver.find_element("css selector", "#learning .plot")
        drag = ActionChains(driver).move_to_element_with_offset(plot, 0, 0).click_and_hold()
        drag.move_by_offset(10, 0).move_by_offset(10, 0).release().perform()
        page.wait(lambda: page.run("return !document.querySelector('#unzoom').hidden"), "the zoom")
        page.wait(lambda: page.run(POINTS) != before, "other lines of the record")
        page.run("document.querySelector('#learning details summary').click()")
        page.wait(lambda: page.run(ROW_STEP) == 4096, "every line of the stretch")
        page.run("document.querySelector('#learning .plot').focus()")
        page.press("0")
        page.wait(lambda: page.run("return document.querySelector('#unzoom').hidden"), "everything")
        page.press(Keys.ESCAPE)
        page.wait(lambda: page.run(POINTS) == before, "the whole run again")


POINTS = "return document.querySelector('#learning .plot .line').getAttribute('d')"
ROW_STEP = """const rows = [...document.querySelectorAll('#learning details tbody th')].map(
  (one) => Number(one.textContent.replaceAll(',', ''))); return rows[1] - rows[0]"""


def test_seeds_are_one_line_with_a_band(driver: Any, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        make_run(tmp_path / f"run-{seed}", 40 + 10 * seed, overrides=(f"run.seed={seed}", "run.total_steps=1000000"))
    with visit(driver, tmp_path) as page:
        page.open()
        assert "Several seeds" in page.text("#sweeps")
        page.open("run?run=run-2")
        assert page.text("#seeds") == "All 3 seeds"
        page.open(page.run("return document.querySelector('#seeds').getAttribute('href')").lstrip("/"))
        page.wait(lambda: "(3 seeds)" in page.text("#curves .legend"), "the mean")
        assert page.run("return document.querySelectorAll('#curves .chart:first-child .band').length") == 1
        page.run(
            "const seeds = document.querySelector('#seeds'); seeds.value = 'each';"
            "seeds.dispatchEvent(new Event('change'))"
        )
        assert page.run("return document.querySelectorAll('#curves .chart:first-child .legend span').length") == 3
        page.run("localStorage.clear()")


def test_tags_and_a_note_are_kept_with_the_run(driver: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 5)
    with visit(driver, tmp_path) as page:
        page.open("run?run=run")
        page.run("document.querySelector('#edit-tags').click()")
        page.press("baseline, <b>two</b>")
        page.run("document.querySelector('#note-input').value = 'as in the paper'")
        page.run("document.querySelector('#tag-form').requestSubmit()")
        page.wait(lambda: (run / "tags.json").exists(), "the file")
        assert json.loads((run / "tags.json").read_text()) == {
            "tags": ["baseline", "<b>two</b>"],
            "note": "as in the paper",
        }
        page.wait(lambda: page.text("#note") == "as in the paper", "the note")
        page.open()
        assert "<b>two</b>" in page.text("#runs")
