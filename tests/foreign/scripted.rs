//! A table whose functions note their calls, and fail where the test's script says so.

#![expect(unsafe_code, reason = "makes a table, and the functions in it")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex};

use accelrt::DeviceKind;
use accelrt::backend::contract::Backend;
use accelrt::backend::foreign::table::{
    ABI_VERSION, ArgumentRecord, BackendTable, Callback, ErrorRecord, KernelsTable, MEMORY_SHARED,
    Owner, PARAMETER_FLOAT, PARAMETER_POINTER, Parameter, Properties, STATUS_OK,
    VirtualMemoryTable, WorkSize,
};
use accelrt::backend::foreign::{ForeignBackend, check_table};

/// What the instance is: the calls so far, and what to answer.
#[derive(Debug, Default)]
pub(crate) struct Script {
    calls: Mutex<Vec<String>>,
    /// The function that fails, and its status.
    failure: Mutex<Option<(&'static str, i32)>>,
}

impl Script {
    /// A script for one table, for as long as the process lives.
    pub(crate) fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// The calls since the last look.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn fail(&self, function: &'static str, status: i32) {
        *self.failure.lock().unwrap() = Some((function, status));
    }
}

/// Notes a call, and answers it. Failures have code 7 and 60 of 100 bytes free.
fn answer(this: *mut c_void, name: &str, arguments: &str, error: *mut ErrorRecord) -> i32 {
    // SAFETY: `open` gave this address, of a script that is never dropped.
    let script = unsafe { &*this.cast::<Script>() };
    script.calls.lock().unwrap().push(format!("{name}({arguments})"));
    let failure = *script.failure.lock().unwrap();
    let Some((_, status)) = failure.filter(|(function, _)| *function == name) else {
        return STATUS_OK;
    };
    // SAFETY: the adapter gives the address of a local.
    let error = unsafe { &mut *error };
    (error.code, error.free_bytes, error.total_bytes) = (7, 60, 100);
    text_into(&mut error.text, b"as the script says");
    status
}

unsafe extern "C" fn open(
    data: *mut c_void,
    this: *mut *mut c_void,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { this.write(data) };
    answer(data, "open", "", error)
}

unsafe extern "C" fn close(this: *mut c_void) {
    answer(this, "close", "", std::ptr::null_mut());
}

/// Defines functions that note their arguments. The value behind `=>` is what the pointer in front
/// of the error gets.
macro_rules! functions {
    ($(
        $name:ident($($argument:ident: $type:ty),*)
        $(=> $out:ident: $out_type:ty = $value:expr)?;
    )*) => {
        $(unsafe extern "C" fn $name(
            this: *mut c_void,
            $($argument: $type,)*
            $($out: *mut $out_type,)?
            error: *mut ErrorRecord,
        ) -> i32 {
            $(
                // SAFETY: the adapter gives the address of a local.
                unsafe { $out.write($value) };
            )?
            let arguments: Vec<String> = vec![$(format!("{}", $argument)),*];
            answer(this, stringify!($name), &arguments.join(", "), error)
        })*
    };
}

functions! {
    device_count() => count: u64 = 2;
    stream_create(device: u64, priority: i32) => stream: u64 = 11;
    stream_destroy(stream: u64);
    stream_wrap(device: u64, native: u64) => stream: u64 = native + 1;
    stream_native(stream: u64) => native: u64 = stream - 1;
    stream_flush(stream: u64);
    stream_query(stream: u64) => is_done: u32 = 1;
    stream_synchronize(stream: u64);
    mark(stream: u64, is_timed: u32) => mark: u64 = 21;
    mark_done(mark: u64) => is_done: u32 = 1;
    wait_mark(mark: u64);
    stream_wait(stream: u64, mark: u64);
    elapsed_ns(start: u64, end: u64) => ns: i64 = 77;
    mark_release(mark: u64);
    allocate(device: u64, bytes: u64, align: u64) => address: u64 = 1 << 40;
    allocate_shared(device: u64, bytes: u64, align: u64) => address: u64 = 2 << 40;
    release(device: u64, address: u64);
    allocate_host(bytes: u64, align: u64) => address: u64 = 3 << 40;
    release_host(address: u64);
    pointer_owner(address: u64) => owner: Owner =
        Owner { base: address - 1, bytes: 8, device: 1, memory: MEMORY_SHARED, reserved: 0 };
    copy(stream: u64, to: u64, from: u64, bytes: u64);
    fill(stream: u64, to: u64, byte: u32, bytes: u64);
    granularity_bytes(device: u64) => bytes: u64 = 4096;
    reserve(device: u64, bytes: u64) => address: u64 = 4 << 40;
    unreserve(device: u64, address: u64, bytes: u64);
    create(device: u64, bytes: u64) => physical: u64 = 31;
    map(device: u64, address: u64, physical: u64);
    unmap(device: u64, physical: u64);
    relocate(device: u64, physical: u64, address: u64);
    release_pages(device: u64, physical: u64);
    kernel_count(program: u64) => count: u64 = 2;
    parameter_count(kernel: u64) => count: u64 = 2;
    kernel_release(kernel: u64);
    program_release(program: u64);
    shutdown();
}

