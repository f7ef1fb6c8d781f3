"""Type checkers accept what the documentation shows."""

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_documented_uses_have_types(version: str, tmp_path: Path) -> None:
    uses, cache = Path(__file__).with_name("typed_uses.py"), tmp_path / "cache"
    options = ["--strict", "--python-version", version, "--cache-dir", str(cache)]
    printed, errors, status = api.run([*options, "--config-file", "", str(uses)])
    assert (status, errors) == (0, ""), printed
