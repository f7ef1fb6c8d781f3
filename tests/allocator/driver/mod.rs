//! Programs over a runtime's memory, made of bytes, beside a model of who has and uses what.
//!
//! A program ends with its bytes. After each step the statistics are compared with the model, and
//! all laws and every block after each or after a few: that look has threads give back what they
//! keep, which serves nothing then. On numbers a stream goes on only when somebody waits for it, so
//! what was freed stays in use for long; on cpu every byte of a buffer is written, and looked at by
//! tasks behind which it is freed. Where memory is short, on purpose, each refusal is looked into:
//! law 8. Random strings, the corpus and the fuzzer run this.

mod choices;
mod ledger;
mod room;

use std::sync::Arc;

use accelrt::allocator::snapshot::BlockState;
use accelrt::allocator::{CachingAllocator, PoolId};
use accelrt::backend::contract::Backend;
use accelrt::backend::cpu::CpuBackend;
use accelrt::{
    Buffer, Config, Device, DeviceKind, DriverError, Error, HostTransfer, MemPool, MemoryError,
    PoolOptions, Runtime, Stream,
};
use accelrt_testing::fault::{Fault, FaultBackend, FaultError, Method};
use accelrt_testing::null::{CompletionMode, NullBackend, NullConfig, ResourceCounts, Reuse};

use choices::Choices;
use ledger::{Ledger, Live};
pub(crate) use room::Sources;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const STREAMS: usize = 3;

const SETTINGS: [&str; 10] = [
    "policy:native",
    "policy:native,per_process_memory_fraction:0.8",
    "policy:native,throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.6",
    "policy:torch",
    "expandable_segments:True",
    "max_split_size_mb:24",
    "expandable_segments:True,max_split_size_mb:20,max_non_split_rounding_mb:22",
    "roundup_power2_divisions:[1:4,8:2,>:1],large_segment_size_mb:12",
    "garbage_collection_threshold:0.3,per_process_memory_fraction:0.8",
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.7,expandable_segments:True",
];

/// Where memory is short: settings that serve every request by the same policy.
const SHORT_SETTINGS: [&str; 5] = [
    "policy:native",
    "policy:native,exact_statistics:True",
    "policy:native,deterministic:True",
    "policy:native,per_process_memory_fraction:0.8",
    "policy:torch,per_process_memory_fraction:0.9",
];

/// What a device can refuse an allocator.
const REFUSED: [(Method, FaultError); 11] = [
    (Method::Allocate, FaultError::OutOfMemory),
    (Method::Allocate, FaultError::Driver),
    (Method::Release, FaultError::Driver),
    (Method::MemoryInfo, FaultError::Driver),
    (Method::VmReserve, FaultError::Driver),
    (Method::VmCreate, FaultError::OutOfMemory),
    (Method::VmMap, FaultError::Driver),
    (Method::VmUnmap, FaultError::Driver),
    (Method::VmRelocate, FaultError::Driver),
    (Method::VmRelease, FaultError::Driver),
    (Method::VmUnreserve, FaultError::Driver),
];

/// Runs a program on a device of numbers, whose streams go on when they are waited for, and whose
/// addresses come back at once.
pub(crate) fn run_on_numbers(bytes: &[u8]) {
    let completion = CompletionMode::WhenAsked { polls: u32::MAX };
    let (capacity_bytes, reuse) = (256 * MIB, Reuse::AtOnce);
    let config = NullConfig { capacity_bytes, completion, reuse, ..NullConfig::default() };
    let null = NullBackend::new(config);
    let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
    Program::new(Arc::<NullBackend>::clone(&null), config, |it| it, 40 * MIB, bytes).run();
    assert_eq!(null.resource_counts(), ResourceCounts::default());
}

/// Runs a program on a small device of numbers, with requests of up to a third of it, by one policy
/// and without refusals that are planned. What fails for want of memory has to.
pub(crate) fn run_short_of_memory(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let capacity_bytes = choices.of(&[16, 24, 64, 100]) * MIB;
    let completion =
        choices.of(&[CompletionMode::AtOnce, CompletionMode::WhenAsked { polls: u32::MAX }]);
    let settings = choices.of(&SHORT_SETTINGS);
    let config = NullConfig { capacity_bytes, completion, ..NullConfig::default() };
    let null = NullBackend::new(config);
    let config = Config::builder().accelerator(DeviceKind::NULL).build().unwrap();
    let left = &bytes[bytes.len().min(3)..];
    let wrapped = Arc::<NullBackend>::clone(&null);
    let program = Program::new(wrapped, config, |it| it, capacity_bytes / 3, left);
    program.runtime.set_allocator_settings(settings).unwrap();
    Program { short_of: Some(settings), ..program }.run();
    assert_eq!(null.resource_counts(), ResourceCounts::default());
}

