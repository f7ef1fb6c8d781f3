"""Metadata of the packages: one version and one set of addresses everywhere."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "Cargo.toml"
LOCKS = [
    "Cargo.lock",
    "fuzz/Cargo.lock",
    "examples/device/Cargo.lock",
    "tests/oracle/peer/Cargo.lock",
]


def read(path: str | Path) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


@pytest.mark.parametrize("path", LOCKS)
def test_lock_files_have_the_version(path: str) -> None:
    (locked,) = (it for it in read(path)["package"] if it["name"] == "accelrt")
    assert locked["version"] == read(MANIFEST)["package"]["version"]


def test_bridge_version_matches_crate() -> None:
    bridge = read("bridges/torch/pyproject.toml")["project"]
    assert bridge["version"] == read(MANIFEST)["package"]["version"]


@pytest.mark.parametrize("path", ["pyproject.toml", "bridges/torch/pyproject.toml"])
def test_urls_are_those_of_the_crate(path: str) -> None:
    crate, urls = read(MANIFEST)["package"], read(path)["project"]["urls"]
    assert urls["Repository"] == crate["repository"]
    assert urls["Homepage"] == crate["homepage"]
    assert urls["Documentation"].startswith(crate["documentation"])


def test_changelog_begins_with_the_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    first = next(line for line in lines if line.startswith("## "))
    assert first.startswith(f"## [{read(MANIFEST)['package']['version']}]")
