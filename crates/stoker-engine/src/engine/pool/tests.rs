use futures::FutureExt;

use super::*;

const MIB: usize = 1 << 20;

fn pool(limit: usize) -> Arc<Pool> {
    let patience = Duration::from_millis(20);
    Arc::new(Pool { limit, patience, metrics: Arc::default(), state: Mutex::default() })
}

/// Polls once: granted now, or not yet.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn memory_is_reused_and_stays_under_the_limit() {
    let metrics = Arc::<Metrics>::default();
    let pool = Pool::new(64 * MIB, Arc::clone(&metrics));
    let mut starts = Vec::new();
    for order in 0..10 {
        let draft = pool.take_now(order, 8 * MIB).unwrap().draft(8 * MIB).unwrap();
        let (mut slots, seal) = draft.split(std::slice::from_ref(&(0..8 * MIB)));
        slots[0].fill(order as u8);
        drop(slots);
        let lease = seal.lease();
        assert!(lease.iter().all(|&byte| byte == order as u8));
        starts.push(lease.as_ptr() as usize);
    }
    starts.dedup();
    assert_eq!(starts.len(), 1, "one block serves all batches in turn");
    assert_eq!(metrics.arena_bytes.peak(), 10 * MIB as u64);
    assert_eq!(metrics.leased_bytes.get(), 0);
    drop(pool);
    assert_eq!(metrics.arena_bytes.get(), 0);
}

#[test]
fn a_batch_over_half_of_the_memory_is_refused_by_name() {
    let error = pool(64 * MIB).take_now(0, 33 * MIB).unwrap_err().to_string();
    assert!(error.contains("a batch needs 33.0 MiB"), "{error}");
    assert!(error.contains("engine.memory"), "{error}");
}

#[test]
fn a_later_batch_leaves_room_for_the_earlier_ones() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let _first = pool.expect(0);
        let late = now(pool.take(1, 16 * MIB, || true)).expect("two of this size fit").unwrap();
        assert!(now(pool.take(2, 16 * MIB, || true)).is_none(), "room is kept for batch 0");
        let early = now(pool.take(0, 16 * MIB, || true)).expect("batch 0 has its room").unwrap();
        drop((late, early));
    });
}

#[test]
fn the_earliest_batch_is_never_locked_up_by_later_ones() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let _first = pool.expect(0);
        let _late = now(pool.take(1, 16 * MIB, || true)).unwrap().unwrap();
        let _later = now(pool.take(2, 2 * MIB, || true)).unwrap().unwrap();
        now(pool.take(0, 20 * MIB, || true)).expect("over the limit, rather than never").unwrap();
    });
}

#[test]
fn a_trainer_that_keeps_everything_is_told_so() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let mut kept = Vec::new();
        for order in 0..2 {
            let mut held = pool.take(order, 16 * MIB, || true).await.unwrap();
            held.hand_over();
            kept.push(held);
        }
        let error = pool.take(2, 16 * MIB, || true).await.unwrap_err().to_string();
        assert!(error.contains("the trainer still holds batches of 36.0 MiB"), "{error}");
        kept.pop();
        pool.take(2, 16 * MIB, || true).await.expect("there is room after one is dropped");
    });
}

#[test]
fn a_trainer_that_is_busy_may_hold_everything() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let mut kept = Vec::new();
        for order in 0..2 {
            let mut held = pool.take(order, 16 * MIB, || true).await.unwrap();
            held.hand_over();
            kept.push(held);
        }
        let next = pool.take(2, 16 * MIB, || false);
        let waits = tokio::time::timeout(5 * pool.patience, next).await;
        assert!(waits.is_err(), "it waits until it is asked for: {waits:?}");
    });
}

#[test]
fn a_closed_pool_keeps_nothing() {
    let pool = pool(64 * MIB);
    let block = |order| pool.take_now(order, 8 * MIB).unwrap().draft(8 * MIB).unwrap();
    let (kept, idle) = (block(0), block(1));
    drop(idle);
    pool.close();
    let arena = &pool.metrics.arena_bytes;
    assert_eq!(arena.get(), pool.metrics.leased_bytes.get());
    drop(kept);
    assert_eq!(arena.get(), 0);
}

#[test]
fn one_who_stops_waiting_gives_everything_back() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let held = pool.take(0, 20 * MIB, || true).await.unwrap();
        let held_too = pool.take(1, 20 * MIB, || true).await.unwrap();
        assert!(now(pool.take(2, 20 * MIB, || true)).is_none());
        drop((held, held_too));
        let state = pool.lock();
        assert_eq!((state.leased(), state.waiting.len(), state.expected.len()), (0, 0, 0));
    });
}

