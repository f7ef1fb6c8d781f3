//! Calls: each method of the contract reaches the table's function, and failures come back.
#![expect(unsafe_code, reason = "passes numbers that the scripted table accepts")]

use std::ffi::c_void;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use accelrt::backend::contract::{
    Address, KernelHandle, KernelParameter, LaunchArgument, LaunchSize, Leftover, Mark, MemoryKind,
    ParameterClass, PhysicalHandle, PointerOwner, PriorityRange, ProgramHandle, ProgramSource,
    StreamHandle, Turn, ValueBytes, Work,
};
use accelrt::backend::foreign::table::{
    BackendTable, ErrorRecord, KernelsTable, Owner, STATUS_OUT_OF_MEMORY, STATUS_REFUSED,
    VirtualMemoryTable,
};
use accelrt::{DriverError, Error, MemoryError};

use crate::scripted::{KERNELS, PAGES, Script, backend, opened, refusal, table};

#[test]
fn probing_says_what_the_table_says() {
    let script = Script::new();
    let backend = backend(c"probed", 90, script);
    assert_eq!(script.take(), ["open()"]);
    assert_eq!(backend.kind().name(), "probed");
    assert_eq!(backend.device_count().unwrap(), 2);
    let properties = backend.properties(1).unwrap();
    assert_eq!((&*properties.name, properties.total_memory_bytes), ("scripted", 1000));
    assert!(properties.is_gpu && !properties.has_shared_memory);
    assert_eq!((properties.core_count, properties.page_bytes), (1, 4096), "the table says no more");
    let info = backend.memory_info(0).unwrap();
    assert_eq!((info.free_bytes, info.total_bytes), (600, 1000));
    assert_eq!(backend.priority_range(1), PriorityRange { least: 3, greatest: -2 });
    assert!(!backend.runs_on_host() && backend.has_host_addresses() && backend.may_have_gpu());
    let calls = ["device_count()", "properties(1)", "memory_info(0)", "priority_range(1)"];
    assert_eq!(script.take(), calls);
    assert_eq!(backend.shutdown(Instant::now()), Leftover::default());
    drop(backend);
    assert_eq!(script.take(), ["shutdown()", "close()"]);
}

unsafe extern "C" fn too_many(_: *mut c_void, to: *mut u64, _: *mut ErrorRecord) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { to.write(1000) };
    0
}

unsafe extern "C" fn without_zero(
    _: *mut c_void,
    _: u64,
    least: *mut i32,
    greatest: *mut i32,
    _: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { least.write(-3) };
    // SAFETY: as above.
    unsafe { greatest.write(4) };
    0
}

unsafe extern "C" fn more_than_all(
    _: *mut c_void,
    _: u64,
    free: *mut u64,
    total: *mut u64,
    _: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { free.write(9) };
    // SAFETY: as above.
    unsafe { total.write(5) };
    0
}

unsafe extern "C" fn of_nobody(_: *mut c_void, _: u64, to: *mut Owner, _: *mut ErrorRecord) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    unsafe { to.write(Owner { base: 1, bytes: 9, device: 0, memory: 7, reserved: 0 }) };
    0
}

unsafe extern "C" fn out_of_memory(
    _: *mut c_void,
    _: u64,
    _: u64,
    _: u64,
    _: *mut u64,
    error: *mut ErrorRecord,
) -> i32 {
    // SAFETY: the adapter gives the address of a local.
    let error = unsafe { &mut *error };
    (error.free_bytes, error.total_bytes) = (200, 100);
    STATUS_OUT_OF_MEMORY
}

#[test]
fn numbers_that_cannot_be_are_cut_to_what_can() {
    let strange = BackendTable {
        pointer_owner: Some(of_nobody),
        allocate: Some(out_of_memory),
        device_count: Some(too_many),
        priority_range: Some(without_zero),
        memory_info: Some(more_than_all),
        ..table(c"strange", 111, Script::new())
    };
    let backend = opened(&strange);
    assert_eq!(backend.device_count().unwrap(), 128, "as many as have an index");
    assert_eq!(backend.priority_range(0), PriorityRange { least: 0, greatest: 0 });
    let info = backend.memory_info(127).unwrap();
    assert_eq!((info.free_bytes, info.total_bytes), (5, 5));
    assert_eq!(backend.pointer_owner(Address(3)).unwrap(), None, "memory of no known kind");
    let refused = backend.allocate(0, 300, 64).unwrap_err();
    let Error::Memory(MemoryError::OutOfMemory { free_bytes, total_bytes, .. }) = refused else {
        panic!("{refused}")
    };
    assert_eq!((free_bytes, total_bytes), (100, 100));
}

