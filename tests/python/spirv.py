"""A kernel in SPIR-V, written instruction by instruction: no tool that makes one is needed.

It is `kernel void add(global int* x, int value) { x[get_global_id(0)] += value; }`. Numbers are
those of the SPIR-V specification, version 1.0, and of its environment for OpenCL.
"""

import struct

(VOID, INT, LONG, IDS, IDS_POINTER, POINTER, FUNCTION, ID) = range(1, 9)
(ADD, X, VALUE, LABEL, ALL_IDS, OWN_ID, PLACE, BEFORE, SUM) = range(9, 18)
BOUND = 18


def text(name: str) -> list[int]:
    """Return a name as words, with a zero behind it."""
    raw = name.encode()
    raw += bytes(4 - len(raw) % 4)
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


INSTRUCTIONS = [
    (17, 4),  # OpCapability Addresses
    (17, 6),  # OpCapability Kernel
    (17, 11),  # OpCapability Int64
    (14, 2, 2),  # OpMemoryModel Physical64 OpenCL
    (15, 6, ADD, *text("add"), ID),  # OpEntryPoint Kernel
    (71, ID, 11, 28),  # OpDecorate BuiltIn GlobalInvocationId
    (71, ID, 22),  # OpDecorate Constant
    (19, VOID),  # OpTypeVoid
    (21, INT, 32, 0),  # OpTypeInt
    (21, LONG, 64, 0),
    (23, IDS, LONG, 3),  # OpTypeVector
    (32, IDS_POINTER, 1, IDS),  # OpTypePointer Input
    (32, POINTER, 5, INT),  # OpTypePointer CrossWorkgroup
    (33, FUNCTION, VOID, POINTER, INT),  # OpTypeFunction
    (59, IDS_POINTER, ID, 1),  # OpVariable Input
    (54, VOID, ADD, 0, FUNCTION),  # OpFunction
    (55, POINTER, X),  # OpFunctionParameter
    (55, INT, VALUE),
    (248, LABEL),  # OpLabel
    (61, IDS, ALL_IDS, ID, 2, 32),  # OpLoad Aligned
    (81, LONG, OWN_ID, ALL_IDS, 0),  # OpCompositeExtract
    (70, POINTER, PLACE, X, OWN_ID),  # OpInBoundsPtrAccessChain
    (61, INT, BEFORE, PLACE, 2, 4),  # OpLoad Aligned
    (128, INT, SUM, BEFORE, VALUE),  # OpIAdd
    (62, PLACE, SUM, 2, 4),  # OpStore Aligned
    (253,),  # OpReturn
    (56,),  # OpFunctionEnd
]


def add() -> bytes:
    """Return the module."""
    words = [0x07230203, 0x00010000, 0, BOUND, 0]
    for code, *operands in INSTRUCTIONS:
        words += [(len(operands) + 1) << 16 | code, *operands]
    return struct.pack(f"<{len(words)}I", *words)
