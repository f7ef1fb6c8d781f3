"""A page: one HTML file with its style, its script and the data of its views, and nothing else."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import accelrt
from accelrt.cli.view.columns import Columns

SCRIPTS = (
    *("format", "dom", "load", "theme", "window", "axis"),
    *("memory_model", "memory_segments", "memory_paint", "memory_chart", "memory_map"),
    *("memory_side", "memory_view"),
    *("curves", "compare_view"),
    *("profile_model", "profile_paint", "profile_chart", "profile_view"),
    "main",
)


@dataclass(frozen=True)
class View:
    """What a page shows of one device or file."""

    kind: str
    name: str
    head: dict[str, Any]
    columns: Columns


def write(path: Path, title: str, views: Sequence[View], *, compares: bool = False) -> int:
    """Write a page; return its size in bytes."""
    folder = resources.files("accelrt.cli.view")
    library = folder / "vendor" / "uplot"
    scripts = [(folder / "page" / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    joined = "\n".join(scripts)
    parts = {
        "title": html.escape(title),
        "version": html.escape(accelrt.__version__),
        "compares": "true" if compares else "false",
        "style": f"{(library / 'uPlot.min.css').read_text('utf-8')}\n"
        f"{(folder / 'page' / 'page.css').read_text('utf-8')}",
        "library": (library / "uPlot.iife.min.js").read_text("utf-8"),
        "script": f'(() => {{\n"use strict";\n{joined}\n}})();',
        "views": "\n".join(map(_embedded, views)),
    }
    frame = (folder / "page" / "page.html").read_text("utf-8")
    # In one pass: what is put in is not looked at again.
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], frame)
    content = text.encode("utf-8", "backslashreplace")
    path.write_bytes(content)
    return len(content)


def _embedded(view: View) -> str:
    """Return the data of a view as an element that browsers do not run."""
    content = base64.b64encode(view.columns.packed(view.head)).decode("ascii")
    name, kind = html.escape(view.name), html.escape(view.kind)
    return (
        f'<script type="application/x-accelrt-view" data-kind="{kind}" data-name="{name}">'
        f"{content}</script>"
    )
