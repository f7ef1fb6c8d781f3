"""Check that each crate can be removed: delete it and its dependents, and check or test the rest.

    removals.py check|test [CRATE...]

Works on a copy of the repository in `target/removals`. The root package's tests need
accelrt-testing; without that crate only its library is built.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = "accelrt"
TESTING = "accelrt-testing"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).resolve() / "removals"


def packages() -> dict[str, dict[str, Any]]:
    """Return the packages of the workspace by name."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {package["name"]: package for package in json.loads(text)["packages"]}


def with_dependents(name: str, known: dict[str, dict[str, Any]]) -> set[str]:
    """Return a crate and all crates that need it, but the root package."""
    removed = {name}
    while True:
        more = {
            package
            for package, description in known.items()
            if package not in {*removed, ROOT}
            and any(needed["name"] in removed for needed in description["dependencies"])
        }
        if not more:
            return removed
        removed |= more


def copy_without(removed: set[str], known: dict[str, dict[str, Any]], tree: Path) -> None:
    """Copy the repository, without the folders of the removed crates."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    folders = [
        os.path.relpath(Path(known[name]["manifest_path"]).parent) + os.sep for name in removed
    ]
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(tuple(folders)) and Path(name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, tree / name)
    manifest = tree / "Cargo.toml"
    text = manifest.read_text()
    for folder in folders:
        text = re.sub(rf'\s*"{folder.rstrip(os.sep)}",', "", text)
    for name in removed:
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
    manifest.write_text(text)


def commands(action: str, removed: set[str]) -> list[list[str]]:
    """Return the commands for what is left."""
    if TESTING in removed:
        return [["cargo", "build", "--workspace", "--all-features"]]
    if action == "check":
        return [["cargo", "check", "--workspace", "--all-features", "--all-targets"]]
    return [["cargo", "test", "--workspace", "--all-features"]]


def main() -> int:
    """Try each crate, or those that are named."""
    action, *names = sys.argv[1:]
    known = packages()
    for name in names or sorted(set(known) - {ROOT}):
        removed = with_dependents(name, known)
        print(f"without {', '.join(sorted(removed))}", flush=True)
        tree = TARGET / "tree"
        copy_without(removed, known, tree)
        environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET / "built")}
        environment["RUSTFLAGS"] = "-D warnings"
        for command in commands(action, removed):
            if subprocess.run(command, cwd=tree, env=environment, check=False).returncode:
                print(f"the rest fails without {name}: {' '.join(command)}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
