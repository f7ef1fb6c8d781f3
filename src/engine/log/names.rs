//! Names of the log as numbers, so that a record of fixed size can have a name of any length.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::fork;
use crate::base::spin::SpinMutex;

/// The number of a name in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NameId(u16);

impl NameId {
    /// The number of what has no name.
    pub const NONE: Self = Self(0);

    /// The number of a name. [`NameId::NONE`] when there are as many names as numbers: names stay,
    /// so a program that makes up names without end gets no memory for them.
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
        let find = |table: &mut Names| table.texts.get(usize::from(self.0)).cloned();
        Self::with_table(find).flatten().unwrap_or_default()
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

struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u16>,
}

impl Default for Names {
    fn default() -> Self {
        Self { texts: vec![Arc::default()], numbers: HashMap::new() }
    }
}

impl Names {
    fn number(&mut self, name: &str) -> NameId {
        if let Some(number) = self.numbers.get(name) {
            return NameId(*number);
        }
        let Ok(number) = u16::try_from(self.texts.len()) else { return NameId::NONE };
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
    fn names_beyond_the_numbers_are_none_and_take_no_memory() {
        let mut names = Names::default();
        for index in 1..=u16::MAX {
            assert_eq!(names.number(&index.to_string()), NameId(index));
        }
        assert_eq!(names.number("one more"), NameId::NONE);
        assert_eq!((names.number("7"), names.texts.len()), (NameId(7), 1 << 16));
    }
}
