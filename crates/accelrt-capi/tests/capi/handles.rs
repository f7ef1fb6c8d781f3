//! Numbers that are no handles, in every place of every function that takes a handle.
//!
//! Goal: each call returns `STALE_HANDLE`, and the live objects stay as they are. Method: the
//! functions and their parameters are read from `include/accelrt.h`, so that a new function is
//! called too. The numbers are handles of live and destroyed objects with flipped bits and other
//! generations, and the handles of other nouns.
#![expect(unsafe_code, reason = "calls the functions of the table by their addresses")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{c_char, c_void};
use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fake_opencl;
use crate::library::root;
use crate::numbers::Numbers;
use crate::seed::seed;
use accelrt_capi as _; // links the functions

pub(crate) const OK: i32 = 0;
const INVALID_ARGUMENT: i32 = 1;
const STALE_HANDLE: i32 = 2;
const GENERATION: u64 = 1 << 36;
/// The most parameters of a function.
const MAX_PARAMETERS: usize = 8;
const KERNEL: &[u8] = b"kernel void add(global int *numbers, int number) {}\0";
/// The nouns with handles; an object comes after those that it needs.
pub(crate) const NOUNS: [&str; 12] = [
    "stream",
    "event",
    "buffer",
    "completion",
    "generator",
    "snapshot",
    "history",
    "log",
    "pool",
    "observer",
    "program",
    "kernel",
];
/// Structs with a handle in them; `value_of` makes them.
const STRUCTS: [&str; 2] = ["accelrt_buffer_use", "accelrt_kernel_argument"];

unsafe extern "C" {
    fn accelrt_get_table() -> *const usize;
}

/// A parameter's type, without its name, and its name.
pub(crate) type Parameter = (String, String);

pub(crate) struct Function {
    pub(crate) name: String,
    address: usize,
    pub(crate) parameters: Vec<Parameter>,
}

/// What the header says: nouns with handles, and functions with their addresses.
pub(crate) struct Header {
    nouns: BTreeSet<String>,
    pub(crate) functions: Vec<Function>,
}

fn parameter(text: &str) -> Parameter {
    let start = text.rfind([' ', '*']).map_or(0, |place| place + 1);
    (text[..start].trim().to_owned(), text[start..].to_owned())
}

impl Header {
    /// The header, for tests that create objects: xpu is the fake.
    pub(crate) fn with_fake() -> &'static Self {
        static HEADER: OnceLock<Header> = OnceLock::new();
        HEADER.get_or_init(|| {
            let header = Self::read();
            let opencl = fake_opencl::whole().to_str().expect("plain letters");
            set(&header, c"ACCELRT_OPENCL_LIBRARY", opencl);
            header
        })
    }

    fn read() -> Self {
        let text = fs::read_to_string(root().join("include/accelrt.h")).expect("it can be read");
        let opaque = text.lines().filter_map(|line| line.strip_prefix("typedef struct accelrt_"));
        let opaque = opaque.filter_map(|line| line.strip_suffix(';')?.split_once(" accelrt_"));
        let nouns = opaque.map(|(noun, _)| noun.to_owned()).collect();
        let fields = text.split("typedef struct accelrt_table {").nth(1).expect("it has a table");
        let fields = fields.split("} accelrt_table;").next().expect("which ends");
        // SAFETY: the function takes nothing and returns the table of the library.
        let table = unsafe { accelrt_get_table() };
        let declared = fields.lines().filter_map(|line| line.trim().split_once("(*"));
        let functions = declared.enumerate().map(|(index, (_, rest))| {
            let (name, rest) = rest.split_once(")(").expect("a name and parameters");
            let listed = rest.strip_suffix(");").expect("a field ends").split(", ");
            let parameters = listed.filter(|it| *it != "void").map(parameter).collect();
            // SAFETY: after its size and counts, the table contains an address for each function.
            let place = unsafe { table.add(2 + index) };
            // SAFETY: as above.
            let address = unsafe { place.read() };
            Function { name: name.to_owned(), address, parameters }
        });
        Self { nouns, functions: functions.collect() }
    }

    /// The noun of a parameter that is a handle, or a struct with one.
    pub(crate) fn noun_of(&self, (kind, _): &Parameter) -> Option<&str> {
        let is_struct = STRUCTS.iter().any(|name| *kind == format!("const {name} *"));
        let noun = if is_struct { "buffer" } else { kind.strip_prefix("accelrt_")? };
        self.nouns.get(noun.strip_suffix(" *").unwrap_or(noun)).map(String::as_str)
    }

    pub(crate) fn call(&self, name: &str, arguments: &[u64]) -> i32 {
        let function = self.functions.iter().find(|function| function.name == name);
        function.unwrap_or_else(|| panic!("the table has no {name}")).call(arguments)
    }

    fn create(&self, name: &str, arguments: &[u64]) -> u64 {
        let mut handle = 0_u64;
        let arguments = [arguments, &[(&raw mut handle).expose_provenance() as u64]].concat();
        assert_eq!(self.call(name, &arguments), OK, "{name}");
        handle
    }
}

