//! What one runtime has of a table: the instance that `open` made, and how functions are called.
#![expect(unsafe_code, reason = "calls a driver's functions, whose table its maker vouches for")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::backend::foreign::status::Call;
use crate::backend::foreign::table::{BackendTable, ErrorRecord, STATUS_UNSUPPORTED, StatusCode};
use crate::base::device::DeviceKind;
use crate::base::error::Result;
use crate::base::fork;

/// An instance of a driver, which the drop closes.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) kind: DeviceKind,
    pub(super) table: BackendTable,
    /// What every function but `open` gets.
    pub(super) this: *mut c_void,
}

// SAFETY: the table's maker promises that any thread may call any function, also at once.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl Instance {
    /// # Safety
    /// The table's functions do what `include/accelrt_backend.h` says, as long as the process runs.
    pub(super) unsafe fn open(kind: DeviceKind, table: &BackendTable) -> Result<Arc<Self>> {
        let (mut this, mut record) = (ptr::null_mut(), ErrorRecord::new());
        let status = match table.open {
            // SAFETY: the caller promises that the function opens an instance.
            Some(open) => unsafe { open(table.data, &raw mut this, &raw mut record) },
            None => STATUS_UNSUPPORTED,
        };
        Call { kind, name: "open", requested_bytes: 0 }.result(status, &record)?;
        Ok(Arc::new(Self { kind, table: *table, this }))
    }

    /// The result of a call that `call` makes, of the function `name`. `device` is the one that
    /// errors name, unless the driver names another.
    pub(super) fn call(
        &self,
        name: &'static str,
        requested_bytes: usize,
        device: u64,
        call: impl FnOnce(*mut c_void, *mut ErrorRecord) -> StatusCode,
    ) -> Result<()> {
        let mut record = ErrorRecord { device, ..ErrorRecord::new() };
        let status = call(self.this, &raw mut record);
        Call { kind: self.kind, name, requested_bytes }.result(status, &record)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(close) = self.table.close
            && !fork::is_child()
        {
            // SAFETY: `open` opened the instance, and nothing uses it any more.
            unsafe { close(self.this) };
        }
    }
}

/// Calls a function of a table, by an [`Instance`]; one that is not there is unsupported.
/// `for BYTES of DEVICE` says what errors name.
macro_rules! call_instance {
    ($instance:expr, $table:expr, $function:ident($($argument:expr),*)) => {
        call_instance!($instance, $table, $function($($argument),*), for 0 of 0)
    };
    (
        $instance:expr, $table:expr, $function:ident($($argument:expr),*),
        for $bytes:tt of $device:expr
    ) => {
        $instance.call(stringify!($function), $bytes, $device, |this, error| {
            match $table.$function {
                // SAFETY: the table's maker promises that the function does what the header says,
                // for the instance that it opened. Pointers are to locals that live until it
                // returns.
                Some(function) => unsafe { function(this, $($argument,)* error) },
                None => $crate::backend::foreign::table::STATUS_UNSUPPORTED,
            }
        })
    };
}
pub(super) use call_instance;
