//! Writes snapshots and histories as torch's dictionaries.
//!
//! Torch's key `user_metadata` has the tag: in entries of a trace, as there, and in blocks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use accelrt::allocator::snapshot::{BlockInfo, SegmentInfo, TraceAction};
use accelrt::internal::{AllocationContext, StackId};
use accelrt_observe::memory_history::MemoryEvent;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::memory::snapshot::{ACTIONS, CLASSES, STATES, name_of};
use crate::support::stacks::Frames;

/// Writes equal stacks and tags as one object each.
#[derive(Default)]
pub(crate) struct SnapshotWriter {
    frames: Frames,
    tags: HashMap<Arc<str>, Py<PyString>>,
}

impl SnapshotWriter {
    /// Writes segments. `context_of` tells what the block at an address is for.
    pub(crate) fn segments<'py>(
        &mut self,
        py: Python<'py>,
        segments: &[SegmentInfo],
        context_of: &impl Fn(u64) -> AllocationContext,
    ) -> PyResult<Bound<'py, PyList>> {
        let segments = segments.iter().map(|segment| self.segment(py, segment, context_of));
        PyList::new(py, segments.collect::<PyResult<Vec<_>>>()?)
    }

    fn segment<'py>(
        &mut self,
        py: Python<'py>,
        segment: &SegmentInfo,
        context_of: &impl Fn(u64) -> AllocationContext,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("device", segment.device_index)?;
        dict.set_item("address", segment.address)?;
        dict.set_item("total_size", segment.total_bytes)?;
        dict.set_item("allocated_size", segment.allocated_bytes)?;
        dict.set_item("active_size", segment.active_bytes)?;
        dict.set_item("requested_size", segment.requested_bytes)?;
        dict.set_item("stream", segment.stream)?;
        dict.set_item("segment_type", name_of(CLASSES, segment.class))?;
        dict.set_item("segment_pool_id", (segment.pool.0, segment.pool.1))?;
        dict.set_item("is_expandable", segment.is_expandable)?;
        dict.set_item("frames", PyList::empty(py))?;
        let blocks = segment.blocks.iter().map(|block| {
            let is_active = block.state.is_active();
            let context =
                if is_active { context_of(block.address) } else { AllocationContext::NONE };
            self.block(py, block, context)
        });
        dict.set_item("blocks", blocks.collect::<PyResult<Vec<_>>>()?)?;
        Ok(dict)
    }

    fn block<'py>(
        &mut self,
        py: Python<'py>,
        block: &BlockInfo,
        context: AllocationContext,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("address", block.address)?;
        dict.set_item("size", block.bytes)?;
        dict.set_item("requested_size", block.requested_bytes)?;
        dict.set_item("state", name_of(STATES, block.state))?;
        dict.set_item("frames", self.frames.of(py, context.stack)?)?;
        dict.set_item("user_metadata", self.tag(py, &context.tag.text()))?;
        Ok(dict)
    }

    /// Writes an entry of a trace, with its stack where `has_frames`.
    pub(crate) fn entry<'py>(
        &mut self,
        py: Python<'py>,
        happened: &MemoryEvent,
        has_frames: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let MemoryEvent { event, tag, time, stack, .. } = happened;
        let address = if event.action == TraceAction::OutOfMemory { "device_free" } else { "addr" };
        let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let dict = PyDict::new(py);
        dict.set_item("action", name_of(ACTIONS, event.action))?;
        dict.set_item(address, event.address)?;
        dict.set_item("size", event.bytes)?;
        dict.set_item("stream", event.stream)?;
        dict.set_item("time_us", since_1970.as_micros())?;
        let stack = if has_frames { *stack } else { StackId::NONE };
        dict.set_item("frames", self.frames.of(py, stack)?)?;
        dict.set_item("compile_context", "N/A")?;
        dict.set_item("user_metadata", self.tag(py, tag))?;
        dict.set_item("pool_id", (event.pool.0, event.pool.1))?;
        Ok(dict)
    }

    fn tag<'py>(&mut self, py: Python<'py>, tag: &Arc<str>) -> Bound<'py, PyString> {
        let known = self.tags.entry(Arc::clone(tag));
        known.or_insert_with(|| PyString::new(py, tag).unbind()).bind(py).clone()
    }
}
