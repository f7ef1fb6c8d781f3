//! Tests of requests that are short of memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::*;
use crate::backend::contract::Backend;
use crate::backend::cpu::CpuBackend;
use crate::base::config::Config;
use crate::base::device::{Device, DeviceKind};
use crate::base::error::MemoryError;
use crate::base::size::MIB;
use crate::engine::log::immediate::Immediate;
use crate::fault::{FaultBackend, Method};
use crate::memory::allocator::{PoolId, PoolOptions, Request, UsePoint};
use crate::null::{CompletionMode, NullBackend, NullConfig};
use crate::runtime::Runtime;

/// Looks that see another thread in its turn, far more than that one needs to fail.
const LOOKS: usize = 2000;
/// Until a thread counts as hanging.
const LONG: Duration = Duration::from_secs(20);

/// An allocator on a device of numbers, and what its calls can be made to do.
fn on_numbers(capacity_bytes: usize, settings: &str) -> (Arc<FaultBackend>, Arc<CachingAllocator>) {
    let config = NullConfig { capacity_bytes, ..NullConfig::default() };
    let faults = FaultBackend::new(NullBackend::new(config));
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let backend = Arc::<FaultBackend>::clone(&faults);
    let allocator = CachingAllocator::new(backend, device, settings.parse().unwrap());
    (faults, Arc::new(allocator.unwrap()))
}

#[test]
fn what_another_thread_is_just_giving_back_is_waited_for() {
    // Goal: under both policies it counts as there. Method: a limit of one segment, which goes
    // back while another thread asks for as much. It is in its turn, or has ended, before the
    // device's call returns.
    for settings in ["policy:torch", "policy:native"] {
        let (faults, allocator) = on_numbers(40 * MIB, settings);
        allocator.set_memory_fraction(0.5).unwrap();
        // Of a pool that keeps its blocks whole: PyTorch's decisions, under both policies.
        let pool = PoolId(0, 1);
        allocator.retain_pool(pool, PoolOptions { no_split: true, ..PoolOptions::default() });
        let block = allocator.allocate(Request::new(20 * MIB, 1).from_pool(pool)).unwrap();
        allocator.free(block).unwrap();
        let (tell, told) = mpsc::channel();
        let asking = Arc::clone(&allocator);
        faults.plan_callback(Method::Release, 1, move || {
            let theirs = Arc::clone(&asking);
            let other = thread::spawn(move || theirs.allocate(Request::new(20 * MIB, 2)));
            let mut seen = 0;
            while !other.is_finished() && seen < LOOKS {
                seen += usize::from(asking.state.lock().ledger.turn.is_some());
                yield_now();
            }
            tell.send(other).unwrap();
        });
        allocator.trim_pool(pool);
        let block = told.recv().unwrap().join().unwrap();
        let block = block.unwrap_or_else(|error| panic!("{settings}: {error}"));
        allocator.free(block).unwrap();
        allocator.check_all();
    }
}

#[test]
fn what_another_thread_frees_while_memory_goes_back_is_had() {
    // Goal: a block that comes too late to go back with the rest is no reason to fail. Method:
    // one that leaves too little is freed inside of the device's call that takes another.
    let ways = [
        ("policy:torch", Method::Release),
        ("policy:native,deterministic:True", Method::VmRelease),
    ];
    for (settings, method) in ways {
        let (faults, allocator) = on_numbers(60 * MIB, settings);
        let take = |bytes, stream| allocator.allocate(Request::new(bytes, stream));
        let (late, early) = (take(30 * MIB, 1).unwrap(), take(20 * MIB, 2).unwrap());
        allocator.free(early).unwrap();
        let theirs = Arc::clone(&allocator);
        faults.plan_callback(method, 1, move || theirs.free(late).unwrap());
        let block = take(50 * MIB, 3);
        let block = block.unwrap_or_else(|error| panic!("{settings}: {error}"));
        allocator.free(block).unwrap();
        allocator.check_all();
    }
}

