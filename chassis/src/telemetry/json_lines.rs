//! Log lines in JSON, one object each.
//!
//! A line has the event (`timestamp`, `level`, `fields`, `target`), the span it happened in
//! (`span`), the spans around that one from the outermost on (`spans`), and what lines are searched
//! by: `request_id`, and `trace_id` if the trace is exported. A span's fields are turned into JSON
//! once, when they are recorded, not for each line.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
};

use opentelemetry::{Context as TraceContext, TraceId, trace::TraceContextExt as _};
use tracing::{
    Event, Id, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
};
use tracing_subscriber::{
    Layer,
    fmt::{
        MakeWriter,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::Context,
    registry::{LookupSpan, SpanRef},
};

use super::request_id::request_id;

/// The target of every line that a library logs with the crate `log`. The library's own target is
/// then the field [`LOG_TARGET`].
const FROM_LOG: &str = "log";

/// What the fields begin with that only such lines have.
const LOG_FIELD: &str = "log.";

const LOG_TARGET: &str = "log.target";

/// What most lines fit in.
const LINE_BYTES: usize = 1_024;

/// Writes each line with one call of `writer`.
pub(super) struct JsonLines<W>(pub(super) W);

/// A span's fields as members of a JSON object.
#[derive(Default)]
struct SpanFields {
    members: String,
}

impl<W, S> Layer<S> for JsonLines<W>
where
    W: for<'w> MakeWriter<'w> + 'static,
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = SpanFields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<SpanFields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = String::with_capacity(LINE_BYTES);
        // A value that cannot be formatted loses its own text alone.
        write_line(&mut line, event, &context).ok();
        let mut writer = self.0.make_writer_for(event.metadata());
        // If nobody takes the line, nobody can be told.
        writer.write_all(line.as_bytes()).ok();
    }
}

fn write_line<S>(line: &mut String, event: &Event<'_>, context: &Context<'_, S>) -> fmt::Result
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let metadata = event.metadata();
    line.push_str("{\"timestamp\":\"");
    SystemTime.format_time(&mut Writer::new(line))?;
    write!(line, "\",\"level\":\"{}\",\"fields\":{{", metadata.level())?;
    let mut target = None;
    if metadata.target() == FROM_LOG {
        let members = Members(line);
        event.record(&mut LogRecord {
            members,
            target: &mut target,
        });
    } else {
        event.record(&mut Members(line));
    }
    line.push_str("},\"target\":");
    write_text(line, target.as_deref().unwrap_or(metadata.target()));
    if let Some(span) = context.event_span(event) {
        line.push_str(",\"span\":");
        write_span(line, &span);
        if let Some(outer) = span.parent() {
            line.push_str(",\"spans\":[");
            for (place, span) in outer.scope().from_root().enumerate() {
                line.push_str(if place > 0 { "," } else { "" });
                write_span(line, &span);
            }
            line.push(']');
        }
        if let Some(id) = request_id(&span) {
            line.push_str(",\"request_id\":");
            write_text(line, &id);
        }
    }
    let trace_id = TraceContext::map_current(|context| context.span().span_context().trace_id());
    if trace_id != TraceId::INVALID {
        write!(line, ",\"trace_id\":\"{trace_id}\"")?;
    }
    line.push_str("}\n");
    Ok(())
}

fn write_span<'s, S: LookupSpan<'s>>(line: &mut String, span: &SpanRef<'s, S>) {
    line.push('{');
    if let Some(fields) = span.extensions().get::<SpanFields>()
        && !fields.members.is_empty()
    {
        line.push_str(&fields.members);
        line.push(',');
    }
    line.push_str("\"name\":");
    write_text(line, span.name());
    line.push('}');
}

fn write_text(line: &mut String, text: &str) {
    write_quoted(line, format_args!("{text}"));
}

/// Writes what the value says as a JSON string.
fn write_quoted(line: &mut String, value: fmt::Arguments<'_>) {
    line.push('"');
    // A value that cannot be formatted ends where it stopped.
    Escaped(line).write_fmt(value).ok();
    line.push('"');
}

