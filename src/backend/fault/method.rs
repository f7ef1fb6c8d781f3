//! The fallible methods of the backend contract.

use std::fmt;

/// A fallible method. The prefix `Vm` means a method of `VirtualMemory`, the prefix `Kernels` a
/// method of `Kernels`, and no prefix a method of `Backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is named after its method, documented at the trait")]
pub enum Method {
    DeviceCount,
    Properties,
    MemoryInfo,
    StreamCreate,
    StreamDestroy,
    StreamWrap,
    StreamNative,
    StreamQuery,
    StreamSynchronize,
    Mark,
    MarkDone,
    WaitMark,
    StreamWait,
    WhenDone,
    ElapsedNs,
    MarkRelease,
    Allocate,
    AllocateShared,
    Release,
    AllocateHost,
    ReleaseHost,
    PointerOwner,
    Copy,
    Fill,
    VmReserve,
    VmUnreserve,
    VmCreate,
    VmMap,
    VmUnmap,
    VmRelocate,
    VmRelease,
    KernelsCompile,
    KernelsNames,
    KernelsKernel,
    KernelsParameters,
    KernelsLaunch,
    KernelsKernelRelease,
    KernelsProgramRelease,
}

impl Method {
    /// All methods, in the order of the traits.
    pub const ALL: [Self; 38] = [
        Self::DeviceCount,
        Self::Properties,
        Self::MemoryInfo,
        Self::StreamCreate,
        Self::StreamDestroy,
        Self::StreamWrap,
        Self::StreamNative,
        Self::StreamQuery,
        Self::StreamSynchronize,
        Self::Mark,
        Self::MarkDone,
        Self::WaitMark,
        Self::StreamWait,
        Self::WhenDone,
        Self::ElapsedNs,
        Self::MarkRelease,
        Self::Allocate,
        Self::AllocateShared,
        Self::Release,
        Self::AllocateHost,
        Self::ReleaseHost,
        Self::PointerOwner,
        Self::Copy,
        Self::Fill,
        Self::VmReserve,
        Self::VmUnreserve,
        Self::VmCreate,
        Self::VmMap,
        Self::VmUnmap,
        Self::VmRelocate,
        Self::VmRelease,
        Self::KernelsCompile,
        Self::KernelsNames,
        Self::KernelsKernel,
        Self::KernelsParameters,
        Self::KernelsLaunch,
        Self::KernelsKernelRelease,
        Self::KernelsProgramRelease,
    ];

    /// The method's name, with the prefix `VirtualMemory::` or `Kernels::` for these traits.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeviceCount => "device_count",
            Self::Properties => "properties",
            Self::MemoryInfo => "memory_info",
            Self::StreamCreate => "stream_create",
            Self::StreamDestroy => "stream_destroy",
            Self::StreamWrap => "stream_wrap",
            Self::StreamNative => "stream_native",
            Self::StreamQuery => "stream_query",
            Self::StreamSynchronize => "stream_synchronize",
            Self::Mark => "mark",
            Self::MarkDone => "mark_done",
            Self::WaitMark => "wait_mark",
            Self::StreamWait => "stream_wait",
            Self::WhenDone => "when_done",
            Self::ElapsedNs => "elapsed_ns",
            Self::MarkRelease => "mark_release",
            Self::Allocate => "allocate",
            Self::AllocateShared => "allocate_shared",
            Self::Release => "release",
            Self::AllocateHost => "allocate_host",
            Self::ReleaseHost => "release_host",
            Self::PointerOwner => "pointer_owner",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::VmReserve => "VirtualMemory::reserve",
            Self::VmUnreserve => "VirtualMemory::unreserve",
            Self::VmCreate => "VirtualMemory::create",
            Self::VmMap => "VirtualMemory::map",
            Self::VmUnmap => "VirtualMemory::unmap",
            Self::VmRelocate => "VirtualMemory::relocate",
            Self::VmRelease => "VirtualMemory::release",
            Self::KernelsCompile => "Kernels::compile",
            Self::KernelsNames => "Kernels::kernel_names",
            Self::KernelsKernel => "Kernels::kernel",
            Self::KernelsParameters => "Kernels::parameters",
            Self::KernelsLaunch => "Kernels::launch",
            Self::KernelsKernelRelease => "Kernels::kernel_release",
            Self::KernelsProgramRelease => "Kernels::program_release",
        }
    }

    /// True for the methods that allocate.
    #[must_use]
    pub const fn takes_memory(self) -> bool {
        matches!(
            self,
            Self::Allocate
                | Self::AllocateShared
                | Self::AllocateHost
                | Self::VmReserve
                | Self::VmCreate
        )
    }

    /// True for the methods that release. A planned failure of these methods first makes the inner
    /// call.
    #[must_use]
    pub const fn is_release(self) -> bool {
        matches!(
            self,
            Self::StreamDestroy
                | Self::MarkRelease
                | Self::Release
                | Self::ReleaseHost
                | Self::VmUnreserve
                | Self::VmUnmap
                | Self::VmRelease
                | Self::KernelsKernelRelease
                | Self::KernelsProgramRelease
        )
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file of the contract.
    const CONTRACT: [&str; 3] = [
        include_str!("../contract.rs"),
        include_str!("../contract/virtual_memory.rs"),
        include_str!("../contract/kernels.rs"),
    ];

    /// The names of a contract trait's methods that return a `Result`.
    fn fallible(trait_head: &str, prefix: &str) -> Vec<String> {
        // `unsafe` does not matter for fallibility.
        let contract = CONTRACT.concat().replace("unsafe fn ", "fn ");
        let body = contract.split_once(trait_head).expect("the trait is in the contract").1;
        let body = body.split_once("\n}").expect("a trait ends").0;
        let signatures = body.split("\n    fn ").skip(1);
        let fallible = signatures.filter_map(|text| {
            let signature = text.split([';', '{']).next()?;
            let name = signature.split_once('(')?.0;
            signature.contains("-> Result").then(|| format!("{prefix}{name}"))
        });
        fallible.collect()
    }

    #[test]
    fn every_fallible_method_of_the_contract_is_listed_once_and_in_order() {
        // Goal: a method added to a trait is never forgotten here. Method: parse the signatures in
        // the contract's source.
        let mut expected = fallible("pub unsafe trait Backend:", "");
        expected.extend(fallible("pub unsafe trait VirtualMemory:", "VirtualMemory::"));
        expected.extend(fallible("pub unsafe trait Kernels:", "Kernels::"));
        let listed: Vec<&str> = Method::ALL.into_iter().map(Method::name).collect();
        assert_eq!(listed, expected);
        for (place, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(method as usize, place, "{method} stands where its number says");
        }
    }
}
