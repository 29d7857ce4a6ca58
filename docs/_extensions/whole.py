"""Figures, keys and options stay whole: 9e-6, 98.7 %, T = 1000, Ctrl-C and --out are not broken where a line ends."""

import re
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

FIGURE = re.compile(r"(?:\b\w = )?[−-]?\d[\d.,]*(?:e[−-]\d+| %)|\b\w = [−-]?\d[\d.,]*\d|\b\w = [−-]?\d|\bCtrl-\w")
COMMANDS = re.compile(r'(<div class="highlight-(?:sh|text) .*?<pre>)(.*?)\n?</pre>', re.DOTALL)
TEXT = re.compile(r"(?<=>)[^<]+")
HYPHENATED = re.compile(r"(?<!\S)(?=\S*-)\S{2,40}(?!\S)")
VERBATIM = (nodes.literal, nodes.literal_block, nodes.doctest_block, nodes.math, nodes.math_block, nodes.raw)


class Whole(SphinxPostTransform):
    """Mark each figure and key of a text; the style sheet does the rest."""

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


def commands(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Mark the lines of commands, which wrap on a narrow page, and their options: a browser breaks after any hyphen."""

    def marked(text: re.Match[str]) -> str:
        return HYPHENATED.sub(r'<span class="whole">\g<0></span>', text[0])

    def lined(block: re.Match[str]) -> str:
        lines = TEXT.sub(marked, f">{block[2]}")[1:].split("\n")
        return block[1] + "".join(f'<span class="command">{line}\n</span>' for line in lines) + "</pre>"

    if "body" in context:
        context["body"] = COMMANDS.sub(lined, context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Mark both on every page."""
    app.add_post_transform(Whole)
    app.connect("html-page-context", commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
