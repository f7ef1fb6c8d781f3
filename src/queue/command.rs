//! Commands: the elements of a queue, packed into 48 bytes with the payload inline where it fits.
#![expect(unsafe_code, reason = "a payload of any type is stored in and taken out of plain words")]

use std::mem::MaybeUninit;

/// The maximum size of a command that a slot stores itself. Larger commands are boxed.
pub(crate) const INLINE_BYTES: usize = 40;

/// The owner and sort of a command's work. It decides whether the command runs on a failed stream,
/// and how long the command is expected to take before any task was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The runtime's own command: runs on a failed stream too, expected to be short.
    Internal,
    /// A user's closure, copy or fill: skipped on a failed stream, expected to be short.
    User,
    /// A user's native function: skipped on a failed stream, expected to be long.
    Ffi,
    /// A user's native function that blocks its thread: skipped on a failed stream, never executed
    /// by a thread that waits for something else.
    Blocking,
}

/// The state that the consumer passes to commands, and the types that describe commands.
pub trait CommandContext: 'static {
    /// The description of a command's type.
    type Operation: Copy + 'static;
    /// The description of one command.
    type Details: Default;

    /// The queue calls this before it polls or executes a command of the given operation.
    fn begin(&mut self, operation: Self::Operation);
}

/// Work to execute once, with a context of type `C`.
pub trait Command<C: CommandContext>: Send + Sized + 'static {
    /// Whose task it is.
    const CLASS: Class;
    /// The operation of the task in logs.
    const OPERATION: C::Operation;
    /// True when [`Command::is_ready`] may return false.
    const MAY_WAIT: bool = false;

    /// Describes this command for a subscriber. The consumer calls this on request only.
    fn details(&self) -> C::Details {
        C::Details::default()
    }

    /// Polled before [`Command::run`]. False leaves the command at the head of the queue.
    fn is_ready(&mut self, _context: &mut C) -> bool {
        true
    }

    /// Executes the command. Must not panic: a command that runs a user's code catches panics.
    fn run(self, context: &mut C);
}

type Words = [u64; INLINE_BYTES / 8];

/// The virtual function table of a command's type.
struct Table<C: CommandContext> {
    class: Class,
    operation: fn() -> C::Operation,
    details: unsafe fn(*mut Words) -> C::Details,
    is_ready: Option<unsafe fn(*mut Words, &mut C) -> bool>,
    run: unsafe fn(*mut Words, &mut C),
    discard: unsafe fn(*mut Words),
}

/// A type-erased command. Its drop leaks the payload, so it must be run or discarded before.
pub(crate) struct Packed<C: CommandContext> {
    table: &'static Table<C>,
    payload: MaybeUninit<Words>,
}

/// True when the payload stores a `T` itself, false when it stores the pointer of a box.
const fn fits_inline<T>() -> bool {
    size_of::<T>() <= INLINE_BYTES && align_of::<T>() <= align_of::<Words>()
}

struct Tables<T, C>(std::marker::PhantomData<(T, C)>);

impl<T: Command<C>, C: CommandContext> Tables<T, C> {
    const TABLE: &'static Table<C> = &Table {
        class: T::CLASS,
        operation: || T::OPERATION,
        details: details::<T, C>,
        is_ready: if T::MAY_WAIT { Some(is_ready::<T, C>) } else { None },
        run: run::<T, C>,
        discard: discard::<T, C>,
    };
}

/// Returns the payload's own address, or the address of the box that the payload points to.
///
/// # Safety
/// `payload` holds a packed `T`.
unsafe fn address_of<T>(payload: *mut Words) -> *mut T {
    if fits_inline::<T>() {
        payload.cast()
    } else {
        // SAFETY: the caller guarantees that `payload` holds a packed `T`. `Packed::new` boxes a
        // `T` that does not fit inline, so the payload is the box's pointer.
        unsafe { payload.cast::<*mut T>().read() }
    }
}

