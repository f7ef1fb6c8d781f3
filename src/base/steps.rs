//! Counts the steps of code paths, for unit tests that bound them; other builds count nothing.

#[inline]
pub(crate) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(all(test, not(loom)))]
pub(crate) fn steps_of<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = call();
    (result, STEPS.get() - before)
}