#[test]
fn streams_marks_and_commands_reach_the_table() {
    let script = Script::new();
    let backend = backend(c"commanded", 91, script);
    script.take();
    let stream = backend.stream_create(1, -2).unwrap();
    assert_eq!(stream, StreamHandle(11));
    // SAFETY: the scripted table accepts every number.
    let wrapped = unsafe { backend.stream_wrap(0, 5) }.unwrap();
    assert_eq!(wrapped, StreamHandle(6));
    // SAFETY: as above.
    assert_eq!(unsafe { backend.stream_native(wrapped) }.unwrap(), 5);
    // SAFETY: as above.
    assert!(unsafe { backend.stream_query(stream) }.unwrap());
    // SAFETY: as above.
    unsafe { backend.stream_synchronize(stream) }.unwrap();
    // SAFETY: as above.
    let mark = unsafe { backend.mark(stream, true) }.unwrap();
    assert_eq!(mark, Mark(21));
    // SAFETY: as above.
    assert!(unsafe { backend.mark_done(mark) }.unwrap());
    // SAFETY: as above.
    unsafe { backend.wait_mark(mark) }.unwrap();
    // SAFETY: as above.
    unsafe { backend.stream_wait(wrapped, mark) }.unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { backend.elapsed_ns(mark, Mark(22)) }.unwrap(), 77);
    let (tell, told) = mpsc::channel();
    // SAFETY: as above.
    unsafe { backend.when_done(mark, Box::new(move || tell.send(()).unwrap())) }.unwrap();
    assert_eq!(told.recv(), Ok(()));
    // SAFETY: as above.
    unsafe { backend.mark_release(mark) }.unwrap();
    // SAFETY: as above.
    unsafe { backend.copy(stream, Address(1), Address(2), 3) }.unwrap();
    // SAFETY: as above.
    unsafe { backend.fill(stream, Address(4), 5, 6) }.unwrap();
    // SAFETY: as above.
    unsafe { backend.flush(stream) };
    // SAFETY: as above.
    unsafe { backend.stream_destroy(stream) }.unwrap();
    let calls = [
        "device_count()",
        "stream_create(1, -2)",
        "stream_wrap(0, 5)",
        "stream_native(6)",
        "stream_query(11)",
        "stream_synchronize(11)",
        "mark(11, 1)",
        "mark_done(21)",
        "wait_mark(21)",
        "stream_wait(6, 21)",
        "elapsed_ns(21, 22)",
        "when_done(21)",
        "mark_release(21)",
        "copy(11, 1, 2, 3)",
        "fill(11, 4, 5, 6)",
        "stream_flush(11)",
        "stream_destroy(11)",
    ];
    assert_eq!(script.take(), calls);
}

#[test]
fn a_callback_runs_on_a_thread_of_ours_which_a_driver_may_be_called_by() {
    // Goal: what the header says of callbacks. Method: the table calls back inside of `when_done`,
    // on the thread of the test; behind a shutdown no thread of ours is left.
    let backend = backend(c"posted", 110, Script::new());
    let (tell, told) = mpsc::channel();
    let called_on = |tell: &mpsc::Sender<_>| {
        let tell = tell.clone();
        // SAFETY: the scripted table accepts every number.
        unsafe {
            backend.when_done(Mark(1), Box::new(move || tell.send(thread::current().id()).unwrap()))
        }
    };
    called_on(&tell).unwrap();
    assert_ne!(told.recv(), Ok(thread::current().id()));
    assert_eq!(backend.shutdown(Instant::now() + Duration::from_secs(60)), Leftover::default());
    called_on(&tell).unwrap();
    assert_eq!(told.recv(), Ok(thread::current().id()));
}