#[test]
fn what_a_stream_uses_that_is_just_being_dropped_is_waited_for() {
    // Goal: under both policies it counts as there. Method: a thread drops the stream, which
    // waits for the device, and another one asks for all memory before that wait is over.
    for settings in ["policy:torch", "policy:native"] {
        let completion = CompletionMode::WhenAsked { polls: u32::MAX };
        let config = NullConfig { capacity_bytes: 16 * MIB, completion, ..NullConfig::default() };
        let faults = FaultBackend::new(NullBackend::new(config));
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let runtime = runtime_on(&faults, settings);
        let [dropped, other] = [(); 2].map(|()| runtime.stream(device).unwrap());
        runtime.exchange_stream(&dropped).unwrap();
        let buffer = runtime.empty(16 * MIB, device).unwrap();
        buffer.fill(1, &dropped).unwrap();
        drop(buffer);
        runtime.exchange_stream(&other).unwrap();
        let (tell, told) = mpsc::channel();
        let asking = Arc::clone(&runtime);
        faults.plan_callback(Method::StreamSynchronize, 1, move || {
            let allocator = asking.allocator(device).unwrap();
            let theirs = Arc::clone(&asking);
            let other = thread::spawn(move || {
                theirs.exchange_stream(&other).unwrap();
                theirs.empty(16 * MIB, device).map(drop)
            });
            let mut seen = 0;
            while !other.is_finished() && seen < LOOKS {
                let is_short = allocator.statistics().num_alloc_retries > 0;
                seen += usize::from(is_short);
                yield_now();
            }
            tell.send(other).unwrap();
        });
        drop(dropped);
        let served = told.recv().unwrap().join().unwrap();
        served.unwrap_or_else(|error| panic!("{settings}: {error}"));
    }
}

fn runtime_on(faults: &Arc<FaultBackend>, settings: &str) -> Arc<Runtime> {
    let config = Config::builder().accelerator(DeviceKind::NULL).allocator_settings(settings);
    let backend: Arc<dyn Backend> = Arc::<FaultBackend>::clone(faults);
    Arc::new(Runtime::with_backends(config.build().unwrap(), [backend]).unwrap())
}

#[test]
fn who_uses_free_memory_is_looked_up_before_it_is_chosen_what_goes_back() {
    // Goal: memory that a stream passes between the look and the choice is not taken for
    // memory that nothing used. Method: the look counts what is there.
    let null = NullBackend::new(NullConfig::default());
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let settings = "policy:torch".parse().unwrap();
    let allocator = CachingAllocator::new(null, device, settings).unwrap();
    let block = allocator.allocate(Request::new(20 * MIB, 0)).unwrap();
    allocator.free(block).unwrap();
    let reserved_bytes =
        |state: &AllocatorState| state.ledger.statistics.reserved_bytes.all.current;
    let seen = allocator.trim_and_see(reserved_bytes);
    let left = reserved_bytes(&allocator.state.lock());
    assert_eq!((seen, left), (20 * MIB as u64, 0));
}

#[test]
fn what_others_free_while_reclaimers_have_nothing_is_had() {
    // Goal: it counts though no reclaimer knows of it, but does not have them asked again.
    // Method: one that lasts until another thread has freed what the request needs, or less.
    for settings in ["policy:torch", "policy:native"] {
        for (bytes, is_enough) in [(20 * MIB, true), (30 * MIB, false)] {
            let (_faults, allocator) = on_numbers(32 * MIB, settings);
            let take = |bytes, stream| allocator.allocate(Request::new(bytes, stream));
            let held = Mutex::new(Some(take(20 * MIB, 1).unwrap()));
            let kept = take(12 * MIB, 1).unwrap();
            let (asked, theirs) = (Arc::new(AtomicUsize::new(0)), Arc::downgrade(&allocator));
            let (counted, told) = (Arc::clone(&asked), Arc::new(Mutex::new(Vec::new())));
            let notes = Arc::clone(&told);
            allocator.add_oom_observer(move |error| {
                let Error::Memory(MemoryError::OutOfMemory { cache, .. }) = error else {
                    return;
                };
                notes.lock().unwrap().push(cache.as_ref().unwrap().allocated_bytes);
            });
            allocator.add_reclaimer(move |_| {
                counted.fetch_add(1, Ordering::Relaxed); // read by the same thread
                let (held, theirs) = (held.lock().unwrap().take(), theirs.upgrade().unwrap());
                let freeing = move || held.map(|held| theirs.free(held).unwrap());
                thread::spawn(freeing).join().unwrap();
                false
            });
            let served = take(bytes, 1);
            assert_eq!(served.is_ok(), is_enough, "{settings}, {bytes} bytes: {served:?}");
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{settings}, {bytes} bytes");
            let expected = if is_enough { vec![] } else { vec![12 * MIB] };
            assert_eq!(*told.lock().unwrap(), expected, "{settings}: by the last turn");
            let counted = allocator.statistics().num_ooms;
            assert_eq!(counted, expected.len() as u64, "{settings}, {bytes} bytes");
            served.into_iter().chain([kept]).for_each(|block| allocator.free(block).unwrap());
            allocator.check_all();
        }
    }
}

