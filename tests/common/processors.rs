//! The processors that this process may use, and pinning to them.
#![expect(unsafe_code, reason = "processor sets are the C library's")]

use std::mem::MaybeUninit;

/// The processors that this thread may run on.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is as large as is said.
    let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr()) };
    assert_eq!(failed, 0, "a thread may ask where it may run");
    // SAFETY: zeros are a set, and the call above wrote one.
    let set = unsafe { set.assume_init() };
    let limit = usize::try_from(libc::CPU_SETSIZE).expect("a size");
    // SAFETY: `cpu` is below the size of a set.
    (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Keeps this thread, and those it starts from now on, on these processors.
pub(crate) fn pin(cpus: &[usize]) {
    let set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: zeros are the empty set.
    let mut set = unsafe { set.assume_init() };
    for cpu in cpus {
        // SAFETY: the processors come from such a set, so they fit into one.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the set is as large as is said.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(failed, 0, "a thread may keep to processors that it was allowed");
}
