//! A small HTTP server that limits each client by its address.
//!
//!     cargo run --release --example server -- --port 8080 --log access.log
//!
//! It answers `/`, `/health` and `/search?q=...` with 200 and any other path with 404. A client above its limit gets a 429
//! with `Retry-After`. The log has the combined format.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime};

use tollgate::sweep::SweepOptions;
use tollgate::{KeyedLimit, Limiter, Limits};

/// The connections that are served at once; others wait in the listener's queue.
const CONNECTIONS_MAX: usize = 64;
/// The most requests on one connection.
const REQUESTS_MAX: usize = 1_000;
/// The longest request line with its headers.
const HEAD_MAX_BYTES: u64 = 8_192;
/// The longest pause on a connection.
const IDLE: Duration = Duration::from_secs(5);

/// The parts of a request that the log and the response need.
struct Request {
    line: String,
    user_agent: String,
    keep_alive: bool,
}

struct Response {
    status: &'static str,
    /// One more header line with its end, or nothing.
    header: String,
    body: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (port, limits, log) = args()?;
    // Embedding Tollgate takes three steps: read the limits, get a handle for each, and spend on each request (`answer`).
    let limiter = Limiter::new(Limits::from_yaml_files(limits, None)?);
    let requests = limiter.limit("RequestsPerClient")?;
    // Drops full buckets, until the end of this scope.
    let _sweeper = limiter.start_sweeper(SweepOptions::default())?;

    let log = Mutex::new(File::options().create(true).append(true).open(log)?);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS_MAX {
            scope.spawn(|| {
                loop {
                    let Ok((peer, _)) = listener.accept() else { continue };
                    // An error is a client that broke off: the server goes on.
                    let _ = serve(&peer, &requests, &log);
                }
            });
        }
    });
    Ok(())
}

/// Answers the requests of one connection until it ends.
fn serve(peer: &TcpStream, requests: &KeyedLimit, log: &Mutex<File>) -> Result<(), Box<dyn Error>> {
    peer.set_read_timeout(Some(IDLE))?;
    peer.set_write_timeout(Some(IDLE))?;
    let client = peer.peer_addr()?.ip();
    let mut reader = BufReader::new(peer);
    for nth in 1..=REQUESTS_MAX {
        let Some(request) = Request::read(&mut reader)? else { break };
        let response = answer(&request, client, requests)?;
        let time = utc(SystemTime::now());
        let keep_alive = request.keep_alive && nth < REQUESTS_MAX;
        let (status, bytes) = (&response.status[..3], response.body.len());
        let Request { line, user_agent, .. } = &request;
        let entry =
            format!("{client} - - [{time}] \"{line}\" {status} {bytes} \"-\" \"{user_agent}\"\n");
        // One write for each line, so that the log has whole lines whenever the server is stopped.
        log.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(entry.as_bytes())?;

        let Response { status, header, body } = response;
        let close = if keep_alive { "" } else { "Connection: close\r\n" };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\n{header}{close}\r\n");
        (&mut &*peer).write_all((head + &body).as_bytes())?;
        if !keep_alive {
            break;
        }
    }
    Ok(())
}

/// Spends one unit of the client's bucket, and answers the request if the spend is allowed.
fn answer(
    request: &Request,
    client: IpAddr,
    requests: &KeyedLimit,
) -> Result<Response, tollgate::Error> {
    let response = |status, body: &str| Response { status, header: "".into(), body: body.into() };
    let decision = requests.spend(client, 1)?;
    if !decision.allowed() {
        // Rounded up, so that a client that waits that long is allowed.
        let seconds = decision.retry_in().as_nanos().div_ceil(1_000_000_000).max(1);
        let header = format!("Retry-After: {seconds}\r\n");
        return Ok(Response { header, ..response("429 Too Many Requests", "too many requests\n") });
    }
    let mut words = request.line.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    Ok(match target.split_once('?').unwrap_or((target, "")) {
        _ if method != Some("GET") => response("405 Method Not Allowed", "only GET\n"),
        ("/", _) => response("200 OK", "a server that tollgate limits\n"),
        ("/health", _) => response("200 OK", "ok\n"),
        ("/search", query) => response("200 OK", &format!("nothing found for {query:?}\n")),
        _ => response("404 Not Found", "not found\n"),
    })
}

impl Request {
    /// Reads the next request. `None` if the connection ends, or if the bytes are no HTTP request.
    fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
        let mut head = reader.take(HEAD_MAX_BYTES);
        let Some(line) = read_line(&mut head)? else { return Ok(None) };
        if line.split(' ').count() != 3 || !line.contains(" HTTP/1.") {
            return Ok(None);
        }
        // Any other request may have a body, which this server does not read: it is the connection's last.
        let keep_alive = line.starts_with("GET ") && line.ends_with("1.1");
        let mut request = Request { line, user_agent: "-".into(), keep_alive };
        loop {
            let Some(line) = read_line(&mut head)? else { return Ok(None) };
            let Some((name, value)) = line.split_once(':') else {
                return Ok(line.is_empty().then_some(request));
            };
            let value = value.trim();
            match &*name.to_ascii_lowercase() {
                "user-agent" => request.user_agent = value.into(),
                "connection" => request.keep_alive &= !value.eq_ignore_ascii_case("close"),
                "content-length" | "transfer-encoding" => request.keep_alive = false,
                _ => {}
            }
        }
    }
}

/// Formats a time for the log: `20/Nov/2025:11:40:28 +0000`.
fn utc(time: SystemTime) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, second) = (since_epoch / 86_400, since_epoch % 86_400);
    let leap_every = |year: u64| if year.is_multiple_of(100) { 400 } else { 4 };
    let leap = |year: u64| u64::from(year.is_multiple_of(leap_every(year)));
    let days_in = |year, month| DAYS[month] + if month == 1 { leap(year) } else { 0 };
    let (mut year, mut month) = (1970, 0);
    while days >= days_in(year, month) {
        days -= days_in(year, month);
        (year, month) = if month == 11 { (year + 1, 0) } else { (year, month + 1) };
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} +0000", days + 1, MONTHS[month])
}

/// Reads a line up to CRLF and escapes it for the log. `None` if the connection ends, or the head is too long.
fn read_line(head: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    head.read_until(b'\n', &mut bytes)?;
    let Some(bytes) = bytes.strip_suffix(b"\n") else { return Ok(None) };
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let mut line = String::new();
    for &byte in bytes {
        match byte {
            // Like Apache: no byte of a client can end a field or a line of the log.
            b'"' | b'\\' | 0..32 | 127.. => line += &format!("\\x{byte:02x}"),
            _ => line.push(char::from(byte)),
        }
    }
    Ok(Some(line))
}

/// The port, the file of limits, and the log file.
fn args() -> Result<(u16, PathBuf, PathBuf), String> {
    let mut limits = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/limits.yml").into();
    let (mut port, mut log) = (8080, "access.log".into());
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        match &*name {
            "--port" => port = value.parse().map_err(|_| format!("{value} is no port"))?,
            "--limits" => limits = value.into(),
            "--log" => log = value.into(),
            _ => return Err(format!("unknown {name}: --port, --limits, --log are known")),
        }
    }
    Ok((port, limits, log))
}