#[test]
fn a_request_that_nobody_is_asked_for_fails_by_one_turn() {
    // Goal: the device is not asked again for what it has not. Method: its calls are counted,
    // also beside the reclaimers of a runtime that has none.
    let calls = |prepare: fn(&CachingAllocator)| {
        let (faults, allocator) = on_numbers(32 * MIB, "policy:torch");
        prepare(&allocator);
        let held = allocator.allocate(Request::new(30 * MIB, 1)).unwrap();
        allocator.allocate(Request::new(20 * MIB, 1)).unwrap_err();
        allocator.free(held).unwrap();
        faults.calls(Method::Allocate)
    };
    let alone = calls(|_| ());
    assert_eq!(calls(|it| it.add_reclaimers(Arc::new(Immediate::new()))), alone);
    let beside_one = calls(|it| _ = it.add_reclaimer(|_| false));
    assert!(beside_one > alone, "one turn more: {beside_one} calls, {alone} without");
}

#[test]
fn what_a_reclaimer_frees_serves_as_it_is() {
    // Goal: memory that was waited for does not go to the device and come from it again.
    // Method: a reclaimer frees what the request needs, all of the device, whose calls count.
    let ways = [("policy:torch", Method::Release), ("policy:native", Method::VmRelease)];
    for (settings, method) in ways {
        let (faults, allocator) = on_numbers(30 * MIB, settings);
        let held = allocator.allocate(Request::new(30 * MIB, 1)).unwrap();
        let address = held.address();
        let (held, theirs) = (Mutex::new(Some(held)), Arc::downgrade(&allocator));
        allocator.add_reclaimer(move |_| {
            let held = held.lock().unwrap().take();
            held.is_some_and(|held| theirs.upgrade().unwrap().free(held).is_ok())
        });
        let block = allocator.allocate(Request::new(30 * MIB, 1)).unwrap();
        assert_eq!((block.address(), faults.calls(method)), (address, 0), "{settings}");
        allocator.free(block).unwrap();
    }
}

/// Asks on a thread of its own, which sleeps for what `end` brings to its end, and is served.
fn ask_and_sleep(allocator: &Arc<CachingAllocator>, bytes: usize, end: impl FnOnce()) {
    let (tell, told) = mpsc::channel();
    let theirs = Arc::clone(allocator);
    thread::spawn(move || {
        let outcome = theirs.allocate(Request::new(bytes, 2));
        tell.send(outcome.map(|block| theirs.free(block).unwrap())).unwrap();
    });
    let began = Instant::now();
    while allocator.state.lock().ledger.sleepers.count() == 0 {
        assert!(began.elapsed() < LONG, "it does not sleep");
        assert!(told.try_recv().is_err(), "it is served by another thread's memory");
        yield_now();
    }
    end();
    told.recv_timeout(LONG).expect("it is woken").expect("there is enough");
}

#[test]
fn who_waits_for_the_turn_of_another_sleeps_and_is_woken() {
    // Goal: it takes no processor from the other one. Method: a turn that lasts until another
    // thread sleeps that wants memory from the device, and one that wants the turn.
    for settings in ["policy:torch", "policy:native"] {
        let device = Device::new(DeviceKind::NULL, 0).unwrap();
        let null = NullBackend::new(NullConfig::default());
        let allocator = CachingAllocator::new(null, device, settings.parse().unwrap());
        let allocator = Arc::new(allocator.unwrap());
        let turn = allocator.take_turn();
        ask_and_sleep(&allocator, 20 * MIB, || drop(turn));
        allocator.check_all();
    }
}

