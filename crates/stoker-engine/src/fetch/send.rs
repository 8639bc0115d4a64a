//! A request as often as it takes for reasons that are no fault of the store or the way: with new
//! credentials where it says that ours have ended, and elsewhere where it says that the bucket is in
//! another region or the object at another address. None of it counts as an attempt, and each is done
//! a limited number of times.

use std::sync::Arc;

use object_store::client::{HttpRequest, HttpResponse};
use reqwest::Method;
use reqwest::header::{HeaderValue, RANGE};

use crate::metrics::Cause;

use super::failure::{Again, Failure};
use super::flight::InFlight;
use super::refusal::Refusal;
use super::s3::Place;
use super::store::Remote;
use super::traffic::Size;

/// How often one request may be signed anew: credentials may end while it is on its way, and again.
const SIGNATURES: u32 = 3;

/// Sends what `make` makes for a place; the answer is a good one.
pub(super) async fn send(
    remote: &Remote,
    in_flight: &InFlight,
    size: Size,
    make: impl Fn(&Place) -> Result<HttpRequest, Failure>,
) -> Result<HttpResponse, Failure> {
    let (mut signatures, mut moved, mut led) = (1, false, None);
    loop {
        let place = led.clone().unwrap_or_else(|| remote.place());
        let mut request = make(&place)?;
        let address = request.uri().to_string();
        let number = sign(remote, &mut request, &place).await?;
        let heading = (request.method() == Method::HEAD).then(|| make(&place)).transpose()?;
        let mut refused = match in_flight.exchange(remote, request, size).await? {
            Ok(answer) => return Ok(answer),
            Err(refused) => refused,
        };
        // An answer to HEAD has no words. Those of the same question as GET say why; or that is
        // answered, and tells the same.
        if let Some(mut request) = heading
            && refused.is_wordless()
        {
            *request.method_mut() = Method::GET;
            request.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
            sign(remote, &mut request, &place).await?;
            match in_flight.exchange(remote, request, size).await? {
                Ok(answer) => {
                    in_flight.repeats(refused.failure.cause);
                    return Ok(answer);
                }
                // An object without a first byte: that is no news.
                Err(worded) if worded.failure.status == Some(416) => {}
                Err(mut worded) => {
                    worded.region = refused.region.or(worded.region);
                    refused = worded;
                }
            }
        }
        if let (true, Some(number)) = (refused.ended, number)
            && signatures < SIGNATURES
        {
            signatures += 1;
            remote.refused(number, &refused.failure);
            in_flight.repeats(Cause::Credentials);
            continue;
        }
        if let Some(region) = refused.region.as_deref()
            && !moved
            && remote.move_to(&place, region)?
        {
            moved = true;
        } else if let Some(to) = refused.location.as_deref()
            && led.is_none()
            && let Some(there) = place.led(&address, to)
        {
            // For this request alone: the next one asks again.
            led = Some(Arc::new(there));
        } else {
            return Err(contradicted(refused, &place));
        }
        in_flight.repeats(Cause::Redirected);
    }
}

async fn sign(
    remote: &Remote,
    request: &mut HttpRequest,
    place: &Place,
) -> Result<Option<u64>, Failure> {
    let signed = remote.sign(request, place).await;
    signed.map_err(|failure| failure.because(Cause::Credentials))
}

/// A store that says that the bucket is in the region where it was asked knows better soon: it does so
/// while a bucket is new, or moved.
fn contradicted(refused: Refusal, place: &Place) -> Failure {
    match &refused.region {
        Some(region) if *region == place.region && refused.failure.cause == Cause::Redirected => {
            let hint = format!("it was asked in {region} already: check fetch.endpoint");
            Failure { again: Again::Soon, ..refused.failure }.hint(hint)
        }
        _ => refused.failure,
    }
}
