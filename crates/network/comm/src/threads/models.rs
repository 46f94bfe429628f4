//! Models of the inbox, of tickets and of the pool: every order of threads that shuttle draws delivers each message
//! once, ends each wait and leaves lent memory alone afterwards. A lost wake is a deadlock, which shuttle reports with
//! its schedule.
//!
//! ```text
//! tools/check-threads.sh models
//! ```

use super::inbox::{Envelope, Inbox, Liveness, Payload};
use super::pool::Pool;
use super::remote::Polling;
use super::shared_memory::{Ticket, lending};
use crate::operation::Operation;
use crate::tag::{ChannelId, Tag};
use mesh::{AxisSet, Rank};
use std::sync::Arc;
use std::time::Duration;
use sync::shuttle::{check_pct, check_random};
use sync::thread;

/// Orders that are drawn for each model, at random and with few changes of the thread.
const ORDERS: usize = 5000;
/// Longer than any model.
const WAIT: Duration = Duration::from_secs(600);

/// Runs a model in both ways of drawing.
fn model(run: fn()) {
    check_random(run, ORDERS);
    check_pct(run, ORDERS, 3);
}

/// A world in which nobody fails or leaves.
struct Whole;

impl Liveness for Whole {
    fn has_failed(&self) -> bool {
        false
    }

    fn has_left(&self, _rank: Rank) -> bool {
        false
    }
}

/// The tag of a number.
fn tag(number: u64) -> Tag {
    Tag { channel: ChannelId::new(AxisSet::NONE, 0), number }
}

fn envelope(tag: Tag, payload: Payload) -> Envelope {
    Envelope { tag, operation: Operation::PointToPoint, payload }
}

/// Takes a message of `tag` from each of `from`; the first byte of each.
fn take(inbox: &Inbox, from: &[Rank], tag: Tag) -> Vec<u8> {
    let mut taken = Vec::new();
    assert!(inbox.take(from, tag, (WAIT, &mut Polling::new(None)), &Whole, &mut taken).is_ok());
    taken.iter().map(|envelope| envelope.payload.bytes()[0]).collect()
}

#[test]
fn every_message_is_taken_once_in_the_order_of_its_sender() {
    model(|| {
        let inbox = Arc::new(Inbox::new(3));
        let senders: Vec<_> = [1u8, 2]
            .into_iter()
            .map(|rank| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    let pool = Pool::default();
                    for (number, tag) in [(0, tag(7)), (1, tag(8)), (2, tag(7))] {
                        let payload = Payload::Copied(pool.copy(&[10 * rank + number]));
                        assert!(inbox.deliver(Rank(rank.into()), envelope(tag, payload)).is_ok());
                    }
                })
            })
            .collect();
        let both = [Rank(1), Rank(2)];
        assert_eq!(take(&inbox, &both, tag(8)), [11, 21]);
        assert_eq!(take(&inbox, &both, tag(7)), [10, 20]);
        assert_eq!(take(&inbox, &both, tag(7)), [12, 22]);
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn lent_memory_is_free_when_the_scope_has_ended() {
    model(|| {
        let own = Arc::new(Inbox::new(3));
        let readers: Vec<_> = (0..2).map(|_| Arc::new(Inbox::new(3))).collect();
        let threads: Vec<_> = readers
            .iter()
            .map(|inbox| {
                let inbox = Arc::clone(inbox);
                thread::spawn(move || assert_eq!(take(&inbox, &[Rank(0)], tag(1)), [5]))
            })
            .collect();
        let ticket = Ticket::new(Arc::clone(&own));
        let mut bytes = vec![5u8];
        lending(
            Arc::clone(&ticket),
            |_| unreachable!("all are read"),
            |scope| {
                for inbox in &readers {
                    let payload = Payload::BorrowedBytes(scope.lend(&bytes));
                    assert!(inbox.deliver(Rank(0), envelope(tag(1), payload)).is_ok());
                }
                assert!(own.complete(scope.ticket(), (WAIT, &mut Polling::new(None)), &Whole).is_ok());
            },
        );
        // A reader that still read would see this.
        bytes[0] = 9;
        threads.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_receiver_that_leaves_frees_what_was_lent_to_it() {
    model(|| {
        let own = Arc::new(Inbox::new(2));
        let peer = Arc::new(Inbox::new(2));
        let leaving = {
            let peer = Arc::clone(&peer);
            thread::spawn(move || peer.close())
        };
        let ticket = Ticket::new(Arc::clone(&own));
        let bytes = vec![5u8];
        let delivered = lending(
            Arc::clone(&ticket),
            |_| (),
            |scope| {
                let payload = Payload::BorrowedBytes(scope.lend(&bytes));
                let delivered = peer.deliver(Rank(0), envelope(tag(1), payload)).is_ok();
                assert!(own.complete(scope.ticket(), (WAIT, &mut Polling::new(None)), &Whole).is_ok());
                delivered
            },
        );
        leaving.join().unwrap();
        assert_eq!(ticket.take_lost(), delivered, "lost where it was delivered, refused where it was not");
    });
}

#[test]
fn a_buffer_of_the_pool_is_used_again_only_when_nobody_reads_it() {
    model(|| {
        let inbox = Arc::new(Inbox::new(2));
        let reader = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || (0..3).map(|_| take(&inbox, &[Rank(0)], tag(1))[0]).collect::<Vec<_>>())
        };
        let pool = Pool::default();
        for number in 0..3 {
            let payload = Payload::Copied(pool.copy(&[number]));
            assert!(inbox.deliver(Rank(0), envelope(tag(1), payload)).is_ok());
        }
        assert_eq!(reader.join().unwrap(), [0, 1, 2]);
    });
}

/// A world that fails while its ranks wait.
struct Failing(sync::atomic::AtomicBool);

impl Liveness for Failing {
    fn has_failed(&self) -> bool {
        self.0.load(sync::atomic::Ordering::Acquire)
    }

    fn has_left(&self, _rank: Rank) -> bool {
        false
    }
}

#[test]
fn a_failure_ends_a_wait_in_every_order() {
    model(|| {
        let (inbox, world) = (Arc::new(Inbox::new(2)), Arc::new(Failing(sync::atomic::AtomicBool::new(false))));
        let failing = {
            let (inbox, world) = (Arc::clone(&inbox), Arc::clone(&world));
            thread::spawn(move || {
                world.0.store(true, sync::atomic::Ordering::Release);
                inbox.wake();
            })
        };
        let waited = inbox.take(&[Rank(1)], tag(1), (WAIT, &mut Polling::new(None)), &*world, &mut Vec::new());
        assert!(waited.is_err());
        failing.join().unwrap();
    });
}
