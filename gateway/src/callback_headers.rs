//! Picks the headers of a callback that its rail needs, as charges-svc lists them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use moka::future::Cache;
use proto::charges::{ListRailsRequest, ListRailsResponse};
use tonic::{Code, Response};

use crate::{
    backend::{self, Charges},
    error::Error,
};

/// How long an answer of charges-svc is used.
const RAILS_KNOWN_FOR: Duration = Duration::from_secs(10);

/// The headers that each rail's callbacks need, as charges-svc last listed them.
#[derive(Clone, Debug)]
pub struct CallbackHeaders(Cache<(), Arc<HashMap<String, Vec<String>>>>);

impl CallbackHeaders {
    pub fn new() -> Self {
        let known = Cache::builder().time_to_live(RAILS_KNOWN_FOR);
        Self(known.max_capacity(1).build())
    }

    /// The headers of a callback that its rail needs; none for a rail that charges-svc does not
    /// list.
    pub async fn pick(
        &self,
        charges: &Charges,
        rail: &str,
        headers: &HeaderMap,
    ) -> Result<HashMap<String, String>, Error> {
        let known = match self.0.get(&()).await {
            Some(known) => known,
            // Boxed: few callbacks ask, and the others keep no room for it.
            None => {
                let asked = Box::pin(self.0.try_get_with((), ask(charges))).await;
                asked.map_err(|error| Error::clone(&error))?
            }
        };
        let needed = known.get(rail).into_iter().flatten();
        let present = |name: &String| Some((name.clone(), text(headers.get(name)?)));
        Ok(needed.filter_map(present).collect())
    }
}

/// A header's value as charges-svc gets it.
pub fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

async fn ask(charges: &Charges) -> Result<Arc<HashMap<String, Vec<String>>>, Error> {
    let answer = charges.read(
        backend::DEADLINE,
        ListRailsRequest {},
        |mut charges, request| async move {
            match charges.list_rails(request).await {
                // The previous version of charges-svc reads no headers by their names.
                Err(status) if status.code() == Code::Unimplemented => {
                    Ok(Response::new(ListRailsResponse::default()))
                }
                answer => answer,
            }
        },
    );
    let rails = answer.await?.rails.into_iter();
    let named = rails.map(|rail| (rail.name, rail.callback_headers));
    Ok(Arc::new(named.collect()))
}
