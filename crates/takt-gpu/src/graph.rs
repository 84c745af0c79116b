//! CUDA graphs: work captured once and launched as one.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec};

use crate::error::GpuError;
use crate::gpu::Device;
use crate::stream::{Captured, Stream};

/// Other threads may go on with calls that a capture forbids in its own.
const CAPTURE_THREAD_LOCAL: u32 = 1;
/// So may the capturing thread: a library that looks after itself decides what it calls meanwhile.
const CAPTURE_RELAXED: u32 = 2;

/// Captured work. It keeps all memory, events and modules that it uses.
#[derive(Debug)]
pub struct Graph {
    device: Arc<Device>,
    exec: CUgraphExec,
    captured: Captured,
}

// SAFETY: a graph's handle may be used from any thread, by one at a time, which `&mut` and the
// stream see to.
unsafe impl Send for Graph {}

/// Result of updating a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// Arguments changed in place.
    InPlace,
    /// The work is another one: it was made anew, which takes longer.
    Anew,
}

/// Ends a capture that was left by an error or a panic.
struct Capturing<'a>(&'a Stream);

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if self.0.capture_cell().borrow_mut().take().is_some() {
            let mut graph = std::ptr::null_mut();
            let api = self.0.device.api;
            // SAFETY: the stream is capturing; what comes out is destroyed at once.
            unsafe {
                if (api.capture_end)(self.0.handle(), &raw mut graph) == 0 && !graph.is_null() {
                    (api.graph_destroy)(graph);
                }
            }
        }
    }
}

impl Stream {
    /// Captures what `work` submits to this stream, without doing it.
    ///
    /// # Errors
    /// The error of `work`, [`GpuError::Invalid`] inside another capture, or the driver's refusal.
    pub fn capture(&self, work: impl FnOnce() -> Result<(), GpuError>) -> Result<Graph, GpuError> {
        self.made(self.record_graph(CAPTURE_THREAD_LOCAL, work)?)
    }

    /// Captures what a library that was given this stream ([`Stream::raw`]) submits to it.
    ///
    /// # Errors
    /// As [`Stream::capture`], with errors of `work`'s own kind; where the library waits for the
    /// stream, the driver refuses that and the capture.
    ///
    /// # Safety
    /// Memory that the library's work uses stays where it is until the graph is dropped and its
    /// last launch has ended, and is used by nothing else while one is under way. Launches mark
    /// none of it, so that a [`DeviceBuffer`](crate::DeviceBuffer) among it counts as free: whoever
    /// drops it waits for the stream first.
    pub unsafe fn capture_foreign<E: From<GpuError>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        let recorded = self.record_graph(CAPTURE_RELAXED, work)?;
        Ok(self.made(recorded)?)
    }

    /// Ready to launch.
    fn made(&self, (graph, captured): (CUgraph, Captured)) -> Result<Graph, GpuError> {
        let exec = self.instantiate(graph);
        // SAFETY: made by the capture; an instantiated graph does not need it.
        unsafe { (self.device.api.graph_destroy)(graph) };
        let graph = Graph { device: Arc::clone(&self.device), exec: exec?, captured };
        // Laid out on the device now, so that the first launch is as quick as the others.
        // SAFETY: both are alive.
        let code = unsafe { (self.device.api.graph_upload)(graph.exec, self.handle()) };
        self.device.call("cuGraphUpload", code)?;
        Ok(graph)
    }

    /// Captures `work` in place of what `graph` does: quick where only arguments changed. Not while
    /// `graph` is under way.
    ///
    /// # Errors
    /// As [`Stream::capture`]; `graph` is as before then.
    pub fn recapture(
        &self,
        graph: &mut Graph,
        work: impl FnOnce() -> Result<(), GpuError>,
    ) -> Result<Updated, GpuError> {
        let (new, captured) = self.record_graph(CAPTURE_THREAD_LOCAL, work)?;
        let mut info = crate::api::UpdateInfo::default();
        // SAFETY: all are alive; a launch of the old one that is under way is not changed by it.
        let code = unsafe { (self.device.api.graph_update)(graph.exec, new, &raw mut info) };
        let outcome = match code {
            0 => Ok(Updated::InPlace),
            // Not the same nodes: it takes a new one.
            910 => self.instantiate(new).map(|exec| {
                let old = std::mem::replace(&mut graph.exec, exec);
                // SAFETY: replaced; the driver lets a launch under way end first.
                unsafe { (self.device.api.graph_exec_destroy)(old) };
                Updated::Anew
            }),
            code => Err(self.device.fail("cuGraphExecUpdate", code)),
        };
        // SAFETY: made by the capture, needed no more.
        unsafe { (self.device.api.graph_destroy)(new) };
        if outcome.is_ok() {
            graph.captured = captured;
        }
        outcome
    }

    /// Launches `graph` in this stream.
    ///
    /// # Errors
    /// [`GpuError::InFlight`] when its host memory is being read or written, or what the driver
    /// refuses.
    pub fn launch_graph(&self, graph: &Graph) -> Result<(), GpuError> {
        self.device.bind()?;
        if !Arc::ptr_eq(&graph.device, &self.device) || self.capture_cell().borrow().is_some() {
            return Err(GpuError::Invalid {
                what: "graph",
                expected: "of this device, outside a capture".to_owned(),
                received: "another".to_owned(),
            });
        }
        self.uses_graph(&graph.captured)?;
        // SAFETY: both are alive; memory that the graph uses is kept by it.
        let code = unsafe { (self.device.api.graph_launch)(graph.exec, self.handle()) };
        self.handed("cuGraphLaunch", code)
    }

    fn record_graph<E: From<GpuError>>(
        &self,
        mode: u32,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<(CUgraph, Captured), E> {
        self.device.bind()?;
        if self.capture_cell().borrow().is_some() {
            return Err(E::from(GpuError::Invalid {
                what: "capture",
                expected: "one at a time".to_owned(),
                received: "one inside another".to_owned(),
            }));
        }
        // SAFETY: the stream is alive and not capturing.
        let code = unsafe { (self.device.api.capture_begin)(self.handle(), mode) };
        self.device.call("cuStreamBeginCapture", code)?;
        *self.capture_cell().borrow_mut() = Some(Captured::default());
        let capturing = Capturing(self);
        work()?;
        let captured = self.capture_cell().borrow_mut().take().unwrap_or_default();
        drop(capturing);
        let mut graph = std::ptr::null_mut();
        // SAFETY: begun above, in this thread.
        let code = unsafe { (self.device.api.capture_end)(self.handle(), &raw mut graph) };
        self.device.call("cuStreamEndCapture", code)?;
        Ok((graph, captured))
    }

    fn instantiate(&self, graph: CUgraph) -> Result<CUgraphExec, GpuError> {
        let mut exec = std::ptr::null_mut();
        // SAFETY: a valid place for the answer; the graph is alive.
        let code = unsafe { (self.device.api.graph_instantiate)(&raw mut exec, graph, 0) };
        self.device.call("cuGraphInstantiate", code)?;
        Ok(exec)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made once; the driver lets a launch that is under way end first.
            unsafe { (self.device.api.graph_exec_destroy)(self.exec) };
        }
    }
}
