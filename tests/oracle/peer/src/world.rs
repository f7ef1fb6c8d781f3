//! One program's runtime, and what each step does there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use accelrt::allocator::{Allocated, CachingAllocator, PoolId, PoolOptions, Request};
use accelrt::backend::contract::StreamHandle;
use accelrt_testing::fault::Method;
use accelrt::{Buffer, Config, Device, DeviceKind, Error, MemPool, MemoryError, Runtime, Stream};

use crate::device::Numbers;
use crate::program::{Program, Step};

/// As many as the stub has.
const STREAM_COUNT: usize = 4;

/// What a program got.
enum Held {
    /// A request of the allocator alone, freed when nothing uses it.
    Block(usize, Allocated),
    /// One that streams may use, with those that were named for it.
    Buffer(Buffer, Vec<usize>),
}

struct OneDevice {
    device: Device,
    allocator: Arc<CachingAllocator>,
    streams: Vec<Stream>,
    pools: HashMap<u64, MemPool>,
    /// The pools that there are or were, with their numbers in the program.
    known_pools: Vec<(PoolId, u64)>,
    /// The numbers of streams in the program by their keys in the allocator.
    stream_keys: HashMap<u64, usize>,
}

/// The world of one program.
pub(crate) struct World {
    runtime: Runtime,
    numbers: Arc<Numbers>,
    devices: Vec<OneDevice>,
    held: HashMap<u64, Held>,
    /// Pools that a thread is in, by thread and device; the last one serves.
    entered: HashMap<(u32, usize), Vec<u64>>,
    /// True when streams matter: requests are buffers then.
    has_work: bool,
    pub(crate) device: usize,
    pub(crate) thread: u32,
    pub(crate) text: String,
}

/// A program's settings are PyTorch's, whose policy takes them.
fn full(settings: &str) -> String {
    if settings.is_empty() { "policy:torch".into() } else { format!("policy:torch,{settings}") }
}

impl World {
    pub(crate) fn new(program: &Program<'_>) -> Self {
        let Program { settings, device_count, capacity_bytes, .. } = *program;
        let numbers = Numbers::new(device_count, capacity_bytes);
        let config = Config::builder().allocator_settings(&full(settings)).build();
        let config = config.expect("settings that both have");
        let runtime = Runtime::with_backends(config, [Arc::clone(&numbers) as _]);
        let runtime = runtime.expect("the null kind always starts");
        let devices = (0..device_count).map(|index| {
            let device = Device::new(DeviceKind::NULL, index).expect("a small number");
            runtime.set_device(device).expect("it is there");
            let first = runtime.default_stream(device).expect("as above");
            let more = (1..STREAM_COUNT).map(|_| runtime.stream(device));
            let mut streams = vec![first];
            streams.extend(more.map(|stream| stream.expect("as above")));
            let allocator = runtime.allocator(device).expect("as above");
            OneDevice {
                device,
                allocator,
                streams,
                pools: HashMap::new(),
                known_pools: Vec::new(),
                stream_keys: HashMap::new(),
            }
        });
        Self {
            devices: devices.collect(),
            runtime,
            numbers,
            held: HashMap::new(),
            entered: HashMap::new(),
            has_work: program.steps.iter().any(|step| ["use", "work"].contains(&step.word)),
            device: 0,
            thread: 0,
            text: String::new(),
        }
    }

