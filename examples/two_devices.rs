//! Splits work over two devices; an event orders what the second one needs from the first.
//!
//! Running sums: each device sums its half by itself, both at the same time. Then the total of the
//! first half is sent to the second device, which adds it to each of its sums. Only that step has
//! to wait for the other device, and it does so by an event: no thread waits before the end.
//!
//! Any machine has two devices: `ACCELRT_CPU_DEVICES=2` does outside of a program what the
//! configuration does here. `cargo run --release --example two_devices`
#![expect(unsafe_code, reason = "says what native functions do with their arguments")]
#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::ffi::c_void;

use accelrt::{Buffer, Config, Device, Event, FfiCall, Runtime, Stream};

const NUMBERS: usize = 1 << 18;
const WIDTH: usize = size_of::<u64>();

/// Replaces each number by the sum of those up to it.
extern "C" fn running_sums(numbers: *mut u64, count: usize) {
    // SAFETY: `launch` passes the address and length of a buffer that no other task uses now.
    let numbers = unsafe { std::slice::from_raw_parts_mut(numbers, count) };
    let mut sum = 0;
    for number in numbers {
        sum += *number;
        *number = sum;
    }
}

/// Adds one number to many.
extern "C" fn add_to_each(numbers: *mut u64, count: usize, addend: *const u64) {
    // SAFETY: as above.
    let numbers = unsafe { std::slice::from_raw_parts_mut(numbers, count) };
    // SAFETY: it is in a buffer of its own, which is as wide.
    let addend = unsafe { addend.read() };
    for number in numbers {
        *number += addend;
    }
}

/// A device with its stream and its half of the numbers, in its own memory.
struct Half {
    stream: Stream,
    numbers: Buffer,
}

impl Half {
    /// Takes memory on a device and enqueues the copy of `numbers` there.
    fn load(runtime: &Runtime, device: Device, numbers: &[u64]) -> accelrt::Result<Self> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let stream = runtime.stream(device)?;
        let numbers = runtime.empty(bytes.len(), device)?;
        numbers.copy_from_host(bytes, &stream)?;
        Ok(Self { stream, numbers })
    }

    /// Enqueues the sums of this half alone.
    fn sum(&self) -> accelrt::Result<()> {
        let arguments = [self.numbers.address()?.into(), (self.numbers.nbytes() / WIDTH).into()];
        let call = FfiCall::new(running_sums as *const c_void, &arguments)?;
        // SAFETY: the types are those of `running_sums`, and the stream orders it behind the copy.
        unsafe { self.stream.launch_with_buffers(call, &[&self.numbers])? };
        Ok(())
    }

    /// Enqueues that the total of `first` is added to each sum of this half.
    fn add_total_of(&self, first: &Self, runtime: &Runtime) -> accelrt::Result<()> {
        let total = runtime.empty(WIDTH, self.stream.device())?;
        let last = first.numbers.slice(first.numbers.nbytes() - WIDTH..)?;
        total.copy_from(&last, &first.stream)?; // from device to device, behind the sums
        let sent = Event::new();
        first.stream.record(&sent)?;
        self.stream.wait_event(&sent)?; // what comes here stands behind the copy there

        let count = self.numbers.nbytes() / WIDTH;
        let arguments = [self.numbers.address()?.into(), count.into(), total.address()?.into()];
        let call = FfiCall::new(add_to_each as *const c_void, &arguments)?;
        // SAFETY: the types are those of `add_to_each`, and the event orders it behind the copy.
        unsafe { self.stream.launch_with_buffers(call, &[&self.numbers, &total])? };
        Ok(())
    }

    /// Waits for the work on this half, and brings the numbers to the host.
    fn fetch(&self) -> accelrt::Result<Vec<u64>> {
        let mut bytes = vec![0; self.numbers.nbytes()];
        self.numbers.copy_to_slice(&mut bytes, &self.stream)?;
        let (words, _) = bytes.as_chunks::<WIDTH>();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }
}

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::new(Config::builder().cpu_devices(2).build()?)?;
    let numbers: Vec<u64> = (0..NUMBERS as u64).map(|i| i * i % 1009).collect();
    let (left, right) = numbers.split_at(NUMBERS / 2);

    let first = Half::load(&runtime, Device::cpu(0), left)?;
    let second = Half::load(&runtime, Device::cpu(1), right)?;
    first.sum()?;
    second.sum()?; // at the same time, by the workers of the other device
    second.add_total_of(&first, &runtime)?;
    let found = [first.fetch()?, second.fetch()?].concat();

    let sums = numbers.iter().scan(0, |sum, number| {
        *sum += number;
        Some(*sum)
    });
    assert!(sums.eq(found), "the sums are not those of the serial computation");
    println!("{NUMBERS} running sums by two devices, checked");
    for device in [Device::cpu(0), Device::cpu(1)] {
        let statistics = runtime.memory_statistics(device)?;
        let (now, peak) =
            (statistics.allocated_bytes.all.current, statistics.allocated_bytes.all.peak);
        println!("{device} has {now} bytes in use, at most {peak}");
        assert!(now >= (NUMBERS / 2 * WIDTH) as u64, "each device has its half");
    }
    Ok(())
}