#[test]
fn memory_and_pages_reach_the_table() {
    let script = Script::new();
    let backend = backend(c"allocated", 92, script);
    script.take();
    assert_eq!(backend.allocate(1, 100, 8).unwrap(), Address(1 << 40));
    assert_eq!(backend.allocate_shared(0, 7, 128).unwrap(), Address(2 << 40));
    assert_eq!(backend.allocate_host(9, 1).unwrap(), Address(3 << 40));
    let (base, memory) = (Address(9), MemoryKind::Shared);
    let owner = PointerOwner { device_index: 1, base, bytes: 8, memory };
    assert_eq!(backend.pointer_owner(Address(10)).unwrap(), Some(owner));
    // SAFETY: the scripted table accepts every number.
    unsafe { backend.release(1, Address(1)) }.unwrap();
    // SAFETY: as above.
    unsafe { backend.release_host(Address(2)) }.unwrap();
    let pages = backend.virtual_memory(1).expect("the table has pages");
    assert_eq!(pages.granularity_bytes(), 4096);
    assert_eq!(pages.reserve(8192).unwrap(), Address(4 << 40));
    let physical = pages.create(4096).unwrap();
    assert_eq!(physical, PhysicalHandle(31));
    // SAFETY: as above.
    unsafe { pages.map(Address(1), physical) }.unwrap();
    // SAFETY: as above.
    unsafe { pages.relocate(physical, Address(2)) }.unwrap();
    // SAFETY: as above.
    unsafe { pages.unmap(physical) }.unwrap();
    // SAFETY: as above.
    unsafe { pages.release(physical) }.unwrap();
    // SAFETY: as above.
    unsafe { pages.unreserve(Address(4), 8192) }.unwrap();
    let calls = [
        "device_count()",
        "allocate(1, 100, 8)",
        "allocate_shared(0, 7, 128)",
        "allocate_host(9, 1)",
        "pointer_owner(10)",
        "release(1, 1)",
        "release_host(2)",
        "granularity_bytes(1)",
        "reserve(1, 8192)",
        "create(1, 4096)",
        "map(1, 1, 31)",
        "relocate(1, 31, 2)",
        "unmap(1, 31)",
        "release_pages(1, 31)",
        "unreserve(1, 4, 8192)",
    ];
    assert_eq!(script.take(), calls);
}

#[test]
fn programs_and_launches_reach_the_table() {
    let script = Script::new();
    let backend = backend(c"compiled", 93, script);
    script.take();
    let kernels = backend.kernels().expect("the table has kernels");
    let program = kernels.compile(1, ProgramSource::Text("kernel"), "-O2").unwrap();
    assert_eq!(program, ProgramHandle(41));
    kernels.compile(0, ProgramSource::Binary(&[1, 0, 2]), "").unwrap();
    // SAFETY: the scripted table accepts every number.
    assert_eq!(unsafe { kernels.kernel_names(program) }.unwrap(), ["first", "other"]);
    // SAFETY: as above.
    let kernel = unsafe { kernels.kernel(program, "first") }.unwrap();
    assert_eq!(kernel, KernelHandle(51));
    let parameter = |class| KernelParameter { name: "x".into(), type_name: "float".into(), class };
    let expected = [parameter(ParameterClass::Pointer), parameter(ParameterClass::Float(4))];
    // SAFETY: as above.
    assert_eq!(unsafe { kernels.parameters(kernel) }.unwrap(), expected);
    let arguments = [
        LaunchArgument::Memory(Address(7)),
        LaunchArgument::Value(ValueBytes::new(&[8, 9]).unwrap()),
        LaunchArgument::Local(10),
    ];
    for local in [None, Some([4, 1, 1])] {
        let size = LaunchSize { global: [16, 2, 1], local, dimensions: 2 };
        // SAFETY: as above.
        unsafe { kernels.launch(kernel, StreamHandle(3), &arguments, &size) }.unwrap();
    }
    // SAFETY: as above.
    unsafe { kernels.kernel_release(kernel) }.unwrap();
    // SAFETY: as above.
    unsafe { kernels.program_release(program) }.unwrap();
    let calls = [
        "compile(1, [107, 101, 114, 110, 101, 108], 0, \"-O2\")",
        "compile(0, [1, 0, 2], 1, \"\")",
        "kernel_count(41)",
        "kernel_name(41, 0)",
        "kernel_name(41, 1)",
        "kernel(41, \"first\")",
        "parameter_count(51)",
        "parameter(51, 0)",
        "parameter(51, 1)",
        "launch(51, 3, 1:7:[] 2:0:[8, 9] 3:10:[], [16, 2, 1] by [0, 0, 0] in 2)",
        "launch(51, 3, 1:7:[] 2:0:[8, 9] 3:10:[], [16, 2, 1] by [4, 1, 1] in 2)",
        "kernel_release(51)",
        "program_release(41)",
    ];
    assert_eq!(script.take(), calls);
}

#[test]
fn a_table_that_lacks_a_function_of_its_pages_or_kernels_is_refused_by_its_name() {
    let whole = table(c"lacking", 94, Script::new());
    let mut pages = VirtualMemoryTable { relocate: None, ..PAGES };
    let lacking = BackendTable { virtual_memory: &raw const pages, ..whole };
    assert_eq!(refusal(&lacking), "its table has no function virtual_memory.relocate");
    pages = PAGES;
    pages.size_bytes = std::mem::offset_of!(VirtualMemoryTable, release) as u64;
    let lacking = BackendTable { virtual_memory: &raw const pages, ..whole };
    assert_eq!(refusal(&lacking), "its table has no function virtual_memory.release");
    let kernels = KernelsTable { launch: None, ..KERNELS };
    let lacking = BackendTable { kernels: &raw const kernels, ..whole };
    assert_eq!(refusal(&lacking), "its table has no function kernels.launch");
}