#[test]
fn a_batch_that_is_given_up_keeps_no_room() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let first = pool.expect(0);
        let _one = now(pool.take(1, 16 * MIB, || true)).expect("two of this size fit").unwrap();
        let mut later = Box::pin(pool.take(2, 16 * MIB, || true));
        assert!(now(later.as_mut()).is_none(), "room is kept for batch 0");
        drop(first);
        now(later.as_mut()).expect("nobody else needs the room").unwrap();
    });
}

#[test]
fn an_earlier_batch_may_come_later() {
    runtime().block_on(async {
        let pool = pool(40 * MIB);
        let held = now(pool.take(7, 20 * MIB, || true)).unwrap().unwrap();
        let _held_too = now(pool.take(9, 16 * MIB, || true)).unwrap().unwrap();
        let _first = pool.expect(3);
        let mut later = Box::pin(pool.take(8, 16 * MIB, || true));
        assert!(now(later.as_mut()).is_none());
        drop(held);
        assert!(now(later.as_mut()).is_none(), "the room is kept for batch 3");
        now(pool.take(3, 16 * MIB, || true)).expect("which has it").unwrap();
    });
}

#[test]
#[should_panic(expected = "slots are disjoint parts of the block")]
fn overlapping_slots_are_refused() {
    let draft = pool(64 * MIB).take_now(0, MIB).unwrap().draft(MIB).unwrap();
    drop(draft.split(&[0..100, 99..200]));
}

/// A trainer holds one batch while it asks for the next.
#[test]
fn two_batches_of_the_largest_size_always_have_room() {
    runtime().block_on(async {
        for bytes in (1..=20).map(|mib| mib * MIB) {
            let pool = pool(40 * MIB);
            let first = now(pool.take(0, bytes, || true)).expect("room for one").unwrap();
            let second = now(pool.take(1, bytes, || true)).expect("room for another").unwrap();
            drop((first, second));
        }
    });
}

/// Notes the addresses of what it takes over, and keeps it mapped.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<crate::engine::Mapping>>>);

impl crate::engine::Keeper for Notes {
    fn take_over(self: Box<Self>, mapping: crate::engine::Mapping) {
        self.0.lock().unwrap().push(mapping);
    }
}

impl Notes {
    fn addresses(&self) -> Vec<usize> {
        self.0.lock().unwrap().iter().map(crate::engine::Mapping::address).collect()
    }
}

fn lease(pool: &Arc<Pool>, batch: u64, bytes: usize) -> crate::engine::Lease {
    let draft = pool.take_now(batch, bytes).unwrap().draft(bytes).unwrap();
    let (slots, seal) = draft.split(std::slice::from_ref(&(0..bytes)));
    drop(slots);
    seal.lease()
}

#[test]
fn a_keeper_gets_a_block_once_when_it_makes_room_and_not_when_it_is_used_again() {
    let (pool, notes) = (pool(64 * MIB), Notes::default());
    let first = lease(&pool, 0, 8 * MIB);
    let (address, length) = first.block().unwrap();
    assert_eq!((address, length), (first.as_ptr().addr(), 10 * MIB));
    assert!(first.keep(Box::new(notes.clone())));
    assert!(!first.keep(Box::new(notes.clone())), "it has one");
    drop(first);
    let again = lease(&pool, 1, 8 * MIB);
    assert_eq!(again.block().unwrap().0, address, "the block is used again");
    assert!(!again.keep(Box::new(notes.clone())), "its keeper stays with it");
    drop(again);
    assert!(notes.addresses().is_empty());
    drop(lease(&pool, 2, 32 * MIB));
    drop(lease(&pool, 3, 30 * MIB));
    drop(pool);
    assert_eq!(notes.addresses(), [address]);
}

#[test]
fn a_keeper_gets_what_was_idle_when_the_pool_closes_and_the_rest_as_it_comes_back() {
    let (pool, notes) = (pool(64 * MIB), Notes::default());
    let leases = [0, 1, 2].map(|batch| lease(&pool, batch, 8 * MIB));
    let addresses = leases.each_ref().map(|lease| lease.block().unwrap().0);
    let [idle, held, unkept] = leases;
    assert!(idle.keep(Box::new(notes.clone())));
    assert!(held.keep(Box::new(notes.clone())));
    drop(idle);
    pool.close();
    drop(pool);
    assert_eq!(notes.addresses(), addresses[..1]);
    drop(held);
    drop(unkept);
    assert_eq!(notes.addresses(), addresses[..2]);
}
