"""The docstrings of `_core.pyi`, which are those of the module: editors read stubs alone.

Rust's comments are where they are written. `python tests/python/stub_docs.py` brings them into the
stub; a test says when they differ.
"""

import ast
import inspect
import types
from collections.abc import Iterator
from pathlib import Path

from accelrt import _core

STUB = Path(_core.__file__).parent / "_core.pyi"

Documented = ast.FunctionDef | ast.ClassDef


def documented(tree: ast.Module) -> Iterator[tuple[str, Documented, str]]:
    """Yield name, place in the stub and text of what the module documents."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        thing = getattr(_core, node.name, None)
        if text := _text_of(thing):
            yield node.name, node, text
        if not isinstance(node, ast.ClassDef) or not isinstance(thing, type):
            continue
        for member in node.body:
            if not isinstance(member, ast.FunctionDef) or _is_setter(member):
                continue
            text = "" if member.name == "__new__" else _text_of(vars(thing).get(member.name))
            if text:
                yield f"{node.name}.{member.name}", member, text


def _text_of(thing: object) -> str:
    # A static method's own docstring is Python's description of static methods.
    thing = thing.__func__ if isinstance(thing, staticmethod) else thing
    # The interpreter documents every class's operators.
    is_of_ours = thing is not None and not isinstance(thing, types.WrapperDescriptorType)
    return inspect.cleandoc(thing.__doc__ or "") if is_of_ours else ""


def _is_setter(member: ast.FunctionDef) -> bool:
    return any(isinstance(it, ast.Attribute) for it in member.decorator_list)


def differences() -> list[str]:
    """Return the names whose texts differ."""
    found = documented(ast.parse(STUB.read_text("utf-8")))
    return [name for name, node, text in found if ast.get_docstring(node) != text]


def written(source: str) -> str:
    """Return the stub with the module's texts."""
    lines = source.splitlines()
    found = sorted(documented(ast.parse(source)), key=lambda it: it[1].lineno, reverse=True)
    for _, node, text in found:
        first = node.body[0]
        has_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        indent = " " * (node.col_offset + 4)
        quoted = _quoted(text, indent)
        row, end = first.lineno - 1, first.end_lineno or first.lineno
        if isinstance(node, ast.ClassDef) and not has_text:
            # In front of the first member, and of its decorators.
            decorators = getattr(first, "decorator_list", [])
            row = min([row, *(it.lineno - 1 for it in decorators)])
            lines[row:row] = [*quoted, ""]
        else:
            begun = lines[row][: first.col_offset].rstrip()
            lines[row:end] = [*([begun] if begun else []), *quoted]
    return "\n".join(lines) + "\n"


def _quoted(text: str, indent: str) -> list[str]:
    # As the formatter has it: a text that begins or ends with a quote stands apart from ours.
    text = f" {text}" if text.startswith('"') else text
    text = f"{text} " if text.endswith('"') else text
    opening = 'r"""' if "\\" in text else '"""'
    rows = [indent + row if row else "" for row in text.splitlines()]
    rows[0] = indent + opening + rows[0].removeprefix(indent)
    if len(rows) == 1:
        return [rows[0] + '"""']
    return [*rows, indent + '"""']


if __name__ == "__main__":
    STUB.write_text(written(STUB.read_text("utf-8")), "utf-8")
