//! For backends of tests that hand most calls on to the one inside: `self.inner`.

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
            priority_range(device_index: usize) -> PriorityRange;
            has_host_addresses() -> bool;
            stream_create(device_index: usize, priority: i32) -> Result<StreamHandle>;
            allocate(device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;
            allocate_shared(device_index: usize, bytes: usize, align_bytes: usize)
                -> Result<Address>;
            allocate_host(bytes: usize) -> Result<Address>;
            pointer_owner(address: Address) -> Result<Option<PointerOwner>>;
            shutdown(deadline: Instant) -> Leftover;
        }
        hand_on_unsafe! {
            stream_destroy(stream: StreamHandle) -> Result<()>;
            stream_wrap(device_index: usize, native: u64) -> Result<StreamHandle>;
            stream_native(stream: StreamHandle) -> Result<u64>;
            stream_query(stream: StreamHandle) -> Result<bool>;
            stream_synchronize(stream: StreamHandle) -> Result<()>;
            mark(stream: StreamHandle, timed: bool) -> Result<Mark>;
            mark_done(mark: Mark) -> Result<bool>;
            wait_mark(mark: Mark) -> Result<()>;
            stream_wait(stream: StreamHandle, mark: Mark) -> Result<()>;
            elapsed_ns(start: Mark, end: Mark) -> Result<i64>;
            mark_release(mark: Mark) -> Result<()>;
            release(device_index: usize, address: Address) -> Result<()>;
            release_host(address: Address) -> Result<()>;
            copy(stream: StreamHandle, to: Address, from: Address, bytes: usize) -> Result<()>;
            fill(stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()>;
        }
    };
}
