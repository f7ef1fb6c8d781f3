//! Planned faults: the injector counts all calls and decides which ones fail.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use accelrt::backend::contract::{Backend, KernelHandle, Mark, ProgramHandle, StreamHandle};
use accelrt::internal::{LockRank, Mutex, fork, out_of_memory};
use accelrt::{Device, DriverError, Error, MemoryInfo, Result};

use super::Method;

const PLANNED_CODE: i64 = 999;

/// The outcome of a call that fails as planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// `OutOfMemory`, with the free and total bytes of the inner device.
    OutOfMemory,
    /// `Driver`, with the method's name and the code 999.
    Driver,
    /// `DeviceLost`, for this call only: the inner device remains usable.
    DeviceLost,
    /// No error: the call panics, as a call of a defective backend would.
    Panic,
}

/// Whether a planned fault affects one call or also all later calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Only the planned call fails.
    Once,
    /// The planned call and every later call fail.
    FromThenOn,
}

/// A fault to plan with `FaultBackend::plan`: which call fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The method; `None` is any method, or with `OutOfMemory` any method that takes memory.
    pub method: Option<Method>,
    /// The number of the failing call: 1 is the first call after the fault was planned.
    pub call: u64,
    /// Whether later calls also fail.
    pub repeat: Repeat,
    /// How the call fails.
    pub error: FaultError,
}

impl Fault {
    /// Only the `call`-th call of a method fails.
    #[must_use]
    pub const fn nth(method: Method, call: u64, error: FaultError) -> Self {
        Self { method: Some(method), call, repeat: Repeat::Once, error }
    }

    /// Only the `call`-th call of any fallible method fails.
    #[must_use]
    pub const fn nth_of_any(call: u64, error: FaultError) -> Self {
        Self { method: None, call, repeat: Repeat::Once, error }
    }

    /// Every later call of a method fails.
    #[must_use]
    pub const fn always(method: Method, error: FaultError) -> Self {
        Self { method: Some(method), call: 1, repeat: Repeat::FromThenOn, error }
    }

    fn covers(&self, method: Method) -> bool {
        match self.method {
            Some(chosen) => chosen == method,
            None => self.error != FaultError::OutOfMemory || method.takes_memory(),
        }
    }
}

/// A handle of something that a device has.
pub(super) type Key = (TypeId, u64);

/// `None` for what is no such handle.
fn key<H: Any>(handle: &H) -> Option<Key> {
    let any: &dyn Any = handle;
    let stream = any.downcast_ref().map(|it: &StreamHandle| it.0);
    let mark = any.downcast_ref().map(|it: &Mark| it.0);
    let program = any.downcast_ref().map(|it: &ProgramHandle| it.0);
    let kernel = any.downcast_ref().map(|it: &KernelHandle| it.0);
    Some((TypeId::of::<H>(), stream.or(mark).or(program).or(kernel)?))
}

/// The device and size of a request, for the error message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) device_index: usize,
    pub(super) bytes: usize,
    /// Of the device that this handle is of, instead.
    pub(super) handle: Option<Key>,
}

impl Request {
    /// For methods that name no device and no size. Errors then name device 0.
    pub(super) const ANY: Self = Self { device_index: 0, bytes: 0, handle: None };

    pub(super) const fn of(device_index: usize) -> Self {
        Self { device_index, ..Self::ANY }
    }

    /// For a stream, a mark, a program or a kernel.
    pub(super) fn on<H: Any>(handle: H) -> Self {
        Self { handle: key(&handle), ..Self::ANY }
    }
}

/// A planned fault, and the number of calls that it has counted.
#[derive(Debug)]
struct Planned {
    fault: Fault,
    calls: u64,
}

/// A callback of [`plan_callback`](super::FaultBackend::plan_callback), to call in a later call.
struct PlannedCallback {
    method: Method,
    /// The number of calls until `run` is called, the call with `run` included.
    calls: u64,
    run: Box<dyn FnOnce() + Send>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    failures: AtomicU64,
}

/// Counts the calls of each method and decides which ones fail.
pub(super) struct Injector {
    pub(super) inner: Arc<dyn Backend>,
    counts: [Counts; Method::ALL.len()],
    plans: Mutex<Vec<Planned>>,
    callbacks: Mutex<Vec<PlannedCallback>>,
    pub(super) decide: OnceLock<Box<Decide>>,
    /// The devices of what was made and not released.
    pub(super) devices: Mutex<HashMap<Key, usize>>,
}

/// Says how a call of a method for a device fails, if it does.
pub(super) type Decide = dyn Fn(Method, usize) -> Option<FaultError> + Send + Sync;

