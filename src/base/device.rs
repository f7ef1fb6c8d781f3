//! Devices and their kinds as values: an index of a kind; a kind's name and type code.

use std::fmt;
use std::num::NonZeroU8;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

mod names;

pub use names::parse_device;

/// The largest index that a [`Device`] can have. A machine may have fewer devices.
pub const MAX_DEVICE_INDEX: u8 = 127;

/// One device: a kind and an index from 0 to [`MAX_DEVICE_INDEX`].
///
/// The value is a name only: the call that uses it fails if the machine has no such device.
///
/// ```
/// use accelrt::{Device, DeviceKind};
/// let device: Device = "cpu:1".parse()?;
/// assert_eq!((device.kind(), device.index()), (DeviceKind::CPU, 1));
/// assert_eq!(device.to_string(), "cpu:1");
/// assert!("cpu:128".parse::<Device>().is_err());
/// # Ok::<(), accelrt::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    kind: DeviceKind,
    index: u8,
}

impl Device {
    /// The device of an index that is known to be in range.
    const fn of_parts(kind: DeviceKind, index: u8) -> Self {
        Self { kind, index }
    }

    /// The device `cpu:index`, for callers that know that the index is in range.
    ///
    /// # Panics
    /// When the index is over [`MAX_DEVICE_INDEX`].
    #[must_use]
    pub const fn cpu(index: u8) -> Self {
        assert!(index <= MAX_DEVICE_INDEX, "a device index is at most 127");
        Self { kind: DeviceKind::CPU, index }
    }

    /// The kind: `cpu` for the device `cpu:1`.
    #[must_use]
    pub const fn kind(self) -> DeviceKind {
        self.kind
    }

    /// The index within the kind: 1 for the device `cpu:1`.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The device as a number, for records.
    pub(crate) const fn to_bits(self) -> u16 {
        u16::from_le_bytes([self.kind.type_code(), self.index])
    }

