//! A table of values by stable ids: no insertion or removal changes the id of another value.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// The id of a value in a [`Table`] of `T`. Takes four bytes, also as an `Option`.
pub(crate) type Id<T> = Number<fn() -> T>;

/// A nonzero number typed by `F`. For [`Id`], `F` is a function type: function types implement all
/// traits derived here, even if `T` does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Number<F>(NonZeroU32, PhantomData<F>);

impl<F> Number<F> {
    pub(crate) fn of_place(place: usize) -> Self {
        let number = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("fewer than 2^32 places"), PhantomData)
    }

    /// The index in the table's vector, from 0.
    pub(crate) fn place(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The index in [`Records::places`].
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize
    }

    /// The index in [`Records::places`]: the blank's for none.
    #[inline(always)]
    pub(crate) fn index_of(id: Option<Self>) -> usize {
        id.map_or(0, Self::index)
    }

    /// The number of the id, from 1, for callers that store it as an integer.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// The id whose [`Number::number`] is `number`. Panics for 0.
    pub(crate) fn from_number(number: u32) -> Self {
        Self(NonZeroU32::new(number).expect("a number from 1"), PhantomData)
    }
}

/// Values by id. A new value gets the most recently freed id, else a new one. `K` stands for the
/// values in the type of their ids: values that name each other need no import of each other.
#[derive(Debug)]
pub(crate) struct Table<T, K = T> {
    places: Vec<Option<T>>,
    vacant: Vec<Id<K>>,
}

impl<T, K> Table<T, K> {
    /// The id that the next insertion will return.
    pub(crate) fn next_id(&self) -> Id<K> {
        self.vacant.last().copied().unwrap_or_else(|| Id::<K>::of_place(self.places.len()))
    }

    pub(crate) fn insert(&mut self, value: T) -> Id<K> {
        if let Some(id) = self.vacant.pop() {
            self.places[id.place()] = Some(value);
            return id;
        }
        self.places.push(Some(value));
        Id::<K>::of_place(self.places.len() - 1)
    }

    /// Removes and returns a value. The caller must discard all copies of the id, which the next
    /// insertion reuses. Panics if the value was already removed.
    pub(crate) fn remove(&mut self, id: Id<K>) -> T {
        let value = self.places[id.place()].take().expect("a value that is there");
        self.vacant.push(id);
        value
    }

    pub(crate) fn get(&self, id: Id<K>) -> Option<&T> {
        self.places.get(id.place())?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<K>, &T)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(place, value)| Some((Id::<K>::of_place(place), value.as_ref()?)))
    }
}

impl<T, K> Default for Table<T, K> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T, K> Index<Id<K>> for Table<T, K> {
    type Output = T;

    fn index(&self, id: Id<K>) -> &T {
        self.places[id.place()].as_ref().expect("a value that is there")
    }
}

impl<T, K> IndexMut<Id<K>> for Table<T, K> {
    fn index_mut(&mut self, id: Id<K>) -> &mut T {
        self.places[id.place()].as_mut().expect("a value that is there")
    }
}

/// What [`Records`] holds.
pub(crate) trait Record<K = Self>: Copy {
    /// What stands in a place before its first record, without a link, and what those who look at a
    /// record that is not there take it for.
    fn blank() -> Self;

    /// The link of a removed record to the one removed before it. A live record may use the field.
    fn link(&mut self) -> &mut Option<Id<K>>;
}

/// The room of the first records.
const FIRST_PLACES: usize = 64;

/// Plain values by id, without a flag for each whether it is live: an id must be discarded when its
/// record is removed. A new record gets the most recently freed id, else a new one.
///
/// The place before the first record is the *blank*, which stands for no record: a step reads it
/// and writes its links as if it were one, in place of a branch that no processor foresees. Its
/// other fields are never written, and stay those of [`Record::blank`]; what its links are means
/// something only where a type says so.
#[derive(Debug)]
pub(crate) struct Records<T, K = T> {
    /// By number; the first one is the blank, because numbers begin at 1.
    places: Vec<T>,
    vacant: Option<Id<K>>,
}

impl<T: Record<K>, K> Records<T, K> {
    #[inline(always)]
    pub(crate) fn insert(&mut self, record: T) -> Id<K> {
        let id = self.vacant.unwrap_or_else(|| self.grow());
        let place = &mut self[id];
        let link = *place.link();
        *place = record;
        self.vacant = link;
        id
    }

