//! Bytes that tell where they belong.

/// So many bytes of a pattern; another `salt` makes another one. 251 is prime: no size of a page or
/// a line repeats it.
pub(crate) fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|place| u8::try_from((place * 7 + salt * 31) % 251).unwrap()).collect()
}