#[test]
fn who_waits_for_pages_that_others_map_sleeps_and_is_woken() {
    // Method: a device that maps a page until another thread sleeps that needs some.
    let (faults, allocator) = on_numbers(40 * MIB, "policy:native");
    let (asleep, has_slept) = mpsc::channel();
    let (map, mapped) = mpsc::channel::<()>();
    faults.plan_callback(Method::VmMap, 1, move || {
        asleep.send(()).unwrap();
        mapped.recv_timeout(LONG).unwrap();
    });
    let first = Arc::clone(&allocator);
    let mapping = thread::spawn(move || first.allocate(Request::new(MIB, 1)).unwrap());
    has_slept.recv_timeout(LONG).unwrap();
    ask_and_sleep(&allocator, 20 * MIB, || map.send(()).unwrap());
    allocator.free(mapping.join().unwrap()).unwrap();
    allocator.check_all();
}

#[test]
fn the_stream_that_holds_most_is_waited_for_first() {
    for settings in ["policy:torch", "policy:native"] {
        let config = Config { cpu_memory_bytes: Some(64 * MIB), ..Config::default() };
        let (backend, device) = (CpuBackend::new(&config).unwrap(), Device::cpu(0));
        let own = Arc::<CpuBackend>::clone(&backend);
        let allocator = CachingAllocator::new(own, device, settings.parse().unwrap()).unwrap();
        let runtime = Runtime::with_backends(config, [backend as Arc<_>]).unwrap();
        let sizes = [10 * MIB, 30 * MIB, 20 * MIB];
        let held = sizes.map(|bytes| {
            let stream = runtime.stream(device).unwrap();
            let (open, gate) = mpsc::channel::<()>();
            stream.enqueue(move || _ = gate.recv()).unwrap();
            let core = Arc::clone(stream.core());
            let request = Request::new(bytes, core.key());
            let block =
                allocator.allocate_unless(request, Some(&core), &mut Interrupt::default()).unwrap();
            let point = UsePoint { ticket: core.pushed(), stream: core };
            allocator.free_behind(block, Some(&point), &[]);
            (stream, open)
        });
        let planned = allocator.plan(&Request::new(40 * MIB, 0), None).unwrap();
        let turn = allocator.take_turn();
        let outcome = turn.run(&planned, &BTreeSet::new()).unwrap();
        drop(turn);
        let Outcome::InUse { holders, .. } = outcome else { panic!("{settings}: none holds") };
        let bytes: Vec<usize> = holders.iter().map(|holder| holder.bytes).collect();
        assert_eq!(bytes, [30 * MIB, 20 * MIB, 10 * MIB], "{settings}");
        drop((holders, held));
    }
}

#[test]
fn who_is_short_does_not_wait_for_the_siblings_threads_for_ever() {
    // Goal: a request fails although the allocator of shared memory goes on asking the device.
    // Method: a device that is inside of such a call until the request has failed.
    for settings in ["policy:torch", "policy:native"] {
        let (faults, allocator) = on_numbers(40 * MIB, settings);
        let shared = CachingAllocator::shared(&allocator, settings.parse().unwrap());
        let shared = Arc::new(shared.unwrap());
        allocator.begin_sharing(&shared);
        let ((begun, is_begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        faults.plan_callback(Method::AllocateShared, 1, move || {
            begun.send(()).unwrap();
            ended.recv_timeout(LONG).unwrap();
        });
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || theirs.allocate(Request::new(MIB, 1)).unwrap());
        is_begun.recv_timeout(LONG).unwrap();
        let asking = Arc::clone(&allocator);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(asking.allocate(Request::new(80 * MIB, 2)).is_ok()));
        assert_eq!(told.recv_timeout(LONG), Ok(false), "{settings}: it fails");
        end.send(()).unwrap();
        shared.free(other.join().unwrap()).unwrap();
    }
}
