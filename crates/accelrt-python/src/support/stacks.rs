//! Stacks of Python frames: captured as numbers at allocations and frees, resolved when shown.
//!
//! A capture walks the running frames and interns their places, the code objects with the offsets
//! of their instructions, in a table of the process. The table holds a reference to every code
//! object in it, so an address in the table means one code object for ever. A bounded number of
//! stacks and frames has room; later new stacks are counted and unknown.
#![expect(unsafe_code, reason = "walks the interpreter's frames")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::ops::{ControlFlow, Deref};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use accelrt::internal::{SpinGuard, SpinMutex, StackId, exchange_stack};
use accelrt_observe::internal::{Act, callers, watch};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pyo3::{ffi, intern};

use crate::support::call_sites::{CodeKind, enclosing, is_anonymous, kind_of};

/// The most stacks in the table, and the most frames of them all: 24 MiB.
const MOST_STACKS: usize = 1 << 16;
const MOST_FRAMES: usize = 1 << 20;

/// The most frames of a stack, the innermost ones, unless a program sets another number.
pub(crate) const USUAL_DEPTH: usize = 32;
pub(crate) const MOST_DEPTH: usize = 256;

const OF_ALLOCATIONS: u8 = 1;
const OF_FREES: u8 = 2;
/// Of allocations, frees, tasks and waits, for a watch of the order.
const OF_ORDER: u8 = 4;
/// The most frames that are looked at for the program's own one.
const MOST_WALKED: usize = 64;

/// What captures stacks.
static WANTED: AtomicU8 = AtomicU8::new(0);
static DEPTH: AtomicUsize = AtomicUsize::new(USUAL_DEPTH);
/// Only locked with the GIL, and no Python code runs under the lock: it is free when a thread with
/// the GIL forks.
static STACKS: SpinMutex<Option<Stacks>> = SpinMutex::new(None);

thread_local! {
    /// Room for a walk, which an inner walk finds taken: walks may run the garbage collector.
    static WALKED: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// Which actions capture the stacks of their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Allocations,
    AllocationsAndFrees,
}

/// Sets which actions capture stacks, and of how many frames, from here on.
pub(crate) fn want(wanted: Wanted, depth: usize) {
    let bits = match wanted {
        Wanted::Nothing => 0,
        Wanted::Allocations => OF_ALLOCATIONS,
        Wanted::AllocationsAndFrees => OF_ALLOCATIONS | OF_FREES,
    };
    // Relaxed, here and below: an action that reads them late captures as before.
    DEPTH.store(depth.clamp(1, MOST_DEPTH), Ordering::Relaxed);
    change_wanted(OF_ALLOCATIONS | OF_FREES, bits);
}

/// Sets whether a watch of the order captures stacks.
pub(crate) fn want_for_order(is_wanted: bool) {
    change_wanted(OF_ORDER, if is_wanted { OF_ORDER } else { 0 });
}

fn change_wanted(mask: u8, bits: u8) {
    let changed = |wanted| Some(wanted & !mask | bits);
    let _ = WANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed); // as above
    callers::want(of_caller, is_wanted(u8::MAX));
}

/// The stack of a thread that calls a function of C, with the GIL or without. `None` on a thread
/// that Python does not know: it has no frames, and taking the GIL there could deadlock.
fn of_caller(act: Act) -> Option<StackId> {
    let action = match act {
        Act::Allocates => OF_ALLOCATIONS | OF_ORDER,
        Act::Frees => OF_FREES | OF_ORDER,
        Act::Orders => OF_ORDER,
    };
    // SAFETY: any thread may ask, also one without the GIL, once the interpreter runs: it has
    // called `want`.
    let is_known = || unsafe { !ffi::PyGILState_GetThisThreadState().is_null() };
    if !is_wanted(action) || !is_known() {
        return None;
    }
    Python::try_attach(|py| {
        if is_wanted(OF_ORDER) {
            name_thread(py);
        }
        capture(py)
    })
}

/// Makes the running frames the stack of what this thread allocates or frees, until it is dropped.
#[must_use = "the stack is the thread's until the scope is dropped"]
pub(crate) struct StackScope(Option<StackId>);

