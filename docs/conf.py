"""Settings of the site that ``make docs`` builds from README.md, the pages in this folder and docstrings (Sphinx)."""

import vebench

project = "vebench"
release = vebench.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
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
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "vebench"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"code-font-size": "12px"},  # 100 columns without scrolling
    "dark_css_variables": {"color-background-primary": "#0d1117"},  # as figures have it
}
