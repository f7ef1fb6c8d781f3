//! Threads that act one after the other, as a program says.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

type Action<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A thread that does what it is told, and tells when it is done.
struct Actor<'a> {
    tell: Sender<Action<'a>>,
    done: Receiver<thread::Result<()>>,
}

/// The threads of a program, by number; they end with this.
pub(crate) struct Turns<'scope, 'env, 'a> {
    scope: &'scope Scope<'scope, 'env>,
    actors: HashMap<u32, Actor<'a>>,
}

impl<'scope, 'env, 'a: 'scope> Turns<'scope, 'env, 'a> {
    pub(crate) fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        Self { scope, actors: HashMap::new() }
    }

    /// Does something on the thread with a number; 0 is the caller's.
    pub(crate) fn on(&mut self, thread: u32, action: impl FnOnce() + Send + 'a) {
        if thread == 0 {
            return action();
        }
        let scope = self.scope;
        let actor = self.actors.entry(thread).or_insert_with(|| {
            let (tell, told) = channel::<Action<'a>>();
            let (report, done) = channel();
            scope.spawn(move || {
                for action in told {
                    let outcome = catch_unwind(AssertUnwindSafe(action));
                    report.send(outcome).expect("it is waited for");
                }
            });
            Actor { tell, done }
        });
        actor.tell.send(Box::new(action)).expect("the thread lives as long as this");
        actor.done.recv().expect("as above").unwrap_or_else(|panic| resume_unwind(panic));
    }
}
