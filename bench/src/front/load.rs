//! A client that costs almost nothing: HTTP over TLS on persistent connections, one request at a time on each.
//!
//! It shares the machine with the server that it measures, so it does no more than find the end of a response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::report::Samples;

/// A server, and the header that every request to it has.
#[derive(Clone)]
pub struct Target {
    pub port: u16,
    pub tls: Arc<ClientConfig>,
    /// With its line break, or empty.
    pub header: String,
}

/// A configuration that trusts this certificate authority.
pub fn trusting(ca_file: &Path) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca_file)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

pub struct Caller {
    stream: StreamOwned<ClientConnection, TcpStream>,
    header: String,
    received: Vec<u8>,
}

impl Target {
    pub fn connect(&self) -> Result<Caller> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port))?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
        let tls = ClientConnection::new(self.tls.clone(), ServerName::try_from("localhost")?)?;
        let stream = StreamOwned::new(tls, tcp);
        Ok(Caller { stream, header: self.header.clone(), received: Vec::with_capacity(1 << 18) })
    }

    /// Responses per second to the same request, on this many connections.
    pub fn rate(&self, path: &str, connections: usize, time: Duration) -> Result<f64> {
        let mut callers = Vec::new();
        for _ in 0..connections {
            let mut caller = self.connect()?;
            caller.get(path)?;
            callers.push(caller);
        }
        let started = Instant::now();
        let done: Result<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = callers
                .iter_mut()
                .map(|caller| {
                    scope.spawn(move || -> Result<u64> {
                        let mut done = 0;
                        while started.elapsed() < time {
                            caller.get(path)?;
                            done += 1;
                        }
                        Ok(done)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("the thread does not panic"))
                .sum()
        });
        let done = done?;
        Ok(done as f64 / started.elapsed().as_secs_f64())
    }

    /// How long it takes to fetch all of these, one after the other.
    pub fn latency(&self, paths: &[String], runs: usize) -> Result<Samples> {
        let mut caller = self.connect()?;
        let mut samples = Samples::default();
        // The first run is slower, because caches and connections are cold.
        for run in 0..=runs {
            let started = Instant::now();
            for path in paths {
                caller.get(path)?;
            }
            if run > 0 {
                samples.add(started.elapsed());
            }
        }
        Ok(samples)
    }
}

impl Caller {
    /// The body of a successful response.
    pub fn get(&mut self, path: &str) -> Result<&[u8]> {
        let header = &self.header;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        self.say(&request)
    }

    /// The same for a PUT.
    pub fn put(&mut self, path: &str, body: &str) -> Result<&[u8]> {
        let (header, length) = (&self.header, body.len());
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.say(&request)
    }

    /// Requests a stream, and reads the head of its response.
    pub fn follow(&mut self, path: &str) -> Result<()> {
        let header = &self.header;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        let head = self.head(&request)?;
        check(std::str::from_utf8(&self.received[..head])?)
    }

    /// Appends what arrives next.
    pub fn read_on(&mut self, received: &mut Vec<u8>) -> Result<()> {
        more(&mut self.stream, received)
    }

    /// The same connection for another thread, which may close it.
    pub fn socket(&self) -> Result<TcpStream> {
        Ok(self.stream.sock.try_clone()?)
    }

    /// Sends a request, and reads until the end of the response's head, whose length is returned.
    fn head(&mut self, request: &str) -> Result<usize> {
        let Caller { stream, received, .. } = self;
        stream.write_all(request.as_bytes())?;
        received.clear();
        loop {
            more(stream, received)?;
            if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                return Ok(at + 4);
            }
        }
    }

    fn say(&mut self, request: &str) -> Result<&[u8]> {
        let head = self.head(request)?;
        let Caller { stream, received, .. } = self;
        let length = length(&received[..head])?;
        while received.len() < head + length {
            more(stream, received)?;
        }
        Ok(&received[head..])
    }
}

fn more(stream: &mut impl Read, received: &mut Vec<u8>) -> Result<()> {
    let mut piece = [0; 16 << 10];
    match stream.read(&mut piece)? {
        0 => bail!("the connection was closed in the middle of a response"),
        bytes => received.extend_from_slice(&piece[..bytes]),
    }
    Ok(())
}

fn check(head: &str) -> Result<()> {
    let is_good = ["HTTP/1.1 200 ", "HTTP/1.1 201 "].iter().any(|good| head.starts_with(good));
    anyhow::ensure!(is_good, "the request failed: {head}");
    Ok(())
}

fn length(head: &[u8]) -> Result<usize> {
    let head = std::str::from_utf8(head)?;
    check(head)?;
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(length.context("the response has no Content-Length")?.1.parse()?)
}
