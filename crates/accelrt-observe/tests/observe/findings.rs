//! Texts of findings.

use std::thread;

use accelrt::{Config, Device, Runtime};
use accelrt_observe::sanitizer::Watch;

#[test]
fn finding_of_a_thread_without_a_name_says_so() {
    let runtime = Runtime::new(Config::default()).unwrap();
    let watch = Watch::start(&runtime);
    let buffer = runtime.empty(8, Device::cpu(0)).unwrap();
    thread::spawn(move || buffer.read_to_vec().unwrap()).join().unwrap();
    let findings = watch.findings();
    let text = findings[0].second().to_string();
    assert_eq!(text, "host access reads bytes 0 to 8 on the host, thread ?");
}
