//! Calls that fail write nothing: no count, no length, no handle, no part of an array.
//!
//! Goal: every place for a result keeps its bytes when a call fails. Method: the functions and
//! their parameters are read from `include/accelrt.h`. One argument at a time is replaced by each
//! value that a caller can get wrong; the places contain a pattern, which is compared afterwards.
#![expect(unsafe_code, reason = "reads places that functions of the table may write to")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::process::Command;

use crate::handles::{Function, Header, NOUNS, OK, Parameter, create, value_of};
use crate::library::{folder, program, run as run_program};

/// Room for the largest struct, and for an array of four elements.
const PLACE_BYTES: usize = 4096;
const PATTERN: u8 = 0xA5;
/// The number of elements of arrays, and of bytes of texts, that a call may write.
const CAPACITY: u64 = 4;
/// The bytes of buffers; `handles::create` makes them as large.
const BUFFER_BYTES: u64 = 64;
/// No kind has this number, and no handle this value.
const UNKNOWN: u64 = 99;
/// A program in the language of the fake, longer than `BUFFER_BYTES`.
const SOURCE: [u8; 128] = {
    let mut source = [b' '; 128];
    let text = b"kernel void add(global int *numbers) {}";
    let (start, _) = source.split_at_mut(text.len());
    start.copy_from_slice(text);
    source
};

fn address_of(text: &'static CStr) -> u64 {
    text.as_ptr().expose_provenance() as u64
}

/// A device as an argument: the kind in the lower half, the index in the upper one.
fn device(kind: i32, index: i32) -> u64 {
    u64::from(kind.cast_unsigned()) | u64::from(index.cast_unsigned()) << 32
}

/// True for a place that a function writes a result to.
fn is_output(header: &Header, parameter: &Parameter) -> bool {
    let (kind, name) = parameter;
    let is_memory = kind != "void *" || name == "target";
    kind.ends_with('*')
        && !kind.starts_with("const ")
        && is_memory
        && header.noun_of(parameter).is_none()
}

/// True for a place that must have the size of its struct in its first field.
fn is_sized(kind: &str) -> bool {
    let plain = ["accelrt_device *", "char *", "void *", "double *", "size_t *"];
    !plain.contains(&kind) && !kind.ends_with("_t *") && !kind.ends_with("**")
}

/// The size in bytes of the array elements of a function, its argument `each_bytes`.
fn each_bytes(function: &Function) -> u64 {
    match function.name.as_str() {
        "snapshot_get_segments" => 88,
        "snapshot_get_blocks" => 40,
        "history_get_events" => 128,
        "memory_get_tags" => 104,
        "log_take" => 176,
        other => panic!("add the element size of {other} to `each_bytes`"),
    }
}

/// A live handle of each type, with data for every output.
pub(crate) struct World {
    handles: BTreeMap<&'static str, u64>,
}

impl World {
    pub(crate) fn new(header: &Header) -> Self {
        let mut made = Vec::new();
        for noun in NOUNS {
            create(header, noun, &mut made);
        }
        // Events for the history, records for the log, a tag, and segments for the snapshot.
        assert_eq!(header.call("memory_enter_tag", &[address_of(c"a tag")]), OK);
        let stream = create(header, "stream", &mut made);
        let run = (run as *const ()).expose_provenance() as u64;
        for _ in 0..40 {
            create(header, "buffer", &mut made);
            assert_eq!(header.call("stream_launch", &[stream, run, 0, 0, 0, 0]), OK);
        }
        create(header, "snapshot", &mut made);
        Self { handles: made.into_iter().collect() }
    }

