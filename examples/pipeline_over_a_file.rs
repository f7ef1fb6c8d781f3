//! Streams a file through a device so that reading, computing and writing overlap.
//!
//! Three streams, one a stage: `load` brings chunks to the device, `compute` inverts their bytes by
//! a native function, `store` brings them back. An event orders the function behind its copy;
//! copies order themselves behind what uses their buffers. Chunks are in different stages at the
//! same time. Meanwhile this thread reads what comes next and writes what came back. As many chunks
//! as there are lanes are in flight, so memory is bounded whatever the size of the file.
//!
//! `cargo run --release --example pipeline_over_a_file`
#![expect(unsafe_code, reason = "says what a native function does with its arguments")]
#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::collections::VecDeque;
use std::error::Error;
use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use accelrt::{Event, FfiCall, HostTransfer, Runtime, Stream};

const CHUNK_BYTES: usize = 256 << 10;
const LANES: usize = 3;

/// What is computed: each byte of the chunk is inverted. A function of the C convention, as one of
/// any library would be; a worker calls it.
extern "C" fn invert(bytes: *mut u8, count: usize) {
    // SAFETY: the address and the length are those of a buffer that no other task uses now.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes, count) };
    for byte in bytes {
        *byte = !*byte;
    }
}

/// A stream for each stage of a chunk's way.
struct Pipeline {
    runtime: Runtime,
    load: Stream,
    compute: Stream,
    store: Stream,
}

impl Pipeline {
    fn new() -> accelrt::Result<Self> {
        let runtime = Runtime::global()?;
        let device = runtime.current_device()?;
        let stream = || runtime.stream(device);
        let (load, compute, store) = (stream()?, stream()?, stream()?);
        Ok(Self { runtime, load, compute, store })
    }

    /// Enqueues everything that happens to a chunk. Does not wait: the result comes back from
    /// `wait()` on what this returns.
    fn enqueue(&self, chunk: Vec<u8>) -> accelrt::Result<HostTransfer<Vec<u8>>> {
        let count = chunk.len();
        let buffer = self.runtime.empty(count, self.load.device())?;
        let loaded = Event::new();

        buffer.copy_from_host(chunk, &self.load)?;
        self.load.record(&loaded)?;

        self.compute.wait_event(&loaded)?; // ordered on the device; no thread waits
        let arguments = [buffer.address()?.into(), count.into()];
        let call = FfiCall::new(invert as *const c_void, &arguments)?;
        // SAFETY: the types are those of `invert`, and the buffer has as many bytes. It runs behind
        // the copy that writes them, and the copy below runs behind it.
        unsafe { self.compute.launch_with_buffers(call, &[&buffer])? };

        // A copy stands behind every task that was given its buffer: this one needs no event.
        buffer.copy_to_host(vec![0; count], &self.store)
        // The buffer is dropped here; its memory is free behind the last task that uses it.
    }

    /// Sends `input` through, chunk by chunk, into `output`.
    fn run(&self, mut input: impl Read, mut output: impl Write) -> Result<(), Box<dyn Error>> {
        let mut in_flight = VecDeque::with_capacity(LANES);
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            input.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
            let is_end = chunk.is_empty();
            if !is_end {
                in_flight.push_back(self.enqueue(chunk)?);
            }
            while in_flight.len() >= LANES || is_end && !in_flight.is_empty() {
                let oldest = in_flight.pop_front().ok_or("a chunk is in flight")?;
                output.write_all(&oldest.wait()?)?; // the others go on meanwhile
            }
            if is_end {
                return Ok(());
            }
        }
    }
}

/// Writes a file of eleven chunks and a rest, and returns what should come of it.
fn make_input(path: &Path) -> std::io::Result<Vec<u8>> {
    let numbers = (0..11 * CHUNK_BYTES + 1234).map(|i| i.wrapping_mul(0x9E37_79B9));
    let content: Vec<u8> = numbers.map(|number| number.to_le_bytes()[3]).collect();
    fs::write(path, &content)?;
    Ok(content.iter().map(|byte| !byte).collect()) // the serial computation
}

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("accelrt-pipeline-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (input, output) = (folder.join("input"), folder.join("output"));
    let expected = make_input(&input)?;

    let pipeline = Pipeline::new()?;
    pipeline.run(File::open(&input)?, File::create(&output)?)?;
    let found = fs::read(&output)?;
    fs::remove_dir_all(&folder)?;

    assert!(found == expected, "the file that came back is not the inverted one");
    let statistics = pipeline.runtime.memory_statistics(pipeline.load.device())?;
    let peak_bytes = statistics.active_bytes.all.peak;
    println!("{} bytes in chunks of {CHUNK_BYTES}, checked", found.len());
    println!("at most {peak_bytes} bytes of device memory were in use at once");
    Ok(())
}
