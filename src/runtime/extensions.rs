//! Values that other crates keep for the life of a runtime.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::base::fork;
use crate::runtime::Runtime;

/// One value for each type, in the order of their first use.
#[derive(Debug, Default)]
pub(super) struct Extensions([OnceLock<Arc<dyn Any + Send + Sync>>; 4]);

impl Runtime {
    /// The runtime's value of type `T`. The first call creates it from the runtime's number.
    ///
    /// The runtime drops the value at its end. Values of at most four types can be kept. In a
    /// forked child that has inherited no such value, each call creates one.
    ///
    /// # Panics
    /// When the places are taken by values of other types.
    #[doc(hidden)]
    pub fn extension<T: Any + Send + Sync>(&self, create: impl FnOnce(u64) -> T) -> Arc<T> {
        let places = &self.inner.extensions.0;
        let of_type = |place: &OnceLock<Arc<dyn Any + Send + Sync>>| {
            Arc::clone(place.get()?).downcast::<T>().ok()
        };
        if let Some(found) = places.iter().find_map(of_type) {
            return found;
        }
        let created = Arc::new(create(self.id()));
        if fork::is_child() {
            return created; // a thread of the parent may have held a place at the fork
        }
        for place in places {
            if place.set(Arc::<T>::clone(&created) as Arc<dyn Any + Send + Sync>).is_ok() {
                return created;
            }
            if let Some(found) = of_type(place) {
                return found; // of a thread that was faster
            }
        }
        panic!("a runtime keeps values of at most {} types", places.len());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::config::Config;

    #[test]
    fn each_type_has_one_value_for_each_runtime() {
        let runtimes = [(); 2].map(|()| Runtime::new(Config::default()).unwrap());
        let text = runtimes[0].extension(|_| String::from("first"));
        assert!(Arc::ptr_eq(&text, &runtimes[0].extension(|_| String::from("second"))));
        for runtime in &runtimes {
            assert_eq!(*runtime.extension(|id| id), runtime.id());
        }
        assert_eq!(*runtimes[1].extension(|_| String::from("third")), "third");
    }

    #[test]
    fn threads_that_create_a_value_at_once_get_the_same() {
        for _ in 0..100 {
            let runtime = Runtime::new(Config::default()).unwrap();
            let values = std::thread::scope(|scope| {
                let threads = [0, 1, 2].map(|number| {
                    let runtime = &runtime;
                    scope.spawn(move || runtime.extension(|_| number))
                });
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
        }
    }

    #[test]
    fn values_are_dropped_with_the_runtime() {
        let runtime = Runtime::new(Config::default()).unwrap();
        let value = Arc::downgrade(&runtime.extension(|_| vec![1]));
        assert!(value.upgrade().is_some());
        drop(runtime);
        assert!(value.upgrade().is_none());
    }
}
