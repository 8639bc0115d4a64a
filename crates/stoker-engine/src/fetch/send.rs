//! A request as often as it takes for reasons that are no fault of the store or the way: with new
//! credentials where it says that ours have ended, and in another region where it says that the
//! bucket is there. Neither counts as an attempt, and each is done a limited number of times.

use object_store::client::{HttpRequest, HttpResponse};
use reqwest::Method;
use reqwest::header::{HeaderValue, RANGE};

use super::failure::Failure;
use super::in_flight::InFlight;
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
    let (mut signatures, mut moved) = (1, false);
    loop {
        let place = remote.place();
        let mut request = make(&place)?;
        let number = remote.sign(&mut request, &place).await?;
        let heading = (request.method() == Method::HEAD).then(|| make(&place)).transpose()?;
        let mut refused = match in_flight.exchange(remote, request, size).await? {
            Ok(answer) => return Ok(answer),
            Err(refused) => refused,
        };
        // An answer to HEAD has no words. Those of the same question as GET say why.
        if let Some(mut request) = heading
            && refused.is_wordless()
        {
            *request.method_mut() = Method::GET;
            request.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
            remote.sign(&mut request, &place).await?;
            in_flight.again();
            if let Err(mut worded) = in_flight.exchange(remote, request, size).await? {
                worded.region = refused.region.or(worded.region);
                refused = worded;
            }
        }
        if let (true, Some(number)) = (refused.ended, number)
            && signatures < SIGNATURES
        {
            signatures += 1;
            remote.refused(number, &refused.failure);
        } else if let Some(region) = refused.region.as_deref()
            && !moved
            && remote.move_to(&place, region)?
        {
            moved = true;
        } else {
            return Err(refused.failure);
        }
        in_flight.again();
    }
}
