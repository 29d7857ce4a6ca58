"""The runs made up for the tests of the report serve here too."""

import importlib.util
from pathlib import Path

_FILE = Path(__file__).parents[1] / "report" / "conftest.py"
_spec = importlib.util.spec_from_file_location("made_up_runs", _FILE)
assert _spec is not None and _spec.loader is not None  # noqa: PT018
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

runs, dom = _module.runs, _module.dom