impl Function {
    pub(crate) fn call(&self, arguments: &[u64]) -> i32 {
        type Call = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
        let mut all = [0; MAX_PARAMETERS];
        all[..arguments.len()].copy_from_slice(arguments);
        let address = std::ptr::with_exposed_provenance::<()>(self.address);
        // SAFETY: the address is that of a function whose parameters are integers, pointers and
        // devices. The 64-bit Unix conventions pass each of them in the place of one `u64`, and
        // the caller removes arguments that a function does not take.
        let call = unsafe { std::mem::transmute::<*const (), Call>(address) };
        // SAFETY: `Values` makes arguments that keep the promises of each function.
        unsafe { call(all[0], all[1], all[2], all[3], all[4], all[5], all[6], all[7]) }
    }
}

/// The handle of the deferred task that was started last.
static STARTED: AtomicU64 = AtomicU64::new(0);

extern "C" fn start(_data: *mut c_void, completion: *mut c_void) {
    STARTED.store(completion.addr() as u64, Ordering::SeqCst);
}

extern "C" fn run(_data: *mut c_void, _text: *mut c_char, _capacity: usize) -> i32 {
    0
}

extern "C" fn observe(_data: *mut c_void, _shortage: *const c_void) {}

const CPU: u64 = 0;
const XPU: u64 = 12;