unsafe extern "C" fn memory_info(
    this: *mut c_void,
    device: u64,
    free: *mut u64,
    total: *mut u64,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { free.write(600) };
    // SAFETY: as above.
    unsafe { total.write(1000) };
    answer(this, "memory_info", &device.to_string(), error)
}

unsafe extern "C" fn priority_range(
    this: *mut c_void,
    device: u64,
    least: *mut i32,
    greatest: *mut i32,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { least.write(3) };
    // SAFETY: as above.
    unsafe { greatest.write(-2) };
    answer(this, "priority_range", &device.to_string(), error)
}

unsafe extern "C" fn properties(
    this: *mut c_void,
    device: u64,
    properties: *mut Properties,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    let properties = unsafe { &mut *properties };
    assert_eq!(properties.size_bytes, size_of::<Properties>() as u64);
    text_into(&mut properties.name, b"scripted");
    (properties.total_memory_bytes, properties.is_gpu) = (1000, 1);
    answer(this, "properties", &device.to_string(), error)
}

unsafe extern "C" fn when_done(
    this: *mut c_void,
    mark: u64,
    callback: Callback,
    data: *mut c_void,
    error: *mut ErrorRecord,
) -> i32 {
    let status = answer(this, "when_done", &mark.to_string(), error);
    if status == STATUS_OK {
        // SAFETY: the adapter gave both for one call.
        unsafe { callback(data) };
    }
    status
}

unsafe extern "C" fn compile(
    this: *mut c_void,
    device: u64,
    source: *const c_char,
    bytes: u64,
    is_binary: u32,
    options: *const c_char,
    program: *mut u64,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { program.write(41) };
    // SAFETY: the source has so many bytes.
    let source = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), as_usize(bytes)) };
    // SAFETY: options end with a zero.
    let options = unsafe { CStr::from_ptr(options) };
    let arguments = format!("{device}, {source:?}, {is_binary}, {options:?}");
    answer(this, "compile", &arguments, error)
}

unsafe extern "C" fn kernel_name(
    this: *mut c_void,
    program: u64,
    index: u64,
    name: *mut c_char,
    capacity: u64,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives a text of this capacity.
    let name = unsafe { std::slice::from_raw_parts_mut(name, as_usize(capacity)) };
    text_into(name, if index == 0 { b"first" } else { b"other" });
    answer(this, "kernel_name", &format!("{program}, {index}"), error)
}

unsafe extern "C" fn kernel(
    this: *mut c_void,
    program: u64,
    name: *const c_char,
    kernel: *mut u64,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { kernel.write(51) };
    // SAFETY: a name ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    answer(this, "kernel", &format!("{program}, {name:?}"), error)
}

unsafe extern "C" fn parameter(
    this: *mut c_void,
    kernel: u64,
    index: u64,
    parameter: *mut Parameter,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    let parameter = unsafe { &mut *parameter };
    text_into(&mut parameter.name, b"x");
    text_into(&mut parameter.type_name, b"float");
    (parameter.parameter_class, parameter.value_bytes) =
        if index == 0 { (PARAMETER_POINTER, 0) } else { (PARAMETER_FLOAT, 4) };
    answer(this, "parameter", &format!("{kernel}, {index}"), error)
}

