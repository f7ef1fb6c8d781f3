//! Arguments from C: texts, arrays, structs that begin with their size, results, data to free.
#![expect(unsafe_code, reason = "uses memory of a caller in C, and calls its functions")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;

use crate::status::{Outcome, Refused};

/// The place for a result, which may hold anything before.
type Place<'a, T> = &'a mut MaybeUninit<T>;

/// Frees what a launch or a copy was given. Must not throw or jump out.
pub type DropFunction = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// Data of the caller. Its drop gives the data back, on any thread.
pub(super) struct Owned {
    pub(super) data: *mut c_void,
    pub(super) drop: DropFunction,
}

// SAFETY: the caller of the function that took the data promises that any thread may use it.
unsafe impl Send for Owned {}

impl Drop for Owned {
    #[inline]
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the caller has passed a function for this data, which is called once: here.
            unsafe { drop(self.data) }
        }
    }
}

/// The place that an argument names. Fails when it is NULL.
#[inline(always)]
pub(super) fn place<'a, T>(
    given: Option<Place<'a, T>>,
    name: &'static str,
) -> Outcome<Place<'a, T>> {
    given.ok_or_else(|| null(name))
}

#[cold]
#[inline(never)]
pub(super) fn null(name: &'static str) -> Refused {
    Refused::argument(format!("The argument {name} is NULL"))
}

/// Reads a text. Fails when it is NULL or no UTF-8.
///
/// # Safety
/// The pointer is NULL, or that of a text that ends with a zero and stays as it is for `'a`.
pub(super) unsafe fn text<'a>(given: *const c_char, name: &'static str) -> Outcome<&'a str> {
    if given.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller promises a text that ends with a zero and does not change.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_str().map_err(|_| Refused::argument(format!("The argument {name} is not UTF-8")))
}

/// Writes a text with its zero, cut to the room that there is, and its whole length without the
/// zero. Without room, and without a place for the length, there is nothing to write. A failure
/// writes neither.
///
/// # Safety
/// `to` has room for `capacity` bytes, which no other thread uses meanwhile.
pub(super) unsafe fn write_text(
    text: &str,
    to: *mut c_char,
    capacity: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> Outcome {
    if to.is_null() && capacity > 0 {
        return Err(null("text"));
    }
    if let Some(length) = length {
        length.write(text.len());
    }
    if capacity == 0 {
        return Ok(());
    }
    let mut count = text.len().min(capacity - 1);
    while !text.is_char_boundary(count) {
        count -= 1;
    }
    // SAFETY: `to` has `capacity` bytes by the caller's promise, and `count` is below it. The text
    // is memory of this library, apart from that of the caller.
    unsafe { text.as_ptr().cast::<c_char>().copy_to_nonoverlapping(to, count) };
    // SAFETY: as above.
    let end = unsafe { to.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// Reads an array. NULL is allowed for one without elements.
///
/// # Safety
/// `first` is NULL, or that of `count` elements that stay as they are for `'a`.
pub(super) unsafe fn array<'a, T>(
    first: *const T,
    count: usize,
    name: &'static str,
) -> Outcome<&'a [T]> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name)),
        (false, _) => {
            check_count::<T>(count, name)?;
            // SAFETY: the caller promises as many elements that do not change.
            Ok(unsafe { slice::from_raw_parts(first, count) })
        }
    }
}

/// No array has as many elements as -1 says.
pub(super) fn check_count<T>(count: usize, name: &'static str) -> Outcome {
    if count <= isize::MAX.unsigned_abs() / size_of::<T>() {
        return Ok(());
    }
    Err(Refused::argument(format!("The argument {name} cannot have {count} elements")))
}

/// A struct whose first field is its size in bytes, as `size_t`, and which grows at its end.
///
/// # Safety
/// Every bit pattern is a value, there is no padding, and the first field is a `usize` at the
/// struct's address.
pub(super) unsafe trait Growing {
    /// The size of the struct in the first version that had it: no caller has a smaller one.
    const FIRST_VERSION_BYTES: usize;
}

/// Writes what a caller's struct has room for, and the size that was written. The caller has set
/// the first field to the size of the struct that it knows.
///
/// # Safety
/// `to` is NULL, or aligned and with as many bytes as its first field says, which no other thread
/// uses meanwhile.
pub(super) unsafe fn write_sized<T: Growing>(value: &T, to: *mut T, name: &'static str) -> Outcome {
    if to.is_null() {
        return Err(null(name));
    }
    // SAFETY: the first field is there by the caller's promise, and a `usize` by the trait's.
    let given = unsafe { to.cast::<usize>().read() };
    check_size::<T>(given, name)?;
    let bytes = given.min(size_of::<T>());
    // SAFETY: the caller's struct has `given` bytes and ours as many as its type.
    unsafe { std::ptr::from_ref(value).cast::<u8>().copy_to_nonoverlapping(to.cast(), bytes) };
    // SAFETY: as above.
    unsafe { to.cast::<usize>().write(bytes) };
    Ok(())
}

