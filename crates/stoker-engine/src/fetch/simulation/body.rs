//! A body as the store sends it: in time, and as whatever befalls it has it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::client::{HttpError, HttpErrorKind};
use tokio::time::{Duration, Sleep, sleep};

use super::store::{Fault, Open, error};
use crate::fetch::random::Chance;

/// What it does next.
enum Step {
    Wait(Duration),
    Send(Bytes),
    Fail,
    Hang,
}

/// The body of an answer; the store is busy with its request as long as it lives.
pub(super) struct SimBody {
    steps: VecDeque<Step>,
    sleep: Option<Pin<Box<Sleep>>>,
    _open: Open,
}

impl SimBody {
    const CHUNK: usize = 256 << 10;

    /// These bytes, so many a second, and what befalls them.
    pub(super) fn new(
        bytes: &Bytes,
        rate: f64,
        fault: Option<Fault>,
        chance: &Chance,
        open: Open,
    ) -> Self {
        let cut = (chance.share() * bytes.len() as f64) as usize;
        let mut steps = VecDeque::new();
        let mut send = |bytes: Bytes, rate: f64, chunk: usize| {
            for from in (0..bytes.len()).step_by(chunk) {
                let part = bytes.slice(from..bytes.len().min(from + chunk));
                steps.push_back(Step::Wait(Duration::from_secs_f64(part.len() as f64 / rate)));
                steps.push_back(Step::Send(part));
            }
        };
        match fault {
            Some(Fault::ResetBody | Fault::ShortBody | Fault::Stall | Fault::Untold) => {
                send(bytes.slice(..cut), rate, Self::CHUNK);
            }
            Some(Fault::Pause) => {
                send(bytes.slice(..cut), rate, Self::CHUNK);
                send(bytes.slice(cut..=cut), 0.25, 1);
                send(bytes.slice(cut + 1..), rate, Self::CHUNK);
            }
            Some(Fault::Drip) => {
                send(bytes.slice(..cut), rate, Self::CHUNK);
                send(bytes.slice(cut..), 100_000.0, 10_000);
            }
            Some(Fault::Trickle) => send(bytes.clone(), 5.0, 10),
            _ => send(bytes.clone(), rate, Self::CHUNK),
        }
        match fault {
            Some(Fault::ResetBody) => steps.push_back(Step::Fail),
            Some(Fault::Stall) => steps.push_back(Step::Hang),
            Some(Fault::LongBody) => steps.push_back(Step::Send(Bytes::from_static(b"more"))),
            _ => {}
        }
        Self { steps, sleep: None, _open: open }
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                std::task::ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            match self.steps.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Wait(time)) => self.sleep = Some(Box::pin(sleep(time))),
                Some(Step::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Step::Fail) => {
                    return Poll::Ready(Some(Err(error(HttpErrorKind::Interrupted))));
                }
                Some(Step::Hang) => {
                    self.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
            }
        }
    }
}
