//! Loom models of counted handles: the value ends once, after every handle's drop.

use loom::thread;

use crate::base::sync::models::{EVERY, model_without_fences};
use crate::memory::buffer::counted::{Counted, LastHandle, OnLastHandle};

struct Value;

impl OnLastHandle for Value {
    fn end(last: LastHandle<Self>) {
        drop(last);
    }
}

fn counted() -> Counted<Value> {
    LastHandle::new(Value).share()
}

/// Goal: when several threads drop handles, exactly one drop is the last and follows the others.
/// loom reports a value that is never freed, and a value that is freed while in use.
#[test]
fn loom_the_last_handle_ends_the_value() {
    model_without_fences(EVERY, || {
        let first = counted();
        let others = [first.clone(), first.clone()];
        let others = others.map(|other| thread::spawn(move || drop(other)));
        drop(first);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Goal: a handle that is cloned while another handle drops keeps the value alive.
#[test]
fn loom_a_clone_outlives_the_drop_of_another_handle() {
    model_without_fences(EVERY, || {
        let first = counted();
        let second = first.clone();
        let other = thread::spawn(move || drop(second.clone()));
        drop(first);
        other.join().unwrap();
    });
}