    /// An argument that is right.
    fn valid(&self, header: &Header, function: &Function, parameter: &Parameter) -> u64 {
        let (kind, name) = (parameter.0.as_str(), parameter.1.as_str());
        let handle = header.noun_of(parameter).map(|noun| self.handles[noun]);
        if kind.starts_with("const accelrt_") || ["double", "const size_t *"].contains(&kind) {
            return value_of(parameter, handle); // a struct, or a number
        }
        if let Some(handle) = handle {
            return handle;
        }
        match (kind, name) {
            ("accelrt_task_function" | "accelrt_start_function", _) => value_of(parameter, None),
            ("const char *", _) if function.name == "memory_set_settings" => {
                address_of(c"max_split_size_mb:64")
            }
            ("const char *", "options") | ("void *" | "accelrt_drop_function", _) => 0,
            ("const char *", _) if function.name == "setting_get" => {
                address_of(c"ACCELRT_CPU_DEVICES")
            }
            ("const char *", _) if function.name == "program_get_kernel" => address_of(c"add"),
            ("const char *", _) => address_of(c"cpu"),
            ("const void *", _) => SOURCE.as_ptr().expose_provenance() as u64,
            ("accelrt_observer_function", _) => (observe as *const ()).expose_provenance() as u64,
            ("accelrt_device", _) if function.name == "program_compile" => device(12, 0),
            (_, "each_bytes") => each_bytes(function),
            (_, "capacity") => CAPACITY,
            (_, "bytes") => BUFFER_BYTES,
            (
                "accelrt_device" | "uint8_t" | "int32_t" | "uint32_t" | "int64_t" | "uint64_t"
                | "size_t",
                _,
            ) => 0,
            (other, name) => panic!("no line here has a value for {other} {name}"),
        }
    }

    /// Calls a function with arguments that are right; returns its status.
    pub(crate) fn call(&self, header: &Header, function: &Function) -> i32 {
        let argument = |parameter: &Parameter| {
            // `check` has places for outputs.
            if is_output(header, parameter) { 0 } else { self.valid(header, function, parameter) }
        };
        let arguments: Vec<u64> = function.parameters.iter().map(argument).collect();
        check(header, function, &arguments, &[], PLACE_BYTES as u64)
    }

    /// Values that a function should refuse for a parameter, or that it may accept.
    fn wrong(&self, header: &Header, parameter: &Parameter) -> Vec<u64> {
        if let Some(noun) = header.noun_of(parameter) {
            let others = self.handles.iter().filter(|(of, _)| **of != noun).map(|(_, it)| *it);
            return others.chain([0, UNKNOWN, self.handles[noun] ^ 1 << 40]).collect();
        }
        match (parameter.0.as_str(), parameter.1.as_str()) {
            ("accelrt_device", _) => {
                vec![device(99, 0), device(0, -2), device(0, 100), device(0, 999), device(12, 7)]
            }
            ("const char *", _) => vec![0, address_of(c"\xff"), address_of(c"no such name")],
            ("const void *" | "accelrt_observer_function", _) => vec![0],
            (_, "each_bytes") => vec![0, 1, 8, 4095],
            ("int32_t" | "uint32_t", _) => vec![UNKNOWN, u64::from(u32::MAX) - 6],
            (_, "bytes") => vec![1, BUFFER_BYTES + 1, u64::MAX],
            (_, "capacity") => vec![0], // more would be written than a place has room for
            ("size_t" | "uint64_t", _) => vec![1, u64::MAX, u64::MAX >> 1],
            _ => vec![],
        }
    }
}

extern "C" fn run(_data: *mut c_void, _text: *mut c_char, _capacity: usize) -> i32 {
    0
}

extern "C" fn observe(_data: *mut c_void, _shortage: *const c_void) {}

/// The places of one call. They are never freed: a copy may write one after its call.
struct Places {
    all: Vec<(usize, &'static mut [u64])>,
}

impl Places {
    fn new(header: &Header, function: &Function, size: u64) -> Self {
        let outputs = function.parameters.iter().enumerate();
        let outputs = outputs.filter(|(_, parameter)| is_output(header, parameter));
        let all = outputs.map(|(index, (kind, _))| {
            let place = vec![u64::from_ne_bytes([PATTERN; 8]); PLACE_BYTES / 8].leak();
            if is_sized(kind) {
                place[0] = size;
            }
            (index, place)
        });
        Self { all: all.collect() }
    }

