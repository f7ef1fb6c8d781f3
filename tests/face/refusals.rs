//! What `enqueue_with` and typed buffers refuse: nothing is enqueued, and the error says why.

use accelrt::{
    Buffer, Config, Device, DeviceKind, DriverError, Error, MemoryError, Result, Runtime,
    RuntimeError, Stream, Transfer,
};
use accelrt_testing::null::{NullBackend, NullConfig};

use crate::support::{CPU, streams, typed, workers};

/// Enqueues a task that writes all of the buffer; it must not run.
fn write(stream: &Stream, buffer: &Buffer) -> Result<Transfer> {
    stream.enqueue_with(buffer.typed::<u8>()?.writes(), |_| -> () { panic!("it was refused") })
}

fn memory_error<T>(refused: Result<T>) -> MemoryError {
    match refused.map(drop) {
        Err(Error::Memory(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn views_that_overlap_are_refused_where_the_task_writes_one() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let (all, elsewhere) = (typed(&runtime, &[0_u32; 8]), typed(&runtime, &[0_u8]));
    let [first, rest, middle] = [0..4, 4..8, 3..5].map(|range| all.slice(range).unwrap());
    for (one, other) in [(&first, &middle), (&middle, &rest), (&all, &all), (&all, &rest)] {
        let both = memory_error(stream.enqueue_with((one.writes(), other.writes()), |_| ()));
        let after = memory_error(stream.enqueue_with((one.reads(), other.writes()), |_| ()));
        let before = memory_error(stream.enqueue_with((one.writes(), other.reads()), |_| ()));
        let far = (one.writes(), elsewhere.reads(), other.reads());
        for error in [both, after, before, memory_error(stream.enqueue_with(far, |_| ()))] {
            assert!(matches!(error, MemoryError::ViewOverlap { .. }), "{error}");
            assert!(error.to_string().contains("overlap"), "{error}");
        }
        // Two that only read are fine, and so are two beside each other.
        stream.enqueue_with((one.reads(), other.reads()), |_| ()).unwrap();
    }
    stream.enqueue_with([first.writes(), rest.writes()], |_| ()).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn an_empty_view_overlaps_no_view() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let all = typed(&runtime, &[0_u64; 10]);
    for place in 0..=10 {
        let empty = all.slice(place..place).unwrap();
        for other in [&all, &empty] {
            stream.enqueue_with((other.reads(), empty.writes()), |_| ()).unwrap();
            stream.enqueue_with((empty.writes(), other.writes()), |_| ()).unwrap();
            stream.enqueue_with((other.writes(), empty.reads()), |_| ()).unwrap();
        }
    }
    stream.synchronize().unwrap();
}

#[test]
fn a_view_that_is_no_whole_number_of_aligned_elements_is_refused() {
    let runtime = workers(1);
    let buffer = runtime.zeros(64, CPU).unwrap();
    for (range, is_size) in [(0..63, true), (0..3, true), (2..10, false), (1..5, false)] {
        let error = memory_error(buffer.slice(range.clone()).unwrap().typed::<u32>());
        let MemoryError::NotElements { bytes, element, element_bytes, align_bytes, address } =
            error
        else {
            panic!("{error}")
        };
        assert_eq!((bytes, element, element_bytes), (range.len(), "u32", 4));
        assert_eq!(address.is_multiple_of(align_bytes as u64), is_size);
    }
    assert_eq!(buffer.slice(4..8).unwrap().typed::<u32>().unwrap().len(), 1);
    assert_eq!(buffer.slice(3..3).unwrap().typed::<u8>().unwrap().len(), 0);
    let typed = buffer.typed::<u64>().unwrap();
    for refused in [typed.slice(7..9), typed.slice(usize::MAX..), typed.slice(..=usize::MAX)] {
        assert!(matches!(memory_error(refused), MemoryError::RangeOutside { .. }));
    }
}

#[test]
fn released_memory_is_refused_also_when_the_view_was_made_before() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let buffer = runtime.zeros(16, CPU).unwrap();
    let view = buffer.typed::<u8>().unwrap();
    let writes = view.writes();
    buffer.release().unwrap();
    let refusals = [
        stream.enqueue_with(writes, |_| ()).map(drop),
        stream.enqueue_with(view.reads(), |_| ()).map(drop),
        buffer.typed::<u8>().map(drop),
    ];
    for refused in refusals {
        assert!(matches!(memory_error(refused), MemoryError::Released { .. }));
    }
}

#[test]
fn exported_memory_is_refused_until_the_last_export_ends() {
    // An export's accesses have no order, so no task may have the bytes as a slice meanwhile.
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let buffer = runtime.zeros(16, CPU).unwrap();
    let exports = [buffer.export().unwrap(), buffer.slice(8..).unwrap().export().unwrap()];
    for (left, export) in [2, 1].into_iter().zip(exports) {
        let view = buffer.typed::<u8>().unwrap();
        let refusals = [
            write(&stream, &buffer).map(drop),
            stream.enqueue_with(view.reads(), |_| ()).map(drop),
        ];
        for refused in refusals {
            let error = memory_error(refused);
            let MemoryError::SliceOfExported { exports, .. } = error else { panic!("{error}") };
            assert_eq!(exports, left);
        }
        // What has no slices of it goes on.
        buffer.fill(1, &stream).unwrap();
        drop(export);
    }
    stream.enqueue_with(buffer.typed::<u8>().unwrap().writes(), |bytes| bytes.fill(3)).unwrap();
    assert_eq!(buffer.read_to_vec().unwrap(), [3; 16]);
}

#[test]
fn handles_of_another_runtime_are_refused() {
    let (runtime, other) = (workers(1), workers(1));
    let [stream] = streams(&runtime);
    let refused = write(&stream, &other.zeros(8, CPU).unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Runtime(RuntimeError::OtherRuntime { .. })), "{refused}");
}

#[test]
fn kinds_without_host_tasks_and_memory_without_host_access_are_refused() {
    let null = NullBackend::new(NullConfig::default());
    let runtime = Runtime::with_backends(Config::default(), [null as _]).unwrap();
    let device = Device::new(DeviceKind::NULL, 0).unwrap();
    let [cpu, null] = [CPU, device].map(|device| runtime.stream(device).unwrap());
    let [cpu_memory, memory] = [CPU, device].map(|device| runtime.empty(8, device).unwrap());
    for buffer in [&memory, &cpu_memory] {
        let refused = write(&null, buffer).unwrap_err();
        assert!(refused.to_string().contains("compile a Program"), "{refused}");
        assert!(matches!(refused, Error::Driver(DriverError::Unsupported { .. })));
    }
    let refused = write(&cpu, &memory).unwrap_err();
    assert!(refused.to_string().contains("access to their memory by the host"), "{refused}");
}

#[test]
fn after_a_shutdown_nothing_is_enqueued() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let [buffer, empty] = [8, 0].map(|bytes| runtime.zeros(bytes, CPU).unwrap());
    assert!(runtime.shutdown().is_clean());
    for buffer in [&buffer, &empty] {
        let refused = write(&stream, buffer).unwrap_err();
        assert!(matches!(refused, Error::Runtime(RuntimeError::ShutDown)), "{refused}");
    }
}
