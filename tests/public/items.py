"""The public items of the crates: their list, their examples, and what their pages name.

rustdoc describes each crate as JSON. `docs/public_items.txt` has a line for each item that a
program can name; a change shows up in a review as a changed line. At least half of the documented
items have an example, and no page names a module that a reader cannot open.

    items.py LIST DESCRIPTION… [--accept]
"""

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# Of items with documentation. Fields and variants are explained by their type's example.
LEAST_EXAMPLES = 0.5
# Folders of `src` that are no public modules, and files.
PRIVATE = re.compile(
    r"\b(?:base|queue|engine|memory|compute|runtime|observe|integrations|face|python|ffi)"
    r"(?:::|/)\w+|\b\w+\.rs\b"
)


class Crate:
    """A crate as rustdoc's JSON has it."""

    def __init__(self, description: Json) -> None:
        """Take in everything below the root."""
        self.index: Json = description["index"]
        self.root: Json = self.index[str(description["root"])]
        self.lines: set[str] = set()
        # Types and traits: their methods stand on their pages.
        self.types: set[str] = set()
        # By the item's number: what is seen under two names counts once.
        self.documented: dict[int, tuple[str, str]] = {}
        self.walk_module(self.root, self.root["name"])

    def note(self, line: str, path: str, item: Json, *, counts: bool = True) -> None:
        """Take an item into the list."""
        self.lines.add(line)
        if counts and item["docs"]:
            self.documented.setdefault(item["id"], (path, item["docs"]))

    def walk_module(self, module: Json, path: str) -> None:
        """Take in the items of a module, re-exports as if they stood there."""
        self.note(f"mod {path}", path, module)
        for item, name in self.exported(module["inner"]["module"]["items"]):
            self.walk(item, f"{path}::{name}")

    def exported(self, ids: list[int]) -> Iterator[tuple[Json, str]]:
        """Yield items with the names under which they are seen."""
        for number in ids:
            item = self.index.get(str(number))
            if item is None:
                continue
            if (use := item["inner"].get("use")) is None:
                yield item, item["name"]
            elif (target := self.index.get(str(use["id"]))) is not None:
                if use["is_glob"]:
                    yield from self.exported(target["inner"]["module"]["items"])
                else:
                    yield target, use["name"]

    def walk(self, item: Json, path: str) -> None:
        """Take in an item and what it contains."""
        [(kind, inner)] = item["inner"].items()
        if kind == "module":
            return self.walk_module(item, path)
        match kind:
            case "function":
                self.note(function(inner, path), path, item)
            case "constant" | "static" | "assoc_const":
                self.note(f"const {path}: {rendered(inner['type'])}", path, item)
            case "struct" | "enum" | "union":
                self.types.add(path)
                self.note(f"{kind} {path}{generics(inner['generics'])}{mark(item)}", path, item)
                self.walk_fields(inner.get("kind") or inner, path)
                self.walk_impls(inner["impls"], path)
            case "trait":
                self.types.add(path)
                bounds = " + ".join(bound(one) for one in inner["bounds"])
                line = f"trait {path}{generics(inner['generics'])}{bounds and ': ' + bounds}"
                self.note(line, path, item)
                for one in self.items(inner["items"]):
                    self.walk(one, f"{path}::{one['name']}")
            case "assoc_type":
                self.note(f"type {path}{generics(inner['generics'])}", path, item)
            case _:
                self.note(f"{kind} {path}", path, item)
        return None

    def items(self, ids: list[int]) -> list[Json]:
        """Return the items that are there: hidden ones are not."""
        return [item for number in ids if (item := self.index.get(str(number)))]

    def walk_fields(self, inner: Json, path: str) -> None:
        """Take in the variants of an enum, or the public fields of a struct or variant."""
        match inner:
            case {"variants": variants}:
                for variant in self.items(variants):
                    own = f"{path}::{variant['name']}"
                    self.note(f"variant {own}", own, variant, counts=False)
                    shape = variant["inner"]["variant"]["kind"]
                    if isinstance(shape, dict):
                        self.walk_fields(shape, own)
            case {"plain": {"fields": fields}} | {"struct": {"fields": fields}} | {"tuple": fields}:
                for field in self.items([number for number in fields if number is not None]):
                    own = f"{path}.{field['name']}"
                    line = f"field {own}: {rendered(field['inner']['struct_field'])}"
                    self.note(line, own, field, counts=False)

    def walk_impls(self, ids: list[int], path: str) -> None:
        """Take in methods, and which traits a type has."""
        traits = set()
        for item in self.items(ids):
            inner = item["inner"]["impl"]
            if inner["is_synthetic"] or inner["blanket_impl"]:
                continue
            if (of := inner["trait"]) is None:
                for one in self.items(inner["items"]):
                    self.walk(one, f"{path}::{one['name']}")
            elif of["path"] != "StructuralPartialEq":  # of the compiler's own bookkeeping
                traits.add(path_of(of))
        if traits:
            self.lines.add(f"impl {' + '.join(sorted(traits))} for {path}")