unsafe extern "C" fn launch(
    this: *mut c_void,
    kernel: u64,
    stream: u64,
    arguments: *const ArgumentRecord,
    count: u64,
    size: *const WorkSize,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives so many arguments.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, as_usize(count)) };
    // SAFETY: the adapter gives the address of a local.
    let size = unsafe { &*size };
    let argument = |it: &ArgumentRecord| {
        format!("{}:{}:{:?}", it.argument_class, it.number, &it.value[..it.value_bytes as usize])
    };
    let arguments: Vec<String> = arguments.iter().map(argument).collect();
    let size = format!("{:?} by {:?} in {}", size.global, size.local, size.dimensions);
    let arguments = format!("{kernel}, {stream}, {}, {size}", arguments.join(" "));
    answer(this, "launch", &arguments, error)
}

fn text_into(buffer: &mut [c_char], text: &[u8]) {
    for (to, from) in buffer.iter_mut().zip(text) {
        *to = from.cast_signed();
    }
}

pub(crate) static PAGES: VirtualMemoryTable = VirtualMemoryTable {
    size_bytes: size_of::<VirtualMemoryTable>() as u64,
    granularity_bytes: Some(granularity_bytes),
    reserve: Some(reserve),
    unreserve: Some(unreserve),
    create: Some(create),
    map: Some(map),
    unmap: Some(unmap),
    relocate: Some(relocate),
    release: Some(release_pages),
};

pub(crate) static KERNELS: KernelsTable = KernelsTable {
    size_bytes: size_of::<KernelsTable>() as u64,
    compile: Some(compile),
    kernel_count: Some(kernel_count),
    kernel_name: Some(kernel_name),
    kernel: Some(kernel),
    parameter_count: Some(parameter_count),
    parameter: Some(parameter),
    launch: Some(launch),
    kernel_release: Some(kernel_release),
    program_release: Some(program_release),
};

/// A whole table, whose instance is this script.
pub(crate) fn table(name: &'static CStr, type_code: u32, script: &'static Script) -> BackendTable {
    BackendTable {
        size_bytes: size_of::<BackendTable>() as u64,
        abi_version: ABI_VERSION,
        type_code,
        name: name.as_ptr(),
        data: std::ptr::from_ref(script).cast_mut().cast(),
        open: Some(open),
        close: Some(close),
        device_count: Some(device_count),
        properties: Some(properties),
        memory_info: Some(memory_info),
        priority_range: Some(priority_range),
        stream_create: Some(stream_create),
        stream_destroy: Some(stream_destroy),
        stream_wrap: Some(stream_wrap),
        stream_native: Some(stream_native),
        stream_flush: Some(stream_flush),
        stream_query: Some(stream_query),
        stream_synchronize: Some(stream_synchronize),
        mark: Some(mark),
        mark_done: Some(mark_done),
        wait_mark: Some(wait_mark),
        stream_wait: Some(stream_wait),
        when_done: Some(when_done),
        elapsed_ns: Some(elapsed_ns),
        mark_release: Some(mark_release),
        allocate: Some(allocate),
        allocate_shared: Some(allocate_shared),
        release: Some(release),
        allocate_host: Some(allocate_host),
        release_host: Some(release_host),
        pointer_owner: Some(pointer_owner),
        copy: Some(copy),
        fill: Some(fill),
        shutdown: Some(shutdown),
        virtual_memory: &raw const PAGES,
        kernels: &raw const KERNELS,
    }
}

/// Why a table is refused.
pub(crate) fn refusal(table: &BackendTable) -> String {
    // SAFETY: it is a table, and what it points to are tables.
    unsafe { check_table(std::ptr::from_ref(table).cast()) }.unwrap_err()
}

/// A backend of a table.
pub(crate) fn opened(table: &BackendTable) -> Arc<dyn Backend> {
    // SAFETY: as above.
    let checked = unsafe { check_table(std::ptr::from_ref(table).cast()) };
    let (table, name) = checked.unwrap();
    let kind = DeviceKind::register(&name, u8::try_from(table.type_code).unwrap()).unwrap();
    // SAFETY: the functions above do what the header says, as far as a test looks.
    unsafe { ForeignBackend::open(kind, &table) }.unwrap()
}

/// A backend of a whole table.
pub(crate) fn backend(
    name: &'static CStr,
    type_code: u32,
    script: &'static Script,
) -> Arc<dyn Backend> {
    opened(&table(name, type_code, script))
}

fn as_usize(count: u64) -> usize {
    usize::try_from(count).unwrap()
}
