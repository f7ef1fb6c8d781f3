//! Runs programs on accelrt's allocator over a device of numbers, and prints what the driver does.
//!
//! `peer <PROGRAMS` prints for each what is compared, between `program NAME` and `end NAME`.

mod clock;
mod device;
mod ledger;
mod program;
mod report;
mod turns;
mod world;

use std::io::{Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use program::Program;
use turns::Turns;
use world::World;

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("programs on the standard input");
    let mut out = std::io::stdout().lock();
    for program in program::parse(&text) {
        let said = run(&program);
        let name = program.name;
        write!(out, "program {name}\n{said}end {name}\n").expect("the comparer reads");
        out.flush().expect("as above");
    }
}

/// What a program comes to. What it panics with ends it, as what PyTorch throws ends it there.
fn run(program: &Program<'_>) -> String {
    let world = Mutex::new(World::new(program));
    let outcome = catch_unwind(AssertUnwindSafe(|| act_all(program, &world)));
    let mut world = world.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut text = std::mem::take(&mut world.text);
    if outcome.is_err() {
        std::mem::forget(world); // its state is unknown
        return text + "error it panicked\n";
    }
    for device in 0..program.device_count {
        let statistics = report::statistics(&world, device).expect("a string takes all");
        let layout = report::layout(&world, device).expect("as above");
        text.extend(["device ", &device.to_string(), "\n", &statistics, &layout]);
    }
    world.end();
    text
}

fn act_all(program: &Program<'_>, world: &Mutex<World>) {
    let lock = || world.lock().expect("a panic ends the program");
    thread::scope(|scope| {
        let mut turns = Turns::new(scope);
        for step in &program.steps {
            match step.word {
                "device" => lock().device = step.number(0),
                "thread" => lock().thread = step.number(0),
                _ => {
                    let thread = lock().thread;
                    turns.on(thread, move || lock().act(step));
                }
            }
        }
    });
}
