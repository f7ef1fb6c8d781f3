//! Requests that grow at the same time: they share addresses.
//!
//! Goal: no request reserves another range because one is mapping. Method: the steps of one
//! request inside of those of another.

use super::*;
use crate::base::size::MIB;
use crate::memory::allocator::ledger::Purpose;
use crate::memory::allocator::request::Request;

/// Pages on their way for a request of a stream.
fn begin(torch: &mut Torch, ledger: &mut Ledger, plan: &Plan) -> Mapping {
    match torch.next_step(ledger, plan, None, 2 * MIB) {
        Step::Map(None, mapping) => mapping,
        Step::Reserve { bytes, page_bytes } => {
            torch.add_addresses(ledger, plan, Address(1 << 40), bytes, page_bytes);
            begin(torch, ledger, plan)
        }
        _ => panic!("a request that needs pages"),
    }
}

fn end(torch: &mut Torch, ledger: &mut Ledger, plan: &Plan, mapping: &Mapping) -> u64 {
    let handles = (0..mapping.page_count).map(|index| PhysicalHandle(index as u64)).collect();
    let id = torch.end_map(ledger, None, mapping, handles);
    assert!(matches!(torch.next_step(ledger, plan, Some(id), 2 * MIB), Step::Done(_)));
    torch.map.containing(mapping.to.0, &torch.blocks).map_or(0, |id| torch.blocks[id].address)
}

#[test]
fn a_request_keeps_from_others_only_the_addresses_that_it_maps() {
    let config = "expandable_segments:True".parse().unwrap();
    let (mut torch, mut ledger) =
        (Torch::default(), Ledger::new(config, 512 * MIB, Purpose::Device));
    let (torch, ledger) = (&mut torch, &mut ledger);
    let plan = Plan::of(&Request::new(30 * MIB, 0), ledger).unwrap();
    let refused = begin(torch, ledger, &plan);
    let second = begin(torch, ledger, &plan);
    let third = begin(torch, ledger, &plan);
    assert_eq!(torch.segments.iter().count(), 1, "one range of addresses serves them all");
    assert_eq!(end(torch, ledger, &plan, &third), (1 << 40) + (80 << 20));
    torch.undo_map(ledger, None, &refused);
    assert_eq!(end(torch, ledger, &plan, &second), (1 << 40) + (40 << 20));
    let again = begin(torch, ledger, &plan);
    assert_eq!(again.to, refused.to, "what a refusal left is the first place again");
    end(torch, ledger, &plan, &again);
    let all = torch.blocks.iter().map(|(_, block)| block.bytes).sum::<usize>();
    assert_eq!(all, 580 * MIB, "as many pages of 20 MiB as hold 512 MiB and an eighth");
}
