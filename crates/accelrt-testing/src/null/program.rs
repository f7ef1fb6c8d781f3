//! Programs of the null kind: signatures of OpenCL C kernels, and a record of the launches.
//!
//! The compiler drops the kernels' bodies, because nothing executes them. A text without a kernel
//! or with unbalanced braces fails to compile. A binary is the same text: the compiler discards the
//! names and types of its parameters.

use std::borrow::Cow;
use std::collections::HashMap;

use accelrt::backend::contract::{
    KernelParameter, LaunchArgument, LaunchSize, ParameterClass, ProgramHandle, ProgramSource,
};
use accelrt::internal::class_of_value;

/// A kernel launch, as [`NullBackend::launched`](super::NullBackend::launched) reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    /// The kernel's name in its program.
    pub kernel: String,
    /// One argument per parameter of the kernel.
    pub arguments: Vec<LaunchArgument>,
    /// The numbers of work-items, in all and per work-group.
    pub size: LaunchSize,
}

/// The signature of a kernel, in a compiled program or behind a kernel's handle.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub(super) device_index: usize,
    pub(super) name: String,
    pub(super) parameters: Vec<KernelParameter>,
}

#[derive(Debug, Default)]
pub(super) struct Programs {
    has_fp64: bool,
    compiled: HashMap<u64, Vec<Kernel>>,
    kernels: HashMap<u64, Kernel>,
    next_handle: u64,
    pub(super) launched: Vec<Launched>,
}

impl Programs {
    pub(super) fn new(has_fp64: bool) -> Self {
        Self { has_fp64, ..Self::default() }
    }

    pub(super) fn resource_counts(&self) -> (usize, usize) {
        (self.compiled.len(), self.kernels.len())
    }

    /// Compiles a program and returns its handle. The error is the compiler's message.
    pub(super) fn compile(
        &mut self,
        device_index: usize,
        source: ProgramSource<'_>,
    ) -> Result<ProgramHandle, String> {
        let kernels = if let ProgramSource::Text(text) = source {
            let text =
                if self.has_fp64 { Cow::Borrowed(text) } else { Cow::Owned(without_fp64(text)) };
            parse(&text, device_index)?
        } else if let ProgramSource::Binary(bytes) = source {
            let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
            let mut kernels = parse(text, device_index)?;
            let parameters = kernels.iter_mut().flat_map(|kernel| &mut kernel.parameters);
            parameters.for_each(clear_type);
            kernels
        } else {
            return Err("the null kind compiles texts and binaries only".to_owned());
        };
        let handle = self.handle();
        self.compiled.insert(handle, kernels);
        Ok(ProgramHandle(handle))
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    pub(super) fn kernels_of(&self, program: ProgramHandle) -> &[Kernel] {
        let kernels = self.compiled.get(&program.0);
        kernels.unwrap_or_else(|| panic!("{program:?} is no live program"))
    }

    /// Creates a kernel and returns its handle. `None` when the program has no kernel of this name.
    pub(super) fn create_kernel(&mut self, program: ProgramHandle, name: &str) -> Option<u64> {
        let found = self.kernels_of(program).iter().find(|kernel| kernel.name == name)?.clone();
        let handle = self.handle();
        self.kernels.insert(handle, found);
        Some(handle)
    }

    pub(super) fn kernel(&self, handle: u64) -> &Kernel {
        self.kernels.get(&handle).unwrap_or_else(|| panic!("kernel {handle} is not live"))
    }

    pub(super) fn release_kernel(&mut self, handle: u64) {
        assert!(self.kernels.remove(&handle).is_some(), "kernel {handle} is not live");
    }

    pub(super) fn release_program(&mut self, program: ProgramHandle) {
        assert!(self.compiled.remove(&program.0).is_some(), "{program:?} is no live program");
    }
}

impl Kernel {
    /// Panics unless the arguments fit the declared parameters. The layers above check them first.
    pub(super) fn check(&self, arguments: &[LaunchArgument]) {
        let Self { name, parameters, .. } = self;
        assert_eq!(arguments.len(), parameters.len(), "arguments of {name}");
        for (argument, parameter) in arguments.iter().zip(parameters) {
            let fits = match (parameter.class, argument) {
                (ParameterClass::Unknown, _)
                | (ParameterClass::Pointer, LaunchArgument::Memory(_)) => true,
                (ParameterClass::Local, LaunchArgument::Local(bytes)) => *bytes > 0,
                (
                    ParameterClass::Signed(bytes)
                    | ParameterClass::Unsigned(bytes)
                    | ParameterClass::Float(bytes),
                    LaunchArgument::Value(value),
                ) => value.as_slice().len() == usize::from(bytes),
                _ => false,
            };
            assert!(fits, "{argument:?} for {parameter:?} of {name}");
        }
    }
}

fn clear_type(parameter: &mut KernelParameter) {
    let class = ParameterClass::Unknown;
    *parameter = KernelParameter { name: String::new(), type_name: String::new(), class };
}

/// Removes each part of a text from `#if defined(cl_khr_fp64)` to `#endif`.
fn without_fp64(text: &str) -> String {
    let mut parts = text.split("#if defined(cl_khr_fp64)");
    let before = parts.next().unwrap_or_default().to_owned();
    parts.fold(before, |text, part| text + part.split_once("#endif").map_or("", |(_, rest)| rest))
}

/// Parses the signatures of all kernels in a text. The error is the compiler's message.
fn parse(text: &str, device_index: usize) -> Result<Vec<Kernel>, String> {
    let count = |brace| text.chars().filter(|found| *found == brace).count();
    let (opening, closing) = (count('{'), count('}'));
    if opening != closing {
        return Err(format!("{opening} opening braces and {closing} closing ones"));
    }
    let heads = text.split("kernel void ").skip(1);
    let kernels: Option<Vec<_>> = heads
        .map(|head| {
            let (name, rest) = head.split_once('(')?;
            let parameters = rest.split_once(')')?.0.split(',').map(str::trim);
            let parameters = parameters.filter(|parameter| !parameter.is_empty()).map(parameter);
            Some(Kernel { device_index, name: name.to_owned(), parameters: parameters.collect() })
        })
        .collect();
    match kernels {
        Some(kernels) if !kernels.is_empty() => Ok(kernels),
        _ => Err("no kernel with a name and parameters".to_owned()),
    }
}

/// Parses a declaration such as `global float* values`.
fn parameter(text: &str) -> KernelParameter {
    let (type_name, name) = text.rsplit_once(' ').unwrap_or((text, ""));
    let (space, rest) = type_name.split_once(' ').unwrap_or(("", type_name));
    let (class, type_name) = match space.trim_start_matches('_') {
        "global" | "constant" => (ParameterClass::Pointer, rest),
        "local" => (ParameterClass::Local, rest),
        _ => (class_of_value(type_name), type_name),
    };
    KernelParameter { name: name.to_owned(), type_name: type_name.to_owned(), class }
}
