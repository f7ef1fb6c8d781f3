//! Random programs on the cpu device and on the null kind.

use crate::check::check;
use crate::program::Program;

#[test]
fn random_programs_keep_their_order_and_run_every_task_once() {
    check(Program::on_cpu, 1_000);
}

#[test]
fn random_programs_of_records_and_waits_end_on_a_device_without_host_functions() {
    check(Program::on_null, 600);
}