def mark(item: Json) -> str:
    """Say whether a program may write the type out, or match all of it."""
    return " (non_exhaustive)" if "non_exhaustive" in item["attrs"] else ""


def function(inner: Json, path: str) -> str:
    """Return a function's signature."""
    signature, header = inner["sig"], inner["header"]
    words = [word for word in ("const", "unsafe") if header[f"is_{word}"]]
    given = ", ".join(f"{name}: {rendered(kind)}" for name, kind in signature["inputs"])
    output = signature["output"]
    result = f" -> {rendered(output)}" if output else ""
    where = wheres(inner["generics"])
    return f"{' '.join([*words, 'fn'])} {path}{generics(inner['generics'])}({given}){result}{where}"


def generics(inner: Json) -> str:
    """Return the parameters of an item, without those that the compiler made."""
    names = []
    for parameter in inner["params"]:
        [(kind, value)] = parameter["kind"].items()
        if kind == "type" and not value["is_synthetic"]:
            bounds = " + ".join(bound(one) for one in value["bounds"])
            names.append(parameter["name"] + (bounds and f": {bounds}"))
        elif kind == "const":
            names.append(f"const {parameter['name']}: {rendered(value['type'])}")
        elif kind == "lifetime":
            names.append(parameter["name"])
    return f"<{', '.join(names)}>" if names else ""


def wheres(inner: Json) -> str:
    """Return the conditions of an item."""
    conditions = []
    for predicate in inner["where_predicates"]:
        if (of := predicate.get("bound_predicate")) is not None:
            bounds = " + ".join(bound(one) for one in of["bounds"])
            conditions.append(f"{rendered(of['type'])}: {bounds}")
    return f" where {', '.join(conditions)}" if conditions else ""


def bound(one: Json) -> str:
    """Return a bound of a type."""
    match one:
        case {"trait_bound": {"trait": of, "modifier": modifier}}:
            return ("?" if modifier == "maybe" else "") + path_of(of)
        case {"outlives": lifetime}:
            return str(lifetime)
    return "use<…>"


def path_of(of: Json) -> str:
    """Return a path with its arguments; of the path itself the name alone."""
    name: str = of["path"].rsplit("::", 1)[-1]
    return name + arguments(of["args"])


def arguments(args: Json | None) -> str:
    """Return generic arguments."""
    match args:
        case {"angle_bracketed": {"args": given, "constraints": constraints}}:
            names = [argument(one) for one in given if one != "infer"]
            for one in constraints:
                [(kind, value)] = one["binding"].items()
                if kind == "equality":
                    names.append(f"{one['name']} = {argument(value)}")
                else:
                    names.append(f"{one['name']}: {' + '.join(map(bound, value))}")
            return f"<{', '.join(names)}>" if names else ""
        case {"parenthesized": {"inputs": inputs, "output": output}}:
            result = f" -> {rendered(output)}" if output else ""
            return f"({', '.join(map(rendered, inputs))}){result}"
    return ""


