//! `accelrt.xpu.Program` and its kernels.

use accelrt::{DeviceKind, Kernel, Program, ProgramSource, Runtime};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::objects::device::PyDevice;
use crate::support::errors::{OrRaise, wrong_type};

/// Kernels compiled for a device, by default the current xpu device.
///
/// `source` is OpenCL C as text, or SPIR-V as bytes; `options` go to the compiler. Blocks, without
/// the GIL. When the compiler refuses the source, `RuntimeError` has the compiler's output.
///
/// >>> import accelrt
/// >>> text = "kernel void add(global int* numbers, int number)"
/// >>> text += "{ numbers[get_global_id(0)] += number; }"
/// >>> if accelrt.xpu.is_available():
/// ...     add = accelrt.xpu.Program(text).kernel("add")
/// ...     numbers, stream = accelrt.zeros(8, device="xpu"), accelrt.xpu.current_stream()
/// ...     stream.launch(add, numbers, 3, global_size=2)
/// ...     result = bytearray(8)
/// ...     numbers.copy_to(result)
/// ...     assert memoryview(result).cast("i").tolist() == [3, 3]
#[pyclass(name = "Program", module = "accelrt.xpu", weakref, frozen)]
pub(crate) struct PyProgram {
    program: Program,
}

/// A kernel of a program, for `Stream.launch`.
#[pyclass(name = "Kernel", module = "accelrt.xpu", weakref, frozen)]
pub(crate) struct PyKernel {
    pub(crate) kernel: Kernel,
}

#[pymethods]
impl PyProgram {
    #[new]
    #[pyo3(
        signature = (source, options=None, *, device=None),
        text_signature = "(source, options='', *, device=None)"
    )]
    fn new(
        source: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let options = match options {
            None => String::new(),
            Some(options) => text_of("options", "a str", options)?,
        };
        let text: String;
        let binary = source.cast::<PyBytes>();
        let code = if let Ok(binary) = &binary {
            ProgramSource::Binary(binary.as_bytes())
        } else {
            text = text_of("source", "a str of OpenCL C or the bytes of SPIR-V", source)?;
            ProgramSource::Text(&text)
        };
        let runtime = Runtime::global().or_raise()?;
        let device = match device {
            None => PyDevice { kind: DeviceKind::XPU, index: None },
            Some(device) => PyDevice::extract(device)?,
        };
        let device = device.resolve(&runtime).or_raise()?;
        let compiled = source.py().detach(|| runtime.compile(device, code, &options));
        Ok(Self { program: compiled.or_raise()? })
    }

    /// The device that the program was compiled for.
    #[getter]
    fn device(&self) -> PyDevice {
        self.program.device().into()
    }

    /// The names of the program's kernels.
    #[getter]
    fn kernel_names(&self) -> PyResult<Vec<String>> {
        self.program.kernel_names().or_raise()
    }

    /// The kernel with this name; `ValueError` when there is none.
    fn kernel(&self, name: &Bound<'_, PyAny>) -> PyResult<PyKernel> {
        let name = text_of("name", "a str", name)?;
        Ok(PyKernel { kernel: self.program.kernel(&name).or_raise()? })
    }

    fn __repr__(&self) -> String {
        format!("accelrt.xpu.Program(device='{}')", self.program.device())
    }
}

#[pymethods]
impl PyKernel {
    /// The kernel's name in the program.
    #[getter]
    fn name(&self) -> &str {
        self.kernel.name()
    }

    /// The same as `name`.
    #[getter]
    fn __name__(&self) -> &str {
        self.kernel.name()
    }

    /// The device that the kernel was compiled for.
    #[getter]
    fn device(&self) -> PyDevice {
        self.kernel.device().into()
    }

    /// Type and name of each parameter; empty when the program does not provide them.
    #[getter]
    fn parameters(&self) -> Vec<(&str, &str)> {
        let parameters = self.kernel.parameters().iter();
        parameters.map(|parameter| (&*parameter.type_name, &*parameter.name)).collect()
    }

    fn __repr__(&self) -> String {
        let declared = self.kernel.parameters().iter();
        let declared = declared.map(|known| format!("{} {}", known.type_name, known.name));
        let declared: Vec<_> = declared.map(|text| text.trim().to_owned()).collect();
        let (name, device) = (self.kernel.name(), self.kernel.device());
        format!("accelrt.xpu.Kernel({name}({}), device='{device}')", declared.join(", "))
    }
}

/// Reads a string. Replaces lone surrogates, which no valid source or name contains.
fn text_of(what: &str, expected: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = given.cast::<PyString>().map_err(|_| wrong_type(what, expected, given))?;
    Ok(text.to_string_lossy().into_owned())
}
