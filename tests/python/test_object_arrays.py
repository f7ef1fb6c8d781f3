"""Goal: references to Python objects are never taken for bytes: a copy would not count them.

Method: every way into a copy and a view is given exporters whose elements are, or contain, objects,
and looked at afterwards; exporters that only look like them are taken.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accelrt

untyped: Any = accelrt
PAIR: Any = ("a", "b")


def objects() -> Any:
    """Return an array of objects."""
    return np.array(PAIR, object)


def records() -> Any:
    """Return records with an object deep inside."""
    inner = np.dtype([("number", "i8"), ("thing", "O")])
    return np.zeros(2, np.dtype([("Outer", "f8"), ("inner", inner)]))


def dated() -> Any:
    """Return records that the buffer protocol has no format for."""
    return np.zeros(2, np.dtype([("when", "M8[s]"), ("thing", "O")]))


def references() -> Any:
    """Return an array of ctypes."""
    return (ctypes.py_object * 2)(*PAIR)


USES: list[Callable[[Any], object]] = [
    lambda array: accelrt.zeros(memoryview(array).nbytes).copy_to(array),
    lambda array: accelrt.zeros(memoryview(array).nbytes).copy_to(array, non_blocking=True),
    lambda array: accelrt.zeros(memoryview(array).nbytes).copy_(array),
    untyped.as_buffer,
]


@pytest.mark.parametrize("make", [objects, records, references])
@pytest.mark.parametrize("use", USES)
def test_arrays_of_objects_are_refused(
    make: Callable[[], Any], use: Callable[[Any], object]
) -> None:
    array = make()
    before = repr(list(array))
    with pytest.raises(TypeError, match=r"^(source|target|obj) must not hold Python objects: its"):
        use(array)
    with pytest.raises(TypeError, match="must not hold Python objects"):
        use(memoryview(array))
    assert repr(list(array)) == before


def test_objects_beside_what_has_no_format_are_refused() -> None:
    array = dated()
    for attempt in (accelrt.zeros(array.nbytes).copy_to, accelrt.zeros(array.nbytes).copy_):
        with pytest.raises(ValueError, match=r"^(source|target) \(ndarray\): cannot include dtype"):
            attempt(array)
    assert array["thing"].tolist() == [0, 0]


def test_what_dlpack_does_not_name_is_refused() -> None:
    with pytest.raises(BufferError):
        untyped.from_dlpack(objects())


def test_names_of_fields_and_dates_are_no_objects() -> None:
    named = np.zeros(2, np.dtype([("Object", "i4"), ("O", "i4")]))
    dates = np.zeros(2, "M8[s]")
    filled = accelrt.empty(16).fill_(1)
    filled.copy_to(named)
    filled.copy_to(dates)
    assert named["O"].tolist() == [0x01010101] * 2
    assert dates.view("i8").tolist() == [0x0101010101010101] * 2
    assert untyped.as_buffer(named).nbytes == 16


def test_objects_are_found_also_beside_names_that_look_like_types() -> None:
    for names in (["a:b"], ["a:b", "c:d"], ["a:b:c"]):
        fields: list[tuple[str, Any]] = [(name, ctypes.c_int) for name in names]
        fields.insert(1, ("o", ctypes.py_object))
        kind = type("Odd", (ctypes.Structure,), {"_fields_": fields})
        for use in (accelrt.as_buffer, accelrt.zeros(ctypes.sizeof(kind)).copy_):
            with pytest.raises(TypeError, match="must not hold Python objects"):
                use(kind())


def test_objects_are_found_also_where_ctypes_calls_them_bytes() -> None:
    fields: list[tuple[str, Any]] = [("number", ctypes.c_int), ("o", ctypes.py_object)]
    packed = type("Packed", (ctypes.Structure,), {"_pack_": 1, "_fields_": fields})
    derived = type("Derived", (packed,), {})
    united: Any = type("United", (ctypes.Union,), {"_fields_": fields})
    around = type("Around", (ctypes.Union,), {"_fields_": [("inner", united * 2)]})
    for kind in (packed, derived, united, around):
        for made in (kind(), memoryview(kind())):
            for use in (accelrt.as_buffer, accelrt.zeros(ctypes.sizeof(kind)).copy_):
                with pytest.raises(TypeError, match="must not hold Python objects"):
                    use(made)
    node: Any = type("Node", (ctypes.Structure,), {"_pack_": 1})
    node._fields_ = [("next", ctypes.POINTER(node)), ("number", ctypes.c_int)]
    assert accelrt.as_buffer(node()).nbytes == ctypes.sizeof(node)
