//! A client that sends exactly the bytes it is told to, and reads one answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// A request under construction.
pub struct Request {
    address: SocketAddr,
    source: IpAddr,
    head: String,
    body: Vec<u8>,
}

impl Request {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n");
        Self {
            address,
            source: Ipv4Addr::LOCALHOST.into(),
            head,
            body: Vec::new(),
        }
    }

    /// Sends the request from another address of this machine.
    pub fn from(mut self, source: &str) -> Self {
        self.source = source.parse().expect("an address");
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// A body of any content type, with its length.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.header("content-length", &length)
    }

    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    pub async fn send(self) -> Answer {
        let mut bytes = self.head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        let stream = connect(&self.source.to_string(), self.address).await;
        send(stream, &bytes).await
    }
}

/// A connection from an address of this machine.
pub async fn connect(source: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let source: IpAddr = source.parse().expect("an address");
    let bound = socket.bind(SocketAddr::new(source, 0));
    bound.expect("an address of this machine");
    socket.connect(address).await.expect("the gateway listens")
}

/// Sends bytes and reads the answer to its end.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Answer {
    let stream = TcpStream::connect(address).await;
    send(stream.expect("the gateway listens"), bytes).await
}

async fn send(mut stream: TcpStream, bytes: &[u8]) -> Answer {
    // A server that has already answered may accept no more.
    if stream.write_all(bytes).await.is_ok() {
        stream.flush().await.ok();
    }
    read(&mut stream).await
}

/// Reads until the server closes; what it sent before a reset still counts.
pub async fn read(stream: &mut TcpStream) -> Answer {
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk).await {
        answer.extend_from_slice(&chunk[..length]);
    }
    Answer::parse(&answer)
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        Self {
            status: status
                .and_then(|status| status.parse().ok())
                .expect("a status"),
            headers,
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// The only header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice");
        value
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON in answer {}: {:?}", self.status, self.text()))
    }

    /// The names in the JSON object, in their order.
    pub fn names(&self) -> Vec<String> {
        let body = self.json();
        body.as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    }

    /// Checks an error answer: status, code, form, and the headers that every answer carries.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: &str) -> &Self {
        let body = self.json();
        assert_eq!(
            (self.status, body["code"].as_str()),
            (status, Some(code)),
            "{body}"
        );
        assert!(body["error"].as_str().is_some_and(|text| !text.is_empty()));
        assert_eq!(body["request_id"].as_str(), self.header("x-request-id"));
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        self
    }

    /// The fields that were refused, and why.
    #[track_caller]
    pub fn refused_fields(&self) -> Vec<(String, String)> {
        self.assert_error(400, "VALIDATION_ERROR");
        let body = self.json();
        let fields = body["fields"].as_array().expect("fields").clone();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        fields
            .iter()
            .inspect(|field| assert!(!text(&field["message"]).is_empty()))
            .map(|field| (text(&field["field"]), text(&field["code"])))
            .collect()
    }
}
