//! The driver of `tests/allocator` on a device of numbers, with programs that libFuzzer makes.
#![no_main]

#[path = "../../tests/allocator/driver/mod.rs"]
#[expect(dead_code, reason = "on cpu there are threads, whose order the fuzzer cannot choose")]
mod driver;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    driver::run_on_numbers(bytes);
    driver::run_short_of_memory(bytes);
});