/// Creates an object of a noun, and adds its handle and those of objects that it needs to `made`.
pub(crate) fn create(
    header: &Header,
    noun: &'static str,
    made: &mut Vec<(&'static str, u64)>,
) -> u64 {
    let address = |function: *const ()| function.expose_provenance() as u64;
    let source = KERNEL.as_ptr().expose_provenance() as u64;
    let handle = match noun {
        "stream" => header.create("stream_create", &[CPU, 0]),
        "event" => header.create("event_create", &[1]),
        "buffer" => header.create("buffer_create", &[CPU, 64]),
        "generator" => header.create("generator_create", &[CPU]),
        "snapshot" => header.create("snapshot_take", &[0]),
        "history" => header.create("history_start", &[100]),
        "log" => header.create("log_subscribe", &[1, 100]),
        "pool" => header.create("pool_create", &[CPU, 0]),
        "observer" => header.create("observer_create", &[address(observe as *const ()), 0, 0]),
        "program" => {
            header.create("program_compile", &[XPU, source, KERNEL.len() as u64 - 1, 0, 0])
        }
        "kernel" => {
            let (program, name) =
                (create(header, "program", made), c"add".as_ptr().expose_provenance());
            header.create("program_get_kernel", &[program, name as u64])
        }
        "completion" => {
            let stream = create(header, "stream", made);
            STARTED.store(0, Ordering::SeqCst);
            let arguments = [stream, address(start as *const ()), 0, 0];
            assert_eq!(header.call("stream_launch_deferred", &arguments), OK);
            while STARTED.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            STARTED.load(Ordering::SeqCst)
        }
        other => panic!("no line here creates a {other}"),
    };
    made.push((noun, handle));
    handle
}

fn destroy(header: &Header, noun: &str, handle: u64) -> i32 {
    match noun {
        "completion" => header.call("completion_finish", &[handle, 0]),
        _ => header.call(&format!("{noun}_destroy"), &[handle]),
    }
}

/// A number that a live object keeps.
fn state(header: &Header, noun: &str, handle: u64) -> u64 {
    let query = match noun {
        "buffer" => "buffer_get_address",
        "event" => "event_query",
        "generator" => "generator_get_seed",
        "pool" => "pool_get_id",
        "kernel" => "kernel_get_argument_count",
        _ => return 0,
    };
    header.create(query, &[handle])
}

/// Memory that arguments lead to, for one call after the other.
struct Values {
    /// Structs for results, which begin with their size.
    result: Vec<u64>,
    sizes: [u64; 3],
    uses: [u64; 2],
    argument: [u64; 4],
    description: [u64; 4],
}

impl Values {
    fn new() -> Self {
        Self {
            result: vec![4096; 512],
            sizes: [1; 3],
            uses: [0, 1],
            argument: [0; 4],
            description: [32, 0, 0, 0],
        }
    }

    /// The value of a parameter; `handle` is the one that it has or points to.
    fn value_of(&mut self, (kind, name): &Parameter, handle: Option<u64>) -> u64 {
        let pointer = |words: &mut [u64]| words.as_mut_ptr().expose_provenance() as u64;
        match (kind.as_str(), name.as_str()) {
            ("const accelrt_buffer_use *", _) => {
                self.uses[0] = handle.unwrap_or_default();
                pointer(&mut self.uses)
            }
            ("const accelrt_kernel_argument *", _) => {
                self.argument[1] = handle.unwrap_or_default();
                pointer(&mut self.argument)
            }
            ("const accelrt_task_description *", _) => pointer(&mut self.description),
            ("const size_t *", _) => pointer(&mut self.sizes),
            ("const char *", _) => c"add".as_ptr().expose_provenance() as u64,
            ("accelrt_task_function", _) => (run as *const ()).expose_provenance() as u64,
            ("accelrt_start_function", _) => (start as *const ()).expose_provenance() as u64,
            (_, "use_count" | "argument_count" | "dimensions") => 1,
            ("accelrt_drop_function" | "accelrt_device" | "double", _) => 0,
            (number, _) if number.ends_with("_t") => 0,
            (address, _) if address.ends_with('*') => handle.unwrap_or_else(|| {
                self.result[0] = 4096;
                pointer(&mut self.result)
            }),
            (other, name) => panic!("no line here has a value for {other} {name}"),
        }
    }
}

/// The value of a parameter, in memory that is never freed; `handle` is the one that it points to.
pub(crate) fn value_of(parameter: &Parameter, handle: Option<u64>) -> u64 {
    Box::leak(Box::new(Values::new())).value_of(parameter, handle)
}

/// Numbers next to a handle, and some further away.
fn derived(handle: u64, numbers: &mut Numbers) -> Vec<u64> {
    let steps = [GENERATION, 2 * GENERATION].map(u64::cast_signed);
    let near = steps.into_iter().flat_map(|step| [step, -step]);
    let near = near.map(|step| handle.wrapping_add_signed(step));
    let flips = (0..64).map(|bit| handle ^ 1 << bit);
    let mut all: Vec<u64> = near.chain(flips).collect();
    all.extend(all.clone().into_iter().map(|number| number ^ 1 << 63));
    for _ in 0..32 {
        let bits = 2 + numbers.below(4);
        all.push((0..bits).fold(handle, |number, _| number ^ 1 << numbers.below(64)));
    }
    all.push(numbers.next());
    all
}

/// Live handles of each noun, with their state, and handles that were destroyed.
struct World<'a> {
    header: &'a Header,
    live: BTreeMap<&'static str, Vec<(u64, u64)>>,
    destroyed: BTreeMap<&'static str, Vec<u64>>,
}

impl<'a> World<'a> {
    fn new(header: &'a Header) -> Self {
        let (mut made, mut destroyed) = (Vec::new(), BTreeMap::new());
        for noun in NOUNS {
            let ended: Vec<u64> = (0..3).map(|_| create(header, noun, &mut made)).collect();
            (0..3).for_each(|_| _ = create(header, noun, &mut made));
            for handle in &ended {
                assert_eq!(destroy(header, noun, *handle), OK, "{noun}");
            }
            made.retain(|(of, handle)| *of != noun || !ended.contains(handle));
            destroyed.insert(noun, ended);
        }
        let mut live: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (noun, handle) in made {
            live.entry(noun).or_default().push((handle, state(header, noun, handle)));
        }
        Self { header, live, destroyed }
    }

