//! Requests that grow at the same time: they share addresses.
//!
//! Goal: nobody reserves another range because somebody is mapping. Method: the steps of one
//! request inside of those of another.

use super::*;
use crate::base::size::MIB;
use crate::memory::allocator::books::{Purpose, Request};

/// Pages on their way for a request of a stream.
fn begin(books: &mut Books, plan: &Plan) -> Mapping {
    match books.next_step(plan, None, 2 * MIB) {
        Step::Map(None, mapping) => mapping,
        Step::Reserve { bytes, page_bytes } => {
            books.add_addresses(plan, Address(1 << 40), bytes, page_bytes);
            begin(books, plan)
        }
        _ => panic!("a request that needs pages"),
    }
}

fn end(books: &mut Books, plan: &Plan, mapping: &Mapping) -> u64 {
    let handles = (0..mapping.page_count).map(|index| PhysicalHandle(index as u64)).collect();
    let id = books.end_map(None, mapping, handles);
    assert!(matches!(books.next_step(plan, Some(id), 2 * MIB), Step::Done(_)));
    books.map.containing(mapping.to.0, &books.blocks).map_or(0, |id| books.blocks[id].address)
}

#[test]
fn a_request_keeps_from_others_only_the_addresses_that_it_maps() {
    let config = "expandable_segments:True".parse().unwrap();
    let mut books = Books::new(config, 512 * MIB, Purpose::Device, None);
    let plan = books.plan(&Request::new(30 * MIB, 0)).unwrap();
    let refused = begin(&mut books, &plan);
    let second = begin(&mut books, &plan);
    let third = begin(&mut books, &plan);
    assert_eq!(books.segments.iter().count(), 1, "one range of addresses serves them all");
    assert_eq!(end(&mut books, &plan, &third), (1 << 40) + (80 << 20));
    books.undo_map(None, &refused);
    assert_eq!(end(&mut books, &plan, &second), (1 << 40) + (40 << 20));
    let again = begin(&mut books, &plan);
    assert_eq!(again.to, refused.to, "what a refusal left is the first place again");
    end(&mut books, &plan, &again);
    let all = books.blocks.iter().map(|(_, block)| block.bytes).sum::<usize>();
    assert_eq!(all, 580 * MIB, "as many pages of 20 MiB as hold 512 MiB and an eighth");
}