/// Runs a program on cpu, where memory is there to be written, on the runtime that `begin` makes
/// of a new one.
pub(crate) fn run_on_cpu(bytes: &[u8], begin: fn(Runtime) -> Runtime) {
    let config = Config::builder().cpu_memory_bytes(160 * MIB).build().unwrap();
    let cpu = CpuBackend::new(&config).unwrap();
    Program::new(cpu, config, begin, 3 * MIB, bytes).run();
}

/// A part of a buffer that a task of a stream looks at, and what it has to see.
struct Look {
    seen: HostTransfer<Vec<u8>>,
    mark: u8,
}

struct Program<'a> {
    choices: Choices<'a>,
    runtime: Runtime,
    backend: Arc<FaultBackend>,
    device: Device,
    allocator: Arc<CachingAllocator>,
    streams: [Stream; STREAMS],
    /// Private pools with users.
    pools: Vec<(MemPool, PoolOptions)>,
    ledger: Ledger,
    looks: Vec<Look>,
    most_bytes: usize,
    /// The settings in force all the time where memory is short.
    short_of: Option<&'static str>,
}

impl<'a> Program<'a> {
    fn new(
        inner: Arc<dyn Backend>,
        config: Config,
        begin: fn(Runtime) -> Runtime,
        most_bytes: usize,
        bytes: &'a [u8],
    ) -> Self {
        let backend = FaultBackend::new(inner);
        let wrapped: Arc<dyn Backend> = Arc::<FaultBackend>::clone(&backend);
        let device = Device::new(backend.kind(), 0).unwrap();
        let runtime = begin(Runtime::with_backends(config, [wrapped]).unwrap());
        Self {
            choices: Choices::new(bytes),
            allocator: runtime.allocator(device).unwrap(),
            streams: [(); STREAMS].map(|()| runtime.stream(device).unwrap()),
            runtime,
            backend,
            device,
            pools: Vec::new(),
            ledger: Ledger::default(),
            looks: Vec::new(),
            most_bytes,
            short_of: None,
        }
    }

    fn run(mut self) {
        self.change_settings();
        let steps_between_looks = [1, 20][self.choices.below(2)];
        while !self.choices.is_over() {
            self.step();
            self.compare_sums();
            if self.choices.below(steps_between_looks) == 0 {
                self.allocator.check_all();
                self.compare_blocks();
            }
        }
        self.backend.clear();
        while !self.ledger.live.is_empty() {
            self.free();
        }
        self.pools.clear();
        self.allocator.empty_cache();
        self.allocator.check_all();
        self.check_looks();
        let info = self.backend.memory_info(0).unwrap();
        assert_eq!(info.free_bytes, info.total_bytes, "everything is back");
        assert_eq!(self.allocator.statistics().reserved_bytes.all.current, 0);
    }

    fn step(&mut self) {
        let end = if self.short_of.is_some() { 96 } else { 100 };
        match self.choices.below(end) {
            0..44 => self.allocate(),
            44..70 => self.free(),
            70..82 => self.use_elsewhere(),
            82..85 => self.keep_a_part(),
            85..88 => self.streams[self.choices.below(STREAMS)].synchronize().unwrap(),
            88 => self.check_looks(),
            89 => self.allocator.empty_cache(),
            90 => self.allocator.trim(),
            91..93 => self.change_settings(),
            93 if self.short_of.is_none() => {
                let fraction = self.choices.of(&[0.5, 0.9, 1.0]);
                self.allocator.set_memory_fraction(fraction).unwrap();
            }
            93 | 94 => self.make_pool(),
            95 => self.leave_pool(),
            96 => self.backend.clear(),
            _ => {
                let (method, error) = self.choices.of(&REFUSED);
                let call = 1 + self.choices.below(3) as u64;
                self.backend.plan(Fault::nth(method, call, error));
            }
        }
    }

    /// Serves the next requests by other settings, with memory cached by those before.
    fn change_settings(&mut self) {
        if self.short_of.is_some() {
            return; // what others have cached is no free memory of this policy
        }
        let settings = self.choices.of(&SETTINGS);
        self.runtime.set_allocator_settings(settings).unwrap();
    }

