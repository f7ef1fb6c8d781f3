"""Intel GPUs and other OpenCL devices with unified shared memory, found at run time.

Source: `torch.xpu` of torch 2.13. `Program` compiles kernels; `Stream.launch` enqueues them.

>>> import accelrt
>>> accelrt.xpu.is_available() == (accelrt.xpu.device_count() > 0)
True
"""

from accelrt import _core, _kinds

_kinds.fill(__name__, _core.Kernel, _core.Program)
