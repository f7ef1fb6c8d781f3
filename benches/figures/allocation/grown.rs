//! Many live blocks (A11): what a pair costs among 1e3, 1e6 and 1e7 of them.

use std::fs;
use std::io;

use super::model::Model;
use super::pairs::Churn;
use super::{Numbers, accounting};
use crate::table::Table;

/// What the largest number of blocks needs at most.
const NEEDED_BYTES: usize = 8 << 30;

pub(super) fn measure(table: &mut Table) -> io::Result<()> {
    let ours = accounting();
    let few = Churn::new(&ours, 1_000, size).figure();
    let many = Churn::new(&ours, 1_000_000, size).figure();
    table.against("A11", many, ("itself among 1e3", Some(few)))?;
    let model = Model::new();
    let of_model = Churn::new(&model, 1_000_000, size).figure();
    table.against("A11.model", many, ("model among 1e6", Some(of_model)))?;
    drop(model);
    if available_bytes() < Some(NEEDED_BYTES) {
        return table.unmeasured("A11.most", "less than 8 GiB of memory are available");
    }
    let most = Churn::new(&ours, 10_000_000, size).figure();
    table.against("A11.most", most, ("itself among 1e3", Some(few)))
}

/// From 512 bytes to 512 KiB.
fn size(numbers: &mut Numbers) -> usize {
    512 << numbers.below(11)
}

/// What the system says that it can give.
fn available_bytes() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok().map(|kib: usize| kib << 10)
}
