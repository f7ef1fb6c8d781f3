//! What a thread's allocations are for: the tag that its program set, and the stack of its calls.
//!
//! Both are numbers here. The binding that sets a stack resolves it.

use std::cell::Cell;

use crate::engine::log::names::NameId;

/// The number of a stack of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct StackId(pub u32);

impl StackId {
    /// The number of an unknown stack.
    pub const NONE: Self = Self(0);
}

/// What an allocation is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationContext {
    /// The memory tag; `NONE` outside of any tag.
    pub tag: NameId,
    /// The call stack; `NONE` while no stacks are recorded.
    pub stack: StackId,
}

thread_local! {
    static CURRENT: Cell<AllocationContext> =
        const { Cell::new(AllocationContext { tag: NameId::NONE, stack: StackId::NONE }) };
}

impl AllocationContext {
    /// Without a tag and without a stack.
    pub const NONE: Self = Self { tag: NameId::NONE, stack: StackId::NONE };

    /// The tag alone.
    pub(crate) fn of_tag(self) -> Self {
        Self { stack: StackId::NONE, ..self }
    }

    /// The stack alone.
    pub(crate) fn of_stack(self) -> Self {
        Self { tag: NameId::NONE, ..self }
    }

    /// This thread's.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// True when this thread has a tag.
    pub(crate) fn has_tag() -> bool {
        Self::current().tag != NameId::NONE
    }
}

/// Sets the tag of this thread's allocations; returns the one before.
pub(crate) fn exchange_tag(tag: NameId) -> NameId {
    let before = CURRENT.get();
    CURRENT.set(AllocationContext { tag, ..before });
    before.tag
}

/// Sets the stack of this thread's allocations and frees; returns the one before.
#[expect(clippy::must_use_candidate, reason = "callers may ignore what was there before")]
pub fn exchange_stack(stack: StackId) -> StackId {
    let before = CURRENT.get();
    CURRENT.set(AllocationContext { stack, ..before });
    before.stack
}