    /// Makes a buffer, or fails as devices fail.
    fn allocate(&mut self) {
        let unit = self.choices.of(&[1, 100, KIB, 64 * KIB, MIB]);
        let bytes = (unit * self.choices.below(40)).min(self.most_bytes);
        let home = self.streams[self.choices.below(STREAMS)].clone();
        let align_bytes = match self.choices.below(12) {
            0 => 1 << self.choices.below(22),
            _ => 1,
        };
        let pool = match self.choices.below(5) {
            0 if !self.pools.is_empty() => {
                Some(&self.pools[self.choices.below(self.pools.len())].0)
            }
            _ => None,
        };
        self.runtime.exchange_stream(&home).unwrap();
        let inside = pool.map(MemPool::enter);
        let made = self.runtime.empty_aligned(bytes, align_bytes, self.device);
        let pool = pool.map_or(PoolId::DEFAULT, MemPool::id);
        if let (Err(error), Some(settings)) = (&made, self.short_of) {
            self.check_refusal(error, align_bytes, pool, &home, settings);
        }
        drop(inside);
        match made {
            Ok(view) if bytes == 0 => assert_eq!(view.address().unwrap(), 0),
            Ok(view) => self.take(view, align_bytes, pool, home),
            // Short of memory, or as planned.
            Err(
                Error::Memory(MemoryError::OutOfMemory { .. })
                | Error::Driver(DriverError::Refused { .. }),
            ) => {}
            Err(error) => panic!("{bytes} bytes at {align_bytes}: {error}"),
        }
    }

    /// Law 8: what was refused is refused when no stream uses anything, is more than free memory
    /// can hold, and more than the error says could be had; which is to be had.
    fn check_refusal(
        &self,
        error: &Error,
        align_bytes: usize,
        pool: PoolId,
        home: &Stream,
        settings: &str,
    ) {
        let &Error::Memory(MemoryError::OutOfMemory { requested_bytes: bytes, .. }) = error else {
            panic!("{error}")
        };
        assert!(most_bytes(error) < bytes, "{error}");
        self.streams.iter().for_each(|stream| stream.synchronize().unwrap());
        let again = self.runtime.empty_aligned(bytes, align_bytes, self.device);
        let error = again.expect_err("a use was to be waited for");
        let segments = self.allocator.snapshot().segments;
        let owned: Vec<PoolId> = self.pools.iter().map(|(pool, _)| pool.id()).collect();
        let helps = |options: &PoolOptions| pool == PoolId::DEFAULT && options.use_on_oom;
        let helpers = self.pools.iter().filter(|(_, options)| helps(options));
        let serving: Vec<PoolId> = helpers.map(|(pool, _)| pool.id()).chain([pool]).collect();
        let (stream, left_bytes) = (home.id(), self.left_bytes());
        let sources = Sources { stream, serving: &serving, owned: &owned, left_bytes };
        if settings.contains("torch") {
            if align_bytes <= 512 {
                sources.assert_torch_refuses(&segments, bytes);
            }
            return;
        }
        let (room_bytes, most_bytes) = (sources.native_room_bytes(&segments), most_bytes(&error));
        assert!(
            room_bytes < bytes || align_bytes > 512,
            "{room_bytes} bytes hold {bytes}: {error}"
        );
        assert!(most_bytes < bytes, "{error}");
        assert!(
            room_bytes <= most_bytes || align_bytes > 512,
            "{room_bytes} bytes could be had: {error}"
        );
        let most = self.runtime.empty_aligned(most_bytes, align_bytes, self.device);
        most.unwrap_or_else(|refusal| panic!("{error}, and then {refusal}"));
    }