#[test]
fn a_table_that_ends_before_its_pages_and_kernels_has_none() {
    let whole = table(c"shorter", 96, Script::new());
    let size_bytes = std::mem::offset_of!(BackendTable, virtual_memory) as u64;
    let backend = opened(&BackendTable { size_bytes, ..whole });
    assert!(backend.virtual_memory(0).is_none() && backend.kernels().is_none());
}

#[test]
fn what_a_kind_may_lack_is_unsupported() {
    let script = Script::new();
    let whole = table(c"optional", 97, script);
    let least = BackendTable {
        stream_wrap: None,
        stream_native: None,
        stream_flush: None,
        allocate_shared: None,
        virtual_memory: std::ptr::null(),
        kernels: std::ptr::null(),
        ..whole
    };
    let backend = opened(&least);
    let unsupported = [
        // SAFETY: there is no function to be called.
        unsafe { backend.stream_wrap(0, 1) }.unwrap_err(),
        // SAFETY: as above.
        unsafe { backend.stream_native(StreamHandle(1)) }.unwrap_err(),
        backend.allocate_shared(0, 1, 1).unwrap_err(),
    ];
    for error in unsupported {
        assert!(matches!(error, Error::Driver(DriverError::Unsupported { .. })), "{error}");
    }
    // SAFETY: as above.
    unsafe { backend.flush(StreamHandle(1)) };
    assert!(backend.virtual_memory(0).is_none() && backend.kernels().is_none());
    assert_eq!(script.take(), ["open()", "device_count()"]);
}

#[test]
fn failures_come_back_with_the_device_the_numbers_and_the_words() {
    let script = Script::new();
    let backend = backend(c"failing", 98, script);
    for function in ["allocate", "reserve", "create"] {
        script.fail(function, STATUS_OUT_OF_MEMORY);
        let pages = backend.virtual_memory(1).unwrap();
        let refused = match function {
            "allocate" => backend.allocate(1, 700, 64).map(|_| ()),
            "reserve" => pages.reserve(700).map(|_| ()),
            _ => pages.create(700).map(|_| ()),
        };
        let Err(Error::Memory(MemoryError::OutOfMemory { device, requested_bytes, .. })) = refused
        else {
            panic!("{function}: {refused:?}");
        };
        assert_eq!((device.index(), requested_bytes), (1, 700), "{function}");
    }
    script.fail("compile", STATUS_REFUSED);
    let kernels = backend.kernels().unwrap();
    let refused = kernels.compile(1, ProgramSource::Text("x"), "").unwrap_err().to_string();
    assert_eq!(refused, "compile failed on failing with code 7: as the script says");
    let zero = kernels.compile(1, ProgramSource::Text("x"), "-D \0").unwrap_err().to_string();
    assert!(zero.contains("zero"), "{zero}");
    script.fail("when_done", STATUS_REFUSED);
    let (tell, told) = mpsc::channel::<()>();
    let callback = Box::new(move || tell.send(()).unwrap());
    // SAFETY: the scripted table accepts every number.
    unsafe { backend.when_done(Mark(1), callback) }.unwrap_err();
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected), "dropped uncalled");
}

/// Goal: nobody need wait for what resumed work submitted. Method: a driver that collects commands
/// is told to start them behind the work.
#[test]
fn commands_of_submitted_and_of_resumed_work_are_started() {
    struct Tell(Mutex<mpsc::Sender<()>>);
    impl Work for Tell {
        fn run(self: Arc<Self>, _turn: &Turn<'_>) {
            self.0.lock().unwrap().send(()).unwrap();
        }
    }
    let script = Script::new();
    let backend = backend(c"flushed", 99, script);
    let (tell, told) = mpsc::channel();
    let work = || Arc::new(Tell(Mutex::new(tell.clone())));
    // SAFETY: the scripted table accepts every number.
    unsafe { backend.submit(StreamHandle(4), work()) };
    // SAFETY: as above.
    unsafe { backend.resume(StreamHandle(5), work()) };
    assert!(told.recv().is_ok() && told.recv().is_ok());
    let far = Instant::now() + Duration::from_secs(600);
    assert_eq!(backend.shutdown(far), Leftover::default());
    let calls = script.take();
    assert_eq!(calls, ["open()", "stream_flush(4)", "stream_flush(5)", "shutdown()"]);
}
