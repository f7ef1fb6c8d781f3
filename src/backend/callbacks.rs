//! Callbacks of marks, which a driver's threads post to others.
//!
//! A callback of the engine may drop the last handle of a stream, which calls the driver and may
//! wait for the device. A driver's thread must do neither: drivers forbid it, or it would wait for
//! itself.

use std::sync::Arc;

use crate::backend::contract::{DoneCallback, Turn, Work};
use crate::backend::driver::ResumeThreads;
use crate::base::error::Result;
use crate::base::sync::{LockRank, Mutex};
use crate::base::thread::contain;

/// A callback for a driver, whose threads may call it: it posts `callback` to `threads`, which call
/// it once. After a shutdown of the threads it is called at once; dropped uncalled, as behind a
/// refusal of the driver, it calls nothing.
///
/// Starts a thread where there is none, because a driver's callback cannot fail. Fails when the
/// system refuses one; `callback` is dropped then. The threads are other ones than those for
/// resumed work: users' functions that block would delay callbacks.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use accelrt::backend::callbacks::posting;
/// use accelrt::backend::driver::ResumeThreads;
/// let threads = Arc::new(ResumeThreads::new(accelrt::DeviceKind::NULL, "done"));
/// let (tell, told) = mpsc::channel();
/// let callback = Box::new(move || tell.send(std::thread::current().id()).unwrap());
/// posting(&threads, callback)?(); // as a driver does
/// assert_ne!(told.recv(), Ok(std::thread::current().id()));
/// # Ok::<(), accelrt::Error>(())
/// ```
pub fn posting(threads: &Arc<ResumeThreads>, callback: DoneCallback) -> Result<DoneCallback> {
    threads.prepare()?;
    let threads = Arc::clone(threads);
    let post = move || {
        let callback = Mutex::new(LockRank::Backend, Some(callback));
        threads.post(Arc::new(PostedCallback(callback)));
    };
    Ok(Box::new(post))
}

/// A callback that a driver has called. The drop of this work calls it: behind a thread's run, and
/// where no thread takes it, as after a shutdown.
struct PostedCallback(Mutex<Option<DoneCallback>>);

impl Work for PostedCallback {
    fn run(self: Arc<Self>, _turn: &Turn<'_>) {}
}

impl Drop for PostedCallback {
    fn drop(&mut self) {
        let callback = self.0.lock().take();
        contain(|| callback.into_iter().for_each(|callback| callback()));
    }
}
