//! Ten ways in which a kind breaks its word, and the test of the kit that notices each.
//!
//! Each variant is the kind `npu` with one method that does something else. The table in
//! docs/devices.md has the same rows.

use std::sync::Arc;
use std::time::Instant;

use accelrt::backend::contract::{
    Address, Backend, DeviceProperties, DoneCallback, Leftover, Mark, MemoryInfo, PointerOwner,
    PriorityRange, StreamHandle, Turn, Work,
};
use accelrt::{DeviceKind, Result};
use accelrt_example_device::{Npu, TYPE_CODE};
use accelrt_testing::conformance::verdict;

/// What a variant does instead of its word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    MarkReachedTooEarly,
    CallbackTooEarly,
    CallbackNever,
    QueryLies,
    WaitWithoutEffect,
    CopiesUnordered,
    FillOneByteShort,
    WrongOwner,
    FreeMemoryNeverChanges,
    ResumedOnTheCallersStack,
}

/// Each defect, with the test that notices it.
const DEFECTS: [(Defect, &str); 10] = [
    (Defect::MarkReachedTooEarly, "copies::copies_before_a_mark_that_is_done_have_arrived"),
    (Defect::CallbackTooEarly, "copies::copies_before_a_callback_have_arrived"),
    (Defect::CallbackNever, "marks::a_callback_comes_exactly_once"),
    (Defect::QueryLies, "copies::copies_of_a_stream_that_is_idle_have_arrived"),
    (
        Defect::WaitWithoutEffect,
        "copies::a_copy_behind_a_wait_has_the_bytes_of_the_copy_before_the_mark",
    ),
    (Defect::CopiesUnordered, "copies::copies_of_one_stream_run_in_order"),
    (Defect::FillOneByteShort, "copies::a_fill_sets_its_range_and_nothing_else"),
    (Defect::WrongOwner, "memory::every_address_of_an_allocation_has_its_owner"),
    (Defect::FreeMemoryNeverChanges, "memory::free_memory_comes_back_with_a_release"),
    (Defect::ResumedOnTheCallersStack, "streams::resumed_work_never_runs_on_the_callers_stack"),
];

/// An order that is not kept shows when threads meet so: on a busy machine not in each run.
const TRIES: usize = 100;

#[test]
fn each_broken_variant_fails_its_test_and_the_kind_itself_passes_it() {
    let kind = DeviceKind::register("npu", TYPE_CODE).unwrap();
    for (defect, test) in DEFECTS {
        assert_eq!(verdict(test, move || Npu::new(kind)), Ok(()), "{test}");
        let mut tries = (0..TRIES).map(|_| verdict(test, move || Broken::new(kind, defect)));
        let why_not = tries.find_map(Result::err);
        println!("{defect:?}: {test}: {}", why_not.as_deref().unwrap_or("passed"));
        assert!(why_not.is_some(), "{test} passes with {defect:?}");
    }
}

/// The kind with a defect.
#[derive(Debug)]
struct Broken {
    inner: Arc<Npu>,
    defect: Defect,
    /// Where copies go that are not kept in order.
    aside: StreamHandle,
}

impl Broken {
    fn new(kind: DeviceKind, defect: Defect) -> Arc<Self> {
        let inner = Npu::new(kind);
        let aside = inner.stream_create(0, 1).unwrap();
        Arc::new(Self { inner, defect, aside })
    }
}

/// Methods that only call the one inside.
macro_rules! hand_on {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(fn $method(&self, $($name: $kind),*) -> $returned {
            self.inner.$method($($name),*)
        })*
    };
}

