"""Sphinx settings: MyST pages, notebooks that are run, docstrings by autodoc, furo."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "scornn"
author = "The scornn authors"
copyright = "2026, the scornn authors"
version = release = installed_version("scornn")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "notebooks", "whole"]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

html_theme = "furo"
pygments_dark_style = "github-dark"  # furo's own underlines the names of modules
html_title = "scornn"
html_domain_indices = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
nitpicky = False