    /// Numbers for parameters of a noun: derived from every handle, none of them a live one.
    fn numbers_for(&self, noun: &str, numbers: &mut Numbers) -> Vec<u64> {
        let live = |noun: &str| self.live[noun].iter().map(|(handle, _)| *handle);
        let own: HashSet<u64> = live(noun).collect();
        let known = live(noun).chain(self.destroyed[noun].iter().copied());
        let mut all: Vec<u64> = known.flat_map(|handle| derived(handle, numbers)).collect();
        all.extend(self.live.keys().flat_map(|other| live(other)));
        all.extend(self.destroyed.values().flatten());
        all.retain(|number| !own.contains(number) && *number != 0);
        all
    }

    /// Calls a function with a number in the place of one handle and live handles elsewhere.
    fn call(&self, function: &Function, place: usize, number: u64) -> i32 {
        let mut values = Values::new();
        let arguments: Vec<u64> = function
            .parameters
            .iter()
            .enumerate()
            .map(|(index, parameter)| {
                let live = self.header.noun_of(parameter).map(|noun| self.live[noun][0].0);
                values.value_of(
                    parameter,
                    live.map(|live| if index == place { number } else { live }),
                )
            })
            .collect();
        function.call(&arguments)
    }

    fn end(self) {
        let Self { header, live, .. } = self;
        for (noun, handles) in live {
            for (handle, before) in handles {
                assert_eq!(state(header, noun, handle), before, "{noun} {handle:#x}");
                assert_eq!(destroy(header, noun, handle), OK, "{noun} {handle:#x}");
                assert_eq!(destroy(header, noun, handle), STALE_HANDLE, "{noun} {handle:#x}");
            }
        }
    }
}

fn set(header: &Header, name: &std::ffi::CStr, value: &str) {
    let value = std::ffi::CString::new(value).expect("a text");
    let texts = [name, &value].map(|text| text.as_ptr().expose_provenance() as u64);
    assert_eq!(header.call("setting_set", &texts), OK, "{name:?}");
}

#[test]
fn made_up_handles_are_refused_everywhere() {
    let header = Header::with_fake();
    let mut numbers = Numbers::new(seed());
    let nouns = NOUNS.map(str::to_owned).into_iter().collect();
    assert_eq!(header.nouns, nouns, "each noun of the header has objects here");
    let world = World::new(header);
    let mut count = 0;
    for function in &header.functions {
        assert!(function.parameters.len() <= MAX_PARAMETERS, "{}", function.name);
        for (place, parameter) in function.parameters.iter().enumerate() {
            let Some(noun) = header.noun_of(parameter) else { continue };
            count += 1;
            for number in world.numbers_for(noun, &mut numbers) {
                let status = world.call(function, place, number);
                let (name, of) = (&function.name, &parameter.1);
                assert_eq!(status, STALE_HANDLE, "{name} with {number:#x} as {of}");
            }
            assert_eq!(world.call(function, place, 0), INVALID_ARGUMENT, "{}", function.name);
        }
    }
    assert!(count > 60, "{count} places of handles were found in the header");
    world.end();
}

#[test]
fn structs_with_handles_are_known() {
    let text = fs::read_to_string(root().join("include/accelrt.h")).expect("it can be read");
    let nouns = Header::read().nouns;
    let structs = text.split("typedef struct {").skip(1).filter_map(|it| it.split_once("} "));
    let with_handle = structs.filter(|(fields, _)| {
        let lines = fields.lines().filter_map(|line| line.trim().strip_prefix("accelrt_"));
        lines.filter_map(|line| line.split_once(" *")).any(|(noun, _)| nouns.contains(noun))
    });
    let names: Vec<_> = with_handle.filter_map(|(_, rest)| rest.split(';').next()).collect();
    assert_eq!(names, STRUCTS);
}
