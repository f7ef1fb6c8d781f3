//! The unsafe methods of backends whose arguments are handles and addresses, for macros over them.

/// Gives `each!` their signatures.
macro_rules! for_unsafe_methods {
    ($each:ident) => {
        $each! {
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
