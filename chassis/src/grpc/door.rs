//! Who may call what is served. With mutual TLS, a caller is who its certificate names; without, the
//! network decides who gets in.

use std::{
    collections::HashMap,
    convert::Infallible,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Extensions, Request, Response};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
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
    /// By service, or by method.
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

    /// Serves this method, such as `payments.sessions.v1.Sessions/RecordTransaction`, to these callers
    /// in the place of its service's.
    #[must_use]
    pub fn method(mut self, method: &'static str, callers: &'static [Caller]) -> Self {
        self.callers.insert(method, callers);
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
            callers: mutual_tls.then(|| Callers(Arc::new(self.callers.clone()))),
        }
    }
}

/// Who may call what. Each call that passes has it among its extensions, because those that a batch
/// carries must pass as each would by itself.
#[derive(Clone)]
pub(super) struct Callers(Arc<HashMap<&'static str, &'static [Caller]>>);

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

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(callers) = &self.callers {
            let method = request.uri().path().trim_start_matches('/');
            if let Err(refusal) = callers.check(method, request.extensions()) {
                return Box::pin(async { Ok(refusal.answer()) });
            }
            request.extensions_mut().insert(callers.clone());
        }
        Box::pin(self.inner.call(request))
    }
}

/// Marks the answer to a call that the guard refused: its method may be made up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

#[derive(Debug)]
enum Refusal {
    /// Nothing of that name is served here.
    NotHere,
    /// The service, who may call it, and the names in the caller's certificate.
    Caller(String, &'static [Caller], Vec<String>),
}

impl Refusal {
    /// Called in the call's span, which names the method.
    fn answer(self) -> Response<Body> {
        let mut answer = self.status().into_http();
        answer.extensions_mut().insert(Refused);
        answer
    }

    fn status(self) -> Status {
        match self {
            Self::NotHere => Status::unimplemented("no such service here"),
            Self::Caller(service, allowed, names) => {
                metrics::counter!("grpc_callers_refused_total", "service" => service).increment(1);
                tracing::warn!(
                    ?names,
                    ?allowed,
                    "the caller's certificate has none of the names that may call this"
                );
                Status::permission_denied("the names in the caller's certificate may not call this")
            }
        }
    }
}

impl Callers {
    /// Whether the caller, whose connection the extensions tell, may call this `package.Service/Method`.
    fn check(&self, method: &str, extensions: &Extensions) -> Result<(), Refusal> {
        let (service, _) = method.split_once('/').unwrap_or_default();
        // Health, which the kubelet and every caller asks for, and reflection.
        if service.starts_with("grpc.") {
            return Ok(());
        }
        let allowed = self.0.get(method).or_else(|| self.0.get(service));
        let allowed = allowed.ok_or(Refusal::NotHere)?;
        let connection = extensions.get::<TlsConnectInfo<TcpConnectInfo>>();
        let chain = connection.and_then(TlsConnectInfo::peer_certs);
        let certificate = chain.as_deref().and_then(|chain| chain.first());
        let certificate =
            certificate.and_then(|certificate| EndEntityCert::try_from(certificate).ok());
        match certificate {
            Some(certificate) if allowed.iter().any(|caller| caller.is_named(&certificate)) => {
                Ok(())
            }
            certificate => {
                let names = certificate
                    .iter()
                    .flat_map(|certificate| certificate.valid_dns_names());
                let names = names.map(ToOwned::to_owned).collect();
                Err(Refusal::Caller(service.to_owned(), allowed, names))
            }
        }
    }

    /// The same for the calls of a batch, whose extensions these are.
    pub(super) fn check_batched(
        &self,
        method: &str,
        extensions: &Extensions,
    ) -> Result<(), Status> {
        self.check(method, extensions).map_err(Refusal::status)
    }
}

impl Caller {
    /// Whether the first certificate of this PEM file has the caller's name.
    pub(crate) fn is_named_in(self, file: &Path) -> bool {
        let Ok(certificate) = CertificateDer::from_pem_file(file) else {
            return false;
        };
        EndEntityCert::try_from(&certificate).is_ok_and(|certificate| self.is_named(&certificate))
    }

    fn is_named(self, certificate: &EndEntityCert<'_>) -> bool {
        let name = ServerName::try_from(self.code());
        name.is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
    }
}