    fn here(&self) -> &OneDevice {
        &self.devices[self.device]
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub(crate) fn allocator(&self, device: usize) -> &CachingAllocator {
        &self.devices[device].allocator
    }

    /// The number of a stream in the program, from its key in the allocator.
    pub(crate) fn stream_number(&self, device: usize, key: u64) -> usize {
        self.devices[device].stream_keys[&key]
    }

    /// Notes the key that the allocator knows a stream by, from a segment that it asked for.
    fn note_stream_key(&mut self, stream: usize, address: u64) {
        let here = &mut self.devices[self.device];
        if here.stream_keys.values().any(|known| *known == stream) {
            return;
        }
        let segments = here.allocator.snapshot().segments;
        let mut segments = segments.iter().filter(|segment| segment.address <= address);
        let key = segments.next_back().expect("it is in a segment").stream;
        here.stream_keys.insert(key, stream);
    }

    /// The number of a pool in the program; 0 for the default one.
    pub(crate) fn pool_number(&self, device: usize, id: PoolId) -> u64 {
        let mut pools = self.devices[device].known_pools.iter();
        pools.find(|(known, _)| *known == id).map_or(0, |(_, number)| *number)
    }

    fn flush_calls(&mut self) {
        let calls = self.numbers.ledger().take_text();
        self.text.push_str(&calls);
    }

    /// Does what a step says.
    pub(crate) fn act(&mut self, step: &Step<'_>) {
        match step.word {
            "allocate" => self.allocate(step.number(0), step.number(1), step.number(2)),
            "free" => self.free(step.number(0)),
            "use" => self.record_use(step.number(0), step.number(1)),
            "work" => self.numbers.clock().put(self.handle(step.number(0)), step.number(1)),
            "finish" => self.numbers.clock().finish(self.handle(step.number(0)), step.number(1)),
            "synchronize" => self.synchronize(),
            "empty" => self.devices.iter().for_each(|it| it.allocator.empty_cache()),
            "settings" => {
                let settings = full(step.rest);
                self.runtime.set_allocator_settings(&settings).expect("settings that both have");
            }
            "fraction" => {
                let fraction = step.argument(0).parse().expect("a fraction");
                self.here().allocator.set_memory_fraction(fraction).expect("from 0 to 1");
            }
            "reset_peaks" => self.here().allocator.reset_peak_statistics(),
            "reset_sums" => self.here().allocator.reset_accumulated_statistics(),
            "refuse" => {
                let is_create = step.argument(0) == "create";
                let method = if is_create { Method::VmCreate } else { Method::Allocate };
                self.numbers.refuse(method, step.number(1));
            }
            "pool" => self.make_pool(step),
            "enter" => self.entered().push(step.number(0)),
            "leave" => {
                let pool: u64 = step.number(0);
                self.entered().retain(|known| *known != pool);
            }
            "drop" => {
                let device = self.device;
                self.devices[device].pools.remove(&step.number(0));
            }
            other => panic!("no step: {other}"),
        }
        self.flush_calls();
    }

    fn handle(&self, stream: usize) -> StreamHandle {
        let stream = &self.here().streams[stream];
        StreamHandle(stream.native_handle().expect("the device gives it"))
    }

    fn entered(&mut self) -> &mut Vec<u64> {
        self.entered.entry((self.thread, self.device)).or_default()
    }

    fn request(&mut self, bytes: usize, stream: usize) -> Result<(u64, Held), Error> {
        let device = self.device;
        let pool = self.entered().last().copied();
        let pool = pool.map(|number| self.here().pools[&number].clone());
        if self.has_work {
            let OneDevice { device, streams, .. } = self.here();
            let _inside = pool.as_ref().map(MemPool::enter);
            self.runtime.set_stream(&streams[stream])?;
            let buffer = self.runtime.empty(bytes, *device)?;
            return Ok((buffer.address()?, Held::Buffer(buffer, Vec::new())));
        }
        let pool = pool.map_or(PoolId::DEFAULT, |pool| pool.id());
        let request = Request::new(bytes, stream as u64).from_pool(pool);
        let block = self.here().allocator.allocate(request)?;
        Ok((block.address(), Held::Block(device, block)))
    }

    fn allocate(&mut self, id: u64, bytes: usize, stream: usize) {
        if self.has_work {
            // As PyTorch, a request looks at every stream that something waits for; one of accelrt
            // looks at a few.
            let _ = self.here().allocator.statistics();
        }
        let answer = match self.request(bytes, stream) {
            Ok((address, held)) => {
                self.held.insert(id, held);
                self.note_stream_key(stream, address);
                let place = self.numbers.ledger().place(address);
                place.expect("inside of what the device gave").to_string()
            }
            Err(Error::Memory(MemoryError::OutOfMemory { .. })) => "out_of_memory".into(),
            Err(other) => panic!("{other}"),
        };
        self.flush_calls();
        let now = self.here().allocator.statistics();
        let [reserved, allocated, active] =
            [now.reserved_bytes, now.allocated_bytes, now.active_bytes].map(|it| it.all.current);
        writeln!(self.text, "{id} at {answer} | {reserved} {allocated} {active}")
            .expect("a string");
    }

    fn free(&mut self, id: u64) {
        match self.held.remove(&id) {
            None => {} // its request failed
            Some(Held::Block(device, block)) => {
                self.devices[device].allocator.free(block).expect("it is its own");
            }
            Some(Held::Buffer(buffer, used_on)) => {
                // PyTorch's points are those of the free, so the streams are named again there;
                // and its events are recorded there, so marks are placed.
                let streams = &self.here().streams;
                for stream in used_on {
                    buffer.record_use(&streams[stream]).expect("a live buffer");
                    streams[stream].record_event().expect("the device takes marks");
                }
                buffer.release().expect("nothing was exported");
            }
        }
    }

    fn record_use(&mut self, id: u64, stream: usize) {
        let device = self.device;
        if let Some(Held::Buffer(buffer, used_on)) = self.held.get_mut(&id) {
            buffer.record_use(&self.devices[device].streams[stream]).expect("a live buffer");
            used_on.push(stream);
        }
    }

    fn synchronize(&mut self) {
        for device in &self.devices {
            self.runtime.synchronize(device.device).expect("nothing fails there");
        }
    }

    fn make_pool(&mut self, step: &Step<'_>) {
        let number = step.number(0);
        let is = |word| step.rest.split_whitespace().any(|it| it == word);
        let options = PoolOptions::default().use_on_oom(is("helps")).no_split(is("whole"));
        let device = self.device;
        let here = &mut self.devices[device];
        let pool = MemPool::new(&self.runtime, here.device, options).expect("a device is there");
        here.known_pools.push((pool.id(), number));
        here.pools.insert(number, pool);
    }

    /// Ends what is left, so that the runtime can.
    pub(crate) fn end(mut self) {
        for stream in (0..STREAM_COUNT).map(|stream| self.handle(stream)) {
            self.numbers.clock().finish(stream, -1);
        }
        for (_, held) in self.held.drain() {
            if let Held::Block(device, block) = held {
                self.devices[device].allocator.free(block).expect("it is its own");
            }
        }
        self.devices.iter_mut().for_each(|device| device.pools.clear());
        self.runtime.shutdown();
    }
}