def argument(one: Json) -> str:
    """Return one generic argument."""
    [(kind, value)] = one.items()
    if kind == "type":
        return rendered(value)
    return str(value["expr"]) if kind in {"const", "constant"} else str(value)


@cache
def forms() -> dict[str, Callable[[Any], str]]:
    """Return how each form of a type is written."""
    return {
        "resolved_path": path_of,
        "primitive": str,
        "generic": str,
        "tuple": lambda of: f"({', '.join(map(rendered, of))})",
        "slice": lambda of: f"[{rendered(of)}]",
        "array": lambda of: f"[{rendered(of['type'])}; {of['len']}]",
        "impl_trait": lambda of: f"impl {' + '.join(map(bound, of))}",
        "dyn_trait": lambda of: f"dyn {' + '.join(path_of(one['trait']) for one in of['traits'])}",
        "borrowed_ref": lambda of: (
            "&" + ("mut " if of["is_mutable"] else "") + rendered(of["type"])
        ),
        "raw_pointer": lambda of: (
            "*" + ("mut " if of["is_mutable"] else "const ") + rendered(of["type"])
        ),
        "function_pointer": lambda of: (
            f"fn({', '.join(rendered(kind) for _, kind in of['sig']['inputs'])})"
        ),
        "qualified_path": lambda of: (
            f"{rendered(of['self_type'])}::{of['name']}{arguments(of['args'])}"
        ),
    }


def rendered(of: Json | str) -> str:
    """Return a type as Rust writes it, with names without their paths."""
    if isinstance(of, str):
        return of
    [(form, value)] = of.items()
    return forms()[form](value)


def with_examples(crate: Crate) -> set[str]:
    """Return the items that an example on their page uses: their own, or one of their type's page.

    A method stands on the page of its type, and a type or function is introduced by its module.
    """
    blocks: dict[str, list[str]] = {}
    for path, text in crate.documented.values():
        code = re.findall(r"```(?!compile_fail|text|ignore)[^\n]*\n(.*?)```", text, re.DOTALL)
        for page in {path, path.rpartition("::")[0]} & ({path} | crate.types):
            blocks.setdefault(page, []).extend(code)
    found = set()
    for path, _ in crate.documented.values():
        container, _, name = path.rpartition("::")
        own = "\n".join(blocks.get(path, []) + blocks.get(container, []))
        if re.search(rf"\b{name}\b", own) or blocks.get(path):
            found.add(path)
    return found


def complaints(crates: list[Crate]) -> list[str]:
    """Return what is wrong with the pages."""
    found = []
    num_documented = sum(len(crate.documented) for crate in crates)
    share = sum(len(with_examples(crate)) for crate in crates) / num_documented
    counted = f"{share:.1%} of {num_documented} documented items have an example"
    print(counted)
    if share < LEAST_EXAMPLES:
        found.append(f"{counted}: at least {LEAST_EXAMPLES:.0%} must")
    for path, text in (page for crate in crates for page in crate.documented.values()):
        prose = re.sub(r"```.*?```|\]\([^)]*\)", "", text, flags=re.DOTALL)
        found += [f"{path}: its page names {name}" for name in PRIVATE.findall(prose)]
    return found


def main() -> int:
    """Compare, or write, the list."""
    listed, *descriptions = [argument for argument in sys.argv[1:] if argument != "--accept"]
    crates = [Crate(json.loads(Path(description).read_text())) for description in descriptions]
    lines = [f"{line}\n" for line in sorted(set().union(*(crate.lines for crate in crates)))]
    if "--accept" in sys.argv:
        Path(listed).write_text("".join(lines))
    known = Path(listed).read_text().splitlines(keepends=True)
    changed = list(difflib.unified_diff(known, lines, listed, "the crates", n=0))
    sys.stdout.writelines(changed)
    wrong = complaints(crates)
    if changed:
        wrong.append(
            f"{listed} does not match the crates: look at the change, then `make public-items`"
        )
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
