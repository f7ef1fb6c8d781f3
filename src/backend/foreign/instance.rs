//! The instance of a table that one runtime has, calls of its functions, and their errors.
#![expect(unsafe_code, reason = "calls a driver's functions, whose table its maker vouches for")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;

use crate::backend::contract::MemoryInfo;
use crate::backend::contract::capacity::out_of_memory;
use crate::backend::foreign::table::{
    BackendTable, ErrorRecord, STATUS_DEVICE_LOST, STATUS_OK, STATUS_OUT_OF_MEMORY, STATUS_REFUSED,
    STATUS_UNSUPPORTED, StatusCode, TEXT_BYTES,
};
use crate::base::device::{Device, DeviceKind, MAX_DEVICE_INDEX};
use crate::base::error::{DriverError, Error, Result};
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

/// A call of a function of a table: what errors say of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) kind: DeviceKind,
    /// The function's name.
    pub(super) name: &'static str,
    /// Bytes that it asks for, if it asks for memory.
    pub(super) requested_bytes: usize,
}

impl ErrorRecord {
    pub(super) fn new() -> Self {
        Self {
            size_bytes: size_of::<Self>() as u64,
            code: 0,
            device: 0,
            free_bytes: 0,
            total_bytes: 0,
            text: [0; TEXT_BYTES],
        }
    }
}

/// The text of a field, which ends at its first zero or with the field.
pub(super) fn text(mut field: [c_char; TEXT_BYTES]) -> String {
    field[TEXT_BYTES - 1] = 0;
    // SAFETY: the field ends with a zero.
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
}

/// A size in a driver's record as a `usize`.
pub(super) fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

impl Call {
    /// What the call came to.
    pub(super) fn result(self, status: StatusCode, record: &ErrorRecord) -> Result<()> {
        let Self { kind, name, requested_bytes } = self;
        let of_driver = text(record.text);
        let index = usize::try_from(record.device).unwrap_or(usize::MAX);
        let device = Device::new(kind, index.min(usize::from(MAX_DEVICE_INDEX)))?;
        match status {
            STATUS_OK => Ok(()),
            STATUS_OUT_OF_MEMORY if requested_bytes > 0 => {
                let total_bytes = bytes(record.total_bytes);
                let free_bytes = bytes(record.free_bytes).min(total_bytes);
                Err(out_of_memory(device, requested_bytes, MemoryInfo { free_bytes, total_bytes }))
            }
            STATUS_DEVICE_LOST => {
                Err(Error::Driver(DriverError::DeviceLost { device, reason: of_driver }))
            }
            STATUS_UNSUPPORTED => {
                Err(Error::Driver(DriverError::Unsupported { kind, capability: name }))
            }
            STATUS_REFUSED => Err(Error::refused(kind, name, record.code, of_driver)),
            unknown => {
                let message = format!("it returned {unknown}, which is no status: {of_driver}");
                Err(Error::refused(kind, name, record.code, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::MemoryError;

    fn result(status: StatusCode, requested_bytes: usize, text: &[u8]) -> Result<()> {
        let mut record = ErrorRecord { code: -7, device: 1, free_bytes: 10, ..ErrorRecord::new() };
        record.total_bytes = 30;
        for (to, byte) in record.text.iter_mut().zip(text) {
            *to = c_char::from_ne_bytes([*byte]);
        }
        Call { kind: DeviceKind::NULL, name: "allocate", requested_bytes }.result(status, &record)
    }

    #[test]
    fn each_status_is_an_error_with_the_drivers_numbers_and_words() {
        assert!(result(STATUS_OK, 0, b"ignored").is_ok());
        let refused = result(STATUS_REFUSED, 0, b"no such queue").unwrap_err().to_string();
        assert_eq!(refused, "allocate failed on null with code -7: no such queue");
        let lost = result(STATUS_DEVICE_LOST, 0, b"too hot").unwrap_err().to_string();
        assert!(lost.contains("null:1") && lost.contains("too hot"), "{lost}");
        let unsupported = result(STATUS_UNSUPPORTED, 0, b"").unwrap_err().to_string();
        assert!(unsupported.contains("allocate"), "{unsupported}");
        let Err(Error::Memory(MemoryError::OutOfMemory { requested_bytes, free_bytes, .. })) =
            result(STATUS_OUT_OF_MEMORY, 64, b"")
        else {
            panic!("memory is short")
        };
        assert_eq!((requested_bytes, free_bytes), (64, 10));
        let unknown = result(99, 0, b"what").unwrap_err().to_string();
        assert!(unknown.contains("99") && unknown.contains("what"), "{unknown}");
    }

    #[test]
    fn a_text_without_an_end_ends_with_its_field() {
        let long = [b'a'; 2 * TEXT_BYTES];
        let refused = result(STATUS_REFUSED, 0, &long).unwrap_err().to_string();
        assert!(refused.ends_with(&"a".repeat(TEXT_BYTES - 1)), "{refused}");
        assert!(!refused.ends_with(&"a".repeat(TEXT_BYTES)), "{refused}");
    }
}
