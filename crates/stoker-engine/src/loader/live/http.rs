//! `GET /metrics` in Prometheus' text form, `GET /report.json`, and nothing else.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Ending, PATIENCE, PAUSE, Watched};
use crate::error::{Error, Problem, Result, too_many_files};
use crate::metrics::prometheus;

/// Connections that are served at once; others wait.
const AT_ONCE: usize = 8;

/// How long somebody may take to say what he wants.
const REQUEST: Duration = Duration::from_secs(2);

/// Most bytes of a request's head that are held.
const HEAD: usize = 16 << 10;

/// Listens on the address, or on the first port after it that none of the other ranks here has.
pub(super) fn listen(address: SocketAddr, ranks_here: u32) -> Result<TcpListener> {
    let ranks_here = if address.port() == 0 { 1 } else { ranks_here };
    let last = u32::from(address.port()) + ranks_here.saturating_sub(1);
    let last = u16::try_from(last).unwrap_or(u16::MAX);
    for port in address.port()..=last {
        match TcpListener::bind(SocketAddr::new(address.ip(), port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) if too_many_files(&error).is_some() => {
                return Err(Error::machine("no socket can be had for engine.metrics", &error));
            }
            Err(error) => return Err(problem(&format!("{address}: {error}"), REFUSED)),
        }
    }
    let ports = match last - address.port() {
        0 => format!("{address} is"),
        _ => format!("{address} and the ports up to {last} are"),
    };
    Err(problem(&format!("{ports} in use already"), TAKEN))
}

const REFUSED: &str = "name an address of this machine and a port from 1024 on, such as \
                       \"127.0.0.1:9464\"";

const TAKEN: &str = "choose another port, or 0 for any free one; a second loader in a process, as for \
                     evaluation, needs a port of its own or none ({\"engine.metrics\": null})";

fn problem(reason: &str, hint: &str) -> Error {
    Error::Recipe(vec![Problem {
        path: "engine.metrics".to_owned(),
        reason: reason.to_owned(),
        hint: Some(hint.to_owned()),
    }])
}

/// Answers whoever asks, until it is dropped.
pub(super) async fn serve(listener: TcpListener, watched: Arc<Watched>) {
    let listener =
        listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    let Ok(listener) = listener.map(Ending) else { return };
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((stream, _)) = listener.0.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let watched = Arc::clone(&watched);
        tokio::spawn(async move {
            let _slot = slot;
            // Whoever is too slow, or goes away, is not told.
            drop(timeout(PATIENCE, converse(stream, &watched)).await);
        });
    }
}

async fn converse(stream: TcpStream, watched: &Watched) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let answer = answer(&request, watched);
        async move { Ok::<_, Infallible>(answer) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer<B>(request: &Request<B>, watched: &Watched) -> Response<String> {
    let (status, form, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let text = prometheus::text(&watched.metrics.report(), watched.rank);
            (StatusCode::OK, prometheus::CONTENT_TYPE, text)
        }
        (&Method::GET | &Method::HEAD, "/report.json") => {
            match serde_json::to_string(&watched.glance()) {
                Ok(text) => (StatusCode::OK, "application/json", text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, error.to_string()),
            }
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, PLAIN, "there are /metrics and /report.json\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET is answered\n".to_owned()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    fn words(listened: Result<TcpListener>) -> String {
        listened.expect_err("it can't be had").to_string()
    }

    #[test]
    fn ranks_of_a_machine_share_as_many_ports_as_there_are_ranks() {
        let first = listen("127.0.0.1:0".parse().unwrap(), 4).unwrap();
        let address = first.local_addr().unwrap();
        let said = words(listen(address, 1));
        assert!(said.contains(&format!("engine.metrics: {address} is in use already")), "{said}");
        assert!(said.contains("engine.metrics\": null"), "{said}");
        // Others may take ports of this machine meanwhile, but hardly all of them.
        let second = listen(address, 64).unwrap();
        let port = second.local_addr().unwrap().port();
        assert!(port > address.port() && port - address.port() < 64, "{port}");
    }

    #[test]
    fn an_address_that_is_not_of_this_machine_is_named() {
        let said = words(listen("192.0.2.1:9464".parse().unwrap(), 1));
        assert!(said.contains("engine.metrics: 192.0.2.1:9464: "), "{said}");
        assert!(said.contains("address of this machine"), "{said}");
    }
}
