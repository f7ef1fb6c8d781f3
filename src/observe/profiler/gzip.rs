//! Packs what is written as gzip (RFC 1952), with the fixed codes of DEFLATE (RFC 1951).
//!
//! Lines of traces repeat most of the line before, so that one look for an earlier copy at each
//! place packs them to a sixth. Each piece that is written becomes a block of its own, so writers
//! stand behind a buffer.

use std::io::{Result, Write};

/// Copies reach back so far.
const WINDOW: usize = 1 << 15;
const LONGEST: usize = 258;
/// Shorter copies take as many bits as their bytes.
const SHORTEST: usize = 4;
const HASH_BITS: u32 = 15;
/// The symbol that ends a block.
const END: u32 = 256;

const CRC: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// Writes gzip until [`GzipWriter::finish`].
pub(super) struct GzipWriter<W> {
    to: W,
    packed: Vec<u8>,
    /// The bits that fill no byte yet, the next one the lowest.
    bits: u64,
    num_bits: u32,
    crc: u32,
    length: u32,
    /// Where a piece had bytes of this hash last, plus one.
    places: Vec<u32>,
}

impl<W: Write> GzipWriter<W> {
    pub(super) fn new(mut to: W) -> Result<Self> {
        to.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff])?;
        let places = vec![0; 1 << HASH_BITS];
        Ok(Self { to, packed: Vec::new(), bits: 0, num_bits: 0, crc: !0, length: 0, places })
    }

    /// Ends the file, which is none before.
    pub(super) fn finish(mut self) -> Result<()> {
        self.begin_block(true);
        self.symbol(END);
        self.put(0, 7); // up to the byte
        self.packed.extend((!self.crc).to_le_bytes());
        self.packed.extend(self.length.to_le_bytes());
        self.to.write_all(&self.packed)?;
        self.to.flush()
    }

    fn put(&mut self, value: u32, count: u32) {
        self.bits |= u64::from(value) << self.num_bits;
        self.num_bits += count;
        while self.num_bits >= 8 {
            self.packed.push(self.bits.to_le_bytes()[0]);
            self.bits >>= 8;
            self.num_bits -= 8;
        }
    }

    /// Codes of symbols begin with their highest bit.
    fn put_code(&mut self, code: u32, count: u32) {
        self.put(code.reverse_bits() >> (32 - count), count);
    }

    fn begin_block(&mut self, is_last: bool) {
        self.put(u32::from(is_last), 1);
        self.put(1, 2);
    }

    /// A byte, the end, or the class of a length.
    fn symbol(&mut self, symbol: u32) {
        match symbol {
            0..144 => self.put_code(0x30 + symbol, 8),
            144..256 => self.put_code(0x190 + symbol - 144, 9),
            256..280 => self.put_code(symbol - 256, 7),
            _ => self.put_code(0xc0 + symbol - 280, 8),
        }
    }

    fn copy(&mut self, length: u32, distance: u32) {
        // A class has the two bits behind the highest one; those below follow as they are.
        match length - 3 {
            255 => self.symbol(285),
            short @ 0..8 => self.symbol(257 + short),
            more => {
                let below = more.ilog2() - 2;
                self.symbol(257 + (below + 1) * 4 + ((more >> below) & 3));
                self.put(more & ((1 << below) - 1), below);
            }
        }
        match distance - 1 {
            near @ 0..4 => self.put_code(near, 5),
            more => {
                let below = more.ilog2() - 1;
                self.put_code(2 * (below + 1) + ((more >> below) & 1), 5);
                self.put(more & ((1 << below) - 1), below);
            }
        }
    }

    fn pack(&mut self, piece: &[u8]) {
        self.begin_block(false);
        self.places.fill(0);
        let mut at = 0;
        while at < piece.len() {
            let (length, distance) = self.earlier(piece, at);
            if length < SHORTEST {
                self.symbol(u32::from(piece[at]));
                at += 1;
            } else {
                #[expect(clippy::cast_possible_truncation, reason = "up to 32768")]
                self.copy(length as u32, distance as u32);
                at += length;
            }
        }
        self.symbol(END);
    }

    /// The length of the copy of what stands at a place, and how far before it begins; 0 if there
    /// is none. Keeps the place.
    fn earlier(&mut self, piece: &[u8], at: usize) -> (usize, usize) {
        let Some(start) = piece[at..].first_chunk::<SHORTEST>() else { return (0, 0) };
        let hash = u32::from_le_bytes(*start).wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS);
        #[expect(clippy::cast_possible_truncation, reason = "pieces are below 4 GiB")]
        let kept = std::mem::replace(&mut self.places[hash as usize], at as u32 + 1) as usize;
        if kept == 0 || at + 1 - kept > WINDOW {
            return (0, 0);
        }
        let (before, here) = (piece[kept - 1..].iter(), piece[at..].iter());
        let same = before.zip(here).take(LONGEST).take_while(|(one, other)| one == other);
        (same.count(), at + 1 - kept)
    }
}

impl<W: Write> Write for GzipWriter<W> {
    fn write(&mut self, piece: &[u8]) -> Result<usize> {
        for byte in piece {
            let [low, ..] = self.crc.to_le_bytes();
            self.crc = (self.crc >> 8) ^ CRC[usize::from(low ^ byte)];
        }
        #[expect(clippy::cast_possible_truncation, reason = "gzip has the length modulo 2^32")]
        let length = piece.len() as u32;
        self.length = self.length.wrapping_add(length);
        self.pack(piece);
        self.to.write_all(&self.packed)?;
        self.packed.clear();
        Ok(piece.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = GzipWriter::new(&mut file).unwrap();
        for piece in pieces {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap();
        file
    }

    #[test]
    fn what_repeats_is_packed_and_the_file_ends_with_its_sum_and_length() {
        let line = b"{\"ph\":\"X\",\"pid\":1,\"tid\":3,\"ts\":1.000,\"dur\":0.500}\n".repeat(1000);
        let file = packed(&[&line]);
        assert!(file.len() * 40 < line.len(), "{} of {}", file.len(), line.len());
        // Of "123456789" the sum is known.
        let file = packed(&[b"1234", b"56789"]);
        let (sum, length) = (0xcbf4_3926_u32.to_le_bytes(), 9_u32.to_le_bytes());
        assert!(file.ends_with(&[sum, length].concat()), "{file:x?}");
    }
}
