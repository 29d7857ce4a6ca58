"""Figures stay on one line: 9e-6, 98.7 % and T = 1000 are not broken where a line ends."""

import re
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

FIGURE = re.compile(r"(?:\b\w = )?[−-]?\d[\d.,]*(?:e[−-]\d+| %)|\b\w = [−-]?\d[\d.,]*\d|\b\w = [−-]?\d")
VERBATIM = (nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.math, nodes.math_block, nodes.raw)


class Whole(SphinxPostTransform):
    """Mark each figure of a text; the style sheet does the rest."""

    default_priority = 900

    def run(self, **_: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if isinstance(text.parent, VERBATIM) or not FIGURE.search(text):
                continue
            pieces: list[nodes.Node] = []
            end = 0
            for found in FIGURE.finditer(text):
                pieces += [nodes.Text(text[end : found.start()]), nodes.inline("", found[0], classes=["whole"])]
                end = found.end()
            text.parent.replace(text, [*pieces, nodes.Text(text[end:])])


def setup(app: Any) -> dict[str, bool]:
    """Mark the figures of every page."""
    app.add_post_transform(Whole)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
