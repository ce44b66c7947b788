//! Decides which requests are allowed, and what a browser may do with an answer.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};

use weir_http::{ClientSlot, host};

use crate::token::{Lock, Token};

/// Restricts what a browser may do with an answer: load the page's own files, ask this weir, and nothing else. There is
/// no `unsafe-inline`, so even if text gets into the page as markup by mistake, it runs no code.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Tells users which setting a refused request lacks.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// How to add a name of this machine.
    pub host: &'static str,
    /// The setting of the token.
    pub token: &'static str,
}

/// The conditions of every request.
#[derive(Debug)]
pub struct Guard {
    lock: Option<Lock>,
    /// Names of this machine, besides localhost and addresses.
    hosts: Vec<String>,
    advice: Advice,
}

impl Guard {
    /// Accepts requests with the token, if there is one, that are addressed to an address, to localhost or to one of
    /// these names.
    pub fn new(token: Option<Token>, hosts: Vec<String>, advice: Advice) -> Self {
        Self { lock: token.map(Lock::new), hosts, advice }
    }

    /// Lets every request pass this guard, whatever its path.
    pub fn watch(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(Arc::new(self), pass))
    }

    /// Returns true if the host name is one of this machine.
    fn knows_host(&self, host: Option<&HeaderValue>) -> bool {
        let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
        let name = host::name(host);
        host::is_own(name) || self.hosts.iter().any(|own| name.eq_ignore_ascii_case(own))
    }

    async fn refusal(&self, client: &ClientSlot, headers: &HeaderMap) -> Option<Response> {
        if !self.knows_host(headers.get(header::HOST)) {
            let advice = self.advice.host;
            let why = format!("weir does not know this host name: use an address or localhost, or {advice}\n");
            return Some((StatusCode::MISDIRECTED_REQUEST, why).into_response());
        }
        if self.lock.as_ref()?.opens(headers.get(header::AUTHORIZATION), client).await {
            return None;
        }
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"weir: the password is the token\", charset=\"UTF-8\"")];
        let why = format!("this page needs the token of {} as the password\n", self.advice.token);
        Some((StatusCode::UNAUTHORIZED, ask, why).into_response())
    }
}

async fn pass(
    State(guard): State<Arc<Guard>>,
    Extension(client): Extension<Arc<ClientSlot>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match guard.refusal(&client, request.headers()).await {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
