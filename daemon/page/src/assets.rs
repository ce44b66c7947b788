//! The files of the page. They are embedded in the program without a build step, except for the table of lists, which
//! the program makes from its own.

use std::{
    hash::{DefaultHasher, Hasher},
    sync::LazyLock,
};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use serde_json::{Map, Value, json};
use weir_config::names::services::service_name;
use weir_schema::lists::{FIELDS, LISTS, ListName};

/// A file, by the path at which it is served.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path, from the root of the page.
    pub path: &'static str,
    /// The bytes of the file.
    pub content: &'static [u8],
}

macro_rules! assets {
    ($($file:literal)*) => {
        /// The files that it needs and that are written by hand.
        const FILES: &[Asset] = &[$(Asset {
            path: concat!("/", $file),
            content: include_bytes!(concat!("../assets/", $file)),
        }),*];
    };
}

/// The page of one router.
pub const INDEX: Asset = Asset { path: "/", content: include_bytes!("../assets/index.html") };

assets! {
    "style.css"
    "icon.svg"
    "page.js"
    "input.js"
    "times.js"
    "units.js"
    "state/address.js"
    "state/changes.js"
    "state/delay.js"
    "state/known.js"
    "state/rates.js"
    "state/series.js"
    "fetch/collector.js"
    "fetch/compare.js"
    "fetch/key.js"
    "fetch/open.js"
    "fetch/reports.js"
    "fetch/services.js"
    "fetch/source.js"
    "fetch/span.js"
    "fetch/stream.js"
    "fetch/names.js"
    "fetch/usage.js"
    "report/key.js"
    "report/lists.js"
    "report/trust.js"
    "report/view.js"
    "report/window.js"
    "draw/alerts.js"
    "draw/all.js"
    "draw/caption.js"
    "draw/charts.js"
    "draw/compare.js"
    "draw/connection.js"
    "draw/cost.js"
    "draw/detail.js"
    "draw/distinct.js"
    "draw/dom.js"
    "draw/ledger.js"
    "draw/lists.js"
    "draw/measure.js"
    "draw/mix.js"
    "draw/notices.js"
    "draw/observer.js"
    "draw/over-time.js"
    "draw/side.js"
    "draw/table.js"
    "draw/tabs.js"
    "draw/times.js"
    "draw/trust.js"
    "draw/usage.js"
    "draw/chart/axis.js"
    "draw/chart/bands.js"
    "draw/chart/bars.js"
    "draw/chart/rate.js"
    "draw/chart/steps.js"
}

/// The module of the standard lists (`types/report/standard.d.ts`), so that the page and `weir top` cannot differ.
static STANDARD: LazyLock<String> = LazyLock::new(|| {
    let lists = LISTS.iter().map(|ListName { list, name, counted, about, .. }| {
        let adds_up = FIELDS.iter().find(|(of, _)| of == list).map(|(_, fields)| *fields);
        let key = adds_up.unwrap_or(if counted.is_none() { &["prefix"] } else { &[] });
        let field = list.name();
        let adds_up = adds_up.is_some();
        json!({"name": name, "field": field, "key": key, "counted": counted, "about": about, "addsUp": adds_up})
    });
    format!("export const STANDARD = {};\n", lists.collect::<Value>())
});

/// The files that the page needs.
pub fn files() -> impl Iterator<Item = Asset> {
    let standard = Asset { path: "/report/standard.js", content: STANDARD.as_bytes() };
    FILES.iter().copied().chain([standard])
}

/// Protocols whose ports have names.
const WITH_NAMES: [&str; 3] = ["tcp", "udp", "sctp"];

impl Asset {
    /// Returns the media type.
    fn kind(self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        }
    }

    /// Another version of the file at the same path.
    #[must_use]
    pub const fn with(self, content: &'static [u8]) -> Self {
        Self { content, ..self }
    }

    /// Answers requests for this file, unless the browser has this version already.
    pub fn route<S: Clone + Send + Sync + 'static>(self) -> MethodRouter<S> {
        let tag = tag(self.content);
        get(move |request: Request| async move {
            let names =
                [(header::ETAG, &*tag), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_TYPE, self.kind())];
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
    files().chain([INDEX]).fold(names, |router, asset| router.route(asset.path, asset.route()))
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
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// The most bytes of all files together, as they are sent.
    const BYTES_MAX: usize = 188_000;

    #[test]
    fn every_file_is_served_and_all_are_small() {
        let mut files = BTreeSet::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets"), "/", &mut files);
        assert!(files.remove("/index.html"), "{files:?}");
        assert_eq!(FILES.iter().map(|asset| asset.path.to_owned()).collect::<BTreeSet<_>>(), files);
        let bytes: usize = all().map(|asset| asset.content.len()).sum::<usize>() + services().len();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    fn all() -> impl Iterator<Item = Asset> {
        files().chain([INDEX])
    }

    /// Adds the paths of all files below a folder.
    fn collect(folder: &Path, path: &str, files: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = format!("{path}{}", entry.file_name().to_str().unwrap());
            match entry.path().is_dir() {
                true => collect(&entry.path(), &format!("{path}/"), files),
                false => drop(files.insert(path)),
            }
        }
    }

    #[test]
    fn files_have_the_types_that_browsers_ask_for() {
        let kind = |path| Asset { path, content: b"" }.kind();
        assert_eq!(kind("/"), "text/html; charset=utf-8");
        assert_eq!(kind("/draw/all.js"), "text/javascript; charset=utf-8");
        assert_eq!((kind("/style.css"), kind("/icon.svg")), ("text/css; charset=utf-8", "image/svg+xml"));
    }

    #[test]
    fn no_file_refers_to_another_server_or_has_inline_code() {
        for asset in all() {
            let text = std::str::from_utf8(asset.content).unwrap();
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in ["http://", "https://", "url(", "innerHTML", "insertAdjacentHTML", "eval("] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", asset.path);
            }
        }
        assert!(!include_str!("../assets/style.css").contains("@import"));
        let page = include_str!("../assets/index.html");
        assert!(!page.contains("style=") && !page.contains(" onclick") && page.matches("<script").count() == 1);
    }

    #[test]
    fn the_page_has_every_list_under_the_names_of_weir_top() {
        let json = STANDARD.strip_prefix("export const STANDARD = ").unwrap().strip_suffix(";\n").unwrap();
        let lists: Vec<Value> = serde_json::from_str(json).unwrap();
        let row = |field: &str| lists.iter().find(|list| list["field"] == field).unwrap();
        assert!(lists.iter().map(|list| &list["name"]).eq(LISTS.iter().map(|of| of.name)));
        assert_eq!((&row("services")["key"], &row("services")["addsUp"]), (&json!(["proto", "port"]), &json!(true)));
        let nets = row("source_prefixes");
        assert_eq!(
            (&nets["name"], &nets["key"], &nets["addsUp"]),
            (&json!("source nets"), &json!(["prefix"]), &json!(false))
        );
        assert_eq!(row("sources_per_destination")["counted"], "sources");
    }

    #[test]
    fn ports_have_the_names_of_the_report() {
        let services: Value = serde_json::from_str(&services()).unwrap();
        assert_eq!((&services["tcp/443"], &services["udp/53"]), (&"https".into(), &"domain".into()));
        assert_eq!(services["udp/22"], Value::Null);
    }
}
