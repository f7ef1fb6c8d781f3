"""The cpu devices: streams that run asynchronously on the machine's cores. Always available.

>>> import accelrt
>>> accelrt.cpu.is_available()
True
"""

from accelrt import _kinds

_kinds.fill(__name__)
