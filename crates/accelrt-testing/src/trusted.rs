//! Backends whose contract the test keeps: their unsafe methods, without a block at each call.
//!
//! A test that breaks a promise on purpose does so on the null kind, which looks everything up.
#![expect(unsafe_code, reason = "calls what tests keep the contract of")]
#![cfg_attr(
    test,
    allow(dead_code, unreachable_pub, reason = "unit tests of accelrt use some of it")
)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use accelrt::Result;
use accelrt::backend::contract::{
    Address, Backend, DoneCallback, KernelHandle, KernelParameter, Kernels, LaunchArgument,
    LaunchSize, Mark, PagePlaces, PhysicalHandle, ProgramHandle, StreamHandle, VirtualMemory, Work,
};

#[macro_use]
#[path = "unsafe_methods.rs"]
mod unsafe_methods;

/// A backend.
#[derive(Debug)]
pub struct Trusted<B: ?Sized = dyn Backend>(pub Arc<B>);

/// Pages.
#[derive(Clone, Copy, Debug)]
pub struct TrustedPages<M>(pub M);

/// Its kernels.
#[derive(Clone, Copy)]
pub struct TrustedKernels<'a>(pub &'a dyn Kernels);

impl fmt::Debug for TrustedKernels<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TrustedKernels")
    }
}

/// Safe methods, by the same names, for methods that are not.
macro_rules! trusted {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(pub fn $method(&self, $($name: $kind),*) -> $returned {
            // SAFETY: the test keeps the contract of `Backend`: it makes its handles itself, gives
            // each back once, and names memory that it has.
            unsafe { self.0.$method($($name),*) }
        })*
    };
}

impl<B: Backend + ?Sized> Trusted<B> {
    for_unsafe_methods!(trusted);
    trusted! {
        submit(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        resume(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        when_done(mark: Mark, callback: DoneCallback) -> Result<()>;
    }

    pub fn virtual_memory(&self, device_index: usize) -> Option<TrustedPages<&dyn VirtualMemory>> {
        self.0.virtual_memory(device_index).map(TrustedPages)
    }

    pub fn kernels(&self) -> Option<TrustedKernels<'_>> {
        self.0.kernels().map(TrustedKernels)
    }
}

impl<M: Deref<Target: VirtualMemory>> TrustedPages<M> {
    trusted! {
        unreserve(range: Address, bytes: usize) -> Result<()>;
        map(to: Address, physical: PhysicalHandle) -> Result<()>;
        unmap(physical: PhysicalHandle) -> Result<()>;
        relocate(physical: PhysicalHandle, to: Address) -> Result<()>;
        create_mapped(
            places: PagePlaces<'_>,
            mapped: &mut Vec<PhysicalHandle>
        ) -> Result<()>;
        relocate_all(
            pieces: &[PhysicalHandle],
            places: PagePlaces<'_>,
            relocated: &mut Vec<PhysicalHandle>
        ) -> Result<()>;
        release(physical: PhysicalHandle) -> Result<()>;
    }
}

impl TrustedKernels<'_> {
    trusted! {
        kernel_names(program: ProgramHandle) -> Result<Vec<String>>;
        kernel(program: ProgramHandle, name: &str) -> Result<KernelHandle>;
        parameters(kernel: KernelHandle) -> Result<Vec<KernelParameter>>;
        launch(
            kernel: KernelHandle,
            stream: StreamHandle,
            arguments: &[LaunchArgument],
            size: &LaunchSize
        ) -> Result<()>;
        kernel_release(kernel: KernelHandle) -> Result<()>;
        program_release(program: ProgramHandle) -> Result<()>;
    }
}

impl<B: ?Sized> Clone for Trusted<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: ?Sized> Deref for Trusted<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

impl<M: Deref> Deref for TrustedPages<M> {
    type Target = M::Target;

    fn deref(&self) -> &M::Target {
        &self.0
    }
}

impl<'a> Deref for TrustedKernels<'a> {
    type Target = dyn Kernels + 'a;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}
