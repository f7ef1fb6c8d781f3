//! The clock of the runtime: a reading is a number of ticks, converted to time only on request.
//!
//! Ticks come from the processor's time stamp counter if its rate is constant in every power state
//! (CPUID) and it is the kernel's clock source. Otherwise, they are nanoseconds of the monotonic
//! clock. The first conversion measures the counter's rate against the monotonic clock; conversions
//! measure it again whenever the measured span has doubled.
#![expect(unsafe_code, reason = "reads the time stamp counter")]

use std::sync::OnceLock;
use std::time::Instant;

use crate::base::sync::{LockRank, Mutex, Ordering, spin_hint, unmodelled};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockSource {
    TimeStampCounter,
    /// The monotonic clock, in nanoseconds.
    Monotonic,
    /// Time that a schedule advances.
    Virtual,
}

impl ClockSource {
    /// Chooses the counter if both processor and kernel trust it, else the monotonic clock.
    fn choose(has_invariant_counter: bool, kernel_source: Option<&str>) -> Self {
        match kernel_source.map(str::trim) {
            Some("tsc") if has_invariant_counter => Self::TimeStampCounter,
            _ => Self::Monotonic,
        }
    }

    fn of_this_machine() -> Self {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let kernel_source = std::fs::read_to_string(path).ok();
        Self::choose(counter::is_invariant(), kernel_source.as_deref())
    }
}

/// The tick source and the monotonic clock, read at one moment.
#[derive(Clone, Copy, Debug)]
struct Pair {
    ticks: u64,
    ns: u64,
}

/// Reads ticks and converts them to nanoseconds, for the whole process.
///
/// The rate is in nanoseconds per tick times 2^32; at 3 GHz its resolution is better than 1e-9. Its
/// precision depends on the span, the length of the measurement in nanoseconds:
///
/// | `span_ns` | sufficient for |
/// |---|---|
/// | 0 | nothing: the rate was not measured |
/// | from `Clock::CONVERSION_SPAN_NS` | `Clock::ticks_between_ns`, to a few millionths |
#[derive(Debug)]
pub struct Clock {
    /// A [`ClockSource`]: `real`, or `Virtual`.
    source: unmodelled::AtomicU8,
    real: ClockSource,
    virtual_ticks: unmodelled::AtomicU64,
    start: Instant,
    /// Where the measurement of the rate begins. The lock serialises measurements.
    base: Mutex<Pair>,
    rate: unmodelled::AtomicU64,
    span_ns: unmodelled::AtomicU64,
}

impl Clock {
    const CONVERSION_SPAN_NS: u64 = 10_000_000;
    const RATE_ONE: u64 = 1 << 32;
    /// The highest bit of readings of virtual time, whose ticks are nanoseconds.
    const VIRTUAL: u64 = 1 << 63;
    const COUNTER: u8 = ClockSource::TimeStampCounter as u8;
    const MONOTONIC: u8 = ClockSource::Monotonic as u8;