    /// The device of [`Device::to_bits`].
    pub(crate) const fn of_bits(bits: u16) -> Self {
        let [code, index] = bits.to_le_bytes();
        Self { kind: DeviceKind::of_code(code), index }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

/// A kind of device: a handle of one byte to a registered name and type code.
///
/// A crate with its own kind registers the kind and its backend with [`register`], for all
/// runtimes; or the kind alone with [`DeviceKind::register`], and the backend of one runtime with
/// [`Runtime::with_backends`](crate::Runtime::with_backends).
///
/// [`register`]: crate::backend::register
///
/// ```
/// use accelrt::{Device, DeviceKind};
/// let kind = DeviceKind::register("npu", 64)?;
/// assert_eq!("npu:1".parse::<Device>()?.kind(), kind);
/// assert_eq!((kind.name(), kind.type_code()), ("npu", 64));
/// let taken = DeviceKind::register("other", 64).unwrap_err().to_string();
/// assert!(taken.contains("64") && taken.contains("npu"), "{taken}");
/// # Ok::<(), accelrt::Error>(())
/// ```
///
/// ```
/// use accelrt::DeviceKind;
/// let own = [DeviceKind::CPU, DeviceKind::CUDA, DeviceKind::NULL, DeviceKind::XPU];
/// for kind in own {
///     assert_eq!(DeviceKind::from_name(kind.name()), Some(kind));
///     assert_eq!(DeviceKind::from_type_code(kind.type_code().into()), Some(kind));
///     assert!(DeviceKind::registered().any(|registered| registered == kind));
/// }
/// ```
// Holds the type code plus one: comparisons read no table, and an `Option` has the same size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct DeviceKind(NonZeroU8);

/// torch's own type codes, four of which are the type codes of this crate's kinds.
const BUILTIN_TYPE_CODES: RangeInclusive<u8> = 0..=63;

/// The type codes for other crates' kinds: above torch's own codes, and within a signed byte.
const EXTERNAL_TYPE_CODES: RangeInclusive<u8> = 64..=127;

const MAX_NAME_BYTES: usize = 32;

/// The kinds of this crate, with torch's type codes.
const BUILTIN_KINDS: [KindEntry; 4] = [
    KindEntry { kind: DeviceKind::CPU, name: "cpu" },
    KindEntry { kind: DeviceKind::CUDA, name: "cuda" },
    KindEntry { kind: DeviceKind::NULL, name: "null" },
    KindEntry { kind: DeviceKind::XPU, name: "xpu" },
];

/// The slots of a [`KindTable`]: one per kind of this crate, one per type code of other crates.
const MAX_KINDS: usize = BUILTIN_KINDS.len() + 64;

static KINDS: KindTable = KindTable::new();

impl DeviceKind {
    /// The machine's own cores, whose workers execute streams. Every runtime has this kind.
    pub const CPU: Self = Self::of_code(0);
    /// NVIDIA GPUs through the CUDA driver API.
    pub const CUDA: Self = Self::of_code(1);
    /// Devices with addresses but no memory, like torch's `meta` device: for tests and accounting.
    pub const NULL: Self = Self::of_code(9);
    /// Intel GPUs and other OpenCL devices with unified shared memory.
    pub const XPU: Self = Self::of_code(12);

    const fn of_code(type_code: u8) -> Self {
        Self(NonZeroU8::MIN.saturating_add(type_code))
    }

    /// Enters a kind of another crate. A refusal is the reason.
    fn enter(name: &str, type_code: u8) -> Result<Self, String> {
        KINDS.with_builtin().enter(name, type_code, EXTERNAL_TYPE_CODES)
    }

    /// Every registered kind: this crate's in the order of their type codes, then the others in the
    /// order of their registration.
    pub fn registered() -> impl Iterator<Item = Self> {
        KINDS.with_builtin().entries().map(|entry| entry.kind)
    }

    /// Finds the kind that is registered under the lower-case `name`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut entries = KINDS.with_builtin().entries();
        Some(entries.find(|entry| entry.name == name)?.kind)
    }

    /// Finds the kind that is registered with this type code.
    #[must_use]
    pub fn from_type_code(type_code: i64) -> Option<Self> {
        Self::registered().find(|kind| i64::from(kind.type_code()) == type_code)
    }

    /// The lower-case name, as in device strings: `cpu` in `cpu:1`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let entry = KINDS.with_builtin().entries().find(|entry| entry.kind == self);
        entry.map_or("", |entry| entry.name) // found: every handle comes from an entry
    }

    /// The type code: torch's for a kind of this crate, 64 to 127 for a kind of another crate.
    #[must_use]
    pub const fn type_code(self) -> u8 {
        self.0.get() - 1
    }

    /// The registered kinds except null, which has devices only in programs that add its backend.
    #[doc(hidden)]
    pub fn named() -> impl Iterator<Item = Self> {
        Self::registered().filter(|kind| *kind != Self::NULL)
    }

    /// Joins the names of [`DeviceKind::named`] with commas, for errors.
    #[doc(hidden)]
    pub fn names() -> String {
        Self::named().map(Self::name).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceKind({})", self.name())
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug)]
struct KindEntry {
    kind: DeviceKind,
    name: &'static str,
}

/// Kinds in the order of their registration. The table only grows and has no gap, so readers need
/// no lock. Registration compares a new kind with each entry in order, and stores it in the first
/// empty slot.
struct KindTable {
    slots: [OnceLock<KindEntry>; MAX_KINDS],
}

impl KindTable {
    const fn new() -> Self {
        Self { slots: [const { OnceLock::new() }; MAX_KINDS] }
    }

    /// Enters this crate's kinds unless the table has them, and returns the table.
    fn with_builtin(&self) -> &Self {
        if self.slots[BUILTIN_KINDS.len() - 1].get().is_none() {
            for KindEntry { kind, name } in BUILTIN_KINDS {
                let entered = self.enter(name, kind.type_code(), BUILTIN_TYPE_CODES);
                debug_assert!(entered.is_ok(), "{entered:?}");
            }
        }
        self
    }

