//! The launches of one GPU.
//!
//! A communicator that does not block launches on a thread of its own: its call returns at once, "in progress", and its
//! work comes to the stream a random while later. Until then no other call may be launched on the GPU: NVIDIA calls it
//! unsafe to issue operations of independent communicators on one device in parallel.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpu::StreamHandle;
use softgpu::HostWork;
use sync::lock;

use super::collective::Call;
use super::member::{Member, Refusal, Reserved};
use super::wire::FromRank;

/// The longest time until a call has been launched.
const LONGEST: u64 = 80;

/// Collectives of each communicator that a GPU has launched, by the communicator's key.
pub type Counts = BTreeMap<u64, u64>;

/// The launches of one GPU.
#[derive(Debug)]
pub struct Launches {
    inside: Mutex<Inside>,
}

#[derive(Debug)]
struct Inside {
    is_launching: bool,
    counts: Counts,
    random: u64,
}

impl Launches {
    /// None so far. Times are drawn by `seed`.
    pub fn new(seed: u64) -> Launches {
        Launches { inside: Mutex::new(Inside { is_launching: false, counts: Counts::new(), random: seed }) }
    }

    /// Begins a launch; how long it takes.
    fn begin(&self) -> Option<Duration> {
        let mut inside = lock(&self.inside);
        if std::mem::replace(&mut inside.is_launching, true) {
            return None;
        }
        inside.random = inside.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        Some(Duration::from_micros((inside.random >> 33) % LONGEST))
    }

    fn end(&self) {
        lock(&self.inside).is_launching = false;
    }

    /// The GPU is in a communicator.
    pub fn enter(&self, key: u64) {
        lock(&self.inside).counts.insert(key, 0);
    }

    /// Counts a collective of a communicator; the counts before it.
    pub fn count(&self, key: u64) -> Counts {
        let mut inside = lock(&self.inside);
        let before = inside.counts.clone();
        *inside.counts.entry(key).or_default() += 1;
        before
    }
}

/// A call with its stream.
#[derive(Debug)]
pub struct Submission {
    /// Whose call.
    pub member: Arc<Member>,
    /// The name of the function.
    pub name: &'static str,
    /// The request.
    pub call: Call,
    pub stream: StreamHandle,
}

/// Launches calls together, on another thread: none of them waits for the end of another one.
///
/// # Errors
/// A communicator that has not met or has failed, one whose last call is in progress, and a GPU that launches a call.
pub fn launch(submissions: Vec<Submission>) -> Result<(), Refusal> {
    let Some(first) = submissions.first() else { return Ok(()) };
    let member = Arc::clone(&first.member);
    let _in_call = member.enter();
    let launches = Arc::clone(member.launches());
    let Some(takes) = launches.begin() else {
        let text = "a call is launched on the GPU while another one is in progress";
        submissions.iter().for_each(|submission| submission.member.misuse(text));
        return Err(Refusal::Misused);
    };
    let ready = || submissions.iter().try_for_each(|submission| submission.member.may_call());
    let reserve = || submissions.iter().map(|submission| submission.member.reserve(&submission.call)).collect();
    let reserved: Result<Vec<Reserved>, Refusal> = ready().and_then(|()| reserve());
    let reserved = reserved.inspect_err(|_| launches.end())?;
    let own = Arc::clone(&launches);
    let launched = std::thread::Builder::new().name("nccl launch".into()).spawn(move || {
        std::thread::sleep(takes);
        let submitted = submit(&submissions, reserved);
        own.end();
        for Submission { member, .. } in &submissions {
            member.end_progress(submitted.as_ref().err());
        }
    });
    launched.map(|_| ()).map_err(|_| Refusal::Threads)
}

fn submit(submissions: &[Submission], reserved: Vec<Reserved>) -> Result<(), Refusal> {
    let mut running = vec![];
    for (Submission { member, name, call, stream }, reserved) in submissions.iter().zip(reserved) {
        let Reserved { ticket, number, promise, result, launched } = reserved;
        member.connect(call)?;
        let gpu = member.gpu();
        let [read, written] = call.request.bytes(member.ranks());
        let (own, request, after) = (Arc::clone(member), call.request, gpu.promise()?);
        let send = move |read: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let bytes = read.first().cloned().unwrap_or_default();
            let (known, launched) = (own.reads(after), launched.clone());
            own.tell(&FromRank::Call { ticket, number, request, known, launched, bytes });
            vec![]
        };
        let reads = if read > 0 { vec![(call.from, read)] } else { vec![] };
        let work = HostWork { call: name, reads, writes: vec![], compute: Box::new(send) };
        gpu.submit_host_work(*stream, work)?;
        gpu.keep_promise(after, *stream)?;
        running.push((gpu, *stream, promise, (*name, call.to, written), result));
    }
    for (gpu, stream, promise, (call, to, written), result) in running {
        // Nothing is written where the call has come to nothing.
        let write = move |_: &[Vec<u8>]| -> Vec<Vec<u8>> {
            let bytes = std::mem::take(&mut *lock(&result));
            if bytes.len() == written { vec![bytes] } else { vec![] }
        };
        let work = HostWork { call, reads: vec![], writes: vec![(to, written)], compute: Box::new(write) };
        gpu.submit_remote(stream, promise, (written > 0).then_some(work))?;
    }
    Ok(())
}
