//! First use: many threads meet a runtime that has done nothing yet.

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use accelrt::{Config, Device, Runtime, Stream};

use crate::{CPU, finishes};

const THREADS: usize = 8;

const ROUNDS: usize = 100;

/// What one thread does first, by its number: not all begin with the same call.
fn first(runtime: &Runtime, thread: usize) -> Stream {
    match thread % 4 {
        0 => drop(runtime.properties(CPU).unwrap()),
        1 => drop(runtime.empty(1000, CPU).unwrap()),
        2 => runtime.stream(CPU).unwrap().enqueue(|| ()).unwrap(),
        _ => runtime.synchronize(CPU).unwrap(),
    }
    runtime.default_stream(CPU).unwrap()
}

#[test]
fn threads_that_use_a_runtime_first_at_the_same_time_get_the_same_streams() {
    finishes(|| {
        for _ in 0..ROUNDS {
            let config = Config::builder().cpu_devices(2).build().unwrap();
            let runtime = Runtime::new(config).unwrap();
            let together = Barrier::new(THREADS);
            let found: Vec<_> = std::thread::scope(|scope| {
                let one = |thread| {
                    let (runtime, together) = (&runtime, &together);
                    move || {
                        together.wait();
                        let default = first(runtime, thread);
                        let pooled = runtime.stream(Device::cpu(1)).unwrap();
                        default.enqueue(|| ()).unwrap();
                        default.synchronize().unwrap();
                        (default, pooled)
                    }
                };
                let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(one(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let is_shared = found.iter().all(|(default, _)| *default == found[0].0);
            let pooled: HashSet<_> = found.iter().map(|(_, pooled)| pooled.id()).collect();
            assert!(is_shared, "one default stream");
            assert_eq!(pooled.len(), THREADS, "pooled ones of their own");
        }
    });
}

#[test]
fn threads_that_ask_for_the_process_wide_runtime_at_the_same_time_get_one() {
    finishes(|| {
        let together = Arc::new(Barrier::new(THREADS));
        let threads = [(); THREADS].map(|()| {
            let together = Arc::clone(&together);
            std::thread::spawn(move || {
                together.wait();
                let stream = Runtime::global().unwrap().default_stream(CPU).unwrap();
                stream.enqueue(|| ()).unwrap();
                stream
            })
        });
        let streams = threads.map(|thread| thread.join().unwrap());
        assert!(streams.iter().all(|stream| *stream == streams[0]));
        Runtime::global().unwrap().synchronize(CPU).unwrap();
    });
}
