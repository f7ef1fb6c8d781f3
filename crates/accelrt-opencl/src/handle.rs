//! Handles of streams, programs and kernels: addresses of reference-counted objects.
#![expect(unsafe_code, reason = "a handle is the address of an object")]
use std::mem::ManuallyDrop;
use std::sync::Arc;

use accelrt::size::to_usize;

/// A borrowed object: dropping the borrow releases no reference, because the handle holds it.
pub(crate) type Borrowed<T> = ManuallyDrop<Arc<T>>;

/// Creates a handle of an object. The handle holds a reference until [`end`] returns it.
pub(crate) fn issue<T>(object: Arc<T>) -> u64 {
    Arc::into_raw(object).expose_provenance() as u64
}

/// Borrows the object behind a handle, without a new reference.
///
/// # Safety
/// [`issue`] returned the handle for a `T`, and the handle is live.
pub(crate) unsafe fn borrow<T>(handle: u64) -> Borrowed<T> {
    let object = std::ptr::with_exposed_provenance(to_usize(handle));
    // SAFETY: the caller upholds that `issue` exposed the address of a `T`, and that the handle's
    // reference is not released.
    ManuallyDrop::new(unsafe { Arc::from_raw(object) })
}

/// Ends a handle and returns its reference.
///
/// # Safety
/// As [`borrow`], and the handle must not be used again.
pub(crate) unsafe fn end<T>(handle: u64) -> Arc<T> {
    // SAFETY: the caller upholds the conditions of `borrow`, and never uses the handle again.
    ManuallyDrop::into_inner(unsafe { borrow(handle) })
}
