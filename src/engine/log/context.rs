//! Names as numbers, and the tag and the call stack of a thread's allocations.
//!
//! A tag and a stack are numbers here. The binding that sets a stack resolves it.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::fork;
use crate::base::spin::SpinMutex;

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

/// The text of `NameId::TOO_MANY`.
pub const TOO_MANY_NAMES: &str = "(too many names)";

/// The number of a name in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NameId(u32);

impl NameId {
    /// The number of what has no name.
    pub const NONE: Self = Self(0);

    /// The number of all names that the table has no room for.
    pub(crate) const TOO_MANY: Self = Self(1);

    /// Every number is below this one.
    pub(super) const END: u32 = MAX_TABLE_BYTES / BYTES_PER_NAME + 2;

    /// The number of a name. `NameId::TOO_MANY` for a new name when the table is full: names
    /// stay, so that a program that makes up names without end must not fill the memory.
    ///
    /// [`NameId::NONE`] in a forked child, where a thread that the child lacks may hold the lock.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self::with_table(|table| table.number(name)).unwrap_or_default()
    }

    /// As [`NameId::of`], for a name that a program's code contains. This thread finds the number
    /// of a name that it met before without the table.
    pub(crate) fn of_static(name: &'static str) -> Self {
        thread_local! {
            static MET: [Cell<(usize, NameId)>; 64] =
                const { [const { Cell::new((0, NameId::NONE)) }; 64] };
        }
        let address = name.as_ptr().addr();
        let find = |met: &[Cell<(usize, Self)>; 64]| {
            let place = &met[address / 8 % met.len()];
            // The number of bytes tells names apart of which one begins with the other.
            let key = address ^ (name.len() << 48);
            match place.get() {
                (known, number) if known == key => number,
                _ => {
                    let number = Self::of(name);
                    place.set((key, number));
                    number
                }
            }
        };
        MET.try_with(find).unwrap_or_else(|_| Self::of(name))
    }

    /// The name; empty for [`NameId::NONE`], and in a forked child.
    #[must_use]
    pub fn text(self) -> Arc<str> {
        let find = |table: &mut Names| table.texts.get(self.0 as usize).cloned();
        Self::with_table(find).flatten().unwrap_or_default()
    }

    pub(super) const fn number(self) -> u32 {
        self.0
    }

    pub(super) const fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// `None` in a forked child.
    fn with_table<R>(act: impl FnOnce(&mut Names) -> R) -> Option<R> {
        #[cfg(not(loom))] // models name nothing
        static TABLE: SpinMutex<Option<Names>> = SpinMutex::new(None);
        #[cfg(loom)]
        #[expect(non_snake_case, reason = "a static elsewhere")]
        let TABLE = SpinMutex::new(None::<Names>);
        (!fork::is_child()).then(|| act(TABLE.lock().get_or_insert_default()))
    }
}

/// The most bytes of the table: three million short names.
const MAX_TABLE_BYTES: u32 = 256 << 20;

/// The bytes of a name apart from its text: its entries in the vector and in the map, and the
/// counters of the `Arc`.
const BYTES_PER_NAME: u32 = 72;

struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    free_bytes: usize,
}

impl Default for Names {
    fn default() -> Self {
        let texts = ["", TOO_MANY_NAMES].map(Arc::from).to_vec(); // of the two constants
        Self { texts, numbers: HashMap::new(), free_bytes: MAX_TABLE_BYTES as usize }
    }
}

impl Names {
    fn number(&mut self, name: &str) -> NameId {
        if let Some(number) = self.numbers.get(name) {
            return NameId(*number);
        }
        let bytes = BYTES_PER_NAME as usize + name.len();
        let Some(free_bytes) = self.free_bytes.checked_sub(bytes) else { return NameId::TOO_MANY };
        self.free_bytes = free_bytes;
        let number = u32::try_from(self.texts.len()).expect("the bytes limit the names");
        let text: Arc<str> = name.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        NameId(number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A name that begins with another one.
    const LONG: &str = "resize and crop";

    #[test]
    fn a_name_has_one_number_and_a_number_its_name() {
        let [first, again, second] = ["resize", "resize", "crop"].map(NameId::of);
        assert!(first == again && first != second && first != NameId::NONE);
        assert_eq!([&*second.text(), &*NameId::NONE.text()], ["crop", ""]);
        let parts = [&LONG[..6], LONG, &LONG[..6], LONG].map(NameId::of_static);
        assert_eq!(parts, [first, NameId::of(LONG), first, NameId::of(LONG)]);
    }

    #[test]
    fn each_of_many_names_has_a_number_of_its_own() {
        let mut names = Names::default();
        for index in 2..100_000 {
            assert_eq!(names.number(&index.to_string()), NameId(index));
        }
        assert_eq!(&*names.texts[99_999], "99999");
    }

    #[test]
    fn new_names_of_a_full_table_say_so() {
        let free_bytes = 11 * BYTES_PER_NAME as usize + 10; // too few for an eleventh
        let mut names = Names { free_bytes, ..Names::default() };
        for index in 0..10 {
            assert_eq!(names.number(&index.to_string()), NameId(index + 2));
        }
        assert_eq!(names.number("x"), NameId::TOO_MANY);
        assert_eq!((names.number("7"), names.texts.len()), (NameId(9), 12));
        assert_eq!(&*NameId::TOO_MANY.text(), TOO_MANY_NAMES);
    }
}
