//! Kinds from outside as libraries: the header is the table's layout, and others are refused.
//!
//! Goal: a driver that is compiled with the header fills in the table that this crate reads, in C
//! and in C++. Method: a program of static assertions, made of the layout in Rust, is compiled with
//! every warning an error. Whether a whole driver in C keeps its word is tested in
//! `examples/device`.

#![expect(unsafe_code, reason = "opens libraries that bring no kind")]

mod calls;
mod scripted;

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use accelrt::backend::foreign::table::{
    ArgumentRecord, BackendTable, ErrorRecord, KernelsTable, Owner, Parameter, Properties,
    TEXT_BYTES, VirtualMemoryTable, WorkSize,
};
use accelrt::kinds::KindLibrary;

/// Assertions of a structure: its size, and where each field is.
macro_rules! layout {
    ($text:ident, $c_name:literal, $type:ty: $($field:ident)*) => {
        let size = size_of::<$type>();
        assert_that($text, &format!("sizeof({}) == {size}", $c_name));
        $(
            let (field, offset) = (stringify!($field), offset_of!($type, $field));
            assert_that($text, &format!("offsetof({}, {field}) == {offset}", $c_name));
        )*
    };
}

fn assert_that(text: &mut String, condition: &str) {
    writeln!(text, "static_assert({condition}, \"{condition}\");").unwrap();
}

fn assertions() -> String {
    let text = &mut String::from(
        "#include <assert.h>\n#include <stddef.h>\n\
         #include \"accelrt.h\"\n#include \"accelrt_backend.h\"\n",
    );
    layout!(text, "accelrt_backend_error_record", ErrorRecord:
        size_bytes code device free_bytes total_bytes text);
    layout!(text, "accelrt_backend_properties", Properties:
        size_bytes name total_memory_bytes core_count page_bytes is_gpu has_shared_memory);
    layout!(text, "accelrt_backend_owner", Owner: base bytes device memory reserved);
    layout!(text, "accelrt_backend", BackendTable:
        size_bytes abi_version type_code name data open close device_count properties memory_info
        priority_range stream_create stream_destroy stream_wrap stream_native stream_flush
        stream_query stream_synchronize mark mark_done wait_mark stream_wait when_done elapsed_ns
        mark_release allocate allocate_shared release allocate_host release_host pointer_owner copy
        fill shutdown virtual_memory kernels);
    layout!(text, "accelrt_backend_virtual_memory", VirtualMemoryTable:
        size_bytes granularity_bytes reserve unreserve create map unmap relocate release);
    layout!(text, "accelrt_backend_kernels", KernelsTable:
        size_bytes compile kernel_count kernel_name kernel parameter_count parameter launch
        kernel_release program_release);
    layout!(text, "accelrt_backend_kernel_parameter", Parameter:
        size_bytes name type_name parameter_class value_bytes);
    layout!(text, "accelrt_backend_kernel_argument", ArgumentRecord:
        argument_class value_bytes number value);
    layout!(text, "accelrt_backend_work_size", WorkSize: global local dimensions);
    assert_that(text, &format!("ACCELRT_BACKEND_TEXT_BYTES == {TEXT_BYTES}"));
    text.push_str("int main(void) { return 0; }\n");
    std::mem::take(text)
}

#[test]
fn the_header_has_the_layout_of_the_table_in_c_and_in_cpp() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, standard, ending) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "cpp")] {
        let stem = format!("backend_layout_{}", std::process::id());
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(stem).with_extension(ending);
        std::fs::write(&file, assertions()).unwrap();
        let compiled = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
            .arg(&include)
            .arg(&file)
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let told = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{compiler} says:\n{told}");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_that_brings_no_kind_is_refused_with_its_name_and_the_reason() {
    let refusal = |path: &str| {
        // SAFETY: none of these has a function of that name.
        unsafe { KindLibrary::open(path) }.unwrap_err().to_string()
    };
    let missing = refusal("/nowhere/libnpu.so");
    for part in ["/nowhere/libnpu.so", "brings no kind of device", "No such file"] {
        assert!(missing.contains(part), "{part:?} in {missing}");
    }
    assert_eq!(
        refusal("libm.so.6"),
        "Library libm.so.6 brings no kind of device: \
         it exports no function accelrt_backend_table"
    );
}