impl StackScope {
    /// Of an allocation. Changes nothing while no stacks of allocations are wanted.
    #[inline(always)]
    pub(crate) fn of_allocation(py: Python<'_>) -> Self {
        Self::of(py, OF_ALLOCATIONS | OF_ORDER)
    }

    /// Of a task or a wait. Changes nothing while no order is watched.
    #[inline(always)]
    pub(crate) fn of_order(py: Python<'_>) -> Self {
        Self::of(py, OF_ORDER)
    }

    /// True while this thread's stack is known.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Of a free. Changes nothing while no stacks of frees are wanted.
    #[inline(always)]
    pub(crate) fn of_free(py: Python<'_>) -> Self {
        Self::of(py, OF_FREES | OF_ORDER)
    }

    #[inline(always)]
    fn of(py: Python<'_>, action: u8) -> Self {
        Self(if is_wanted(action) { enter(py) } else { None })
    }
}

/// Apart from the drop, which is short without it.
#[cold]
#[inline(never)]
fn free_in_scope<T>(memory: &mut ManuallyDrop<T>) {
    // SAFETY: the caller drops the value here, once, and does not use it afterwards.
    freeing(|| unsafe { ManuallyDrop::drop(memory) });
}

/// Calls `free` with the stack of this thread, which has the GIL, while stacks of frees are wanted.
pub(crate) fn freeing(free: impl FnOnce()) {
    let _scope = is_wanted(OF_FREES | OF_ORDER).then(|| Python::attach(|py| StackScope(enter(py))));
    free();
}

/// True while stacks of allocations are wanted.
#[inline(always)]
pub(crate) fn are_wanted() -> bool {
    is_wanted(OF_ALLOCATIONS | OF_ORDER)
}

#[inline(always)]
fn is_wanted(action: u8) -> bool {
    WANTED.load(Ordering::Relaxed) & action != 0
}

impl Drop for StackScope {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(outer) = self.0 {
            leave(outer);
        }
    }
}

/// The memory of a Python object, whose drop, with the GIL, is a free.
pub(crate) struct FreedWithStack<T>(ManuallyDrop<T>);

impl<T> FreedWithStack<T> {
    #[inline(always)]
    pub(crate) fn new(memory: T) -> Self {
        Self(ManuallyDrop::new(memory))
    }
}

impl<T> Deref for FreedWithStack<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for FreedWithStack<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if is_wanted(OF_FREES | OF_ORDER) {
            return free_in_scope(&mut self.0);
        }
        // SAFETY: the drop of this value is the only one, and the last use of it.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

#[cold]
#[expect(clippy::unnecessary_wraps, reason = "what a scope has")]
fn enter(py: Python<'_>) -> Option<StackId> {
    if is_wanted(OF_ORDER) {
        name_thread(py);
    }
    Some(exchange_stack(capture(py)))
}

/// Tells the sanitizer the name that Python has for this thread.
fn name_thread(py: Python<'_>) {
    watch::name_thread(|| {
        let threading = py.import("threading").ok()?;
        let thread = threading.call_method0("current_thread").ok()?;
        thread.getattr("name").ok()?.extract().ok()
    });
}

#[cold]
fn leave(outer: StackId) {
    exchange_stack(outer);
}

/// The number of this thread's stack. [`StackId::NONE`] without frames, and when a new stack finds
/// no room.
pub(crate) fn capture(py: Python<'_>) -> StackId {
    // Destructors run with an exception set, which no step of a walk may see.
    let error = PyErr::take(py);
    // An order needs places alone, and captures one for each task.
    let stack = if is_wanted(OF_ALLOCATIONS) { capture_all(py) } else { capture_site(py) };
    if let Some(error) = error {
        error.restore(py);
    }
    stack
}

fn capture_all(py: Python<'_>) -> StackId {
    let depth = DEPTH.load(Ordering::Relaxed); // see `want`
    let mut walked = WALKED.take();
    walk(py, depth, |place, _| {
        walked.push(place);
        ControlFlow::Continue(())
    });
    let hash = hash_of(&walked);
    let known = lock().map(|mut stacks| stacks.get_or_insert_default().find_or_lose(hash, &walked));
    let stack = match known {
        Some(Ok(stack)) => stack,
        Some(Err(Unknown)) => insert(py, depth, &mut walked),
        None => StackId::NONE,
    };
    walked.clear();
    WALKED.set(walked);
    stack
}

