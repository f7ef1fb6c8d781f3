//! Programs and kernels with planned faults.
#![expect(unsafe_code, reason = "forwards calls whose callers uphold the contract")]

use std::sync::Arc;

use crate::backend::contract::{
    Backend, KernelHandle, KernelParameter, Kernels, LaunchArgument, LaunchSize, ProgramHandle,
    ProgramSource, StreamHandle,
};
use crate::backend::fault::Method;
use crate::backend::fault::plan::{Injector, Request};
use crate::base::error::Result;

/// The kernel compiler of a backend, as [`FaultBackend`](super::FaultBackend) exposes it.
#[derive(Debug)]
pub(super) struct FaultKernels(Arc<Injector>);

fn kernels(inner: &dyn Backend) -> &dyn Kernels {
    inner.kernels().expect("a kind keeps its capabilities")
}

impl FaultKernels {
    pub(super) fn new(injector: Arc<Injector>) -> Self {
        Self(injector)
    }

    fn call<T>(
        &self,
        method: Method,
        request: Request,
        act: impl FnOnce(&dyn Kernels) -> Result<T>,
    ) -> Result<T> {
        self.0.call(method, request, |inner| act(kernels(inner)))
    }
}

// SAFETY: every result is the inner object's, which upholds the contract.
unsafe impl Kernels for FaultKernels {
    fn compile(
        &self,
        device_index: usize,
        source: ProgramSource<'_>,
        options: &str,
    ) -> Result<ProgramHandle> {
        let compile = |inner: &dyn Kernels| inner.compile(device_index, source, options);
        self.call(Method::KernelsCompile, Request::of(device_index), compile)
    }

    unsafe fn kernel_names(&self, program: ProgramHandle) -> Result<Vec<String>> {
        self.call(Method::KernelsNames, Request::ANY, |inner| hand_on!(inner.kernel_names(program)))
    }

    unsafe fn kernel(&self, program: ProgramHandle, name: &str) -> Result<KernelHandle> {
        self.call(Method::KernelsKernel, Request::ANY, |inner| {
            hand_on!(inner.kernel(program, name))
        })
    }

    unsafe fn parameters(&self, kernel: KernelHandle) -> Result<Vec<KernelParameter>> {
        self.call(Method::KernelsParameters, Request::ANY, |inner| {
            hand_on!(inner.parameters(kernel))
        })
    }

    unsafe fn launch(
        &self,
        kernel: KernelHandle,
        stream: StreamHandle,
        arguments: &[LaunchArgument],
        size: &LaunchSize,
    ) -> Result<()> {
        let launch = |inner: &dyn Kernels| hand_on!(inner.launch(kernel, stream, arguments, size));
        self.call(Method::KernelsLaunch, Request::ANY, launch)
    }

    unsafe fn kernel_release(&self, kernel: KernelHandle) -> Result<()> {
        let release = |inner: &dyn Kernels| hand_on!(inner.kernel_release(kernel));
        self.call(Method::KernelsKernelRelease, Request::ANY, release)
    }

    unsafe fn program_release(&self, program: ProgramHandle) -> Result<()> {
        let release = |inner: &dyn Kernels| hand_on!(inner.program_release(program));
        self.call(Method::KernelsProgramRelease, Request::ANY, release)
    }
}
