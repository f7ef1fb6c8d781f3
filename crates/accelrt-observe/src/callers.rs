//! The stacks of threads that call functions of C: asked of who knows them, while one is wanted.
//!
//! A function of C is called by an extension, with a program of another language around it. The
//! binding of that language registers a function that finds the program's stack.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use accelrt::internal::{AllocationContext, StackId, exchange_stack};

/// What a caller is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A request for memory.
    Allocates,
    /// A free of memory.
    Frees,
    /// A task, a wait or a use of memory.
    Orders,
}

/// Finds the stack of the calling thread; `None` where nothing wants it or nothing is known.
pub(crate) type FindStack = fn(Act) -> Option<StackId>;

static FIND: OnceLock<FindStack> = OnceLock::new();
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Sets whether anything wants stacks. All callers pass one function.
pub fn want(find: FindStack, is_wanted: bool) {
    FIND.get_or_init(|| find);
    IS_WANTED.store(is_wanted, Ordering::Relaxed); // a call that races with this may have none
}

/// Makes the caller's stack that of this thread, until it is dropped.
#[must_use = "the stack is the thread's until the scope is dropped"]
#[derive(Debug)]
pub struct CallerScope(Option<StackId>);

impl CallerScope {
    /// The scope of a call that does `act`. Looks for the stack only while one is wanted.
    #[inline(always)]
    pub fn of(act: Act) -> Self {
        // Relaxed, as in `want`.
        if IS_WANTED.load(Ordering::Relaxed) { Self::enter(act) } else { Self(None) }
    }

    #[cold]
    #[inline(never)]
    fn enter(act: Act) -> Self {
        if AllocationContext::current().stack != StackId::NONE {
            return Self(None); // a binding that calls on has set it
        }
        Self(FIND.get().and_then(|find| find(act)).map(exchange_stack))
    }
}

impl Drop for CallerScope {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(outer) = self.0 {
            exchange_stack(outer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_its_stack_inside_of_the_scope_alone() {
        let current = || AllocationContext::current().stack;
        let find = |act| (act == Act::Allocates).then_some(StackId(7));
        {
            let _scope = CallerScope::of(Act::Allocates);
            assert_eq!(current(), StackId::NONE, "nothing wants it");
        }
        want(find, true);
        {
            let _outer = CallerScope::of(Act::Allocates);
            assert_eq!(current(), StackId(7));
            {
                let _inner = CallerScope::of(Act::Allocates);
                assert_eq!(current(), StackId(7));
            }
            assert_eq!(current(), StackId(7), "the inner scope has changed nothing");
        }
        let _other = CallerScope::of(Act::Frees);
        assert_eq!(current(), StackId::NONE);
        want(find, false);
    }
}
