"""Sphinx settings: MyST pages, docstrings by autodoc, furo."""

from importlib.metadata import version as installed_version

project = "scornn"
author = "The scornn authors"
copyright = "2026, the scornn authors"
version = release = installed_version("scornn")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "scornn"
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False
nitpicky = False