    fn entries(&self) -> impl Iterator<Item = &KindEntry> {
        self.slots.iter().map_while(OnceLock::get)
    }

    /// Enters a kind with a code in `allowed`, or finds the kind with the same name and code.
    /// A refusal is the reason.
    fn enter(
        &self,
        name: &str,
        code: u8,
        allowed: RangeInclusive<u8>,
    ) -> Result<DeviceKind, String> {
        if !is_identifier(name) {
            return Err(format!(
                "a name is a lower-case identifier of at most {MAX_NAME_BYTES} ASCII characters"
            ));
        }
        let (first, last) = (allowed.start(), allowed.end());
        let not_allowed = || Err(format!("the code of such a kind is one of {first} to {last}"));
        let kind = DeviceKind::of_code(code);
        for slot in &self.slots {
            if slot.get().is_none() && !allowed.contains(&code) {
                return not_allowed();
            }
            // If another thread fills the slot first, `entry` is the entry of that thread.
            let new = || KindEntry { kind, name: name.to_owned().leak() };
            let entry = slot.get_or_init(new);
            match (entry.name == name, entry.kind == kind) {
                (true, true) => return Ok(kind),
                (true, false) => {
                    let known = entry.kind.type_code();
                    return Err(format!("the kind of this name has type code {known}"));
                }
                (false, true) => {
                    return Err(format!("the kind of this type code is {:?}", entry.name));
                }
                (false, false) => {}
            }
        }
        not_allowed() // a full table contains every allowed code
    }
}

/// True for 1 to 32 lower-case ASCII letters, digits and underscores that begin with a letter.
fn is_identifier(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase();
    let is_rest = |byte: u8| is_letter(&byte) || byte.is_ascii_digit() || byte == b'_';
    let bytes = name.as_bytes();
    bytes.first().is_some_and(is_letter)
        && bytes.iter().copied().all(is_rest)
        && bytes.len() <= MAX_NAME_BYTES
}