    fn contents(&self) -> Vec<Vec<u64>> {
        // Volatile: the function has got the address, not the slice.
        let read = |word: &u64| {
            let word: *const u64 = word;
            // SAFETY: the word belongs to a place, which is never freed.
            unsafe { word.read_volatile() }
        };
        self.all.iter().map(|(_, place)| place.iter().map(read).collect()).collect()
    }
}

/// One call, with some argument replaced; returns its status.
fn check(
    header: &Header,
    function: &Function,
    valid: &[u64],
    wrong: &[(usize, u64)],
    size: u64,
) -> i32 {
    let mut places = Places::new(header, function, size);
    let before = places.contents();
    let mut arguments = valid.to_vec();
    for (index, place) in &mut places.all {
        arguments[*index] = place.as_mut_ptr().expose_provenance() as u64;
    }
    for (index, value) in wrong {
        arguments[*index] = *value;
    }
    let status = function.call(&arguments);
    if status != OK {
        let name = &function.name;
        assert_eq!(places.contents(), before, "{name} failed with {status} at {wrong:x?}");
    }
    status
}

#[test]
fn failed_calls_leave_their_outputs_unchanged() {
    // Runs in a child process, because its live handles would disturb other tests.
    let program = std::env::current_exe().expect("this binary has a path");
    let arguments =
        ["--exact", "outputs::outputs_are_unchanged_for_each_wrong_argument", "--ignored"];
    let printed = run_program(Command::new(program).args(arguments));
    assert!(printed.contains("1 passed"), "{printed}");
}

#[test]
#[ignore = "run by failed_calls_leave_their_outputs_unchanged"]
fn outputs_are_unchanged_for_each_wrong_argument() {
    let header = Header::with_fake();
    let world = World::new(header);
    let (mut num_failures, mut without_failure) = (0, Vec::new());
    for function in &header.functions {
        let outputs: Vec<usize> = (0..function.parameters.len())
            .filter(|index| is_output(header, &function.parameters[*index]))
            .collect();
        if outputs.is_empty() {
            continue;
        }
        let valid: Vec<u64> = function
            .parameters
            .iter()
            .map(|parameter| {
                if is_output(header, parameter) {
                    return 0;
                }
                world.valid(header, function, parameter)
            })
            .collect();
        let own = PLACE_BYTES as u64;
        let mut statuses = vec![check(header, function, &valid, &[], own)];
        // The size of a struct: too small, odd, none.
        statuses.extend([0, 4, 9].map(|size| check(header, function, &valid, &[], size)));
        for (index, parameter) in function.parameters.iter().enumerate() {
            let wrong =
                if outputs.contains(&index) { vec![0] } else { world.wrong(header, parameter) };
            for value in wrong {
                let status = check(header, function, &valid, &[(index, value)], own);
                let is_size = parameter.1 == "each_bytes" && value == 0;
                assert!(!is_size || status != OK, "{} has nothing to write", function.name);
                statuses.push(status);
            }
        }
        let failed = statuses.iter().filter(|status| **status != OK).count();
        num_failures += failed;
        if failed == 0 {
            without_failure.push(function.name.as_str());
        }
    }
    assert!(num_failures > 300, "only {num_failures} calls failed");
    assert_eq!(without_failure, [""; 0], "each function must fail for some argument");
}

#[test]
fn cpp_owners_take_what_their_arguments_say() {
    let source = folder().join("owners.cpp");
    let text = "#include <accelrt.hpp>
        static_assert(!std::is_constructible_v<accelrt::Event, const char *>);
        int main()
        {
            accelrt_event *handle = nullptr;
            accelrt::check(accelrt_event_create(1, &handle));
            accelrt::Event owner(handle), timed(true), plain;
            bool owns = owner.get() == handle && timed.get() != plain.get();
            return owns && accelrt::Buffer(0).get() != nullptr ? 0 : 1;
        }
        ";
    std::fs::write(&source, text).expect("the folder can be written");
    run_program(&mut Command::new(program("owners", &[], &[source])));
}
