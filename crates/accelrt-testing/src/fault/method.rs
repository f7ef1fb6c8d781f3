//! [`Method`] names every fallible method of the backend contract.

use std::fmt;

/// Declares [`Method`], [`Method::ALL`] and [`Method::name`] from one list.
macro_rules! methods {
    ($($method:ident = $name:literal,)*) => {
        /// A fallible method of the backend contract. The prefix `Vm` marks a method of the trait
        /// `VirtualMemory`, the prefix `Kernels` one of `Kernels`; all others belong to `Backend`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $(
                #[doc = concat!("`", $name, "`")]
                $method,
            )*
        }

        impl Method {
            /// All methods: those of `Backend`, `VirtualMemory` and `Kernels`, in this order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$method),*];

            /// The method's name, with the prefix `VirtualMemory::` or `Kernels::` of its trait.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$method => $name,)*
                }
            }
        }
    };
}

methods! {
    DeviceCount = "device_count",
    Properties = "properties",
    MemoryInfo = "memory_info",
    StreamCreate = "stream_create",
    StreamDestroy = "stream_destroy",
    StreamWrap = "stream_wrap",
    StreamNative = "stream_native",
    StreamQuery = "stream_query",
    StreamSynchronize = "stream_synchronize",
    Mark = "mark",
    MarkDone = "mark_done",
    WaitMark = "wait_mark",
    StreamWait = "stream_wait",
    WhenDone = "when_done",
    ElapsedNs = "elapsed_ns",
    MarkRelease = "mark_release",
    Allocate = "allocate",
    AllocateShared = "allocate_shared",
    Release = "release",
    AllocateHost = "allocate_host",
    ReleaseHost = "release_host",
    PointerOwner = "pointer_owner",
    Copy = "copy",
    Fill = "fill",
    VmReserve = "VirtualMemory::reserve",
    VmUnreserve = "VirtualMemory::unreserve",
    VmCreate = "VirtualMemory::create",
    VmMap = "VirtualMemory::map",
    VmUnmap = "VirtualMemory::unmap",
    VmRelocate = "VirtualMemory::relocate",
    VmRelease = "VirtualMemory::release",
    KernelsCompile = "Kernels::compile",
    KernelsNames = "Kernels::kernel_names",
    KernelsKernel = "Kernels::kernel",
    KernelsParameters = "Kernels::parameters",
    KernelsLaunch = "Kernels::launch",
    KernelsKernelRelease = "Kernels::kernel_release",
    KernelsProgramRelease = "Kernels::program_release",
}

impl Method {
    /// True for methods that take memory or addresses, which can fail with `OutOfMemory`.
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

    /// True for methods that release a resource. A planned failure of such a method still releases:
    /// the fault backend makes the inner call before it reports the error.
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

    /// The source files that declare the contract's traits.
    const CONTRACT: [&str; 2] = [
        include_str!("../../../../src/backend/contract.rs"),
        include_str!("../../../../src/backend/contract/capabilities.rs"),
    ];

    /// Provided methods that the fault backend keeps: they call others, each of which may fail.
    const MADE_OF_OTHERS: [&str; 2] = ["create_mapped", "relocate_all"];

    /// Lists the methods of a trait that return a `Result`, each as `prefix` and its name.
    fn fallible(trait_head: &str, prefix: &str) -> Vec<String> {
        // Removes `unsafe`, so that the split below finds safe and unsafe methods.
        let contract = CONTRACT.concat().replace("unsafe fn ", "fn ");
        let body = contract.split_once(trait_head).expect("the trait is in the contract").1;
        let body = body.split_once("\n}").expect("a trait ends").0;
        let signatures = body.split("\n    fn ").skip(1);
        let fallible = signatures.filter_map(|text| {
            let signature = text.split([';', '{']).next()?;
            let name = signature.split_once('(')?.0;
            let is_listed = signature.contains("-> Result") && !MADE_OF_OTHERS.contains(&name);
            is_listed.then(|| format!("{prefix}{name}"))
        });
        fallible.collect()
    }

    #[test]
    fn every_fallible_method_of_the_contract_is_listed_once_and_in_order() {
        // Goal: `Method` lists every fallible method, also one that a trait gains later. Method:
        // parse the signatures in the contract's source.
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