/// Moves the command out of the payload, which is invalid afterwards.
///
/// # Safety
/// `payload` holds a packed `T`, which is not used again.
unsafe fn take<T>(payload: *mut Words) -> T {
    // SAFETY: the caller guarantees that `payload` holds a packed `T`.
    let pointer = unsafe { address_of::<T>(payload) };
    if fits_inline::<T>() {
        // SAFETY: `pointer` is initialised, aligned (checked by `fits_inline`) and not used again.
        unsafe { pointer.read() }
    } else {
        // SAFETY: the pointer came from `Box::into_raw` in `Packed::new` and is not used again.
        *unsafe { Box::from_raw(pointer) }
    }
}

/// # Safety
/// `payload` holds a packed `T`.
unsafe fn details<T: Command<C>, C: CommandContext>(payload: *mut Words) -> C::Details {
    // SAFETY: the caller guarantees that `payload` holds a packed `T`.
    let pointer = unsafe { address_of::<T>(payload) };
    // SAFETY: `pointer` is initialised and aligned, and only the caller uses the command.
    unsafe { &*pointer }.details()
}

/// # Safety
/// `payload` holds a packed `T`.
unsafe fn is_ready<T: Command<C>, C: CommandContext>(payload: *mut Words, context: &mut C) -> bool {
    // SAFETY: the caller guarantees that `payload` holds a packed `T`.
    let pointer = unsafe { address_of::<T>(payload) };
    // SAFETY: `pointer` is initialised and aligned, and only the caller uses the command.
    let command = unsafe { &mut *pointer };
    context.begin(T::OPERATION);
    command.is_ready(context)
}

/// # Safety
/// `payload` holds a packed `T`, which is not used again.
unsafe fn run<T: Command<C>, C: CommandContext>(payload: *mut Words, context: &mut C) {
    // SAFETY: the caller guarantees that `payload` holds a packed `T`, which is not used again.
    let command = unsafe { take::<T>(payload) };
    context.begin(T::OPERATION);
    command.run(context);
}

/// # Safety
/// `payload` holds a packed `T`, which is not used again.
unsafe fn discard<T: Command<C>, C: CommandContext>(payload: *mut Words) {
    // SAFETY: the caller guarantees that `payload` holds a packed `T`, which is not used again.
    drop(unsafe { take::<T>(payload) });
}

impl<C: CommandContext> Packed<C> {
    /// Packs a command. Allocates when the command does not fit inline.
    #[inline]
    pub(crate) fn new<T: Command<C>>(command: T) -> Self {
        let mut payload = MaybeUninit::<Words>::uninit();
        if fits_inline::<T>() {
            // SAFETY: the payload is writable, large and aligned enough: `fits_inline` checked.
            unsafe { payload.as_mut_ptr().cast::<T>().write(command) };
        } else {
            let boxed = Box::into_raw(Box::new(command));
            // SAFETY: a pointer fits into the payload and is aligned as its words are.
            unsafe { payload.as_mut_ptr().cast::<*mut T>().write(boxed) };
        }
        Self { table: Tables::<T, C>::TABLE, payload }
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        self.table.class
    }

    pub(crate) fn operation(&self) -> C::Operation {
        (self.table.operation)()
    }

    /// As [`Command::details`].
    ///
    /// # Safety
    /// The command was neither run nor discarded.
    pub(crate) unsafe fn details(&mut self) -> C::Details {
        // SAFETY: `new` stored a payload of the table's type, and the caller guarantees that it was
        // neither run nor discarded.
        unsafe { (self.table.details)(self.payload.as_mut_ptr()) }
    }

    /// As [`Command::is_ready`]. True without a call for a type whose `MAY_WAIT` is false.
    ///
    /// # Safety
    /// The command was neither run nor discarded.
    #[inline]
    pub(crate) unsafe fn is_ready(&mut self, context: &mut C) -> bool {
        match self.table.is_ready {
            None => true,
            // SAFETY: `new` stored a payload of the table's type, and the caller guarantees that it
            // was neither run nor discarded.
            Some(is_ready) => unsafe { is_ready(self.payload.as_mut_ptr(), context) },
        }
    }

