//! One request of a read, and the pause before the next: what is common to all kinds of reads.

use std::sync::Arc;

use tokio::time::timeout_at;

use crate::error::Result;

use super::attempt::Ask;
use super::failure::{Condition, Failure, Tries};
use super::hedge::Sending;
use super::opened::Opened;
use super::room::Room;

/// One request, in a slot of its own; what can't be asked is refused without one.
pub(super) async fn request(
    room: &Room,
    ask: &Ask,
    tries: &mut Tries<'_>,
) -> Result<std::result::Result<Opened, Failure>> {
    let store = room.store(&ask.object).map_err(|failure| tries.refused(failure))?;
    let traffic = room.traffic(&ask.object);
    let urgency = tries.urgency();
    let coming = tries.coming();
    let slot = match tries.begun() {
        None => traffic.slot(urgency, coming).await?,
        Some(until) => {
            let traffic = Arc::clone(&traffic);
            let slot = async move { timeout_at(until, traffic.slot(urgency, coming)).await };
            match room.there(slot).await? {
                Ok(slot) => slot?,
                Err(_) => return Ok(Err(Failure::transient("there was no time for another try"))),
            }
        }
    };
    let (metrics, limits) = (Arc::clone(&room.metrics), room.limits(tries));
    let (ask, hedged) = (ask.clone(), room.hedged);
    let sending = Sending { store, traffic, metrics, ask, urgency, limits, hedged };
    room.there(sending.send(slot)).await
}

/// Waits before another attempt, or ends the read.
pub(super) async fn pause(room: &Room, tries: &mut Tries<'_>, failure: Failure) -> Result<()> {
    let condition = room.traffic(tries.object()).condition_after(&failure);
    if condition == Condition::Failing {
        room.metrics.fetch.postponed.add(1);
    }
    let cause = failure.cause;
    let delay = tries.failed(failure, condition, room.chance.share())?;
    room.metrics.fetch.retried(cause);
    room.lateness.note(tries.took() + delay);
    room.there(async move { tokio::time::sleep(delay).await }).await
}
