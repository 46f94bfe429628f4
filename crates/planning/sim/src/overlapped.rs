//! Passes whose ring shifts overlap with their kernels: the streams of a pass, each in its order, with the waits
//! between them.

use cluster::Cluster;
use comm::CollectiveCall;
use device::{Op, Stream, StreamEvent};
use record::{Enqueued, UnitRecord};

use crate::kernel::kernels;
use crate::price::busy_ns;
use crate::recorded::PassWork;

/// One thing that a pass issues to a stream of an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// The next N kernels of [`PassWork::kernels`].
    Kernels(usize),
    /// One of [`PassWork::collectives`].
    Collective(Stream, usize),
    /// The point of a stream when everything before has ended.
    Recorded(StreamEvent),
    /// Later work of the stream begins after the event.
    Awaited(Stream, StreamEvent),
}

/// The order in which a recorded pass issues its kernels and collectives, as pleach runs them.
pub(crate) fn issued(unit: &UnitRecord) -> Vec<Issued> {
    let mut ops = unit.record.submitted.iter();
    let mut kernels_of_next = || ops.next().map_or(0, |op: &Op| kernels(&[*op], 1, None).len());
    let issue = |enqueued: &Enqueued| match *enqueued {
        Enqueued::Operation(_) => Issued::Kernels(kernels_of_next()),
        Enqueued::Collective(stream, index) => Issued::Collective(stream, index),
        Enqueued::Recorded(event) => Issued::Recorded(event),
        Enqueued::Awaited(stream, event) => Issued::Awaited(stream, event),
    };
    unit.order.iter().map(issue).collect()
}

/// Nanoseconds from the begin of `work` until the stream that computes has ended it, where collectives of other streams
/// overlap with its kernels. All ranks are as far: they have equally much to compute.
pub(crate) fn overlapped_ns(cluster: &Cluster, work: &PassWork, collective_ns: &dyn Fn(&CollectiveCall) -> u64) -> f64 {
    let (mut now, mut reached) = ([0.0_f64; Stream::COUNT], Vec::<(StreamEvent, f64)>::new());
    let mut kernels = &work.kernels[..];
    for issued in &work.order {
        match *issued {
            Issued::Kernels(count) => {
                let (these, others) = kernels.split_at(count.min(kernels.len()));
                now[Stream::Compute.index()] += busy_ns(cluster, these);
                kernels = others;
            }
            Issued::Collective(stream, index) => {
                now[stream.index()] += work.collectives.get(index).map_or(0, collective_ns) as f64;
            }
            Issued::Recorded(event) => reached.push((event, now[event.stream().index()])),
            Issued::Awaited(stream, event) => {
                let at = reached.iter().rev().find(|(known, _)| *known == event).map_or(0.0, |(_, at)| *at);
                now[stream.index()] = now[stream.index()].max(at);
            }
        }
    }
    now[Stream::Compute.index()]
}

#[cfg(test)]
mod tests {
    use cluster::named;
    use comm::Operation;
    use mesh::Axis;

    use super::*;
    use crate::kernel::Kernel;

    /// Two blocks: one shift during the first kernels, one more that is awaited at the end, each of `shift_ns`.
    fn two_blocks(kernel: Kernel) -> PassWork {
        let shift = CollectiveCall { axes: Axis::Cp.into(), operation: Operation::Shift, bytes: 8 };
        let event = |stream, number| StreamEvent::new(stream, number);
        let [copied, arrived, added, home] =
            [(Stream::Compute, 0), (Stream::Shift, 1), (Stream::Compute, 2), (Stream::Shift, 3)]
                .map(|(stream, number)| event(stream, number));
        let order = vec![
            Issued::Kernels(1),
            Issued::Recorded(copied),
            Issued::Awaited(Stream::Shift, copied),
            Issued::Collective(Stream::Shift, 0),
            Issued::Recorded(arrived),
            Issued::Kernels(2),
            Issued::Awaited(Stream::Compute, arrived),
            Issued::Kernels(1),
            Issued::Recorded(added),
            Issued::Awaited(Stream::Shift, added),
            Issued::Collective(Stream::Shift, 1),
            Issued::Recorded(home),
            Issued::Awaited(Stream::Compute, home),
        ];
        PassWork { kernels: vec![kernel; 4], collectives: vec![shift; 2], order, flops: 0.0 }
    }

    #[test]
    fn a_shift_takes_as_long_as_it_outlasts_the_kernels_that_overlap_with_it() {
        let cluster = Cluster::from_toml(named("h100-80g-dgx").expect("a profile")).expect("a cluster");
        let work = two_blocks(Kernel::Memory { bytes: 1e6 });
        let one = busy_ns(&cluster, &work.kernels[..1]);
        for (shift_ns, expected) in [
            (one as u64, 4.0 * one + one.trunc()),
            // The first is longer than the two kernels of its time by three.
            (5 * one as u64, 4.0 * one + (5 * one as u64) as f64 - 2.0 * one + (5 * one as u64) as f64),
        ] {
            let ns = overlapped_ns(&cluster, &work, &|_| shift_ns);
            assert!((ns - expected).abs() < 1e-6 * expected, "{ns} ns, not {expected}");
        }
    }
}
