"""The kind that the suite runs on, from `ACCELRT_TEST_KIND`: the accelerator of every test."""

import os

import pytest

KIND = os.environ.get("ACCELRT_TEST_KIND", "cpu")

needs_xpu = pytest.mark.skipif(KIND != "xpu", reason="needs ACCELRT_TEST_KIND=xpu")
only_without_xpu = pytest.mark.skipif(KIND == "xpu", reason="there is an xpu device")
