"""Goal: an import is quick, and names that it leaves for later are there when they are asked for.

Method: programs in processes of their own. What an import must not bring is named, since times of
a test would be those of the machine.
"""

import pytest

from processes import output_of

HEAVY = ["typing", "dataclasses", "inspect", "json", "re", "secrets", "contextlib", "traceback"]


def test_an_import_brings_none_of_the_heavy_modules() -> None:
    code = f"""
import sys
for name in {HEAVY!r}:
    sys.modules.pop(name, None)  # what the interpreter's own start has brought
import accelrt
stream = accelrt.Stream()
accelrt.zeros(16)
stream.synchronize()
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    assert output_of(code) == "[]\n"


@pytest.mark.parametrize(
    "name", ["backends", "fork_rng", "inference_mode", "numpy_memory", "verbose"]
)
def test_what_is_left_for_later_is_there_by_each_way_to_it(name: str) -> None:
    for code in (
        f"import accelrt; one = accelrt.{name}; print(one is accelrt.{name})",
        f"from accelrt import {name} as one; import accelrt; print(one is accelrt.{name})",
        f"import accelrt; print({name!r} in dir(accelrt))",
        f"from accelrt import *; print(callable({name}) or {name}.mkl is not None)",
    ):
        assert output_of(code) == "True\n", code


def test_a_name_that_is_nowhere_is_refused_as_in_any_module() -> None:
    code = """
import accelrt
try:
    accelrt.strem
except AttributeError as error:
    print(error)
"""
    assert output_of(code) == "module 'accelrt' has no attribute 'strem'\n"


def test_a_sub_interpreter_is_refused_and_ends_nothing_of_the_main_one() -> None:
    code = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import accelrt
other = interpreters.create()
text = "try:\\n    import accelrt\\nexcept ImportError as error:\\n    print(error, flush=True)"
interpreters.run_string(other, text)
interpreters.destroy(other)
print(bytes(accelrt.zeros(2).fill_(1)))
"""
    *refused, last = output_of(code).splitlines()
    assert last == r"b'\x01\x01'"
    assert refused == ["accelrt is for the main interpreter of a process, not for no. 1"]
