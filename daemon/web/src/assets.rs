//! The files of the page. They are embedded in the program without a build step.

use std::hash::{DefaultHasher, Hasher};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Map, Value};
use weir_config::names::services::service_name;

/// A file, by the path at which it is served.
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

macro_rules! assets {
    ($($path:literal: $kind:expr, $file:literal;)*) => {
        const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            content: include_bytes!(concat!("../assets/", $file)),
        }),*];
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

assets! {
    "/": "text/html; charset=utf-8", "index.html";
    "/style.css": "text/css; charset=utf-8", "style.css";
    "/icon.svg": "image/svg+xml", "icon.svg";
    "/page.js": SCRIPT, "page.js";
    "/sections.js": SCRIPT, "sections.js";
    "/chart.js": SCRIPT, "chart.js";
    "/lists.js": SCRIPT, "lists.js";
    "/source.js": SCRIPT, "source.js";
    "/units.js": SCRIPT, "units.js";
    "/dom.js": SCRIPT, "dom.js";
}

/// Protocols whose ports have names.
const WITH_NAMES: [&str; 3] = ["tcp", "udp", "sctp"];

pub(crate) fn router() -> Router {
    let mut router = Router::new();
    for asset in ASSETS {
        let tag = format!("\"{:016x}\"", hash(asset.content));
        router = router.route(asset.path, get(move |request: Request| async move { send(asset, &tag, &request) }));
    }
    let services = services();
    let tag = format!("\"{:016x}\"", hash(services.as_bytes()));
    let json = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    router.route("/api/services", get(move || async move { (json, [(header::ETAG, tag)], services) }))
}

/// A file, unless the browser has this version already.
fn send(asset: &Asset, tag: &str, request: &Request) -> Response {
    let known = request.headers().get(header::IF_NONE_MATCH);
    let names = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_TYPE, asset.kind)];
    if known.is_some_and(|known| known == tag) {
        return (StatusCode::NOT_MODIFIED, names).into_response();
    }
    (names, asset.content).into_response()
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// The names of ports that `weir report` writes, as `{"tcp/443": "https", ...}`.
fn services() -> String {
    let mut all = Map::new();
    for proto in WITH_NAMES {
        for port in 1..=u16::MAX {
            if let Some(name) = service_name(Some(proto), port) {
                all.insert(format!("{proto}/{port}"), Value::from(name));
            }
        }
    }
    Value::Object(all).to_string()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    /// The most bytes of all files together, as they are sent.
    const BYTES_MAX: usize = 150_000;

    #[test]
    fn every_file_is_served_and_all_are_small() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
        let files: BTreeSet<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let name = |asset: &Asset| if asset.path == "/" { "index.html" } else { &asset.path[1..] }.to_owned();
        assert_eq!(ASSETS.iter().map(name).collect::<BTreeSet<_>>(), files);
        let bytes: usize = ASSETS.iter().map(|asset| asset.content.len()).sum::<usize>() + services().len();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn no_file_refers_to_another_server_or_has_inline_code() {
        for asset in ASSETS {
            let text = std::str::from_utf8(asset.content).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in ["http://", "https://", "url(", "@import", "innerHTML", "insertAdjacentHTML", "eval("] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", asset.path);
            }
        }
        let page = include_str!("../assets/index.html");
        assert!(!page.contains("style=") && !page.contains(" onclick") && page.matches("<script").count() == 1);
    }

    #[test]
    fn ports_have_the_names_of_the_report() {
        let services: Value = serde_json::from_str(&services()).unwrap();
        assert_eq!((&services["tcp/443"], &services["udp/53"]), (&"https".into(), &"domain".into()));
        assert_eq!(services["udp/22"], Value::Null);
    }
}