    /// The clock of this process.
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(|| Self::with_source(ClockSource::of_this_machine()))
    }

    pub(crate) fn with_source(source: ClockSource) -> Self {
        let is_monotonic = source == ClockSource::Monotonic;
        let clock = Self {
            source: unmodelled::AtomicU8::new(source as u8),
            real: source,
            virtual_ticks: unmodelled::AtomicU64::new(0),
            start: Instant::now(),
            base: Mutex::new(LockRank::Backend, Pair { ticks: 0, ns: 0 }),
            rate: unmodelled::AtomicU64::new(if is_monotonic { Self::RATE_ONE } else { 0 }),
            span_ns: unmodelled::AtomicU64::new(if is_monotonic { u64::MAX } else { 0 }),
        };
        *clock.base.lock() = clock.pair();
        clock
    }

    #[cfg(test)]
    pub(crate) fn source(&self) -> ClockSource {
        self.real
    }

    /// Lets readings be of virtual time, of so many nanoseconds, until the next call; `None` ends
    /// that. Virtual and real readings have no common scale.
    pub fn set_virtual(&self, ns: Option<u64>) {
        // Relaxed, here and below: one thread at a time sets the clock, and the order of tasks on
        // several threads comes from their streams.
        self.virtual_ticks.store(ns.unwrap_or_default() | Self::VIRTUAL, Ordering::Relaxed);
        let source = if ns.is_some() { ClockSource::Virtual } else { self.real };
        self.source.store(source as u8, Ordering::Relaxed);
    }

    /// Reads the tick source. A read of the counter first waits for all earlier instructions.
    #[inline]
    pub(crate) fn now_ticks(&self) -> u64 {
        match self.source.load(Ordering::Relaxed) {
            Self::COUNTER => counter::read_after_predecessors(),
            Self::MONOTONIC => self.monotonic_ns(),
            _ => self.virtual_ticks.load(Ordering::Relaxed),
        }
    }

    /// Nanoseconds between two readings; negative when `end` was taken first.
    ///
    /// The first conversion of counter ticks spins until the measurement of the rate spans 10 ms.
    pub(crate) fn ticks_between_ns(&self, start: u64, end: u64) -> i64 {
        if start & end & Self::VIRTUAL != 0 {
            return end.wrapping_sub(start).cast_signed();
        }
        let rate = self.rate(Self::CONVERSION_SPAN_NS);
        let ns = u128::from(end.abs_diff(start)) * u128::from(rate) / u128::from(Self::RATE_ONE);
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        if end >= start { ns } else { -ns }
    }

    /// Converts many readings at one rate: each to the nanoseconds since the reading `origin`,
    /// negative when it was taken before. Otherwise as `Clock::ticks_between_ns`.
    pub fn converter(&self, origin: u64) -> impl Fn(u64) -> i64 {
        let is_virtual = origin & Self::VIRTUAL != 0;
        let rate = if is_virtual { Self::RATE_ONE } else { self.rate(Self::CONVERSION_SPAN_NS) };
        let rate = i128::from(rate);
        move |ticks| {
            let span = i128::from(ticks) - i128::from(origin);
            i64::try_from((span * rate) >> Self::RATE_ONE.trailing_zeros()).unwrap_or(i64::MAX)
        }
    }

    /// The rate, measured over at least `least_span_ns`. Measures again when the span has doubled.
    fn rate(&self, least_span_ns: u64) -> u64 {
        // Relaxed, here and below: rate and span publish nothing else. A new rate read with an old
        // span is more precise than requested.
        let span_ns = self.span_ns.load(Ordering::Relaxed);
        let has_doubled = self.monotonic_ns() / 2 > span_ns;
        if span_ns < least_span_ns || has_doubled {
            self.measure(least_span_ns);
        }
        self.rate.load(Ordering::Relaxed)
    }

    /// Measures the rate from `base` to now. First spins until this span is `least_span_ns` long.
    fn measure(&self, least_span_ns: u64) {
        let mut base = self.base.lock();
        while self.monotonic_ns() < base.ns.saturating_add(least_span_ns) {
            spin_hint();
        }
        let now = self.pair();
        let (span_ticks, span_ns) = (now.ticks.wrapping_sub(base.ticks), now.ns - base.ns);
        let rate = u128::from(span_ns) * u128::from(Self::RATE_ONE) / u128::from(span_ticks).max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        let known = self.rate.load(Ordering::Relaxed);
        let is_known_well = self.span_ns.load(Ordering::Relaxed) >= Self::CONVERSION_SPAN_NS;
        if !is_known_well || rate.abs_diff(known) <= known / 500 {
            self.rate.store(rate, Ordering::Relaxed);
            self.span_ns.store(span_ns, Ordering::Relaxed);
        } else {
            // The machine slept: one clock stopped or was reset. The known rate stays in use, as if
            // just measured, and the next measurement begins now.
            *base = now;
            self.span_ns.store(now.ns, Ordering::Relaxed);
        }
    }

    /// Reads both clocks several times and returns the reading that took the least time.
    fn pair(&self) -> Pair {
        let reading = |_| {
            let before = self.now_ticks();
            let ns = self.monotonic_ns();
            let width = self.now_ticks().wrapping_sub(before);
            (width, Pair { ticks: before.wrapping_add(width / 2), ns })
        };
        let tightest = (0..16).map(reading).min_by_key(|(width, _)| *width);
        tightest.expect("sixteen readings").1
    }

    #[inline]
    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Reads the time stamp counter of x86 by `rdtsc`.
#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _mm_lfence, _rdtsc, CpuidResult};

    pub(super) fn is_invariant() -> bool {
        const LARGEST_LEAF: u32 = 0x8000_0000;
        const POWER_LEAF: u32 = 0x8000_0007;
        // Only older compilers declare `__cpuid` unsafe; a call through this type is unsafe on all.
        let cpuid: unsafe fn(u32) -> CpuidResult = __cpuid;
        // SAFETY: requires the CPUID instruction, which every 64-bit x86 has.
        let largest = unsafe { cpuid(LARGEST_LEAF) }.eax;
        // SAFETY: requires the CPUID instruction, which every 64-bit x86 has.
        largest >= POWER_LEAF && unsafe { cpuid(POWER_LEAF) }.edx & (1 << 8) != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: requires the instruction, which every 64-bit x86 has, and permission in user
        // mode. The kernel grants it where the counter is its clock source, as `choose` requires.
        unsafe { _rdtsc() }
    }

    #[inline]
    pub(super) fn read_after_predecessors() -> u64 {
        // SAFETY: requires SSE2, which every 64-bit x86 has.
        unsafe { _mm_lfence() };
        read()
    }
}

