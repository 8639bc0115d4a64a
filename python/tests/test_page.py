"""The page of a run, looked at in a browser: what it draws, on phones and in the dark."""

from __future__ import annotations

import json

import pytest
import stoker
from browser import browser as started
from stoker.report import read

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
)

CONTRAST = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const ratio = (a, b) => {
  const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const kinds = "h1,h2,h3,p,dt,dd,th,td,li,pre,summary,.key span,svg text";
const texts = [...document.querySelectorAll(kinds)];
const shapes = [...document.querySelectorAll("svg path")];
return {
  ground: light(parse(getComputedStyle(document.body).backgroundColor)),
  texts: texts.filter((node) => node.textContent && node.getClientRects().length).map((node) => {
    const style = getComputedStyle(node);
    const colour = parse(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const under = behind(node.closest("svg")?.parentElement ?? node);
    return [ratio(colour, under), node.textContent.slice(0, 30)];
  }),
  shapes: shapes.map((node) => {
    const style = getComputedStyle(node);
    const colour = parse(style.fill === "none" ? style.stroke : style.fill);
    return [ratio(colour, behind(node.closest("svg").parentElement)), node.dataset.series];
  }),
};
"""

PLOTS = """
return Object.fromEntries([...document.querySelectorAll(".panel")].map((panel) => [
  panel.querySelector("h3").textContent,
  Object.fromEntries([...panel.querySelectorAll("path")].map((path) => [
    path.dataset.series, (path.getAttribute("d").match(/[ML]/g) ?? []).length,
  ])),
]));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as session:
        session.show(1200, "light")
        yield session


@pytest.fixture
def report(quick):
    """Of a run in 6 batches."""
    with stoker.Loader(quick) as loader:
        for _ in loader:
            pass
        yield loader.report()


def long(report: stoker.Report) -> stoker.Report:
    """What a report of some thousand steps has, with hostile words in it."""
    numbers = json.loads(json.dumps(report.as_dict()))
    steps, each = 200, 32
    points = numbers["plots"]["points"]
    for name in points:
        points[name] = [float(1 + n % 7) for n in range(steps)]
    for name in ("steps", "samples", "images", "tokens", "padding", "requests", "bytes"):
        points[name] = [each * (1 + n % 3) for n in range(steps)]
    points["steps"] = [each] * steps
    points["wall_seconds"] = [2.0] * steps
    numbers["plots"] |= {
        "steps_each": each,
        "first_byte_from_seconds": 0.01,
        "first_byte_counts": [n * n for n in range(48)],
    }
    for share in ("p50", "p95", "p99"):
        numbers["fetch"][f"first_byte_{share}_seconds"] = 0.05
    numbers["wait"] |= {"batches": steps * each, "window_seconds": [0.01] * 1024}
    numbers["bad_samples"] = [HOSTILE]
    flaw = {"room": "image", "code": HOSTILE, "outcome": "replaced", "samples": 1}
    numbers["flaws"] = [flaw]
    return read(str(report), numbers)


def test_a_run_has_a_page_with_a_point_for_each_step(report, browser, tmp_path):
    page = tmp_path / "run.html"
    report.save(page)
    browser.open(page)
    assert browser.complaints() == []
    plots = browser.run(PLOTS)
    steps = report.wait.batches
    assert steps == 5
    assert plots["Each step"] == {"wait": steps}
    # Steps that came in a burst are one point over time.
    (rates,) = plots["Images per second"].values()
    assert 1 <= rates <= steps
    stages = ("decode", "resize and patchify", "text and all else")
    assert plots["Workers"] == dict.fromkeys(stages, rates)
    assert plots["Share of tokens that are padding"] == {"padding": steps}
    rooms = browser.run(
        "return [...document.querySelectorAll('#rooms tbody th')].map(e => e.textContent)"
    )
    assert rooms == [room.room for room in report.rooms]
    assert (
        browser.run("return document.querySelector('pre').textContent").strip()
        == str(report).strip()
    )
    assert len(page.read_bytes()) < 64 << 10


def test_a_long_run_has_as_many_points_as_its_history_and_its_window(report, browser, tmp_path):
    page = tmp_path / "run.html"
    long(report).save(page, title=HOSTILE)
    browser.open(page)
    assert browser.complaints() == []
    plots = browser.run(PLOTS)
    assert plots["The whole run"] == {"mean": 200, "longest": 200}
    assert plots["The last 1,024 steps"] == {"wait": 1024}
    assert plots["Requests by time to first byte"] == {"requests": 48}
    # Over time, two of these steps are one point.
    assert plots["Requests in flight"] == {"requests in flight": 100}
    assert plots["Tokens per second"] == {"Tokens per second": 100}
    assert len(page.read_bytes()) < 128 << 10


def test_what_comes_from_data_is_shown_as_text_and_runs_nothing(report, browser, tmp_path):
    page = tmp_path / "run.html"
    page.write_text(long(report).to_html(title=HOSTILE))
    browser.open(page)
    assert browser.complaints() == []
    assert browser.run("return document.title") == f"{HOSTILE}: who waited for whom"
    assert browser.run("return document.querySelectorAll('img, iframe, link').length") == 0
    shown = browser.run("return document.getElementById('latest').textContent")
    assert shown == HOSTILE
    # What gets in all the same, by a mistake of ours, is not run, and loads nothing.
    broken = page.read_text().replace("<footer>", f"{HOSTILE}<footer>")
    page.write_text(broken)
    browser.open(page)
    assert browser.run("return document.title") != "taken"
    assert any("Content Security Policy" in said for said in browser.complaints())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_readable_on_a_phone_and_in_the_dark(report, browser, tmp_path, scheme):
    page = tmp_path / "run.html"
    long(report).save(page)
    try:
        browser.show(360, scheme)
        browser.open(page)
        width = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width == [360, 360]
        # What is wider than a phone scrolls in its own place.
        wide = browser.run(
            "return [...document.querySelectorAll('main > *, .panel')]"
            ".filter((e) => e.getBoundingClientRect().right > 360)"
            ".map((e) => e.outerHTML.slice(0, 80))"
        )
        assert wide == []
        seen = browser.run(CONTRAST)
    finally:
        browser.show(1200, "light")
    assert (seen["ground"] < 0.1) == (scheme == "dark")
    assert len(seen["texts"]) > 60
    assert [found for found in seen["texts"] if found[0] < 4.5] == []
    assert len(seen["shapes"]) >= 11
    assert [found for found in seen["shapes"] if found[0] < 3] == []


def test_a_pointer_over_a_plot_reads_it(report, browser, tmp_path):
    page = tmp_path / "run.html"
    long(report).save(page)
    browser.open(page)
    read_out = browser.run(
        """
        const panels = [...document.querySelectorAll('.panel')];
        const panel = panels.find((p) => p.textContent.startsWith('Workers'));
        const svg = panel.querySelector('svg'), box = svg.getBoundingClientRect();
        const move = { clientX: box.left + box.width / 2, clientY: box.top + 20, bubbles: true };
        svg.dispatchEvent(new PointerEvent('pointermove', move));
        const during = panel.querySelector('.reading').textContent;
        svg.dispatchEvent(new PointerEvent('pointerleave'));
        return [during, panel.querySelector('.reading').textContent];
        """
    )
    assert read_out[0].count("%") == 3
    assert "decode" in read_out[0]
    assert read_out[1].startswith("busy ")


def test_a_run_of_one_batch_has_a_page_too(quick, browser, tmp_path):
    page = tmp_path / "run.html"
    with stoker.Loader(quick) as loader:
        next(loader)
        loader.report().save(page)
    browser.open(page)
    assert browser.complaints() == []
    assert "Too short" in browser.run("return document.getElementById('headline').textContent")


def test_stats_have_no_plots_and_a_page_that_can_t_be_written_says_so(report, tmp_path):
    assert not any("plots" in name or "first_byte_counts" in name for name in report.stats())
    assert len(report.plots.points.steps) == report.wait.batches
    with pytest.raises(FileNotFoundError):
        report.save(tmp_path / "none" / "run.html")