/// Text within a JSON string.
struct Escaped<'l>(&'l mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
            let (plain, special) = rest.split_at(at);
            self.0.push_str(plain);
            let mut special = special.chars();
            match special.next() {
                Some('"') => self.0.push_str("\\\""),
                Some('\\') => self.0.push_str("\\\\"),
                Some('\n') => self.0.push_str("\\n"),
                Some(control) => write!(self.0, "\\u{:04x}", u32::from(control))?,
                None => {}
            }
            rest = special.as_str();
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// Appends fields as members of a JSON object.
struct Members<'l>(&'l mut String);

impl Members<'_> {
    fn key(&mut self, field: &Field) {
        // An object that has members ends with a value, which never ends so.
        if !(self.0.is_empty() || self.0.ends_with('{')) {
            self.0.push(',');
        }
        write_text(self.0, field.name());
        self.0.push(':');
    }

    fn bare(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        self.key(field);
        self.0.write_fmt(value).ok();
    }
}

impl Visit for Members<'_> {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.bare(field, format_args!("{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.key(field);
        write_text(self.0, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.key(field);
        write_quoted(self.0, format_args!("{value:?}"));
    }
}

/// A line logged with the crate `log`.
struct LogRecord<'l> {
    members: Members<'l>,
    target: &'l mut Option<String>,
}

impl Visit for LogRecord<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == LOG_TARGET {
            *self.target = Some(value.to_owned());
        } else if !field.name().starts_with(LOG_FIELD) {
            self.members.record_str(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if !field.name().starts_with(LOG_FIELD) {
            self.members.record_debug(field, value);
        }
    }
}

impl Visit for SpanFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        Members(&mut self.members).record_i64(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        Members(&mut self.members).record_u64(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        Members(&mut self.members).record_bool(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        Members(&mut self.members).record_str(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        Members(&mut self.members).record_debug(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::{super::request_id::RequestIds, *};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged meanwhile, line by line.
    fn lines(log: impl FnOnce()) -> Vec<Value> {
        let written = Written::default();
        let writer = written.clone();
        let layer = JsonLines(move || writer.clone()).and_then(RequestIds);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, log);
        let bytes = written.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_its_event_and_each_span_once() {
        let lines = lines(|| {
            let request = tracing::info_span!(
                "request",
                request.id = "id-1",
                status = tracing::field::Empty,
                merchant = tracing::field::Empty,
            );
            let _request = request.enter();
            request.record("merchant", "m-1");
            request.record("status", 201);
            let _call = tracing::info_span!("call", method = "M").entered();
            let _try = tracing::info_span!("try").entered();
            tracing::warn!(tries = 2, is_last = false, "refused");
        });
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(line["level"], "WARN");
        assert_eq!(
            line["fields"],
            json!({"message": "refused", "tries": 2, "is_last": false})
        );
        assert_eq!(line["target"], module_path!());
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
        assert_eq!(line["span"], json!({"name": "try"}));
        let outer = json!([
            {"request.id": "id-1", "merchant": "m-1", "status": 201, "name": "request"},
            {"method": "M", "name": "call"},
        ]);
        assert_eq!(line["spans"], outer);
        assert_eq!(line["request_id"], "id-1");
    }

    #[test]
    fn any_text_stays_on_its_line() {
        const TEXT: &str = "\"a\\b\"\n\r\t\u{0}\u{1f} ɛ \u{2028} {";
        let lines = lines(|| {
            tracing::info!(text = TEXT, debugged = ?TEXT, "{TEXT}");
            tracing::info!("{{");
        });
        let fields = &lines[0]["fields"];
        assert_eq!(fields["text"], TEXT);
        assert_eq!(fields["debugged"], format!("{TEXT:?}"));
        assert_eq!(fields["message"], TEXT);
        assert_eq!(lines[1]["fields"], json!({"message": "{"}));
        assert!(lines[1].get("span").is_none() && lines[1].get("request_id").is_none());
    }

    #[test]
    fn a_line_of_the_log_crate_has_the_target_of_its_library() {
        let lines = lines(|| {
            tracing::warn!(
                target: "log",
                {
                    log.target = "library::part",
                    log.module_path = "library::part::inner",
                    log.file = "src/part.rs",
                    log.line = 7,
                },
                "refused"
            );
        });
        assert_eq!(lines[0]["level"], "WARN");
        assert_eq!(lines[0]["target"], "library::part");
        assert_eq!(lines[0]["fields"], json!({"message": "refused"}));
    }
}
