//! Lists as CSV files: the same calls as their pages, one page after the other, as fast as the
//! client reads and for as long as it stays.
//!
//! A failure on the way ends the connection before the file is whole, so that nobody takes a part
//! for the list.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use chassis::{
    clock::Day, error_chain::chain, ids::MerchantId, limits::PAGE_SIZE_MAX, money::Money,
};
use futures::{StreamExt as _, stream};
use http::{
    HeaderValue,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use proto::money::Money as ProtoMoney;
use tokio::time::Instant;

use super::{
    Dashboard,
    filters::{Filters, Listed},
    page::Refusal,
};
use crate::{error::Error, pages::see};

/// Most exports at once, of which one merchant has half. Each reads its list as fast as it is taken.
pub const EXPORTS_MAX: usize = 8;

/// How many entries are read at once.
pub const PAGE_SIZE: u32 = PAGE_SIZE_MAX;

/// Longest time in which one is passed on, however slowly it is read.
const PASSED_ON_WITHIN: Duration = Duration::from_secs(60 * 60);

/// Answers with the list as a file, or leads to its page if its filters are wrong. `read` gives the
/// page of a token, as rows of cells.
pub async fn csv<F>(
    dashboard: &Dashboard,
    merchant_id: MerchantId,
    (list, filters): (&'static str, Filters<'_>),
    columns: &[&str],
    read: impl Fn(String) -> F + Send + 'static,
) -> Result<Response, Refusal>
where
    F: Future<Output = Result<Listed<Vec<String>>, Error>> + Send,
{
    if filters.is_wrong() {
        return Ok(see(&filters.newest()));
    }
    let Some(place) = dashboard.exports_room.enter(merchant_id) else {
        metrics::counter!("gateway_requests_shed_total").increment(1);
        return Err(Error::NothingStarted.into());
    };
    // A failure before the first piece is an answer of its own.
    let first = match read(String::new()).await {
        Ok(first) => first,
        Err(Error::Validation(_)) => return Ok(see(&filters.newest())),
        Err(error) => return Err(error.into()),
    };
    let mut head = String::new();
    write_row(&mut head, columns.iter().copied());
    let ends_at = Instant::now() + PASSED_ON_WITHIN;
    let (head, next) = (head + &rows(&first.rows), first.next_page_token);
    let rest = stream::try_unfold(
        (next, read, place),
        move |(token, read, place)| async move {
            if token.is_empty() {
                return Ok(None);
            }
            let listed = match Instant::now() < ends_at {
                true => read(token).await,
                false => Err(Error::RequestTimeout),
            };
            let listed = listed.inspect_err(|error| {
                tracing::warn!(list, error = %chain(error), "an export ends before its list");
            })?;
            let piece = Bytes::from(rows(&listed.rows));
            Ok::<_, Error>(Some((piece, (listed.next_page_token, read, place))))
        },
    );
    let first = stream::once(async { Ok(Bytes::from(head)) });
    let mut response = Body::from_stream(first.chain(rest)).into_response();
    let name = format!("{list}-{}.csv", Day::of(dashboard.clock.now()));
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/csv; charset=utf-8"),
    );
    headers.insert(CONTENT_DISPOSITION, disposition.map_err(Error::internal)?);
    Ok(response)
}

fn rows(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        write_row(&mut text, row.iter().map(String::as_str));
    }
    text
}

/// Writes a line of RFC 4180.
fn write_row<'a>(text: &mut String, cells: impl Iterator<Item = &'a str>) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_cell(text, cell);
    }
    text.push_str("\r\n");
}

/// Writes a cell that no spreadsheet takes for a formula.
fn write_cell(text: &mut String, cell: &str) {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let is_quoted = cell.contains(['"', ',', '\r', '\n']);
    if is_quoted {
        text.push('"');
    }
    if is_formula {
        text.push('\'');
    }
    match is_quoted {
        true => text.push_str(&cell.replace('"', "\"\"")),
        false => text.push_str(cell),
    }
    if is_quoted {
        text.push('"');
    }
}

/// An amount's two cells: its decimals, and its currency. Empty if there is none.
pub fn amount(money: Option<&ProtoMoney>) -> Result<[String; 2], Error> {
    let Some(money) = money else {
        return Ok([String::new(), String::new()]);
    };
    let money = Money::try_from(money).map_err(Error::internal)?;
    Ok([
        money.to_major().to_string(),
        money.currency().code().to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_breaks_out_or_becomes_a_formula() {
        let check = |cell: &str, written: &str| {
            let mut text = String::new();
            write_cell(&mut text, cell);
            assert_eq!(text, written);
        };
        check("plain", "plain");
        check("", "");
        check("a,b", "\"a,b\"");
        check("say \"hi\"", "\"say \"\"hi\"\"\"");
        check("two\nlines", "\"two\nlines\"");
        check("=1+1", "'=1+1");
        check("+233", "'+233");
        check("-2", "'-2");
        check("@x", "'@x");
        check("\tx", "'\tx");
        check("\rx", "\"'\rx\"");
        check("=HYPERLINK(\"a\",1)", "\"'=HYPERLINK(\"\"a\"\",1)\"");
    }
}
