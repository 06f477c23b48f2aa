//! Which request a span belongs to. It travels with calls, so that the lines of all services that
//! took part in a request name it.

use std::fmt;

use tracing::{
    Span, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer, Registry,
    layer::Context,
    registry::{LookupSpan, SpanRef},
};

/// Which field of a span says it. It also holds for the spans within.
const FIELD: &str = "request.id";

/// Keeps what spans say. Belongs under the filter of the logs: spans that they do not want are not
/// asked for on its account.
pub(super) struct RequestIds;

struct RequestId(String);

impl<S> Layer<S> for RequestIds
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(field) = attributes.fields().field(FIELD) else {
            return;
        };
        let mut said = Said { field, id: None };
        attributes.record(&mut said);
        if let (Some(said), Some(span)) = (said.id, context.span(id)) {
            span.extensions_mut().insert(RequestId(said));
        }
    }
}

struct Said {
    field: Field,
    id: Option<String>,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        if *field == self.field {
            self.id = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// The id of the request to which the current span belongs, if spans of its level are logged.
pub fn current_request_id() -> Option<String> {
    let found = Span::current().with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        request_id(&span)
    });
    found.flatten()
}

pub(super) fn request_id<'s, S: LookupSpan<'s>>(span: &SpanRef<'s, S>) -> Option<String> {
    span.scope().find_map(|span| {
        let extensions = span.extensions();
        extensions.get::<RequestId>().map(|id| id.0.clone())
    })
}