    /// Moves the command out of the payload and executes it.
    ///
    /// # Safety
    /// The command was neither run nor discarded before, and is not used again.
    #[inline]
    pub(crate) unsafe fn run(&mut self, context: &mut C) {
        // SAFETY: `new` stored a payload of the table's type, and the caller guarantees that it was
        // neither run nor discarded.
        unsafe { (self.table.run)(self.payload.as_mut_ptr(), context) };
    }

    /// Drops the command without executing it.
    ///
    /// # Safety
    /// The command was neither run nor discarded before, and is not used again.
    pub(crate) unsafe fn discard(&mut self) {
        // SAFETY: `new` stored a payload of the table's type, and the caller guarantees that it was
        // neither run nor discarded.
        unsafe { (self.table.discard)(self.payload.as_mut_ptr()) };
    }
}

// SAFETY: a packed command is created only from a `T: Command<C>`, which is `Send`.
unsafe impl<C: CommandContext> Send for Packed<C> {}

/// The empty context, for the pool's segments, which belong to no queue.
impl CommandContext for () {
    type Operation = ();
    type Details = ();

    fn begin(&mut self, (): ()) {}
}

const _: () = assert!(size_of::<Packed<()>>() == 48, "a slot has 48 bytes for a command");

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Add<const BYTES: usize>(
        [u8; BYTES],
        #[expect(dead_code, reason = "its drop is counted")] Arc<()>,
    );

    impl CommandContext for Vec<usize> {
        type Operation = &'static str;
        type Details = usize;

        fn begin(&mut self, _: &'static str) {}
    }

    impl<const BYTES: usize> Command<Vec<usize>> for Add<BYTES> {
        const CLASS: Class = Class::User;
        const OPERATION: &'static str = "add";
        const MAY_WAIT: bool = true;

        fn is_ready(&mut self, seen: &mut Vec<usize>) -> bool {
            self.0[0] += 1;
            seen.len() >= usize::from(self.0[1])
        }

        fn run(self, seen: &mut Vec<usize>) {
            seen.push(usize::from(self.0[0]) + self.0.len());
        }
    }

    #[repr(align(64))]
    struct Aligned(u8);

    impl Command<Vec<usize>> for Aligned {
        const CLASS: Class = Class::Ffi;
        const OPERATION: &'static str = "aligned";

        fn run(self, seen: &mut Vec<usize>) {
            assert_eq!((&raw const self).addr() % 64, 0, "over-aligned commands are boxed");
            seen.push(usize::from(self.0));
        }
    }

    #[test]
    fn commands_of_every_size_are_polled_and_run_in_place() {
        let alive = Arc::new(());
        let mut seen = Vec::new();
        for mut packed in [
            Packed::new(Add([0; 32], Arc::clone(&alive))),
            Packed::new(Add([0; 33], Arc::clone(&alive))),
            Packed::new(Add([0; 500], Arc::clone(&alive))),
            Packed::new(Aligned(7)),
        ] {
            // SAFETY: the command was just packed, so it was neither run nor discarded.
            assert!(unsafe { packed.is_ready(&mut seen) });
            // SAFETY: the command was only polled, and is not used again.
            unsafe { packed.run(&mut seen) };
        }
        assert_eq!(seen, [33, 34, 501, 7]);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn a_discarded_command_drops_its_payload_and_does_not_run() {
        let alive = Arc::new(());
        for mut packed in [
            Packed::<Vec<usize>>::new(Add([9; 8], Arc::clone(&alive))),
            Packed::new(Add([9; 200], Arc::clone(&alive))),
        ] {
            assert_eq!(packed.class(), Class::User);
            // SAFETY: the command was just packed, and is not used again.
            unsafe { packed.discard() };
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