/// Writes structs into an array whose elements have `each_bytes` bytes: those of the version that
/// the caller knows, whatever else stands between them.
///
/// # Safety
/// `first` is NULL, or aligned and that of `capacity` elements of so many bytes, which no other
/// thread uses meanwhile.
pub(super) unsafe fn write_all<T: Growing>(
    values: &[T],
    first: *mut T,
    each_bytes: usize,
    name: &'static str,
) -> Outcome {
    if values.is_empty() {
        return Ok(());
    }
    if first.is_null() {
        return Err(null(name));
    }
    check_size::<T>(each_bytes, name)?;
    let bytes = each_bytes.min(size_of::<T>());
    for (index, value) in values.iter().enumerate() {
        // SAFETY: the caller promises as many elements of `each_bytes` bytes.
        let to = unsafe { first.cast::<u8>().add(index * each_bytes) };
        // SAFETY: as above; `bytes` is within both structs.
        unsafe { std::ptr::from_ref(value).cast::<u8>().copy_to_nonoverlapping(to, bytes) };
        // SAFETY: the element begins with its size.
        unsafe { to.cast::<usize>().write_unaligned(bytes) };
    }
    Ok(())
}

fn check_size<T: Growing>(given: usize, name: &'static str) -> Outcome {
    const { assert!(T::FIRST_VERSION_BYTES <= size_of::<T>(), "structs only grow") };
    let first = T::FIRST_VERSION_BYTES;
    if given >= first && given.is_multiple_of(align_of::<usize>()) {
        return Ok(());
    }
    Err(Refused::argument(format!(
        "The size of {name} is {given}: set the first field to the size of the struct, which has \
         {first} bytes or more"
    )))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::edges::edges;
    use crate::status::Status;

    /// A struct as this library has it; its first version had two fields.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Grown {
        size: usize,
        first: u64,
        later: u64,
    }

    // SAFETY: numbers of eight bytes each, the first of them the size.
    unsafe impl Growing for Grown {
        const FIRST_VERSION_BYTES: usize = 16;
    }

    const VALUE: Grown = Grown { size: 24, first: 1, later: 2 };

    fn write(words: &mut [u64]) -> Outcome {
        // SAFETY: the words are those of a struct of the size that the first one says.
        unsafe { write_sized(&VALUE, words.as_mut_ptr().cast(), "words") }
    }

    #[test]
    fn an_array_of_another_version_is_written_by_its_own_size() {
        let mut words = [7_u64; 8];
        // SAFETY: there are two elements of four words.
        let written = unsafe { write_all(&[VALUE; 2], words.as_mut_ptr().cast(), 32, "words") };
        written.unwrap();
        assert_eq!(words, [24, 1, 2, 7, 24, 1, 2, 7]);
    }

    #[test]
    fn sizes_decide_how_much_of_a_struct_is_written() {
        // Goal: as much as both versions have, and nothing else, at each size next to a field's.
        for size in 0..40_u64 {
            let mut words = [size, 7, 7, 7, 7];
            let is_right = size >= 16 && size.is_multiple_of(8);
            let refused = write(&mut words).err().map(|refused| refused.status);
            let expected = (!is_right).then_some(Status::InvalidArgument);
            assert_eq!(refused, expected, "{size}");
            let bytes = if is_right { size.min(24) } else { size };
            let field = |at: u64, value| if is_right && size >= 8 * (at + 1) { value } else { 7 };
            assert_eq!(words, [bytes, field(1, 1), field(2, 2), 7, 7], "{size}");
        }
    }

    #[test]
    fn counts_are_refused_beyond_the_address_space() {
        fn check<T>() {
            let most = isize::MAX.unsigned_abs() / size_of::<T>();
            for count in edges(&[most]) {
                assert_eq!(check_count::<T>(count, "it").is_ok(), count <= most, "{count}");
            }
        }
        check::<u8>();
        check::<u64>();
        check::<Grown>();
        // SAFETY: no element is read.
        let empty = unsafe { array::<u64>(std::ptr::null(), 0, "it") }.ok();
        assert_eq!(empty, Some(&[][..]));
        // SAFETY: as above.
        assert!(unsafe { array::<u64>(std::ptr::null(), 1, "it") }.is_err());
    }

    #[test]
    fn texts_are_cut_between_letters_at_any_capacity() {
        for text in ["", "a", "aé-", "日本"] {
            for capacity in 0..=text.len() + 2 {
                let mut room: [c_char; 12] = [7; 12];
                let mut length = MaybeUninit::uninit();
                // SAFETY: there is room for more bytes.
                let written =
                    unsafe { write_text(text, room.as_mut_ptr(), capacity, Some(&mut length)) };
                written.unwrap();
                // SAFETY: a success has written it.
                assert_eq!(unsafe { length.assume_init() }, text.len());
                let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
                let count = starts.filter(|at| *at < capacity).max();
                let mut expected = [7; 12];
                if let Some(count) = count {
                    expected[..count].copy_from_slice(&text.as_bytes()[..count]);
                    expected[count] = 0;
                }
                assert_eq!(room.map(i8::cast_unsigned), expected, "{text} {capacity}");
            }
        }
    }
}