#[cfg(test)]
mod kind_tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn refusal(name: &str, type_code: u8) -> String {
        DeviceKind::register(name, type_code).unwrap_err().to_string()
    }

    fn assert_says(message: &str, words: &[&str]) {
        assert!(words.iter().all(|word| message.contains(word)), "{words:?} in {message:?}");
    }

    #[test]
    fn our_kinds_are_registered_with_torchs_codes() {
        let ours = [
            (DeviceKind::CPU, "cpu", 0),
            (DeviceKind::CUDA, "cuda", 1),
            (DeviceKind::NULL, "null", 9),
            (DeviceKind::XPU, "xpu", 12),
        ];
        let first: Vec<_> = DeviceKind::registered().take(ours.len()).collect();
        assert_eq!(first, ours.map(|(kind, ..)| kind));
        for (kind, name, code) in ours {
            assert_eq!((kind.name(), kind.type_code()), (name, code));
            assert_eq!(DeviceKind::from_name(name), Some(kind));
            assert_eq!(DeviceKind::from_type_code(i64::from(code)), Some(kind));
            assert_eq!(DeviceKind::register(name, code).unwrap(), kind);
        }
    }

    #[test]
    fn a_registered_kind_is_found_by_its_name_and_by_its_code() {
        let kind = DeviceKind::register("kind_found", 70).unwrap();
        assert_eq!(DeviceKind::register("kind_found", 70).unwrap(), kind, "again");
        assert_eq!((kind.name(), kind.type_code()), ("kind_found", 70));
        assert_eq!("kind_found".parse::<DeviceKind>().unwrap(), kind);
        assert_eq!(DeviceKind::from_type_code(70), Some(kind));
        assert_eq!(DeviceKind::registered().filter(|known| *known == kind).count(), 1);
        assert_eq!(format!("{kind} {kind:?}"), "kind_found DeviceKind(kind_found)");
        assert_says(&"no_such".parse::<DeviceKind>().unwrap_err().to_string(), &["kind_found"]);
        for code in [-1, 8, 63, 128, 326] {
            assert_eq!(DeviceKind::from_type_code(code), None, "{code}");
        }
    }

    #[test]
    fn a_name_or_code_that_is_taken_is_refused_with_both() {
        DeviceKind::register("kind_taken", 71).unwrap();
        assert_says(&refusal("kind_taken", 72), &["kind_taken", "72", "71"]);
        assert_says(&refusal("kind_other", 71), &["kind_other", "71", "kind_taken"]);
        assert_says(&refusal("cpu", 72), &["cpu", "72", "type code 0"]);
        assert_says(&refusal("kind_other", 12), &["kind_other", "12", "xpu"]);
        assert_eq!(DeviceKind::from_name("kind_other"), None);
        assert_eq!(DeviceKind::from_type_code(72), None);
    }

    #[test]
    fn a_code_outside_the_external_range_is_refused() {
        for code in [2, 20, 63, 128, 255] {
            assert_says(&refusal("kind_low", code), &["kind_low", &code.to_string(), "64 to 127"]);
        }
        assert_eq!(DeviceKind::from_name("kind_low"), None);
        assert_eq!(DeviceKind::register("kind_last", 127).unwrap().type_code(), 127);
    }

    #[test]
    fn a_name_that_is_no_lower_case_identifier_is_refused() {
        let long = "a".repeat(33);
        for name in ["", "Npu", "1npu", "_npu", "np:u", "np u", "n-pu", "npü", &long] {
            assert_says(&refusal(name, 73), &[name, "73", "lower-case", "32"]);
        }
        assert_eq!(DeviceKind::from_type_code(73), None);
        let longest = "a".repeat(32);
        assert_eq!(DeviceKind::register(&longest, 73).unwrap().name(), longest);
    }

    #[test]
    fn every_code_has_a_slot() {
        let table = KindTable::new();
        for code in EXTERNAL_TYPE_CODES {
            table.with_builtin().enter(&format!("kind_{code}"), code, EXTERNAL_TYPE_CODES).unwrap();
        }
        assert_eq!(table.entries().count(), MAX_KINDS);
        for code in [2, 63, 64, 127, 128, 255] {
            let reason = table.enter("kind_more", code, EXTERNAL_TYPE_CODES).unwrap_err();
            let told = if EXTERNAL_TYPE_CODES.contains(&code) { "kind_" } else { "64 to 127" };
            assert_says(&reason, &[told]);
        }
    }

    #[test]
    fn of_threads_that_register_at_once_one_has_a_name_and_one_a_code() {
        // Goal: no two kinds share a name or a code. Method: two threads start together on many new
        // tables. Both register one name with two codes, then one code with two names.
        const ROUNDS: usize = 4000;
        let tables: Vec<KindTable> = (0..ROUNDS).map(|_| KindTable::new()).collect();
        let arrived = AtomicUsize::new(0);
        let enter_all = |(own_name, own_code): (&str, u8)| -> Vec<(bool, bool)> {
            let enter_both = |(round, table): (usize, &KindTable)| {
                table.with_builtin();
                // AcqRel, Acquire: the two pair with each other. The tables do not rely on them.
                arrived.fetch_add(1, Ordering::AcqRel);
                while arrived.load(Ordering::Acquire) < 2 * (round + 1) {
                    std::hint::spin_loop();
                }
                let has_name = table.enter("same", own_code, EXTERNAL_TYPE_CODES).is_ok();
                let has_code = table.enter(own_name, 66, EXTERNAL_TYPE_CODES).is_ok();
                (has_name, has_code)
            };
            tables.iter().enumerate().map(enter_both).collect()
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| enter_all(("other", 65)));
            (enter_all(("one", 64)), other.join().unwrap())
        });
        for (table, (one, other)) in tables.iter().zip(one.into_iter().zip(other)) {
            assert!(one.0 != other.0 && one.1 != other.1, "{one:?} {other:?}");
            assert_eq!(table.entries().count(), BUILTIN_KINDS.len() + 2);
        }
    }
}
