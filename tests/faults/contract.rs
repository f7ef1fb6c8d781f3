//! What cannot fail, with the reason, as the contract's own signatures say it.

use std::sync::LazyLock;

use accelrt_testing::fault::Method;

/// Every file of the contract.
static CONTRACT: LazyLock<String> = LazyLock::new(|| {
    let files = [
        include_str!("../../src/backend/contract.rs"),
        include_str!("../../src/backend/contract/capabilities.rs"),
    ];
    // What a call asks for does not say whether it can fail.
    files.concat().replace("unsafe fn ", "fn ")
});

/// Each method of a trait of the contract: its name and what it returns.
fn methods(trait_head: &str) -> Vec<(&'static str, &'static str)> {
    let body = CONTRACT.split_once(trait_head).expect("the trait is in the contract").1;
    let body = body.split_once("\n}").expect("a trait ends").0;
    let signatures = body.split("\n    fn ").skip(1).map(|text| {
        let signature = text.split([';', '{']).next().expect("a split has a first part");
        let name = signature.split_once('(').expect("a method has arguments").0;
        let returned = signature.rsplit_once("-> ").map_or("nothing", |(_, returned)| returned);
        (name, returned.trim())
    });
    signatures.collect()
}

fn is_fallible((_, returned): &(&str, &str)) -> bool {
    returned.starts_with("Result<")
}

/// Provided methods that call others, each of which can be failed.
const MADE_OF_OTHERS: [&str; 2] = ["create_mapped", "relocate_all"];

fn all() -> Vec<(&'static str, &'static str)> {
    ["pub unsafe trait Backend:", "pub unsafe trait VirtualMemory:", "pub unsafe trait Kernels:"]
        .into_iter()
        .flat_map(methods)
        .filter(|(name, _)| !MADE_OF_OTHERS.contains(name))
        .collect()
}

/// A line for each method that has no failure to report.
pub(crate) fn infallible_report() -> String {
    let infallible = all().into_iter().filter(|method| !is_fallible(method));
    let lines = infallible.map(|(name, returned)| format!("{name}: returns {returned}\n"));
    format!("cannot fail, by the contract's signatures:\n{}", lines.collect::<String>())
}

#[test]
fn every_method_of_the_contract_can_be_failed_or_cannot_fail_by_its_signature() {
    let all = all();
    assert_eq!(all.iter().filter(|method| is_fallible(method)).count(), Method::ALL.len());
    let report = infallible_report();
    for name in ["kind", "runs_on_host", "submit", "resume", "shutdown", "granularity_bytes"] {
        assert!(report.contains(&format!("\n{name}: returns ")), "{report}");
    }
}
