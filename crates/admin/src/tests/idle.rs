//! Memory of requests that wait.

use std::pin::Pin;
use std::task::{Context, Waker};

use allocation_counter::measure;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use stafett_http::Access;
use tower::ServiceExt;

use super::World;

/// Requests that wait at the same time.
const REQUESTS: usize = 100;
/// Bytes on the heap that each may keep, beside its connection.
const BYTES_MAX: i64 = 16 << 10;

type Waiting = Pin<Box<dyn Future<Output = ()>>>;

fn ask(router: &Router, path: &str) -> Waiting {
    let request = Request::builder()
        .method("POST")
        .uri(path)
        .header(HOST, "localhost");
    let request = request.body(Body::empty()).unwrap();
    let answered = router.clone().oneshot(request);
    Box::pin(async move { panic!("answered: {:?}", answered.await) })
}

/// Has requests wait, and returns them.
async fn wait(router: &Router, path: &str) -> Vec<Waiting> {
    let mut waiting: Vec<Waiting> = (0..REQUESTS).map(|_| ask(router, path)).collect();
    // They come to their waits in a few steps, between which tasks of the broker have their turns.
    for _ in 0..50 {
        let mut context = Context::from_waker(Waker::noop());
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        tokio::task::yield_now().await;
    }
    waiting
}

#[test]
fn a_request_that_waits_keeps_little_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(async {
        let world = World::new().await;
        world.queue("/", "q").await;
        world
    });
    let router = crate::router(world.backend, Access::default());
    for path in [
        "/v1/queues/q/receive?wait=60s",
        "/v1/queues/q/receive?wait=60s&sender=ann",
        "/v1/receive?wait=60s&queue=q",
    ] {
        drop(runtime.block_on(wait(&router, path)));
        let mut waiting = Vec::new();
        let kept = measure(|| waiting = runtime.block_on(wait(&router, path)));
        let requests = i64::try_from(REQUESTS).unwrap();
        let each = kept.bytes_current / requests;
        println!(
            "{path}: {each} bytes, {} allocations",
            kept.count_current / requests
        );
        assert!(each <= BYTES_MAX, "{path}: {each} bytes");
    }
}