    /// What the device and the limit have left.
    fn left_bytes(&self) -> usize {
        let info = self.backend.memory_info(0).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of a size"
        )]
        let allowed_bytes = (self.allocator.memory_fraction() * info.total_bytes as f64) as usize;
        info.free_bytes.saturating_sub(info.total_bytes - allowed_bytes)
    }

    fn take(&mut self, view: Buffer, align_bytes: usize, pool: PoolId, home: Stream) {
        let address = view.address().unwrap();
        let block = self.allocator.block_at(address).unwrap();
        let requested_bytes = view.nbytes();
        assert!(address.is_multiple_of(align_bytes as u64), "{view:?} at {align_bytes}");
        assert!(block.address == address && block.bytes >= requested_bytes, "{block:?}");
        let mark = u8::try_from(self.choices.below(256)).unwrap();
        view.fill(mark, &home).unwrap();
        let (block, uses) = (address..address + block.bytes as u64, Vec::new());
        self.ledger.take(Live { view, block, requested_bytes, pool, home, uses, mark });
    }

    fn one_of_the_live(&mut self) -> usize {
        self.choices.below(self.ledger.live.len().max(1))
    }

    /// Frees a buffer, in one of the ways that there are, behind a task that looks at it.
    fn free(&mut self) {
        let place = self.one_of_the_live();
        let Some(Live { home, view, mark, .. }) = self.ledger.live.values().nth(place) else {
            return;
        };
        if self.backend.runs_on_host() {
            let seen = view.copy_to_host(vec![0; view.nbytes()], home).unwrap();
            self.looks.push(Look { seen, mark: *mark });
        }
        let Some(Live { view, .. }) = self.ledger.give_back(place) else { return };
        match self.choices.below(4) {
            0 => view.release().unwrap(),
            1 => std::thread::scope(|scope| _ = scope.spawn(move || drop(view))),
            _ => drop(view),
        }
    }

    /// A stream uses some bytes in the middle of a buffer, behind what its home has by now.
    fn use_elsewhere(&mut self) {
        let (place, stream) = (self.one_of_the_live(), self.choices.below(STREAMS));
        let stream = self.streams[stream].clone();
        let Some(live) = self.ledger.live.values_mut().nth(place) else { return };
        if stream != live.home {
            stream.wait_stream(&live.home).unwrap();
            live.uses.push(stream.record_event().unwrap());
        }
        let begin = self.choices.below(live.view.nbytes());
        let end = (begin + 1 + self.choices.below(4 * KIB)).min(live.view.nbytes());
        let part = live.view.slice(begin..end).unwrap();
        if self.backend.runs_on_host() {
            let seen = part.copy_to_host(vec![0; part.nbytes()], &stream).unwrap();
            self.looks.push(Look { seen, mark: live.mark });
        } else {
            part.record_use(&stream).unwrap();
        }
    }

    /// A view of some bytes is all that is left of a buffer, and keeps all of it.
    fn keep_a_part(&mut self) {
        let place = self.one_of_the_live();
        let Some(live) = self.ledger.live.values_mut().nth(place) else { return };
        let begin = self.choices.below(live.view.nbytes());
        live.view = live.view.slice(begin..).unwrap();
        let address = live.view.address().unwrap();
        let block = self.allocator.block_at(address).unwrap();
        assert_eq!(block.address, live.block.start, "the block of {address:#x}");
    }

    fn make_pool(&mut self) {
        let (use_on_oom, no_split) = (self.choices.below(2) == 0, self.choices.below(4) == 0);
        let no_split = no_split && self.short_of.is_none(); // those have other rules
        let options = PoolOptions::default().use_on_oom(use_on_oom).no_split(no_split);
        let pool = MemPool::new(&self.runtime, self.device, options).unwrap();
        self.pools.push((pool, options));
    }

    fn leave_pool(&mut self) {
        if !self.pools.is_empty() {
            self.pools.swap_remove(self.choices.below(self.pools.len()));
        }
    }

    /// Nobody wrote where somebody else looked.
    fn check_looks(&mut self) {
        for Look { seen, mark } in self.looks.drain(..) {
            let seen = seen.wait().unwrap();
            assert!(seen.iter().all(|byte| *byte == mark), "others wrote, instead of {mark}");
        }
    }

    /// The statistics are the model's sums.
    fn compare_sums(&self) {
        let statistics = self.allocator.statistics();
        let live = self.ledger.live.values();
        let sum = |bytes: fn(&Live) -> u64| live.clone().map(bytes).sum::<u64>();
        assert_eq!(statistics.allocation.all.current, self.ledger.live.len() as u64);
        let allocated_bytes = sum(|live| live.block.end - live.block.start);
        assert_eq!(statistics.allocated_bytes.all.current, allocated_bytes);
        let info = self.backend.inner().memory_info(0).unwrap();
        let taken_bytes = (info.total_bytes - info.free_bytes) as u64;
        assert_eq!(statistics.reserved_bytes.all.current, taken_bytes, "the device's account");
    }

    fn compare_blocks(&mut self) {
        let segments = self.allocator.snapshot().segments;
        if segments.iter().flat_map(|segment| &segment.blocks).all(is_settled) {
            let live = self.ledger.live.values();
            let requested_bytes: u64 = live.map(|live| live.requested_bytes as u64).sum();
            assert_eq!(self.allocator.statistics().requested_bytes.all.current, requested_bytes);
        }
        self.ledger.compare(&segments);
    }
}

/// The largest request that an error says could be had.
fn most_bytes(error: &Error) -> usize {
    let Error::Memory(MemoryError::OutOfMemory { cache: Some(cache), .. }) = error else {
        panic!("{error}")
    };
    cache.largest_free_bytes
}

fn is_settled(info: &accelrt::allocator::snapshot::BlockInfo) -> bool {
    info.state != BlockState::AwaitingFree
}
