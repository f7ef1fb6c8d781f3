//! The duration of a random fill under a schedule.
//!
//! The schedule's clock is that of the process, so this test is alone in its binary.

use accelrt::{Config, Device, Event, Runtime};
use accelrt_random::{RawType, RuntimeExt};
use accelrt_testing::Schedule;

#[test]
fn random_fills_take_their_own_time() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let schedule: Schedule = "seed:1,durations:1000,durations.random:40000".parse().unwrap();
    let _scheduled = schedule.start(&runtime).unwrap();
    let stream = runtime.stream(Device::cpu(0)).unwrap();
    let buffer = runtime.empty(400, Device::cpu(0)).unwrap();
    let generator = runtime.generator(Device::cpu(0)).unwrap();
    let events = [(); 2].map(|()| Event::timed());
    stream.record(&events[0]).unwrap();
    generator.fill_raw(&buffer, RawType::Uint32, &stream).unwrap();
    stream.record(&events[1]).unwrap();
    stream.synchronize().unwrap();
    let expected = 0.040_04_f64; // and a nanosecond for each 10 bytes
    assert_eq!(events[0].elapsed_ms(&events[1]).unwrap().to_bits(), expected.to_bits());
}