/// Other architectures have no known counter, so `choose` selects the monotonic clock.
#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn is_invariant() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        unreachable!("the counter is never chosen on this architecture")
    }

    pub(super) fn read_after_predecessors() -> u64 {
        read()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A clock of each source that this machine has.
    fn clocks() -> Vec<Clock> {
        let sources = match ClockSource::of_this_machine() {
            source @ ClockSource::TimeStampCounter => vec![source, ClockSource::Monotonic],
            _ => vec![ClockSource::Monotonic],
        };
        sources.into_iter().map(Clock::with_source).collect()
    }

    /// Executes 20 million dependent multiplications, which take a measurable time on any machine.
    fn work() {
        let mut value = 1_u64;
        for _ in 0..20_000_000_u64 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
        }
    }

    #[test]
    fn conversions_lie_between_the_monotonic_readings_around_them() {
        for clock in clocks() {
            let outer_start = Instant::now();
            let start = clock.now_ticks();
            let inner_start = Instant::now();
            work();
            let inner = i128::try_from(inner_start.elapsed().as_nanos()).unwrap();
            let end = clock.now_ticks();
            let outer = i128::try_from(outer_start.elapsed().as_nanos()).unwrap();
            let ns = i128::from(clock.ticks_between_ns(start, end));
            // The tolerance is 50 ppm for the rate, and 200 ns for the two readings.
            let (least, most) = (inner - inner / 20_000 - 200, outer + outer / 20_000 + 200);
            assert!((least..=most).contains(&ns), "{:?}: {least} {ns} {most}", clock.source());
        }
    }

    #[test]
    fn readings_never_go_backwards() {
        for clock in clocks() {
            let mut last = clock.now_ticks();
            for _ in 0..100_000 {
                let now = clock.now_ticks();
                assert!(now >= last, "{:?}: {now} after {last}", clock.source());
                last = now;
            }
        }
    }

    #[test]
    fn readings_follow_the_order_of_synchronised_threads() {
        let clock = Clock::get();
        for _ in 0..200 {
            let before = clock.now_ticks();
            let inside = std::thread::spawn(|| Clock::get().now_ticks()).join().unwrap();
            assert!(before <= inside && inside <= clock.now_ticks());
        }
    }

    #[test]
    fn a_reversed_interval_has_the_same_length_and_is_negative() {
        for clock in clocks() {
            let forwards = clock.ticks_between_ns(5, 3_000_000_005);
            let backwards = clock.ticks_between_ns(3_000_000_005, 5);
            assert!(forwards > 0);
            // Between the two conversions, the clock may have measured the rate again.
            assert!((forwards + backwards).abs() <= forwards / 1_000);
            assert_eq!(clock.ticks_between_ns(7, 7), 0);
        }
    }

    #[test]
    fn a_rate_measured_across_a_machine_sleep_is_discarded() {
        for clock in clocks() {
            // Each share of the time since the last measurement, and for ages.
            for share in [100, 20, 0] {
                let known = clock.ticks_between_ns(0, 1 << 40);
                // Simulates a counter that advanced while the monotonic clock stopped.
                let span = clock.now_ticks().wrapping_sub(clock.base.lock().ticks);
                let slept = span.checked_div(share).unwrap_or(1 << 62);
                let ticks = clock.base.lock().ticks;
                clock.base.lock().ticks = ticks.wrapping_sub(slept);
                clock.measure(0);
                let kept = clock.ticks_between_ns(0, 1 << 40);
                let source = clock.source();
                assert!((kept - known).abs() <= known / 500, "{source:?}: {known} {kept} {share}");
                clock.measure(1_000_000); // a new span
            }
        }
    }

    #[test]
    fn the_counter_is_used_only_where_processor_and_kernel_trust_it() {
        let choose = ClockSource::choose;
        assert_eq!(choose(true, Some("tsc\n")), ClockSource::TimeStampCounter);
        assert_eq!(choose(true, Some("kvm-clock\n")), ClockSource::Monotonic);
        assert_eq!(choose(true, Some("hyperv_clocksource_tsc_page\n")), ClockSource::Monotonic);
        assert_eq!(choose(true, None), ClockSource::Monotonic);
        assert_eq!(choose(false, Some("tsc\n")), ClockSource::Monotonic);
    }
}