/// Unsafe methods that only call the one inside.
macro_rules! hand_on_unsafe {
    ($($method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(unsafe fn $method(&self, $($name: $kind),*) -> $returned {
            // SAFETY: the caller promises of handles and addresses what the one inside asks for,
            // which made them.
            unsafe { self.inner.$method($($name),*) }
        })*
    };
}

/// Unsafe methods that with a defect do something else.
macro_rules! hand_on_unless {
    ($($defect:ident => $instead:expr;
       $method:ident($($name:ident: $kind:ty),*) -> $returned:ty;)*) => {
        $(unsafe fn $method(&self, $($name: $kind),*) -> $returned {
            let instead: fn($($kind),*) -> $returned = $instead;
            if self.defect == Defect::$defect {
                return instead($($name),*);
            }
            // SAFETY: as above.
            unsafe { self.inner.$method($($name),*) }
        })*
    };
}

// SAFETY: no defect makes memory anybody else's, or executes work twice.
unsafe impl Backend for Broken {
    hand_on! {
        kind() -> DeviceKind;
        device_count() -> Result<usize>;
        properties(device_index: usize) -> Result<DeviceProperties>;
        priority_range(device_index: usize) -> PriorityRange;
        runs_on_host() -> bool;
        stream_create(device_index: usize, priority: i32) -> Result<StreamHandle>;
        allocate(device_index: usize, bytes: usize, align_bytes: usize) -> Result<Address>;
        allocate_host(bytes: usize, align_bytes: usize) -> Result<Address>;
        shutdown(deadline: Instant) -> Leftover;
    }

    hand_on_unsafe! {
        stream_destroy(stream: StreamHandle) -> Result<()>;
        stream_wrap(device_index: usize, native: u64) -> Result<StreamHandle>;
        stream_native(stream: StreamHandle) -> Result<u64>;
        submit(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        stream_synchronize(stream: StreamHandle) -> Result<()>;
        mark(stream: StreamHandle, timed: bool) -> Result<Mark>;
        wait_mark(mark: Mark) -> Result<()>;
        elapsed_ns(start: Mark, end: Mark) -> Result<i64>;
        mark_release(mark: Mark) -> Result<()>;
    }

    hand_on_unless! {
        ResumedOnTheCallersStack => |_, work| work.run(&Turn::unshared());
        resume(stream: StreamHandle, work: Arc<dyn Work>) -> ();
        QueryLies => |_| Ok(true);
        stream_query(stream: StreamHandle) -> Result<bool>;
        MarkReachedTooEarly => |_| Ok(true);
        mark_done(mark: Mark) -> Result<bool>;
        WaitWithoutEffect => |_, _| Ok(());
        stream_wait(stream: StreamHandle, mark: Mark) -> Result<()>;
        // Copies on another stream may go on in the memory that is given back here.
        CopiesUnordered => |_, _| Ok(());
        release(device_index: usize, address: Address) -> Result<()>;
        CopiesUnordered => |_| Ok(());
        release_host(address: Address) -> Result<()>;
    }

    unsafe fn when_done(&self, mark: Mark, callback: DoneCallback) -> Result<()> {
        match self.defect {
            Defect::CallbackTooEarly => callback(),
            Defect::CallbackNever => drop(callback),
            // SAFETY: the mark is live, and of the one inside.
            _ => return unsafe { self.inner.when_done(mark, callback) },
        }
        Ok(())
    }

    fn memory_info(&self, device_index: usize) -> Result<MemoryInfo> {
        let info = self.inner.memory_info(device_index)?;
        let never_changes = MemoryInfo { free_bytes: info.total_bytes, ..info };
        Ok(if self.defect == Defect::FreeMemoryNeverChanges { never_changes } else { info })
    }

    fn pointer_owner(&self, address: Address) -> Result<Option<PointerOwner>> {
        let is_wrong = self.defect == Defect::WrongOwner;
        let owner = self.inner.pointer_owner(address)?;
        Ok(owner.map(|it| if is_wrong { PointerOwner { base: address, ..it } } else { it }))
    }

    unsafe fn copy(
        &self,
        stream: StreamHandle,
        to: Address,
        from: Address,
        bytes: usize,
    ) -> Result<()> {
        let is_aside = self.defect == Defect::CopiesUnordered;
        let stream = if is_aside { self.aside } else { stream };
        // SAFETY: both streams are live, and the caller promises the rest.
        unsafe { self.inner.copy(stream, to, from, bytes) }
    }

    unsafe fn fill(&self, stream: StreamHandle, to: Address, byte: u8, bytes: usize) -> Result<()> {
        let short = usize::from(self.defect == Defect::FillOneByteShort);
        // SAFETY: the caller's promise covers fewer bytes too.
        unsafe { self.inner.fill(stream, to, byte, bytes - short) }
    }
}
