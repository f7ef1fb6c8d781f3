//! Ping-pong between two pinned threads by nothing but a word: what the machine itself allows.
#![expect(unsafe_code, reason = "waits for a word by the kernel's futex call")]

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::processors::pin;

/// How long both sides are left alone before a round through a sleeping thread: every worker and
/// every waiting thread is asleep by then.
const REST: Duration = Duration::from_micros(300);

/// The word that is handed to and fro. Sequentially consistent throughout: what is measured is the
/// way of a cache line, and one ordering for ours and theirs compares like with like.
pub(crate) struct Ball(AtomicU32);

impl Ball {
    pub(crate) const HERE: u32 = 0;
    pub(crate) const THERE: u32 = 1;
    const OVER: u32 = 2;

    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(Self::HERE))
    }

    pub(crate) fn set(&self, place: u32) {
        self.0.store(place, Ordering::SeqCst);
    }

    pub(crate) fn spin_until(&self, place: u32) {
        while self.0.load(Ordering::SeqCst) != place {
            spin_loop();
        }
    }

    /// Sets it and wakes who sleeps for it.
    pub(crate) fn set_and_wake(&self, place: u32) {
        self.set(place);
        // SAFETY: the word lives as long as `self`, and waking reads no memory.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), WAKE, 1) };
    }

    /// Sleeps until it is no longer at `place`; where it is then.
    pub(crate) fn sleep_while(&self, place: u32) -> u32 {
        loop {
            let now = self.0.load(Ordering::SeqCst);
            if now != place {
                return now;
            }
            let no_timeout = std::ptr::null::<libc::timespec>();
            // SAFETY: the word lives as long as `self`; without a timeout nothing else is read.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), WAIT, place, no_timeout) };
        }
    }
}

const WAIT: libc::c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
const WAKE: libc::c_int = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;

/// Per round between this thread, which the caller has pinned, and one on `cpu`; both only spin.
pub(crate) fn spinning_ns(cpu: usize, rounds: usize) -> f64 {
    let ball = Ball::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(&[cpu]);
            for _ in 0..rounds {
                ball.spin_until(Ball::THERE);
                ball.set(Ball::HERE);
            }
        });
        // The first round waits for the thread to start.
        ball.set(Ball::THERE);
        ball.spin_until(Ball::HERE);
        let started = Instant::now();
        for _ in 1..rounds {
            ball.set(Ball::THERE);
            ball.spin_until(Ball::HERE);
        }
        crate::measure::ns_each(started.elapsed(), rounds - 1)
    })
}

/// Per round between this thread, which the caller has pinned, and one on `cpu`; both only sleep.
pub(crate) fn sleeping_ns(cpu: usize, rounds: usize) -> f64 {
    let ball = Ball::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(&[cpu]);
            while ball.sleep_while(Ball::HERE) != Ball::OVER {
                ball.set_and_wake(Ball::HERE);
            }
        });
        let ns = rested_rounds_ns(rounds, || {
            ball.set_and_wake(Ball::THERE);
            ball.sleep_while(Ball::THERE);
        });
        ball.set_and_wake(Ball::OVER);
        ns
    })
}

/// Per round, each after a rest in which this thread alone is awake.
pub(crate) fn rested_rounds_ns(rounds: usize, mut round: impl FnMut()) -> f64 {
    let mut time = Duration::ZERO;
    for _ in 0..rounds {
        let rested = Instant::now();
        while rested.elapsed() < REST {
            spin_loop();
        }
        let started = Instant::now();
        round();
        time += started.elapsed();
    }
    crate::measure::ns_each(time, rounds)
}
