//! What ends a host wait before its work is done: an interrupt check, or a limit.

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result, RuntimeError};
use crate::engine::stream::scheduling_hints::MAX_HELP_TIME;

/// The period of a waiting thread's interrupt checks, while it sleeps and while it executes tasks.
const INTERRUPT_PERIOD: Duration = MAX_HELP_TIME;

/// Ends a wait early; the work goes on. By default nothing ends the wait.
#[derive(Default)]
pub struct Interrupt<'a> {
    /// Called every 50 ms, between tasks if the waiting thread executes any. The result true ends
    /// the wait with [`RuntimeError::Interrupted`].
    check: Option<&'a mut dyn FnMut() -> bool>,
    /// The end of the wait, which then fails with [`RuntimeError::TimedOut`].
    limit: Option<Limit>,
}

impl fmt::Debug for Interrupt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Limit {
    timeout: Duration,
    end: Instant,
}

impl<'a> Interrupt<'a> {
    /// A wait that ends when `check` returns true.
    #[inline]
    pub fn by(check: &'a mut dyn FnMut() -> bool) -> Self {
        Self { check: Some(check), limit: None }
    }

    /// Ends a wait after `timeout`, counted from this call.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self::default().or_after(Some(timeout))
    }

    /// Also ends the wait after `timeout`, counted from this call. A time that no clock reaches is
    /// no limit.
    #[must_use]
    pub fn or_after(self, timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let limit = timeout.zip(end).map(|(timeout, end)| Limit { timeout, end });
        Self { limit, ..self }
    }

    /// True for a wait that may not execute tasks, because their length is unknown.
    #[inline]
    pub(crate) fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// The longest sleep until the next check or the limit, of at most `most`.
    #[must_use]
    pub fn longest_sleep(&self, most: Option<Duration>) -> Option<Duration> {
        let left = self.limit.map(|limit| limit.end.saturating_duration_since(Instant::now()));
        let period = self.check.is_some().then_some(INTERRUPT_PERIOD);
        [most, period, left].into_iter().flatten().min()
    }

    /// Fails when the wait is to end. Calls the check if its last call, at `last_check`, is a
    /// period ago.
    pub fn check(&mut self, last_check: &mut Instant) -> Result<()> {
        if let Some(Limit { timeout, .. }) = self.limit.filter(|it| Instant::now() >= it.end) {
            return Err(Error::Runtime(RuntimeError::TimedOut { timeout }));
        }
        if self.check.is_some() && last_check.elapsed() >= INTERRUPT_PERIOD {
            *last_check = Instant::now();
            return self.check_now();
        }
        Ok(())
    }

    /// Calls the check; fails with `Interrupted` after the result true.
    pub(crate) fn check_now(&mut self) -> Result<()> {
        let is_interrupted = self.check.as_mut().is_some_and(|is_interrupted| is_interrupted());
        if is_interrupted { Err(Error::Runtime(RuntimeError::Interrupted)) } else { Ok(()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_a_wait_when_it_is_reached_and_names_its_length() {
        let mut interrupt = Interrupt::after(Duration::from_secs(60));
        assert!(interrupt.check(&mut Instant::now()).is_ok());
        assert!(interrupt.longest_sleep(None) <= Some(Duration::from_secs(60)));
        let mut interrupt = Interrupt::after(Duration::ZERO);
        assert_eq!(interrupt.longest_sleep(None), Some(Duration::ZERO));
        let ended = interrupt.check(&mut Instant::now()).unwrap_err();
        assert!(matches!(ended, Error::Runtime(RuntimeError::TimedOut { .. })), "{ended}");
        assert!(ended.to_string().contains("limit of 0ns"), "{ended}");
    }

    #[test]
    fn a_time_that_no_clock_reaches_is_no_limit() {
        let mut interrupt = Interrupt::after(Duration::MAX);
        assert!(!interrupt.has_limit() && interrupt.longest_sleep(None).is_none());
        assert!(interrupt.check(&mut Instant::now()).is_ok());
    }
}
