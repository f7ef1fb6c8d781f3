//! Streams: default, pooled, dedicated and wrapped ones, with tasks in each.

use std::sync::Arc;

use accelrt::backend::contract::Backend;
use accelrt::{DriverError, Error, Runtime, Stream};

use crate::world::World;
use accelrt_testing::trusted::Trusted;

pub(crate) fn run(world: &World) {
    for device in &world.devices {
        let runtime = &world.runtime;
        let makers = [Runtime::default_stream, Runtime::stream, Runtime::stream];
        let mut streams: Vec<Stream> =
            makers.iter().filter_map(|make| world.note(make(runtime, *device))).collect();
        let first = world.backend().priority_range(device.index()).greatest;
        streams.extend(world.note(runtime.pooled_stream_with_priority(*device, first)));
        streams.extend(world.streams(*device, 2));
        for _ in 0..3 {
            for stream in &streams {
                world.task(stream);
            }
        }
        for stream in &streams {
            let found = world.note(runtime.stream_by_id(*device, stream.id()));
            assert!(found.is_none_or(|found| found == *stream), "another stream has its id");
            let _ = stream.is_done();
            wrap(world, stream);
            world.note(stream.synchronize());
            world.task(stream);
        }
        world.note(runtime.synchronize(*device));
        for stream in &streams {
            world.task(stream);
        }
        // The dedicated ones end with work queued, and perhaps with an error that nobody saw.
    }
}

/// Goes through a second handle of the stream, which nothing above a backend does yet. A kind
/// without native handles says so, unless the call fails first.
fn wrap(world: &World, stream: &Stream) {
    let backend = Trusted(Arc::clone(world.backend()));
    let native = match stream.native_handle() {
        Err(Error::Driver(DriverError::Unsupported { .. })) => Some(0),
        outcome => world.note(outcome),
    };
    let Some(native) = native else { return };
    let wrapped = match backend.stream_wrap(stream.device().index(), native) {
        Err(Error::Driver(DriverError::Unsupported { .. })) => return,
        outcome => world.note(outcome),
    };
    if let Some(wrapped) = wrapped {
        let _ = backend.stream_query(wrapped);
        // The handle is gone also when that is refused.
        let _ = backend.stream_destroy(wrapped);
    }
}