impl fmt::Debug for Injector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injector").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Injector {
    pub(super) fn new(inner: Arc<dyn Backend>) -> Self {
        let counts = std::array::from_fn(|_| Counts::default());
        let plans = Mutex::new(LockRank::Backend, Vec::new());
        let callbacks = Mutex::new(LockRank::Backend, Vec::new());
        let (decide, devices) = (OnceLock::new(), Mutex::new(LockRank::Backend, HashMap::new()));
        Self { inner, counts, plans, callbacks, decide, devices }
    }

    pub(super) fn plan(&self, fault: Fault) {
        assert!(fault.call > 0, "calls are counted from 1: {fault:?}");
        if let (Some(method), FaultError::OutOfMemory) = (fault.method, fault.error) {
            assert!(method.takes_memory(), "{method} takes no memory: {fault:?}");
        }
        self.plans.lock().push(Planned { fault, calls: 0 });
    }

    pub(super) fn plan_callback(&self, method: Method, call: u64, run: Box<dyn FnOnce() + Send>) {
        assert!(call > 0, "calls are counted from 1: {method}");
        self.callbacks.lock().push(PlannedCallback { method, calls: call, run });
    }

    pub(super) fn clear(&self) {
        self.plans.lock().clear();
        let callbacks = std::mem::take(&mut *self.callbacks.lock());
        drop(callbacks); // outside the lock, because the drop may run user code
    }

    pub(super) fn calls(&self, method: Method) -> u64 {
        // Relaxed: a counter that orders nothing.
        self.counts[method as usize].calls.load(Ordering::Relaxed)
    }

    pub(super) fn failures(&self, method: Method) -> u64 {
        // Relaxed: a counter that orders nothing.
        self.counts[method as usize].failures.load(Ordering::Relaxed)
    }

    /// Calls `act`, unless a fault is due. A due fault of a release takes effect after `act`.
    pub(super) fn call<T: Any>(
        &self,
        method: Method,
        mut request: Request,
        act: impl FnOnce(&dyn Backend) -> Result<T>,
    ) -> Result<T> {
        if fork::is_child() {
            return act(&*self.inner); // a thread that the child lacks may hold a lock
        }
        if let Some(handle) = request.handle {
            let mut devices = self.devices.lock();
            let known = devices.get(&handle).copied();
            request.device_index = known.unwrap_or_default();
            if method.is_release() {
                devices.remove(&handle); // before the inner call, after which it may be another's
            }
        }
        let counts = &self.counts[method as usize];
        // Relaxed: a counter that orders nothing.
        counts.calls.fetch_add(1, Ordering::Relaxed);
        let callbacks = self.due_callbacks(method);
        let Some(error) = self.planned_error(method, request.device_index) else {
            let outcome = act(&*self.inner);
            if let Some(made) = outcome.as_ref().ok().and_then(key) {
                self.devices.lock().insert(made, request.device_index);
            }
            for PlannedCallback { run, .. } in callbacks {
                run();
            }
            return outcome;
        };
        // Relaxed: a counter that orders nothing.
        counts.failures.fetch_add(1, Ordering::Relaxed);
        if method.is_release() {
            act(&*self.inner)?;
        }
        Err(self.error(error, method, request)?)
    }

    /// Counts a call of `method`. Removes and returns the callbacks to run inside this call.
    fn due_callbacks(&self, method: Method) -> Vec<PlannedCallback> {
        let mut callbacks = self.callbacks.lock();
        callbacks.iter_mut().filter(|it| it.method == method).for_each(|it| it.calls -= 1);
        callbacks.extract_if(.., |it| it.calls == 0).collect()
    }

    /// Counts the call in every plan that covers the method. Returns the error of the earliest plan
    /// that is due, if any.
    fn planned_error(&self, method: Method, device_index: usize) -> Option<FaultError> {
        let mut due = self.decide.get().and_then(|decide| decide(method, device_index));
        for planned in self.plans.lock().iter_mut().filter(|planned| planned.fault.covers(method)) {
            planned.calls += 1;
            let Fault { call, repeat, error, .. } = planned.fault;
            let is_due = match repeat {
                Repeat::Once => planned.calls == call,
                Repeat::FromThenOn => planned.calls >= call,
            };
            due = due.or(is_due.then_some(error));
        }
        due
    }

    /// Creates the error of a fault; panics for `Panic`. Fails when the device index is too large.
    fn error(&self, error: FaultError, method: Method, request: Request) -> Result<Error> {
        let kind = self.inner.kind();
        let reason = format!("a planned fault of {method}");
        Ok(match error {
            FaultError::Panic => panic!("{reason}"),
            FaultError::Driver => Error::refused(kind, method.name(), PLANNED_CODE, reason),
            FaultError::DeviceLost => Error::Driver(DriverError::DeviceLost {
                device: Device::new(kind, request.device_index)?,
                reason,
            }),
            FaultError::OutOfMemory => {
                let device = Device::new(kind, request.device_index)?;
                let unknown = MemoryInfo { free_bytes: 0, total_bytes: 0 };
                let info = self.inner.memory_info(request.device_index).unwrap_or(unknown);
                out_of_memory(device, request.bytes, info)
            }
        })
    }
}
