"""The stubs of the kinds' modules, which are written from their one description, `_kinds.Kind`.

`python tests/python/kind_stubs.py` writes them; a test says when they differ.
"""

import ast
import builtins
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import accelrt
from accelrt._kinds import Kind

HEAD = "# Written by `make stubs` from the methods of `accelrt._kinds.Kind`."


def kinds() -> list[ModuleType]:
    """Return the modules of kinds that have a package, and so a stub."""
    public = (getattr(accelrt, name) for name in accelrt.__all__)
    return [it for it in public if isinstance(it, ModuleType) and hasattr(it, "set_device")]


def stub_of(module: ModuleType) -> Path:
    """Return where the types of a kind's module stand."""
    return Path(str(module.__file__)).with_suffix(".pyi")


def written(module: ModuleType) -> str:
    """Return the stub of a kind's module, before the formatter has seen it."""
    functions: dict[str, ast.FunctionDef] = {}
    origins: dict[str, str] = {}
    for base in reversed(Kind.__mro__[:-1]):
        tree = ast.parse(inspect.getsource(inspect.getmodule(base) or accelrt))
        origins |= dict(_origins(tree, base.__module__))
        for method in _methods(tree, base.__name__):
            functions[method.name] = method
    classes = [name for name in module.__all__ if name not in functions]
    imports = {("accelrt._core", name) for name in classes if name != "StreamContext"}
    imports.add(("accelrt._kinds", "StreamContext"))
    used = {name for function in functions.values() for name in _used(function)}
    imports |= {(origins[name], name) for name in used}
    rows = [f'"""{module.__doc__}"""', "", HEAD, "", *_rows(imports), ""]
    rows += ["__all__ = ["]
    rows += [*(f'    "{name}",' for name in sorted([*classes, *functions])), "]", ""]
    rows += [ast.unparse(functions[name]) + "\n" for name in sorted(functions)]
    return "\n".join(rows)


def _methods(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    [described] = [it for it in tree.body if isinstance(it, ast.ClassDef) and it.name == name]
    for method in described.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            method.args.args = method.args.args[1:]  # without `self`
            method.body = [ast.Expr(ast.Constant(_indented(ast.get_docstring(method) or "")))]
            yield method


def _indented(text: str) -> str:
    """Return a docstring as it stands in a function of a module."""
    rows = [f"    {row}" if row else "" for row in text.splitlines()]
    return "\n".join(rows).strip() + ("\n    " if rows[1:] else "")


def _origins(tree: ast.Module, module: str) -> Iterator[tuple[str, str]]:
    """Yield what a module imports and defines, and where that comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((it.name, node.module) for it in node.names)
        elif isinstance(node, ast.ClassDef):
            yield node.name, module
        elif isinstance(node, ast.Assign):
            yield from ((it.id, module) for it in node.targets if isinstance(it, ast.Name))


def _used(function: ast.FunctionDef) -> set[str]:
    """Return the names that a signature needs beside the builtin ones."""
    names = {it.id for it in ast.walk(function) if isinstance(it, ast.Name)}
    return names - set(vars(builtins))


def _rows(imports: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the imports as the linter orders them."""
    modules = sorted({module for module, _ in imports}, key=lambda it: ("accelrt" in it, it))
    for index, module in enumerate(modules):
        if index and "accelrt" in module and "accelrt" not in modules[index - 1]:
            yield ""
        names = sorted((name for origin, name in imports if origin == module), key=_place)
        yield f"from {module} import {', '.join(names)}"


def _place(name: str) -> tuple[bool, str]:
    return not name[0].isupper(), name


def differences() -> list[str]:
    """Return the kinds whose stubs say something else than their description."""
    return [it.__name__ for it in kinds() if _meaning(stub_of(it)) != _meaning_of(written(it))]


def _meaning(path: Path) -> str:
    return _meaning_of(path.read_text("utf-8")) if path.exists() else ""


def _meaning_of(source: str) -> str:
    return ast.dump(ast.parse(source))


if __name__ == "__main__":
    for kind in kinds():
        stub_of(kind).write_text(written(kind), "utf-8")
