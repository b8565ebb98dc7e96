"""The documentation as a website: it builds without a warning, its links work, it can be read."""

import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium")
PAGES = [
    "index",
    "installation",
    "quickstart",
    "guide/which",
    "guide/correction",
    "guide/large",
    "guide/rules",
    "auto_gallery/index",
    "results",
    "benchmarks",
    "large_benchmark",
    "api",
    "generated/postlin.GPClassifier",
    "troubleshooting",
    "changelog",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of a copy of the sources; the scripts of the gallery do not run."""
    pytest.importorskip("sphinx_gallery")
    folder = tmp_path_factory.mktemp("site")
    generated = shutil.ignore_patterns("_build", "auto_gallery", "generated", "__pycache__", ".store")
    for name in ("docs", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=generated)
    for path in ROOT.glob("*.md"):
        shutil.copy(path, folder)
    (folder / "src").symlink_to(ROOT / "src")
    options = ["-W", "--keep-going", "-q", "-D", "plot_gallery=0", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, "docs", "html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_link_within_the_site_leads_somewhere(site):
    pages = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    anchors = {page: set(re.findall(r'\s(?:id|name)="([^"]*)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for link in set(re.findall(r'\s(?:href|src)="([^"]*)"', text)):
            path, _, anchor = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            found = target.exists() and (not anchor or anchor in anchors.get(target, {anchor}))
            if not found:
                broken.append(f"{page.relative_to(site)}: {link}")
    assert len(texts) > 60
    assert not broken


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium")
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


#: How far the page scrolls sideways, and the tables within it that do.
_SIDEWAYS = """[
    document.documentElement.scrollWidth - innerWidth,
    [...document.querySelectorAll("article table")].filter(table => {
        const box = table.closest(".pst-scrollable-table-container") ?? table.parentElement;
        return box.scrollWidth > box.clientWidth + 1;
    }).length,
]"""


@pytest.mark.parametrize("width", [1400, 400])
def test_no_page_scrolls_sideways(site, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 1000})
    for name in PAGES:
        page.goto((site / f"{name}.html").as_uri())
        wider, tables = page.evaluate(_SIDEWAYS)
        assert wider <= 0, name
        assert width < 1400 or tables == 0, name
    page.close()


def test_formulas_are_typeset_and_nothing_is_fetched(site, browser):
    page = browser.new_page()
    fetched = []
    page.route(re.compile("^https?:"), lambda route: (fetched.append(route.request.url), route.abort()))
    page.on("requestfailed", lambda request: fetched.append(request.url))
    for source in sorted((ROOT / "docs").rglob("*.md")):
        if re.search(r"\$[^$]+\$", source.read_text(encoding="utf-8")):
            name = source.relative_to(ROOT / "docs").with_suffix(".html")
            page.goto((site / name).as_uri())
            formulas, typeset, failed = (
                page.locator(what).count() for what in (".formula", ".formula .katex", ".katex-error")
            )
            assert formulas == typeset > 0, name
            assert failed == 0, name
    assert not fetched
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(site, browser, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / "index.html").as_uri())
    contrast = page.evaluate(_CONTRAST)
    assert len(contrast) > 20
    assert min(contrast) > 4
    page.close()


#: The contrast, by the definition of WCAG 2, of each paragraph and cell with what lies behind it.
_CONTRAST = """(() => {
    const light = colour => colour.match(/[\\d.]+/g).slice(0, 3)
        .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (let at = element; at; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor;
            if (!/, 0\\)$/.test(colour)) return colour;
        }
        return "rgb(255, 255, 255)";
    };
    const texts = document.querySelectorAll("article p, article td, article a, article h2");
    return [...texts].map(element => {
        const both = [light(getComputedStyle(element).color), light(behind(element))];
        return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    });
})()"""
