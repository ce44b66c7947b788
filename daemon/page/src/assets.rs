//! The files of the page. They are embedded in the program without a build step.

use std::hash::{DefaultHasher, Hasher};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value};
use weir_config::names::services::service_name;

/// A file, by the path at which it is served.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path.
    pub path: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// What it has.
    pub content: &'static [u8],
}

macro_rules! assets {
    ($($path:literal: $kind:expr, $file:literal;)*) => {
        /// The page of one router.
        pub const PAGE: &[Asset] = &[$(Asset {
            path: $path,
            kind: $kind,
            content: include_bytes!(concat!("../assets/", $file)),
        }),*];
    };
}

/// The media type of a page.
pub const HTML: &str = "text/html; charset=utf-8";
/// The media type of a script.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";

assets! {
    "/": HTML, "index.html";
    "/style.css": "text/css; charset=utf-8", "style.css";
    "/icon.svg": "image/svg+xml", "icon.svg";
    "/page.js": SCRIPT, "page.js";
    "/sections.js": SCRIPT, "sections.js";
    "/trust.js": SCRIPT, "trust.js";
    "/chart.js": SCRIPT, "chart.js";
    "/lists.js": SCRIPT, "lists.js";
    "/source.js": SCRIPT, "source.js";
    "/units.js": SCRIPT, "units.js";
    "/dom.js": SCRIPT, "dom.js";
}

/// Protocols whose ports have names.
const WITH_NAMES: [&str; 3] = ["tcp", "udp", "sctp"];

impl Asset {
    /// Another version of the file at the same path.
    #[must_use]
    pub const fn with(self, content: &'static [u8]) -> Self {
        Self { content, ..self }
    }

    /// Answers requests for this file, unless the browser has this version already.
    pub fn route<S: Clone + Send + Sync + 'static>(self) -> MethodRouter<S> {
        let tag = tag(self.content);
        get(move |request: Request| async move {
            let names = [(header::ETAG, &*tag), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_TYPE, self.kind)];
            let known = request.headers().get(header::IF_NONE_MATCH);
            match known.is_some_and(|known| *known == tag) {
                true => (StatusCode::NOT_MODIFIED, names).into_response(),
                false => (names, self.content).into_response(),
            }
        })
    }
}

/// The files of the page, and the names of ports.
pub fn router() -> Router {
    let names = Router::new().route("/api/services", names_of_ports());
    PAGE.iter().fold(names, |router, asset| router.route(asset.path, asset.route()))
}

/// Answers with the names of ports.
pub fn names_of_ports<S: Clone + Send + Sync + 'static>() -> MethodRouter<S> {
    let services = services();
    let tag = tag(services.as_bytes());
    let json = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")];
    get(move || async move { (json, [(header::ETAG, tag)], services) })
}

/// Tells versions of a file apart.
fn tag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    format!("\"{:016x}\"", hasher.finish())
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
        assert_eq!(PAGE.iter().map(name).collect::<BTreeSet<_>>(), files);
        let bytes: usize = PAGE.iter().map(|asset| asset.content.len()).sum::<usize>() + services().len();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn no_file_refers_to_another_server_or_has_inline_code() {
        for asset in PAGE {
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