    /// Adds a place, which is vacant.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Id<K> {
        let known = self.places.len().max(1);
        if known == 1 {
            self.places.reserve(FIRST_PLACES);
        }
        self.places.resize(known + 1, T::blank());
        Id::<K>::of_place(known - 1)
    }

    /// The blank; `None` before the first record.
    pub(crate) fn blank(&self) -> Option<&T> {
        self.places.first()
    }

    /// A record, or the blank for none.
    #[inline(always)]
    pub(crate) fn or_blank(&self, id: Option<Id<K>>) -> &T {
        &self.places[Number::index_of(id)]
    }

    /// All places, for a step that reads and writes several: by [`Number::index`].
    #[inline(always)]
    pub(crate) fn places(&mut self) -> &mut [T] {
        &mut self.places
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, id: Id<K>) {
        *self[id].link() = self.vacant;
        self.vacant = Some(id);
    }

    /// Counts the live records, in as many steps as records were removed.
    pub(crate) fn len(&self) -> usize {
        let removed = std::iter::successors(self.vacant, |id| *{ self[*id] }.link());
        self.places.len().saturating_sub(1) - removed.count()
    }
}

impl<T, K> Default for Records<T, K> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: None }
    }
}

impl<T, K> Index<Id<K>> for Records<T, K> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: Id<K>) -> &T {
        &self.places[id.index()]
    }
}

impl<T, K> IndexMut<Id<K>> for Records<T, K> {
    #[inline(always)]
    fn index_mut(&mut self, id: Id<K>) -> &mut T {
        &mut self.places[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::numbers::Numbers;
    use crate::seed::seed;

    #[test]
    fn numbers_of_values_that_are_gone_are_used_again_the_last_of_them_first() {
        let mut table = Table::<_>::default();
        let [a, b, c] = ["a", "b", "c"].map(|value| table.insert(value));
        assert_eq!([a, b, c].map(Number::number), [1, 2, 3]);
        assert_eq!([table.remove(a), table.remove(c)], ["a", "c"]);
        assert_eq!((table.get(a), table.get(b)), (None, Some(&"b")));
        for (value, id) in [("d", c), ("e", a), ("f", Number::from_number(4))] {
            assert_eq!(table.next_id(), id);
            assert_eq!(table.insert(value), id);
        }
        let values = table.iter().map(|(id, value)| (id.number(), *value));
        assert_eq!(values.collect::<Vec<_>>(), [(1, "e"), (2, "b"), (3, "d"), (4, "f")]);
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Item(u64, Option<Id<Item>>);

    impl Record for Item {
        fn blank() -> Self {
            Self(0, None)
        }

        fn link(&mut self) -> &mut Option<Id<Self>> {
            &mut self.1
        }
    }

    #[test]
    fn tables_agree_with_a_map_of_ids() {
        // Goal: ids are those of the last removed values, values stay where they are, and counts
        // are exact. Method: random insertions and removals, often down to no value; both tables
        // give out the same ids.
        let mut random = Numbers::new(seed());
        let (mut table, mut records) = (Table::<_>::default(), Records::<_>::default());
        let (mut model, mut removed) = (BTreeMap::new(), Vec::<Id<u64>>::new());
        for value in 1..3_000_u64 {
            let grows = random.below(if value / 500 % 2 == 0 { 3 } else { 2 }) > 0;
            if grows || model.is_empty() {
                let fresh = u32::try_from(model.len() + 1).unwrap();
                let expected = removed.pop().map_or(fresh, Number::number);
                assert_eq!(table.next_id().number(), expected);
                let id = table.insert(value);
                let record = records.insert(Item(value, None));
                assert_eq!([id.number(), record.number()], [expected; 2]);
                assert_eq!(model.insert(expected, value), None);
            } else {
                let nth = [0, model.len() - 1, random.below(model.len())][random.below(3)];
                let (number, known) = model.iter().nth(nth).map(|(id, it)| (*id, *it)).unwrap();
                model.remove(&number);
                let id = Number::from_number(number);
                assert_eq!(table.remove(id), known);
                assert_eq!(table.get(id), None);
                records.remove(Number::from_number(number));
                removed.push(id);
            }
            assert_eq!(records.len(), model.len());
            let values = table.iter().map(|(id, value)| (id.number(), *value));
            assert!(values.eq(model.iter().map(|(id, value)| (*id, *value))));
            for (number, value) in &model {
                let record = records.or_blank(Some(Number::from_number(*number)));
                assert_eq!(record.0, *value);
            }
            assert_eq!(records.or_blank(None).0, 0, "the blank is not written");
        }
        let last = u32::try_from(model.len() + removed.len()).unwrap();
        assert_eq!(table.get(Number::from_number(last + 1)), None);
    }
}
