//! For backends of tests that hand most calls on to the one inside: `self.inner`.

#[macro_use]
#[path = "../../crates/accelrt-testing/src/unsafe_methods.rs"]
mod unsafe_methods;

/// Unsafe methods that only call the one inside.
macro_rules! hand_on_unsafe {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(unsafe fn $method(&self, $($name: $kind),*) -> $returned {
            // SAFETY: the caller promises of handles and addresses what the one inside asks for,
            // which made them.
            unsafe { self.inner.$method($($name),*) }
        })*
    };
}

/// Methods that only call the one inside.
macro_rules! hand_on {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(fn $method(&self, $($name: $kind),*) -> $returned {
            self.inner.$method($($name),*)
        })*
    };
}

/// Everything but who executes (`runs_on_host`, `submit`, `resume`) and `when_done`.
macro_rules! hand_on_the_usual {
    () => {
        hand_on! {
            kind() -> DeviceKind;
            device_count() -> Result<usize>;
            properties(device_index: usize) -> Result<DeviceProperties>;
            memory_info(device_index: usize) -> Result<MemoryInfo>;
            available_bytes(device_index: usize) -> Option<usize>;
            host_memory_info() -> Option<MemoryInfo>;
            priority_range(device_index: usize) -> PriorityRange;
            has_host_addresses() -> bool;
            stream_create(device_index: usize, priority: i32) -> Result<StreamHandle>;
            allocate(device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;
            allocate_shared(device_index: usize, bytes: usize, align_bytes: usize)
                -> Result<Address>;
            allocate_host(bytes: usize, align_bytes: usize) -> Result<Address>;
            pointer_owner(address: Address) -> Result<Option<PointerOwner>>;
            shutdown(deadline: Instant) -> Leftover;
        }
        for_unsafe_methods!(hand_on_unsafe);
    };
}
