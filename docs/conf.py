"""Settings of the site that ``make docs`` builds from README.md, the pages in this folder and docstrings (Sphinx)."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

import vebench

project = "vebench"
release = vebench.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["examples"]
autodoc_mock_imports = ["stable_baselines3"]  # a base class, and not installed
suppress_warnings = ["myst.strikethrough"]  # it works in HTML, which is all that is built

myst_heading_anchors = 4  # as on GitHub
highlight_language = "bash"

napoleon_google_docstring = False
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException, VectorEnv, dict",  # but not those of these
    "exclude-members": "exit_status, np_random, np_random_seed, page, path",
}
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "vebench"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"code-font-size": "12px"},  # 100 columns without scrolling
    "dark_css_variables": {"color-background-primary": "#0d1117"},  # as charts have it
}


def begin_with_the_readme(_app: Any, name: str, text: list[str]) -> None:
    """Put README.md before the lists of pages, with links that fit its place on the site."""
    if name == "index":
        readme = Path(vebench.__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
        text[0] = readme.replace("](docs/", "](") + text[0]


def link_to_reports(_: Any, page: nodes.document) -> None:
    """Let a link to a run file lead to its report. On GitHub, the link shows the run file."""
    for link in [*page.findall(addnodes.download_reference)]:
        if link["reftarget"].endswith(".jsonl"):
            report = f"gallery/{Path(link['reftarget']).stem}.html"
            link.replace_self(nodes.reference("", "", *link.children, refuri=report))


def write_reports(app: Any, failed: Exception | None) -> None:
    """Write the reports of the gallery from their run files."""
    if failed is None:
        (Path(app.outdir) / "gallery").mkdir(exist_ok=True)
        for run in (Path(app.srcdir) / "images" / "pong.jsonl", *(Path(app.srcdir) / "gallery").glob("*.jsonl")):
            report = Path(app.outdir) / "gallery" / f"{run.stem}.html"
            command = (sys.executable, "-m", "vebench", "report", run.name, "-o", str(report))
            subprocess.run(command, check=True, cwd=run.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def improve_for_readers_of_screens(app: Any, failed: Exception | None) -> None:
    """Mend what the theme leaves out: levels of headings, names of landmarks, and scrolling by the keyboard."""
    mended = {
        '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
        '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
        '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
        '<noscript>\n<div class="admonition error">': '<h1>Search</h1>\n<noscript>\n<div class="admonition error">',
        '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
        '<div class="highlight"><pre>': '<div class="highlight"><pre tabindex="0">',
    }
    for page in [] if failed else Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for before, after in mended.items():
            text = text.replace(before, after)
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("source-read", begin_with_the_readme)
    app.connect("doctree-read", link_to_reports)
    app.connect("build-finished", improve_for_readers_of_screens)
    app.connect("build-finished", write_reports)