/// The stack of one frame: the one that [`site`] tells of. No frame around it is looked at.
fn capture_site(py: Python<'_>) -> StackId {
    let (mut anonymous, mut innermost, mut found) = (None, None, None);
    walk(py, MOST_WALKED, |place, frame| {
        let known = known_site(py, place);
        let placed = || Place { line: line_of(frame), ..place };
        match known {
            Some(Ok(stack)) => found = Some(stack),
            Some(Err(CodeKind::Program)) => found = Some(insert_site(placed())),
            Some(Err(CodeKind::Anonymous)) => _ = anonymous.get_or_insert_with(placed),
            Some(Err(CodeKind::Library)) | None => _ = innermost.get_or_insert_with(placed),
        }
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let other = anonymous.or(innermost);
    found.or_else(|| other.map(insert_site)).unwrap_or(StackId::NONE)
}

/// The stack of a frame of the program, else what the frame is.
fn known_site(py: Python<'_>, place: Place) -> Option<Result<StackId, CodeKind>> {
    let find = |stacks: &mut Stacks| {
        let kind = *stacks.codes.get(&place.code)?.as_ref()?;
        if kind != CodeKind::Program {
            return Some(Err(kind));
        }
        let places = [place];
        let found = stacks.find_or_lose(hash_of(&places), &places);
        Some(found.map_err(|Unknown| kind))
    };
    let known = lock()?.as_mut().and_then(find);
    known.or_else(|| {
        let kind = kind_of_code(py, place.code);
        lock()?.get_or_insert_default().note_code(place.code, kind);
        Some(Err(kind))
    })
}

#[cold]
fn insert_site(place: Place) -> StackId {
    let hash = hash_of(&[place]);
    lock().map_or(StackId::NONE, |mut stacks| {
        let stacks = stacks.get_or_insert_default();
        stacks.find(hash, &[place]).unwrap_or_else(|| stacks.add(hash, &[place]))
    })
}

/// Inserts the running stack, whose lines are computed only here.
#[cold]
fn insert(py: Python<'_>, depth: usize, walked: &mut Vec<Place>) -> StackId {
    walked.clear();
    walk(py, depth, |place, frame| {
        walked.push(Place { line: line_of(frame), ..place });
        ControlFlow::Continue(())
    });
    let hash = hash_of(walked);
    lock().map_or(StackId::NONE, |mut stacks| {
        let stacks = stacks.get_or_insert_default();
        // A walk may have run destructors, which capture stacks too.
        stacks.find(hash, walked).unwrap_or_else(|| stacks.add(hash, walked))
    })
}

/// `None` in a child of a process that another thread forked without the GIL, under the lock.
fn lock() -> Option<SpinGuard<'static, Option<Stacks>>> {
    STACKS.try_lock()
}

/// Where a frame is.
#[derive(Clone, Copy, Debug)]
struct Place {
    code: *mut ffi::PyCodeObject,
    /// The offset of the instruction in the code.
    offset: c_int,
    /// The line of the source; 0 while it is unknown. It follows from the other two.
    line: c_int,
}

// SAFETY: an address, which is only dereferenced with the GIL.
unsafe impl Send for Place {}

impl Place {
    fn is_same(&self, other: &Self) -> bool {
        self.code == other.code && self.offset == other.offset
    }
}

/// Calls `visit` with the innermost frames of this thread, from the innermost one outwards, until
/// it breaks.
fn walk(
    py: Python<'_>,
    depth: usize,
    mut visit: impl FnMut(Place, &Bound<'_, PyAny>) -> ControlFlow<()>,
) {
    // SAFETY: the thread has the GIL.
    let innermost = unsafe { ffi::PyEval_GetFrame() };
    // SAFETY: the frame runs until this call returns.
    let mut next = unsafe { Bound::from_borrowed_ptr_or_opt(py, innermost.cast()) };
    for _ in 0..depth {
        let Some(frame) = next else { break };
        let pointer = frame.as_ptr().cast::<ffi::PyFrameObject>();
        // SAFETY: `frame` is a frame, and the thread has the GIL.
        let code = unsafe { ffi::PyFrame_GetCode(pointer) };
        // SAFETY: the reference is new. The frame, which runs, keeps its code alive.
        unsafe { ffi::Py_DECREF(code.cast()) };
        let offset = frame.getattr(intern!(py, "f_lasti")).and_then(|it| it.extract());
        if visit(Place { code, offset: offset.unwrap_or(-1), line: 0 }, &frame).is_break() {
            break;
        }
        next = frame.getattr(intern!(py, "f_back")).ok().filter(|back| !back.is_none());
    }
}

fn line_of(frame: &Bound<'_, PyAny>) -> c_int {
    // SAFETY: only `walk` calls this, with a frame, and the thread has the GIL.
    unsafe { ffi::PyFrame_GetLineNumber(frame.as_ptr().cast()) }
}

/// A mix of the places, as in `FxHash`.
fn hash_of(places: &[Place]) -> u64 {
    places.iter().fold(places.len() as u64, |hash, place| {
        let word = place.code.addr() as u64 ^ u64::from(place.offset.cast_unsigned()) << 40;
        (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

/// The known stacks.
#[derive(Default)]
struct Stacks {
    /// By hash; of several with one hash, the later ones by the hashes behind it.
    by_hash: HashMap<u64, StackId>,
    /// Where each stack begins in `places`. Its number is one more than its place here.
    starts: Vec<usize>,
    places: Vec<Place>,
    /// What `places` refers to, and whether each is known to be the program's, or a library's.
    codes: HashMap<*mut ffi::PyCodeObject, Option<CodeKind>>,
    num_lost: u64,
}

// SAFETY: the addresses are only dereferenced with the GIL.
unsafe impl Send for Stacks {}

/// A stack is not in the table, which has room for it.
struct Unknown;

impl Stacks {
    /// [`StackId::NONE`] for a new stack without room, which is counted.
    fn find_or_lose(&mut self, hash: u64, places: &[Place]) -> Result<StackId, Unknown> {
        match self.find(hash, places) {
            Some(stack) => Ok(stack),
            None if self.has_room(places) => Err(Unknown),
            None => {
                self.num_lost += 1;
                Ok(StackId::NONE)
            }
        }
    }

    fn has_room(&self, places: &[Place]) -> bool {
        self.starts.len() < MOST_STACKS && self.places.len() + places.len() <= MOST_FRAMES
    }

    fn find(&self, hash: u64, places: &[Place]) -> Option<StackId> {
        let mut hash = hash;
        loop {
            let stack = *self.by_hash.get(&hash)?;
            let known = self.places_of(stack);
            if known.len() == places.len() && known.iter().zip(places).all(|(a, b)| a.is_same(b)) {
                return Some(stack);
            }
            hash = hash.wrapping_add(1);
        }
    }

    fn places_of(&self, stack: StackId) -> &[Place] {
        let Some(index) = (stack.0 as usize).checked_sub(1) else { return &[] };
        let Some(start) = self.starts.get(index) else { return &[] };
        let end = self.starts.get(index + 1).copied().unwrap_or(self.places.len());
        &self.places[*start..end]
    }

    /// Notes what a code object that runs is, while there is room for more.
    fn note_code(&mut self, code: *mut ffi::PyCodeObject, kind: CodeKind) {
        if self.codes.len() < MOST_STACKS {
            *self.entry(code) = Some(kind);
        }
    }

    fn entry(&mut self, code: *mut ffi::PyCodeObject) -> &mut Option<CodeKind> {
        self.codes.entry(code).or_insert_with(|| {
            // SAFETY: the code runs, and the caller has the GIL. The reference stays.
            unsafe { ffi::Py_INCREF(code.cast()) };
            None
        })
    }

    /// Adds a stack that runs, so that its code objects are alive.
    fn add(&mut self, hash: u64, places: &[Place]) -> StackId {
        if places.is_empty() {
            return StackId::NONE;
        }
        let number = u32::try_from(self.starts.len() + 1).ok();
        let Some(number) = number.filter(|_| self.has_room(places)) else { return StackId::NONE };
        for place in places {
            self.entry(place.code);
        }
        self.starts.push(self.places.len());
        self.places.extend_from_slice(places);
        let mut hash = hash;
        while self.by_hash.contains_key(&hash) {
            hash = hash.wrapping_add(1);
        }
        self.by_hash.insert(hash, StackId(number));
        StackId(number)
    }
}

/// The number of captures that found no room for a new stack.
pub(crate) fn num_lost(_py: Python<'_>) -> u64 {
    lock().and_then(|stacks| stacks.as_ref().map(|stacks| stacks.num_lost)).unwrap_or(0)
}

/// Stacks as lists of frames. Equal frames and stacks are one object each, so that a pickle has
/// them once.
#[derive(Default)]
pub(crate) struct Frames {
    stacks: HashMap<StackId, Py<PyList>>,
    frames: HashMap<(usize, c_int), Py<PyDict>>,
}

impl Frames {
    /// The frames of a stack as dictionaries of `filename`, `line` and `name`, the innermost first.
    /// Empty for an unknown stack.
    pub(crate) fn of<'py>(
        &mut self,
        py: Python<'py>,
        stack: StackId,
    ) -> PyResult<Bound<'py, PyList>> {
        if let Some(known) = self.stacks.get(&stack) {
            return Ok(known.bind(py).clone());
        }
        let list = PyList::empty(py);
        for place in copied(stack) {
            list.append(self.frame(py, place)?)?;
        }
        self.stacks.insert(stack, list.clone().unbind());
        Ok(list)
    }

    fn frame<'py>(&mut self, py: Python<'py>, place: Place) -> PyResult<Bound<'py, PyDict>> {
        let key = (place.code.addr(), place.line);
        if let Some(known) = self.frames.get(&key) {
            return Ok(known.bind(py).clone());
        }
        let code = code_of(py, place.code);
        let dict = PyDict::new(py);
        dict.set_item("filename", code.getattr(intern!(py, "co_filename"))?)?;
        dict.set_item("line", place.line)?;
        dict.set_item("name", code.getattr(intern!(py, "co_name"))?)?;
        self.frames.insert(key, dict.clone().unbind());
        Ok(dict)
    }
}

/// Where a stack's program is, as `train.py:12 in step`: its innermost frame outside of accelrt, of
/// installed packages and of Python's library, else its innermost one. Comprehensions and lambdas
/// count as their function. `None` for an unknown stack.
pub(crate) fn site(py: Python<'_>, stack: StackId) -> Option<String> {
    let (file, line, name) = program_place(py, stack)?;
    Some(format!("{file}:{line} in {name}"))
}

/// As [`site`]: the file, the line and the function's name.
pub(crate) fn program_place(py: Python<'_>, stack: StackId) -> Option<(String, i32, String)> {
    let places = copied(stack);
    let find = |kind| places.iter().find(|place| kind_of_code(py, place.code) == kind);
    let place = find(CodeKind::Program).or_else(|| find(CodeKind::Anonymous));
    let place = place.or_else(|| places.first())?;
    let text = |name| text_of(py, place.code, name);
    let mut name = text(intern!(py, "co_name"))?;
    if is_anonymous(&name) {
        // Only the qualified name has the function: its frame is over, or another thread's.
        let qualified = text(intern!(py, "co_qualname")).unwrap_or_default();
        let outer = enclosing(&qualified).rsplit('.').next();
        outer.filter(|outer| !outer.is_empty()).unwrap_or("<module>").clone_into(&mut name);
    }
    Some((text(intern!(py, "co_filename"))?, place.line, name))
}

fn kind_of_code(py: Python<'_>, code: *mut ffi::PyCodeObject) -> CodeKind {
    kind_of(py, |name| text_of(py, code, name))
}

fn text_of(
    py: Python<'_>,
    code: *mut ffi::PyCodeObject,
    name: &Bound<'_, PyString>,
) -> Option<String> {
    let text = code_of(py, code).getattr(name).ok()?;
    // A file's name need not be UTF-8.
    Some(text.cast::<PyString>().ok()?.to_string_lossy().into_owned())
}

fn copied(stack: StackId) -> Vec<Place> {
    let stacks = lock();
    let known = stacks.as_ref().and_then(|stacks| stacks.as_ref());
    known.map_or_else(Vec::new, |known| known.places_of(stack).to_vec())
}

fn code_of(py: Python<'_>, code: *mut ffi::PyCodeObject) -> Bound<'_, PyAny> {
    // SAFETY: it runs, or is in the table, which holds a reference for ever.
    unsafe { Bound::from_borrowed_ptr(py, code.cast()) }
}
