//! The queue against a model of it that sorts a list.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

/// Limits of the lanes at first.
const LANES: [usize; 3] = [2, 3, 100];

type Taking = Pin<Box<dyn Future<Output = Result<Slot>>>>;

/// One read: waiting, or with its slot.
struct Read {
    number: u64,
    lane: Lane,
    taking: Option<Taking>,
    slot: Option<Slot>,
}

impl Read {
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(taking) = &mut self.taking
            && let Poll::Ready(slot) = taking.as_mut().poll(&mut context)
        {
            self.slot = Some(slot.unwrap());
            self.taking = None;
        }
    }
}

/// What is done to the queue.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        lane: Lane,
        batch: u64,
        part: u64,
        coming: Coming,
    },
    /// Ends one of the reads: gives back its slot, or gives up.
    End(prop::sample::Index),
    /// The same without a look at the others in between, so that a slot may be on its way.
    EndTwo(prop::sample::Index, prop::sample::Index),
    Allow {
        lane: Lane,
        limit: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let lane = 0_u64..3;
    let coming = prop_oneof![1 => Just(Coming::Again), 3 => Just(Coming::Anew)];
    prop_oneof![
        4 => (lane.clone(), 0_u64..6, 0_u64..3, coming)
            .prop_map(|(lane, batch, part, coming)| Step::Ask { lane, batch, part, coming }),
        3 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => any::<(prop::sample::Index, prop::sample::Index)>()
            .prop_map(|(one, other)| Step::EndTwo(one, other)),
        1 => (lane, 1_usize..6).prop_map(|(lane, limit)| Step::Allow { lane, limit }),
    ]
}

/// The model: reads in the order of need, those with slots apart.
#[derive(Default)]
struct Model {
    limits: [usize; 3],
    holding: Vec<(u64, Lane)>,
    waiting: Vec<(Urgency, Coming, u64, Lane)>,
}

impl Model {
    fn settle(&mut self, limit: usize) {
        self.waiting.sort_unstable();
        while self.holding.len() < limit {
            let held = |lane| self.holding.iter().filter(|(_, other)| *other == lane).count();
            let free = |lane: Lane| held(lane) < self.limits[lane as usize];
            let Some(next) = self.waiting.iter().position(|waiting| free(waiting.3)) else { break };
            let (.., number, lane) = self.waiting.remove(next);
            self.holding.push((number, lane));
        }
    }

    fn end(&mut self, number: u64) {
        self.holding.retain(|held| held.0 != number);
        self.waiting.retain(|waiting| waiting.2 != number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn slots_go_to_whom_a_sorted_list_gives_them(
        limit in 1_usize..6,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let metrics = Arc::<Metrics>::default();
        let slots = Slots::new(limit, Arc::clone(&metrics));
        let mut model = Model { limits: LANES, ..Model::default() };
        let mut reads: Vec<Read> = Vec::new();
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Ask { lane, batch, part, coming } => {
                    let (slots, urgency) = (Arc::clone(&slots), Urgency { batch, part });
                    let allowed = model.limits[lane as usize];
                    let taking: Taking =
                        Box::pin(async move { slots.take(lane, allowed, urgency, coming).await });
                    let mut read = Read { number, lane, taking: Some(taking), slot: None };
                    read.poll();
                    model.waiting.push((urgency, coming, number, lane));
                    reads.push(read);
                }
                Step::End(which) if !reads.is_empty() => {
                    let read = reads.remove(which.index(reads.len()));
                    model.end(read.number);
                }
                Step::EndTwo(one, other) if reads.len() >= 2 => {
                    let one = reads.remove(one.index(reads.len()));
                    let other = reads.remove(other.index(reads.len()));
                    model.end(one.number);
                    drop(one);
                    model.settle(limit);
                    model.end(other.number);
                    drop(other);
                }
                Step::Allow { lane, limit } => {
                    slots.allow(lane, limit);
                    model.limits[lane as usize] = limit;
                }
                _ => {}
            }
            model.settle(limit);
            reads.iter_mut().for_each(Read::poll);
            let mut held: Vec<_> = reads.iter().filter(|read| read.slot.is_some())
                .map(|read| (read.number, read.lane)).collect();
            held.sort_unstable();
            model.holding.sort_unstable();
            prop_assert_eq!(held, model.holding.clone());
            prop_assert_eq!(metrics.fetch.queued.get() as usize, model.waiting.len());
        }
        // Nothing is lost: whoever is left is served once those before it are done.
        while let Some(at) = reads.iter().position(|read| read.slot.is_some()) {
            reads.remove(at);
            reads.iter_mut().for_each(Read::poll);
        }
        prop_assert!(reads.is_empty(), "{} wait for ever", reads.len());
        prop_assert_eq!(metrics.fetch.queued.get(), 0);
        prop_assert!(slots.lock().lanes.is_empty());
    }
}

#[test]
fn closing_ends_those_who_wait_and_those_who_come() {
    let metrics = Arc::<Metrics>::default();
    let slots = Slots::new(1, Arc::clone(&metrics));
    let mut context = Context::from_waker(Waker::noop());
    let mut held = Box::pin(slots.take(0, 1, Urgency::NOW, Coming::Anew));
    let Poll::Ready(Ok(slot)) = held.as_mut().poll(&mut context) else { panic!("it is free") };
    let mut waiting = Box::pin(slots.take(0, 1, Urgency::NOW, Coming::Anew));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    slots.close();
    assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Err(Error::Stopped))));
    let mut late = Box::pin(slots.take(0, 1, Urgency::NOW, Coming::Anew));
    assert!(matches!(late.as_mut().poll(&mut context), Poll::Ready(Err(Error::Stopped))));
    drop(slot);
    assert_eq!(metrics.fetch.queued.get(), 0);
}
