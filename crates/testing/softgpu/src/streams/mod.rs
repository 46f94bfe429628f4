//! Work in order within a stream, and in any order between streams that no event orders.

mod capture;
mod clocks;
mod graph_run;
mod hardware_queues;
mod points;
mod queue;
mod random;
mod work;
mod work_log;

pub use capture::{Capture, Graph};
pub use clocks::{Clock, Clocks, Origin, WorkOrder};
pub use graph_run::{GraphRun, Node};
pub use hardware_queues::{Deal, DealtQueues, HardwareQueues};
pub use points::{Point, Points};
pub use queue::{Entry, Item, Queue, Ready};
pub use random::Random;
pub use work::{HostFunction, HostWork, LaunchWork, Work};
pub use work_log::{GpuLog, Pairs, Place, WorkLog};
