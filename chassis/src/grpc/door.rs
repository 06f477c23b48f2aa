//! Who may call what is served. With mutual TLS, a caller is who its certificate names; without, the
//! network decides who gets in.

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use rustls::pki_types::{CertificateDer, ServerName};
use tonic::{
    Status,
    body::Body,
    server::NamedService,
    service::Routes,
    transport::server::{TcpConnectInfo, TlsConnectInfo},
};
use tower::{Layer, Service};
use webpki::EndEntityCert;

crate::closed_list! {
    /// A process of ours that calls others, by the DNS name that its certificate must have.
    pub enum Caller: "a process that calls others" {
        Gateway = "gateway",
        SessionsSvc = "sessions-svc",
        ChargesSvc = "charges-svc",
        WebhooksSvc = "webhooks-svc",
        /// Operators, by their command line.
        Payctl = "payctl",
    }
}

/// What is served at one socket. No service gets in without its callers.
#[derive(Clone, Debug, Default)]
pub struct Door {
    pub(super) routes: Routes,
    callers: HashMap<&'static str, &'static [Caller]>,
}

impl Door {
    /// Serves this too, to these callers and nobody else.
    #[must_use]
    pub fn service<S>(mut self, service: S, callers: &'static [Caller]) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
        self.callers.insert(S::NAME, callers);
        self.routes = self.routes.add_service(service);
        self
    }

    /// Stands in for a service in tests, which call without TLS.
    pub(crate) fn stand_in(routes: Routes) -> Self {
        Self {
            routes,
            callers: HashMap::new(),
        }
    }

    /// Lets nobody pass but each service's callers, if `mutual_tls` is on.
    pub(super) fn guard(&self, mutual_tls: bool) -> GuardLayer {
        GuardLayer {
            callers: mutual_tls.then(|| Arc::new(self.callers.clone())),
        }
    }
}

type Callers = Arc<HashMap<&'static str, &'static [Caller]>>;

/// See [`Door::guard`].
#[derive(Clone)]
pub(super) struct GuardLayer {
    callers: Option<Callers>,
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard {
            inner,
            callers: self.callers.clone(),
        }
    }
}

#[derive(Clone)]
pub(super) struct Guard<S> {
    inner: S,
    callers: Option<Callers>,
}

impl<S, E> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = E>,
    S::Future: Send + 'static,
    E: Send + 'static,
{
    type Response = Response<Body>;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(callers) = &self.callers
            && let Err(refusal) = check(callers, &request)
        {
            return Box::pin(std::future::ready(Ok(refusal.into_http())));
        }
        Box::pin(self.inner.call(request))
    }
}

/// Whether the caller may call the service that the request's path names.
fn check(
    callers: &HashMap<&'static str, &'static [Caller]>,
    request: &Request<Body>,
) -> Result<(), Status> {
    let path = request.uri().path();
    let service = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let (service, _) = service.unwrap_or_default();
    // Health, which the kubelet and every caller asks for, and reflection.
    if service.starts_with("grpc.") {
        return Ok(());
    }
    let Some(allowed) = callers.get(service) else {
        return Err(Status::unimplemented("no such service here"));
    };
    let connection = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
    let chain = connection.and_then(TlsConnectInfo::peer_certs);
    let certificate = chain.as_deref().and_then(|chain| chain.first());
    if certificate.is_some_and(|certificate| is_one_of(allowed, certificate)) {
        return Ok(());
    }
    tracing::warn!("the caller's certificate names nobody who may call this");
    Err(Status::permission_denied(
        "the name in the caller's certificate may not call this",
    ))
}

/// Whether the certificate, whose authority was checked when the connection was made, has one of
/// these names.
fn is_one_of(allowed: &[Caller], certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    allowed.iter().any(|caller| {
        let name = ServerName::try_from(caller.code());
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    })
}
