//! Which hosts' connections are kept open for the next attempt.
//!
//! A kept connection leads to an address that passed the guard when it was made. The name may lead
//! elsewhere by now, and the receiver may be about to close the connection, so none is kept for long;
//! and only so many hosts' are.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long an idle connection is kept. Receivers keep theirs for longer, the most hurried for 2 s: a
/// request on a connection that is just being closed costs an attempt.
pub const IDLE_MAX: Duration = Duration::from_secs(1);

/// How long the connections to a host are used, after which they are all made anew.
const USED_MAX: Duration = Duration::from_secs(20);

/// Most hosts whose connections are kept at the same time. An idle one with TLS takes about 30 kB.
const HOSTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct KeptHosts(Mutex<HashMap<String, KeptHost>>);

#[derive(Debug)]
struct KeptHost {
    since: Instant,
    used_at: Instant,
}

impl KeptHosts {
    /// Whether the connection of a request that goes to this host now may be kept.
    pub fn keeps(&self, host: &str) -> bool {
        let now = Instant::now();
        // No code panics while it holds the lock.
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = hosts.get_mut(host) {
            let is_idle = now - kept.used_at >= IDLE_MAX;
            // For the last of this time every request has closed its connection, and what was not
            // used has been closed, too.
            if is_idle || now - kept.since >= USED_MAX + IDLE_MAX {
                kept.since = now;
            }
            kept.used_at = now;
            return now - kept.since < USED_MAX;
        }
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, kept| now - kept.used_at < IDLE_MAX);
        }
        let has_room = hosts.len() < HOSTS_MAX;
        if has_room {
            let (since, used_at) = (now, now);
            hosts.insert(host.to_owned(), KeptHost { since, used_at });
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hosts_connections_are_made_anew_after_a_while() {
        let hosts = KeptHosts::default();
        let mut kept = Vec::new();
        for _ in 0..45 {
            kept.push(hosts.keeps("https://example.com"));
            tokio::time::advance(IDLE_MAX / 2).await;
        }
        // For 20 s yes, for one second no, and then again.
        let expected = [vec![true; 40], vec![false; 2], vec![true; 3]].concat();
        assert_eq!(kept, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_hosts_have_kept_connections() {
        let hosts = KeptHosts::default();
        let all = (0..HOSTS_MAX).all(|number| hosts.keeps(&number.to_string()));
        assert!(all);
        assert!(!hosts.keeps("one more"));
        assert!(hosts.keeps("0"));
        tokio::time::advance(IDLE_MAX).await;
        assert!(hosts.keeps("one more"));
    }
}
