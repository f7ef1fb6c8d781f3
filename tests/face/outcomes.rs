//! What tasks return: errors fail their stream, every other value is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelrt::Event;

use crate::support::{CPU, streams, typed, workers};

/// Counts its drops, and panics in them when it is told to.
struct Dropped {
    count: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "the drop of a value panicked");
    }
}

#[test]
fn a_value_is_dropped_before_the_task_is_done_and_a_panic_of_its_drop_fails_the_stream() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let count = Arc::new(AtomicUsize::new(0));
    let value = |panics| {
        let count = Arc::clone(&count);
        move || Some(Dropped { count, panics })
    };
    stream.enqueue(value(false)).unwrap();
    stream.synchronize().unwrap();
    let in_results = value(false);
    stream.enqueue(move || Ok::<_, std::fmt::Error>(in_results())).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    stream.enqueue(value(true)).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("the drop of a value panicked"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn an_error_beside_any_value_fails_the_stream() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let tasks: [fn() -> Result<u64, String>; 2] = [|| Ok(7), || Err("not a number".into())];
    for (task, is_error) in tasks.into_iter().zip([false, true]) {
        stream.enqueue(task).unwrap();
        assert_eq!(stream.synchronize().is_err(), is_error);
    }
}

#[test]
fn functions_that_never_return_and_usual_values_are_tasks() {
    let runtime = workers(1);
    let [stream] = streams(&runtime);
    let numbers = typed(&runtime, &[1_u8, 2]);
    stream.enqueue(|| 1).unwrap();
    stream.enqueue(|| Some("text")).unwrap();
    stream.enqueue(|| (vec![1], 'c', [Event::new()])).unwrap();
    stream.enqueue(|| HashMap::from([(1, "one")]).insert(1, "two")).unwrap();
    let copy = numbers.buffer().clone();
    stream.enqueue(move || copy).unwrap();
    stream.enqueue(|| std::thread::spawn(|| ())).unwrap();
    stream.enqueue_with(numbers.reads(), |numbers| numbers.iter().sum::<u8>()).unwrap();
    stream.scope(|scope| scope.enqueue(|| numbers.len())).unwrap().unwrap();
    assert_eq!(runtime.zeros(1, CPU).unwrap().read_to_vec().unwrap(), [0]);
    stream.enqueue(|| unreachable!("a task that never returns")).unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.to_string().contains("never returns"), "{error}");
}
