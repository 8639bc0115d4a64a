//! One connection: its requests meet their faults here, above the socket and below the store.
//!
//! A connection that is to be reset is one whose socket is closed with nothing of the usual
//! farewell. hyper gives the socket back when it has given up for an error of ours; a zero linger
//! time then makes its close a reset.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::service::S3Service;
use s3s::{Body, StdError};
use tokio::net::TcpStream;

use super::answer::{answer, slow_down};
use super::damage::damage;
use super::injector::Injector;
use super::request::{Asked, Meeting};
use super::rule::Fault;
use super::script::Script;

/// How long nobody listens, where a script does not say it.
const REFUSAL: Duration = Duration::from_millis(500);

/// Whether the connection is to be reset when it breaks.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaking(Arc<AtomicBool>);

impl Breaking {
    /// Has it end that way, by the error that is returned.
    pub(super) fn set(&self, reset: bool) -> io::Error {
        self.0.store(reset, Ordering::Relaxed);
        io::Error::other("the script has the connection end here")
    }
}

/// Serves a connection until it ends; `count` is called for each request.
pub(crate) async fn connection(
    stream: TcpStream,
    service: S3Service,
    script: Arc<Script>,
    count: impl Fn() + Send + Sync,
) {
    stream.set_nodelay(true).unwrap_or_default();
    let (breaking, requests) = (Breaking::default(), AtomicU64::new(0));
    let idle = script.injector().faults().idle;
    let service = service_fn(|request: Request<Incoming>| -> BoxFuture<'static, _> {
        count();
        let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
        let (service, script, breaking) = (service.clone(), Arc::clone(&script), breaking.clone());
        async move {
            let injector = script.injector();
            let mut answer = meet(request, &service, (&script, &injector), &breaking).await?;
            if injector.faults().requests_per_connection.is_some_and(|most| number >= most) {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                injector.count("close-after");
            }
            Ok::<_, io::Error>(answer)
        }
        .boxed()
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new());
    if let Some(idle) = idle {
        builder.header_read_timeout(idle);
    }
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let ended = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    // A client that hangs up is its own affair.
    if ended.is_err_and(|error| error.is_timeout()) {
        script.injector().count("idle-close");
    }
    let stream = connection.into_parts().io.into_inner();
    if breaking.0.load(Ordering::Relaxed) {
        stream.set_zero_linger().unwrap_or_default();
    }
}

/// Answers a request with what it meets.
async fn meet(
    request: Request<Incoming>,
    service: &S3Service,
    (script, injector): (&Script, &Arc<Injector>),
    breaking: &Breaking,
) -> io::Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let asked = Asked::of(&head);
    if !injector.admits(&asked.path) {
        injector.count("slow-down");
        return Ok(slow_down());
    }
    let fault = injector.decide(&asked);
    let breaks = match &fault {
        Some(Fault::Refuse { lasts }) => {
            script.refuse(lasts.unwrap_or(REFUSAL)).await;
            Some(false)
        }
        Some(Fault::Reset { at: None }) => Some(true),
        Some(Fault::HangUp { at: None }) => Some(false),
        _ => None,
    };
    if let Some(fault) = &fault {
        if let Some(reset) = breaks {
            injector.count(&fault.name());
            return Err(breaking.set(reset));
        }
        if let Some(answer) = answer(fault, &head.uri, asked.operation) {
            injector.count(&fault.name());
            return Ok(answer);
        }
        if *fault == (Fault::Replaced {}) {
            injector.replace(&asked.path);
        }
    }
    let meeting = Meeting { injector: Some(Arc::clone(injector)), fault: fault.clone() };
    head.extensions.insert(meeting);
    let answered = service.call(Request::from_parts(head, Body::from(body))).await;
    let answer = answered.map_err(|error| io::Error::other(StdError::from(error)))?;
    Ok(match &fault {
        Some(fault) if fault.is_damage() => damage(answer, fault, injector, breaking),
        _ => answer,
    })
}
