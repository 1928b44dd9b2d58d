"""Sphinx configuration; the pages are built from the installed package."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from myst_parser.parsers.sphinx_ import MystParser

import gpuprof

if TYPE_CHECKING:
    from docutils.nodes import document
    from sphinx.application import Sphinx

project = "gpuprof"
author = "The gpuprof authors"
copyright = "The gpuprof authors"
release = gpuprof.__version__
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "_templates", "_static"]
default_role = "py:obj"  # single backticks in docstrings name objects

source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".ipynb": "notebook"}

html_theme = "furo"
html_title = f"gpuprof {release}"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {  # Furo's own, and the list of versions that build_site.py asks for
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

# What begins with gpuprof or looks like one of its classes must be there. Other references are
# names of arguments and words of NumPy-style types, which lead nowhere.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!gpuprof\b|[A-Z]\w*(\.\w+)*$).*"),
    ("py:.*", "(Distributed)?DataParallel|ModuleList|LoggerAdapter|TorchMemory|IPython.*"),
]

myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the NumPy sections carry the types


def _keep_first_sentence(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    # Napoleon takes what stands before a colon in an attribute's first line for its type.
    if what in {"attribute", "property"}:
        lines[:0] = ["..", ""]  # an empty comment, which shows nothing


def _without_self(
    _app: Sphinx,
    _what: str,
    _name: str,
    _object: object,
    _options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    # The signatures of compiled methods come out of their docstrings.
    shown = signature and re.sub(r"\(self: gpuprof\._core\.\w+(, )?", "(", signature)
    return shown, returns


class NotebookParser(MystParser):
    """A notebook as a page of Markdown: its cells with the output that is kept in it."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: document) -> None:
        """Parse the notebook's JSON."""
        cells = json.loads(inputstring)["cells"]
        super().parse("\n\n".join(part for cell in cells for part in _parts(cell)), document)


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return [source]
    return [_fenced("{code-block} ipython3", source), *map(_output, cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    found = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in found:
        html = "".join(found["text/html"])
        return _fenced("{raw} html", f'<div class="cell-output">{html}</div>')
    return _fenced("text", "".join(found["text/plain"]).replace("\r", ""))


def _fenced(kind: str, text: str) -> str:
    return f"``````{kind}\n{text.rstrip()}\n``````"


def setup(app: Sphinx) -> None:
    """Read notebooks, and adapt docstrings and signatures before Napoleon sees them."""
    app.add_source_parser(NotebookParser)
    app.connect("autodoc-process-docstring", _keep_first_sentence, priority=400)
    app.connect("autodoc-process-signature", _without_self)
